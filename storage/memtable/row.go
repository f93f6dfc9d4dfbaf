package memtable

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/link"
	"tiney/storage/table"
)

// row is a row as it was written last. It is never changed, only replaced.
type row struct {
	partition, key string
	etag           table.ETag
	timestamp      string
	properties     []property // in the order of their names
}

// property is a property of a row.
type property struct {
	name  string
	value string // as JSON, as it was sent
	kind  string // its type, such as "Edm.Int64"; "" where the value shows it
}

// The service's own limits.
const (
	maxProperties = 252
	maxValue      = 64 << 10 // bytes of a text or a binary
	maxRow        = 1 << 20  // bytes; a character takes two
	maxBatch      = 4 << 20
)

const odataType = "@odata.type"

// refused returns the error of a request that is not as it has to be.
func refused(code string) error { return fmt.Errorf("%w (400 %s)", link.ErrUnavailable, code) }

// decode reads a row as it is sent.
func decode(data []byte) (*row, error) {
	text := string(data) // the whole row is a part of it
	r := &row{properties: make([]property, 0, strings.Count(text, `":`))}
	keys := 0
	kinds := make([]property, 0, strings.Count(text, odataType))
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowInvalidUTF8(true),
		jsontext.AllowDuplicateNames(true))
	raw := func() (string, error) {
		value, err := d.ReadValue()
		end := int(d.InputOffset())
		return text[end-len(value) : end], err
	}
	if start, err := d.ReadToken(); err != nil || start.Kind() != '{' {
		return nil, refused("InvalidInput")
	}
	for d.PeekKind() == '"' {
		name, err := raw()
		if err != nil {
			return nil, refused("InvalidInput")
		}
		p := property{name: unquote(name)}
		if p.value, err = raw(); err != nil || p.value[0] == '{' || p.value[0] == '[' {
			return nil, refused("InvalidInput")
		}
		switch of, isKind := strings.CutSuffix(p.name, odataType); {
		case p.value == "null", of == "Timestamp", strings.HasPrefix(p.name, "odata."):
		case isKind:
			kinds = append(kinds, property{name: of, kind: unquote(p.value)})
		case p.name == "PartitionKey" && p.value[0] == '"':
			r.partition, keys = unquote(p.value), keys+1
		case p.name == "RowKey" && p.value[0] == '"':
			r.key, keys = unquote(p.value), keys+1
		default:
			r.properties = append(r.properties, p)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, refused("InvalidInput")
	}
	if keys != 2 {
		return nil, refused("PropertiesNeedValue")
	}
	slices.SortFunc(r.properties, byName)
	for _, k := range kinds {
		if i, ok := slices.BinarySearchFunc(r.properties, k, byName); ok {
			r.properties[i].kind = k.kind
		}
	}
	return r, r.valid()
}

func byName(a, b property) int { return cmp.Compare(a.name, b.name) }

// unquote returns what a string of valid JSON says.
func unquote(text string) string {
	if !strings.Contains(text, `\`) {
		return strings.Trim(text, `"`)
	}
	said, _ := jsontext.AppendUnquote(nil, text) // half of an emoji becomes U+FFFD
	return string(said)
}

// valid checks a row that was sent, and leaves out types that the values themselves show.
func (r *row) valid() error {
	for _, key := range []string{r.partition, r.key} {
		if len(key) > table.MaxKey || strings.ContainsFunc(key, forbidden) {
			return refused("OutOfRangeInput")
		}
	}
	for i := range r.properties {
		if i > 0 && r.properties[i].name == r.properties[i-1].name {
			return refused("InvalidInput")
		}
		if err := r.properties[i].valid(); err != nil {
			return err
		}
	}
	return nil
}

// forbidden reports whether no key may have a character.
func forbidden(c rune) bool {
	return strings.ContainsRune(`/\#?`, c) || c < 0x20 || 0x7f <= c && c <= 0x9f
}

// notInNames reports whether no property's name may have a character.
func notInNames(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) }

func (p *property) valid() error {
	if p.name == "" || strings.ContainsFunc(p.name, notInNames) {
		return refused("PropertyNameInvalid")
	}
	text := p.value[0] == '"'
	fits := true
	switch p.kind {
	case "Edm.Int64":
		_, err := strconv.ParseInt(strings.Trim(p.value, `"`), 10, 64)
		fits = text && err == nil
	case "Edm.DateTime":
		at, err := time.Parse(time.RFC3339, strings.Trim(p.value, `"`))
		fits = text && err == nil && at.UTC().Year() > 1600
	case "Edm.Binary":
		_, err := base64.StdEncoding.DecodeString(unquote(p.value))
		fits = text && err == nil
	case "Edm.Guid":
		fits = text
	case "Edm.Double": // "NaN" is one too
		if !text {
			p.kind = ""
			if !strings.ContainsAny(p.value, ".eE") {
				p.value += ".0"
			}
		}
	case "", "Edm.String", "Edm.Boolean", "Edm.Int32":
		p.kind = ""
	default:
		fits = false
	}
	if !fits {
		return refused("InvalidInput")
	}
	if p.size() > maxValue {
		return refused("PropertyValueTooLarge")
	}
	return nil
}

// size returns how many bytes a value takes: a character of a text takes two in UTF-16, or four.
func (p *property) size() (n int) {
	switch {
	case p.kind == "Edm.Binary":
		return base64.StdEncoding.DecodedLen(len(p.value)-2) - strings.Count(p.value, "=")
	case p.kind != "" || p.value[0] != '"':
		return 8
	}
	for i := 1; i < len(p.value)-1; i++ {
		switch c := p.value[i]; {
		case c == '\\' && p.value[i+1] == 'u':
			i += 5
		case c == '\\':
			i++
		case c&0xc0 == 0x80: // not the first byte of a character
			continue
		case c >= 0xf0:
			n += 2
		}
		n += 2
	}
	return n
}

// small checks the limits of a row as it will be stored.
func (r *row) small() error {
	if len(r.properties) > maxProperties {
		return refused("TooManyProperties")
	}
	size := 2 * (len(r.partition) + len(r.key))
	for i := range r.properties {
		size += 8 + 2*len(r.properties[i].name) + r.properties[i].size()
	}
	if size > maxRow {
		return refused("EntityTooLarge")
	}
	return nil
}

// merge adds the properties of a row that the new one lacks.
func (r *row) merge(old *row) {
	all := slices.Concat(r.properties, old.properties)
	slices.SortStableFunc(all, byName)
	r.properties = slices.CompactFunc(all, func(a, b property) bool { return a.name == b.name })
}

// The ways in which the service sends rows.
type format int

const (
	plain  format = iota // without types
	single               // a row that was read alone: with types and its ETag
	full                 // the same and the links of its protocol
)

// encode returns a row of a table as the service sends it: all properties, or some of them.
func (r *row) encode(in string, properties []string, f format) []byte {
	b := make([]byte, 0, 1024)
	add := func(name, value string) {
		b = append(append(append(append(b, '"'), name...), `":`...), value...)
		b = append(b, ',')
	}
	text := func(name, value string) {
		b = append(append(append(b, '"'), name...), `":`...)
		b, _ = jsontext.AppendQuote(b, value) // what was decoded can be encoded
		b = append(b, ',')
	}
	b = append(b, '{')
	switch f {
	case single:
		text("odata.metadata", "memory/$metadata#"+in+"/@Element")
		text("odata.etag", string(r.etag))
	case full:
		text("odata.type", "memory."+in)
		text("odata.id", "memory/"+in+"("+r.partition+","+r.key+")")
		text("odata.etag", string(r.etag))
	}
	write := func(p property) {
		if p.kind != "" && f != plain {
			text(p.name+odataType, p.kind)
		}
		add(p.name, p.value)
	}
	some := func(name string) {
		switch name {
		case "PartitionKey":
			text(name, r.partition)
		case "RowKey":
			text(name, r.key)
		case "Timestamp":
			if f == full {
				text(name+odataType, "Edm.DateTime")
			}
			text(name, r.timestamp)
		default:
			if i, ok := slices.BinarySearchFunc(r.properties, property{name: name}, byName); ok {
				write(r.properties[i])
			} else {
				add(name, "null")
			}
		}
	}
	for _, name := range properties {
		some(name)
	}
	if len(properties) == 0 {
		some("PartitionKey")
		some("RowKey")
		some("Timestamp")
		for _, p := range r.properties {
			write(p)
		}
	}
	b[len(b)-1] = '}' // there is always a comma before it
	return b
}

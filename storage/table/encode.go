package table

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The types of properties on the wire.
const (
	edmDateTime = "Edm.DateTime"
	EdmInt64    = "Edm.Int64"
	EdmBinary   = "Edm.Binary"
)

// DateTime returns a time and its type for the wire.
func DateTime(t time.Time) (time.Time, string) {
	if t.IsZero() {
		return time.Time{}, ""
	}
	return t.UTC(), edmDateTime
}

// Encode returns a row as JSON.
func Encode(entity any) []byte {
	// Properties of other programs may have invalid UTF-8.
	data, err := json.Marshal(entity, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		// Strings, booleans and times always encode, except for years past 9999, which the rules
		// exclude.
		panic(err)
	}
	return data
}

// Beyond returns the text that sorts right after every key that begins with prefix. The prefix must
// end in "|".
func Beyond(prefix string) string { return strings.TrimSuffix(prefix, "|") + "}" }

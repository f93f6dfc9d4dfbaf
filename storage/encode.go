package storage

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The types of properties on the wire.
const (
	edmDateTime = "Edm.DateTime"
	edmInt64    = "Edm.Int64"
	edmBinary   = "Edm.Binary"
)

// dateTime returns a time and its type for the wire.
func dateTime(t time.Time) (time.Time, string) {
	if t.IsZero() {
		return time.Time{}, ""
	}
	return t.UTC(), edmDateTime
}

func encode(entity any) []byte {
	data, err := json.Marshal(entity, jsontext.AllowInvalidUTF8(true)) // of other programs
	if err != nil {
		// strings, booleans and times always encode, but for years past 9999, which the rules
		// exclude
		panic(err)
	}
	return data
}

// beyond returns what sorts right after every key that begins with a prefix, which ends in "|".
func beyond(prefix string) string { return strings.TrimSuffix(prefix, "|") + "}" }

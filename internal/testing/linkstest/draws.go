package linkstest

import (
	"crypto/rand"
	"io"
	"strings"
)

// Draws returns a source of randomness. It has the given bytes for callers that draw six at a time,
// as for an alias, and random bytes for all others. It fails when the given bytes are used up.
func Draws(aliases ...string) io.Reader {
	return draws{strings.NewReader(strings.Join(aliases, ""))}
}

type draws struct{ aliases *strings.Reader }

func (d draws) Read(p []byte) (int, error) {
	if len(p) == 6 {
		return d.aliases.Read(p)
	}
	return rand.Read(p)
}

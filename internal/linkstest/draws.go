package linkstest

import (
	"crypto/rand"
	"io"
	"strings"
)

// Draws returns a source of randomness that has the given bytes for whoever draws six at a time, as
// for an alias, and random ones for all others. Past its end it fails.
func Draws(aliases ...string) io.Reader {
	return draws{strings.NewReader(strings.Join(aliases,
		""))}
}

type draws struct{ aliases *strings.Reader }

func (d draws) Read(p []byte) (int, error) {
	if len(p) == 6 {
		return d.aliases.Read(p)
	}
	return rand.Read(p)
}

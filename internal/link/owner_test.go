package link_test

import (
	"strings"
	"testing"

	"tiney/internal/link"
)

func TestCheckOwner(t *testing.T) {
	for _, owner := range []string{"a", "*", " a b ", "login.example:8443|group|/Büro 東京/№ 1",
		strings.Repeat("𝔘", 400)} {
		if link.CheckOwner(owner) != nil {
			t.Errorf("%q is refused", owner)
		}
	}
	for _, owner := range []string{"", strings.Repeat("a", 401), strings.Repeat("𝔘", 401), "a\n",
		"a\x00", "a\u00a0b", "a\u200b", "a\u202eb", "a\xff", "a\ufffd", "\x7f"} {
		if link.CheckOwner(owner) == nil {
			t.Errorf("%q is accepted", owner)
		}
	}
}

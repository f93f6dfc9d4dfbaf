package access_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"io"
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"tiney/internal/access"
)

// independentChecksum is another implementation of the checksum. The base62 of math/big has the
// lower-case letters first.
func independentChecksum(s string) string {
	sum := big.NewInt(int64(crc32.ChecksumIEEE([]byte(s)))).Text(62)
	swapped := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return r
	}, sum)
	return strings.Repeat("0", 6-len(swapped)) + swapped
}

func TestNewKey(t *testing.T) {
	form := regexp.MustCompile(`^tny_[0-9A-Za-z]{49}$`)
	seen := map[string]bool{}
	for range 1000 {
		key, err := access.NewKey(rand.Reader)
		if err != nil || !form.MatchString(key) || seen[key] {
			t.Fatalf("made %q, %v", key, err)
		}
		seen[key] = true
		if want := independentChecksum(key[:47]); key[47:] != want {
			t.Fatalf("the checksum of %s is %s", key, want)
		}
		sum := sha256.Sum256([]byte(key))
		if hash, ok := access.ParseKey(key); !ok || hash != hex.EncodeToString(sum[:]) {
			t.Fatalf("ParseKey(%s) = %s, %t", key, hash, ok)
		}
	}
	if _, err := access.NewKey(iotest.ErrReader(io.ErrUnexpectedEOF)); err == nil {
		t.Error("made a key without randomness")
	}
}

// Random bytes that would make some characters more likely than others are not used.
func TestSecretsAreFair(t *testing.T) {
	random := io.MultiReader(bytes.NewReader(bytes.Repeat([]byte{248, 255, 61}, 43)),
		bytes.NewReader(make([]byte, 43)))
	if token, err := access.NewClaimToken(random); err != nil || token != "tnc_"+
		strings.Repeat("z", 43) {
		t.Errorf("drew %q, %v", token, err)
	}
}

func TestParseKey(t *testing.T) {
	// The key is fixed, because every later version has to find the keys that are stored today.
	const key = "tny_0000000000000000000000000000000000000000000"
	good := key + independentChecksum(key)
	for name, c := range map[string]struct {
		key string
		ok  bool
	}{
		"a key":                    {good, true},
		"none":                     {"", false},
		"its prefix alone":         {"tny_", false},
		"one character less":       {good[:52], false},
		"one more":                 {good + "0", false},
		"a typo":                   {good[:10] + "1" + good[11:], false},
		"two characters exchanged": {good[:47] + good[48:49] + good[47:48] + good[49:], false},
		"another prefix":           {"tnc_" + good[4:], false},
		"the prefix in upper case": {"TNY_" + good[4:], false},
		"a character that is not of it": {strings.Replace(key, "_0", "_-", 1) +
			independentChecksum(strings.Replace(key, "_0", "_-", 1)), false},
		"white space around it": {" " + good[:52], false},
		"a claim token":         {"tnc_" + key[4:], false},
	} {
		hash, ok := access.ParseKey(c.key)
		if ok != c.ok || ok != (hash != "") {
			t.Errorf("%s: ParseKey(%q) = %q, %t", name, c.key, hash, ok)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(new(keys).add(f, access.Key{}))
	f.Add("tny_")
	f.Fuzz(func(t *testing.T, s string) {
		hash, ok := access.ParseKey(s)
		if !ok && hash != "" {
			t.Errorf("%q is no key, and its hash is %s", s, hash)
		}
		if ok && (hash != access.Hash(s) ||
			!regexp.MustCompile(`^tny_[0-9A-Za-z]{49}$`).MatchString(s) ||
			s[47:] != independentChecksum(s[:47])) {
			t.Errorf("%q counts as a key", s)
		}
	})
}

func TestClaimHash(t *testing.T) {
	token, err := access.NewClaimToken(rand.Reader)
	if err != nil || !regexp.MustCompile(`^tnc_[0-9A-Za-z]{43}$`).MatchString(token) {
		t.Fatalf("made %q, %v", token, err)
	}
	if hash, ok := access.ClaimHash(token); !ok || hash != access.Hash(token) {
		t.Errorf("ClaimHash(%s) = %s, %t", token, hash, ok)
	}
	for _, s := range []string{"", "tnc_", token[:46], token + "0", "tny_" + token[4:], token[:46] +
		"-", token[:46] + "é"} {
		if hash, ok := access.ClaimHash(s); ok || hash != "" {
			t.Errorf("%q counts as a claim token", s)
		}
	}
}

func TestKey(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ends    time.Time
		expired bool
	}{
		"never":     {time.Time{}, false},
		"later":     {now.Add(time.Second), false},
		"now":       {now, true},
		"long over": {now.Add(-time.Hour), true},
	} {
		if got := (access.Key{ExpiresAt: c.ends}).Expired(now); got != c.expired {
			t.Errorf("%s: expired %t", name, got)
		}
	}
	if id := (access.Key{Hash: access.Hash("x")}).ID(); id != access.Hash("x")[:16] {
		t.Errorf("the ID is %q", id)
	}
	if id := (access.Key{}).ID(); id != "" {
		t.Errorf("the ID of no key is %q", id)
	}
}

// A key acts for who made it, or for whom the maker's own key acts. A key that an admin made acts
// for its owner.
func TestKeysActForTheirMakers(t *testing.T) {
	const ada, group, other = "login.example|ada", "login.example|group|ops", "somebody"
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		maker access.Caller
		owner string
		want  string
	}{
		"one's own":              {access.Caller{Owner: ada, Groups: []string{group}}, ada, ada},
		"a group's":              {access.Caller{Owner: ada, Groups: []string{group}}, group, ada},
		"by a key of a group":    {access.Caller{Owner: group, ActsFor: ada}, group, ada},
		"by a key of a person":   {access.Caller{Owner: other, ActsFor: ada}, other, ada},
		"by an old key":          {access.Caller{Owner: group}, group, group},
		"by the admin key":       {access.Caller{Owner: "admin", Admin: true}, group, ""},
		"by an admin":            {access.Caller{Owner: ada, Admin: true}, other, ""},
		"by an admin for itself": {access.Caller{Owner: ada, Admin: true}, ada, ""},
		"by a member who is an admin": {access.Caller{Owner: ada, Admin: true,
			Groups: []string{group}}, group, ""},
		"by the command": {access.Caller{}, group, ""},
	} {
		secret, k, err := access.MakeKey(rand.Reader, c.maker, c.owner, "x", nil, now)
		if err != nil || k.ActsFor != c.want || k.CreatedBy != c.maker.Owner {
			t.Errorf("%s: made %+v, %v, want one that acts for %q", name, k, err, c.want)
		}
		a := access.New(access.Config{}, oneKey(k), func() time.Time { return now })
		got, err := a.Caller(t.Context(), http.Header{"X-Api-Key": {secret}})
		if want := (access.Client{Owner: c.owner, ActsFor: c.want}); err != nil ||
			got.Client() != want {
			t.Errorf("%s: got %+v, %v, which counts as %+v", name, got, err, got.Client())
		}
	}
}

// oneKey are Keys with this key only.
type oneKey access.Key

func (k oneKey) Key(context.Context, string) (access.Key, error) { return access.Key(k), nil }

// A group's key ends within a year, whoever makes it.
func TestKeysOfGroups(t *testing.T) {
	const ada, group = "login.example|ada", "login.example|group|ops"
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := func(days int) *time.Time { end := now.AddDate(0, 0, days); return &end }
	member := access.Caller{Owner: ada, Groups: []string{group}}
	for name, c := range map[string]struct {
		maker access.Caller
		owner string
		ends  *time.Time
		want  *time.Time // nil: never
	}{
		"a member's":        {member, ada, nil, nil},
		"a member's, later": {member, ada, at(1000), at(1000)},
		"without an end":    {member, group, nil, at(365)},
		"earlier":           {member, group, at(364), at(364)},
		"in a year":         {member, group, at(365), at(365)},
		"later":             {member, group, at(366), at(365)},
		"by an admin": {access.Caller{Owner: "admin", Admin: true}, group, nil,
			at(365)},
		"by the command":     {access.Caller{}, group, at(366), at(365)},
		"by the group's key": {access.Caller{Owner: group, KeyEnds: *at(9)}, group, nil, at(9)},
		"by a key that lasts longer": {access.Caller{Owner: group, KeyEnds: *at(999)}, group, nil,
			at(365)},
	} {
		secret, k, err := access.MakeKey(rand.Reader, c.maker, c.owner, "x", c.ends, now)
		if c.want == nil {
			c.want = new(time.Time)
		}
		if err != nil || k.Hash != access.Hash(secret) || k.Owner != c.owner ||
			k.CreatedBy != c.maker.Owner || !k.ExpiresAt.Equal(*c.want) {
			t.Errorf("%s: got %+v, %v, want the end %v", name, k, err, c.want)
		}
	}
	// Members name their own groups as they are, others by the rules of names.
	const odd = "login.example|group| x "
	for maker, ok := range map[*access.Caller]bool{{Owner: ada, Groups: []string{odd}}: true,
		&member: false, {Owner: "admin", Admin: true}: false, {}: false} {
		if _, _, err := access.MakeKey(rand.Reader, *maker, odd, "x", nil, now); (err == nil) != ok {
			t.Errorf("%+v makes a key for %q: %v", maker, odd, err)
		}
	}
}

package access_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/access"
	"tiney/internal/telemetry"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

// signInGroups returns an authenticator that takes groups from a claim, and the reasons for which
// it has left out some.
func signInGroups(t testing.TB, p *oidcprovider.Provider, claim string, clock *testutil.Clock) (
	*access.Authenticator, *[]string) {
	t.Helper()
	var lost []string
	return signInWith(t, access.OIDCConfig{Issuer: p.Issuer(), ClientID: oidcprovider.ClientID,
		AdminRole: "admin", GroupsClaim: claim,
		Lost: func(message, reason string) {
			if message != telemetry.LogGroupsLost {
				reason = message + reason
			}
			lost = append(lost, reason)
		}}, clock), &lost
}

// names returns n groups of at least so many characters.
func names(n, characters int) (groups []string) {
	for i := range n {
		groups = append(groups, fmt.Sprintf("%0*d", characters, i))
	}
	return groups
}

// elsewhere are the claims with which Entra names another source of a claim.
func elsewhere(claim string) claims {
	return claims{"_claim_names": members{claim: "src1"}, "_claim_sources": members{"src1": members{
		"endpoint": "https://graph.windows.net/tenant/users/1/getMemberObjects"}}}
}

func with(c claims, name string, value any) claims {
	c = maps.Clone(c)
	c[name] = value
	return c
}

func TestGroups(t *testing.T) {
	t.Parallel()
	p, clock := oidcprovider.Start(t, oidcprovider.Options{Alg: "ES256"}), testutil.NewClock()
	longest := strings.Repeat("ß", 128)
	const inMap = "in a map, one is not an object, true or false"
	const many, none, text, length = "there are more than 200",
		"the token has none, because they are too many", "one is not a string",
		"one does not have 1 to 128 printable characters"
	for name, test := range map[string]struct {
		claims claims
		want   []string
		lost   []string // why groups are left out
	}{
		"no claim":     {claims{}, nil, nil},
		"an empty one": {claims{"groups": []string{}}, nil, nil},
		"two": {claims{"groups": []string{"/Vertrieb/Süd 東京", "a|b"}},
			[]string{"/Vertrieb/Süd 東京", "a|b"}, nil},
		"one text":    {claims{"groups": "sales ops"}, []string{"sales ops"}, nil},
		"blanks":      {claims{"groups": " a "}, []string{" a "}, nil},
		"the longest": {claims{"groups": []string{longest}}, []string{longest}, nil},
		"too long": {claims{"groups": []string{"a", longest + "x", strings.Repeat("y", 129), "b"}},
			[]string{"a", "b"}, []string{length}},
		"unprintable": {claims{"groups": []string{"", "a\n", "a\u202e", "b"}}, []string{"b"},
			[]string{length}},
		"no texts": {claims{"groups": []any{1, "a", nil, []string{"b"}, members{"c": "d"}}},
			[]string{"a"}, []string{text}},
		"a number":       {claims{"groups": 1}, nil, []string{text}},
		"true":           {claims{"groups": true}, nil, []string{text}},
		"a list in one":  {claims{"groups": [][]string{{"a"}}}, nil, []string{text}},
		"maps in a list": {claims{"groups": []members{{"a": members{}}}}, nil, []string{text}},
		"a map, by Zitadel": {claims{"groups": members{"ops": members{"1": "org.example", "2": "x"},
			"dev": members{"1": "org.example"}}}, []string{"dev", "ops"}, nil},
		"a map of nothing":    {claims{"groups": members{}}, nil, nil},
		"a map of empty maps": {claims{"groups": members{"a": members{}}}, []string{"a"}, nil},
		"a map of true": {claims{"groups": members{"a": true, "b": false}}, []string{"a"},
			nil},
		"a map of null": {claims{"groups": members{"a": nil, "b": members{}}}, []string{"b"},
			nil},
		"a map of texts": {claims{"groups": members{"id": "1", "name": "x"}}, nil,
			[]string{inMap}},
		"a map of lists": {claims{"groups": members{"roles": []string{"x"}}}, nil,
			[]string{inMap}},
		"a map of numbers": {claims{"groups": members{"a": 1, "b": members{}}}, []string{"b"},
			[]string{inMap}},
		"names that are none": {claims{"groups": members{"": members{}, "a\n": members{},
			longest + "x": true, "b": true}}, []string{"b"}, []string{length}},
		"twice":          {claims{"groups": []string{"a", "b", "a", "A"}}, []string{"a", "b", "A"}, nil},
		"200":            {claims{"groups": names(200, 36)}, names(200, 36), nil},
		"201":            {claims{"groups": names(201, 36)}, names(200, 36), []string{many}},
		"200, one twice": {claims{"groups": append(names(200, 3), "000")}, names(200, 3), nil},
		"all at once": {claims{"groups": append([]any{1, "a", "a", longest + "x"}, 2, 3)},
			[]string{"a"}, []string{text, length}},

		"elsewhere": {elsewhere("groups"), nil, []string{none}},
		"here and elsewhere": {with(elsewhere("groups"), "groups", []string{"a"}), nil,
			[]string{none}},
		"another claim elsewhere": {with(elsewhere("roles"), "groups", []string{"a"}),
			[]string{"a"}, nil},
		"too many, by the implicit flow": {claims{"hasgroups": true}, nil, []string{none}},
		"the same as a text": {claims{"hasgroups": "true", "groups": []string{"a"}}, nil,
			[]string{none}},
		"not too many":        {claims{"hasgroups": false, "groups": "a"}, []string{"a"}, nil},
		"the same, as a text": {claims{"hasgroups": "false", "groups": "a"}, []string{"a"}, nil},
	} {
		a, lost := signInGroups(t, p, "groups", clock)
		var want []string
		for _, group := range test.want {
			want = append(want, owner(p, "group|"+group))
		}
		token := p.SignInWith(t, "ada", test.claims)
		for range 2 { // each reason is given once
			got, err := bearer(t, a, token)
			if err != nil || got.Owner != owner(p, "ada") || got.Admin ||
				!slices.Equal(got.Groups, want) {
				t.Errorf("%s: got %+v, %v, want %q", name, got, err, want)
			}
			if !slices.Equal(*lost, test.lost) {
				t.Errorf("%s: %q are left out, want %q", name, *lost, test.lost)
			}
			for _, group := range got.Groups {
				if !access.IsGroup(group) || !got.Is(group) {
					t.Errorf("%s: %q is no group of the caller", name, group)
				}
			}
			if access.IsGroup(got.Owner) || !got.Is(got.Owner) || got.Is("") {
				t.Errorf("%s: %q is a group", name, got.Owner)
			}
		}
	}
}

func TestClaimsThatAreGroups(t *testing.T) {
	t.Parallel()
	p, clock := oidcprovider.Start(t, oidcprovider.Options{Alg: "ES256"}), testutil.NewClock()
	token := func(c claims) string {
		all := p.Claims("ada")
		maps.Copy(all, c)
		return p.Key().Sign(t, all, nil)
	}
	for name, test := range map[string]struct {
		claim  string // the setting
		claims claims
		want   []string
	}{
		"roles": {"roles", claims{"roles": []string{"admin", "x"}}, []string{"admin", "x"}},
		"a URL": {"https://e.org/g", claims{"https://e.org/g": "x", "groups": "y"},
			[]string{"x"}},
		"another case":    {"groups", claims{"Groups": "x"}, nil},
		"null":            {"groups", claims{"groups": nil}, nil},
		"no setting":      {"", claims{"groups": "x", "": "y"}, nil},
		"names are none":  {"groups", claims{"_claim_names": "groups", "groups": "x"}, []string{"x"}},
		"invalid Unicode": {"groups", claims{"groups": []string{"a\xff", "x"}}, []string{"x"}},
	} {
		a, _ := signInGroups(t, p, test.claim, clock)
		var want []string
		for _, group := range test.want {
			want = append(want, owner(p, "group|"+group))
		}
		got, err := bearer(t, a, token(test.claims))
		if err != nil || !slices.Equal(got.Groups, want) {
			t.Errorf("%s: got %+v, %v, want %q", name, got, err, want)
		}
		if admin := test.claim == "roles"; got.Admin != admin {
			t.Errorf("%s: an admin: %t", name, got.Admin)
		}
	}

	// A token of almost 24 KiB is taken, with 200 groups of long names.
	a, lost := signInGroups(t, p, "groups", clock)
	long := p.SignInWith(t, "ada", claims{"groups": names(200, 87)})
	if got, err := bearer(t, a, long); err != nil || len(got.Groups) != 200 || len(*lost) > 0 ||
		len(long) < 23<<10 {
		t.Errorf("a token of %d bytes has %d groups, %v", len(long), len(got.Groups), err)
	}
	wantError(t, "a token that is too long", a, p.SignInWith(t, "ada",
		claims{"groups": names(200, 96)}), access.ErrInvalid)
}

// Roles have the shapes of groups. What is not understood is told once.
func TestShapesOfRoles(t *testing.T) {
	t.Parallel()
	p, clock := oidcprovider.Start(t, oidcprovider.Options{Alg: "ES256"}), testutil.NewClock()
	for name, test := range map[string]struct {
		roles any
		admin bool
		told  bool
	}{
		"a text":            {"admin", true, false},
		"another text":      {"admin user", false, false},
		"a list":            {[]string{"user", "admin"}, true, false},
		"a map":             {members{"admin": members{"1": "org.example"}}, true, false},
		"a map with others": {members{"user": members{}, "admin": members{}}, true, false},
		"a map of others":   {members{"user": members{"admin": members{}}}, false, false},
		"a map, true":       {members{"admin": true}, true, false},
		"a map, false":      {members{"admin": false}, false, false},
		"a map, null":       {members{"admin": nil}, false, false},
		"another case":      {members{"Admin": members{}}, false, false},
		"null":              {nil, false, false},
		"nothing":           {[]string{}, false, false},
		"true":              {true, false, true},
		"a number":          {1, false, true},
		"a map of texts":    {members{"admin": "no"}, false, true},
		"a map of lists":    {members{"roles": []string{"admin"}}, false, true},
		"a list of maps":    {[]members{{"name": "admin"}}, false, true},
		"a list of lists":   {[][]string{{"admin"}}, false, true},
		"a list of more":    {[]any{1, "admin"}, true, true},
		"a list of null":    {[]any{nil}, false, true},
		"a map of more":     {members{"a": 1, "admin": members{}}, true, true},
		"a map of maps of roles": {members{"service": members{"roles": []string{"admin"}}}, false,
			false},
	} {
		a, lost := signInGroups(t, p, "", clock)
		token := p.SignInWith(t, "ada", claims{"roles": test.roles})
		for range 2 {
			got, err := bearer(t, a, token)
			if err != nil || got.Admin != test.admin || (len(*lost) == 1) != test.told ||
				test.told && !strings.HasPrefix((*lost)[0], telemetry.LogRolesLost) {
				t.Errorf("%s: an admin: %t, %v; told: %q", name, got.Admin, err, *lost)
			}
		}
	}
}

// A group that is taken away is missing from the next token. The one before has it until it ends.
func TestLeavingAGroup(t *testing.T) {
	t.Parallel()
	p, clock := oidcprovider.Start(t, oidcprovider.Options{Alg: "ES256"}), testutil.NewClock()
	a, _ := signInGroups(t, p, "groups", clock)
	ops, sales := owner(p, "group|ops"), owner(p, "group|sales")
	wantGroups := func(what, token string, want ...string) {
		t.Helper()
		if got, err := bearer(t, a, token); err != nil || !slices.Equal(got.Groups, want) {
			t.Errorf("%s: got %+v, %v, want %q", what, got, err, want)
		}
	}
	before := p.SignInWith(t, "ada", claims{"groups": []string{"ops", "sales"}})
	wantGroups("before", before, ops, sales)
	after := p.SignInWith(t, "ada", claims{"groups": []string{"sales"}})
	wantGroups("afterwards", after, sales)
	wantGroups("the token before", before, ops, sales)
	clock.Advance(58 * time.Minute)
	wantGroups("it has not ended", before, ops, sales)
	clock.Advance(time.Hour)
	wantError(t, "it has ended", a, before, access.ErrInvalid)
}

func TestIsGroup(t *testing.T) {
	for owner, want := range map[string]bool{"login.example|group|x": true,
		"login.example:8443|group|": true, "login.example|group": false, "a|b|group|x": false,
		"|group|x": true, "group|x": false, "login.example|Group|x": false, "": false} {
		if got := access.IsGroup(owner); got != want {
			t.Errorf("%q is a group: %t", owner, got)
		}
	}
}

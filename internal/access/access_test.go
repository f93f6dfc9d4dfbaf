package access_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"tiney/internal/access"
	"tiney/internal/testing/oidcprovider"
)

const adminKey = "correct-horse-battery-staple-0123456789,:;"

// keys has API keys by their hashes. If err is not nil, look-ups return it.
type keys struct {
	byHash map[string]access.Key
	err    error
	asked  int
}

func (k *keys) Key(_ context.Context, hash string) (access.Key, error) {
	k.asked++
	if k.err != nil {
		return access.Key{}, k.err
	}
	key, ok := k.byHash[hash]
	if !ok {
		return access.Key{}, access.ErrUnknownKey
	}
	return key, nil
}

// add makes a key and returns the secret, which its owner has.
func (k *keys) add(t testing.TB, key access.Key) string {
	t.Helper()
	secret, err := access.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key.Hash = access.Hash(secret)
	if k.byHash == nil {
		k.byHash = map[string]access.Key{}
	}
	k.byHash[key.Hash] = key
	return secret
}

func claimToken(t testing.TB) string {
	t.Helper()
	token, err := access.NewClaimToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// lines are the lines of a header, in order.
type lines = []string

// headers returns a header of these lines.
func headers(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimSpace(value))
	}
	return h
}

// isNobody reports whether a caller has no credentials.
func isNobody(c access.Caller) bool { return reflect.DeepEqual(c, access.Caller{}) }

func TestCaller(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var k keys
	key := k.add(t, access.Key{Owner: "ada", Name: "laptop"})
	ending := k.add(t, access.Key{Owner: "ada", ExpiresAt: now.Add(time.Second)})
	ended := k.add(t, access.Key{Owner: "ada", ExpiresAt: now})
	damaged := k.add(t, access.Key{})
	unknown, claim := new(keys).add(t, access.Key{}), claimToken(t)
	const bearer = "Authorization: Bearer "
	const jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ."
	ada, admin := access.Caller{Owner: "ada", Name: "laptop"}, access.Caller{Owner: "admin",
		Admin: true}
	a := access.New(access.Config{AdminKey: adminKey}, &k, func() time.Time { return now })

	invalid, ambiguous := access.ErrInvalid, access.ErrAmbiguous
	var nobody access.Caller

	for name, c := range map[string]struct {
		headers []string
		want    access.Caller
		err     error
	}{
		"no credentials": {lines{"Accept: */*"}, nobody, nil},
		"what is not one": {lines{"X-Functions-Key: " + key, "Cookie: a=" + key}, nobody,
			nil},
		"Basic":       {lines{"Authorization: Basic YWRhOmFkYQ=="}, nobody, nil},
		"basic":       {lines{"Authorization: basic YWRhOmFkYQ=="}, nobody, nil},
		"Basic alone": {lines{"Authorization: Basic"}, nobody, nil},
		"a key beside Basic": {lines{"Authorization: Basic YWRhOmFkYQ==", "X-Api-Key: " + key}, ada,
			nil},
		"the admin key beside BASIC": {lines{"Authorization: BASIC  YWRhOmFkYQ==",
			"X-Api-Key: " + adminKey}, admin, nil},
		"an unknown key beside Basic": {lines{"Authorization: Basic YWRhOmFkYQ==", "X-Api-Key: " +
			unknown}, nobody, invalid},
		"a key":              {lines{bearer + key}, ada, nil},
		"a key in X-Api-Key": {lines{"X-Api-Key: " + key}, ada, nil},
		"bearer":             {lines{"Authorization: bearer " + key}, ada, nil},
		"BEARER":             {lines{"Authorization: BEARER " + key}, ada, nil},
		"several spaces":     {lines{"Authorization: Bearer   " + key}, ada, nil},
		"a key in its last second": {lines{"X-Api-Key: " + ending},
			access.Caller{Owner: "ada", KeyEnds: now.Add(time.Second)}, nil},
		"the admin key":              {lines{bearer + adminKey}, admin, nil},
		"the admin key in X-Api-Key": {lines{"X-Api-Key: " + adminKey}, admin, nil},
		"a claim token": {lines{bearer + claim},
			access.Caller{ClaimHash: access.Hash(claim)}, nil},

		"an expired key":             {lines{"X-Api-Key: " + ended}, nobody, invalid},
		"an unknown key":             {lines{"X-Api-Key: " + unknown}, nobody, invalid},
		"a key whose row is damaged": {lines{"X-Api-Key: " + damaged}, nobody, invalid},
		"a malformed key":            {lines{"X-Api-Key: " + key[:52]}, nobody, invalid},
		"a malformed claim token":    {lines{"Authorization: Bearer tnc_1"}, nobody, invalid},
		"almost the admin key":       {lines{bearer + adminKey[:len(adminKey)-4]}, nobody, invalid},
		"a token in X-Api-Key":       {lines{"X-Api-Key: " + jwt}, nobody, invalid},
		"a claim token in X-Api-Key": {lines{"X-Api-Key: " + claim}, nobody, invalid},
		"a token without a provider": {lines{bearer + jwt}, nobody, invalid},
		"a key by Basic": {lines{"Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte(key+":"))}, nobody, invalid},
		"a key by Basic, as the password": {lines{"Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte("ada:"+key))}, nobody, invalid},
		"Basic, not in base64": {lines{"Authorization: Basic a:b"}, nobody, invalid},
		"Basic with a tab":     {lines{"Authorization: Basic\tYWRhOmFkYQ=="}, nobody, invalid},
		"Negotiate":            {lines{"Authorization: Negotiate YWRhOmFkYQ=="}, nobody, invalid},
		"NTLM":                 {lines{"Authorization: NTLM YWRhOmFkYQ=="}, nobody, invalid},
		"ApiKey":               {lines{"Authorization: ApiKey " + key}, nobody, invalid},
		"token":                {lines{"Authorization: token " + key}, nobody, invalid},
		"Digest": {lines{
			`Authorization: Digest username="ada", realm="a", nonce="b", uri="/", response="c"`},
			nobody, invalid},
		"a key without a scheme":    {lines{"Authorization: " + key}, nobody, invalid},
		"the admin key without one": {lines{"Authorization: " + adminKey}, nobody, invalid},
		"a key with a Basic scheme": {lines{"Authorization: Basic " + key}, nobody, invalid},
		"a tab for a space":         {lines{"Authorization: Bearer\t" + key}, nobody, invalid},
		"Bearer in X-Api-Key":       {lines{"X-Api-Key: Bearer " + key}, nobody, invalid},
		"an empty Authorization":    {lines{"Authorization:"}, nobody, invalid},
		"an empty X-Api-Key":        {lines{"X-Api-Key:"}, nobody, invalid},
		"Bearer alone":              {lines{"Authorization: Bearer"}, nobody, invalid},
		"two words":                 {lines{bearer + key + " " + key}, nobody, invalid},
		"something long": {lines{bearer + strings.Repeat("a", 9<<10)}, nobody,
			invalid},
		"something long in X-Api-Key": {lines{"X-Api-Key: tny_" + strings.Repeat("a", 9<<10)},
			nobody, invalid},

		"two credentials": {lines{bearer + key, "X-Api-Key: " + key}, nobody,
			ambiguous},
		"two, one of them Digest": {lines{`Authorization: Digest username="ada"`, "X-Api-Key: " +
			key}, nobody, ambiguous},
		"two, one by Basic": {lines{"Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte(key+":")), "X-Api-Key: " + key}, nobody,
			ambiguous},
		"two lines of Basic and one of X-Api-Key": {lines{"Authorization: Basic YWRhOmFkYQ==",
			"Authorization: Basic YWRhOmFkYQ==", "X-Api-Key: " + key}, nobody, ambiguous},
		"two lines of X-Api-Key beside Basic": {lines{"Authorization: Basic YWRhOmFkYQ==",
			"X-Api-Key: " + key, "X-Api-Key: " + key}, nobody, ambiguous},
		"two, one of them empty": {lines{"Authorization:", "X-Api-Key: " + key}, nobody,
			ambiguous},
		"two lines": {lines{bearer + key, bearer + key}, nobody, ambiguous},
		"two lines of X-Api-Key": {lines{"X-Api-Key: " + key, "X-Api-Key: " + unknown},
			nobody, ambiguous},
		"two lines, joined": {lines{bearer + key + ", Bearer " + key}, nobody,
			ambiguous},
		"without a space": {lines{bearer + key + ",Bearer " + key}, nobody, ambiguous},
		"the second one Basic": {lines{bearer + key + ", Basic YWRhOmFkYQ=="}, nobody,
			ambiguous},
		"the first one Basic": {lines{"Authorization: Basic YWRhOmFkYQ==, Bearer " + key},
			nobody, ambiguous},
		"both Basic": {lines{"Authorization: Basic YWRhOmFkYQ==, Basic " +
			"YWRhOmFkYQ=="}, nobody, ambiguous},
		"X-Api-Key, joined": {lines{"X-Api-Key: " + key + ", " + key}, nobody,
			ambiguous},
		"X-Api-Key without a space": {lines{"X-Api-Key: " + key + "," + unknown}, nobody,
			ambiguous},
		"the admin key twice, joined": {lines{"X-Api-Key: " + adminKey + ", " + adminKey}, nobody,
			ambiguous},
		"the admin key and a key": {lines{"X-Api-Key: " + adminKey + "," + key}, nobody,
			ambiguous},
		"one and an empty one, joined": {lines{bearer + key + ", "}, nobody, ambiguous},
	} {
		got, err := a.Caller(t.Context(), headers(c.headers...))
		if !reflect.DeepEqual(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v; wanted %+v, %v", name, got, err, c.want, c.err)
		}
		for _, secret := range []string{key, ended, unknown, claim, adminKey, jwt} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error quotes what was sent: %v", name, err)
			}
		}
	}
}

// A credential that has the form of no other kind may be a guess of the admin key.
func TestGuessesOfTheAdminKey(t *testing.T) {
	key, claim := new(keys).add(t, access.Key{}), claimToken(t)
	p, _, signIn := start(t, oidcprovider.Options{Alg: "ES256"})
	a := access.New(access.Config{AdminKey: adminKey}, &keys{}, time.Now)
	for name, c := range map[string]struct {
		a     *access.Authenticator
		line  string
		guess bool
	}{
		"almost the admin key":       {a, "Authorization: Bearer " + adminKey[1:], true},
		"in X-Api-Key":               {a, "X-Api-Key: " + adminKey[1:], true},
		"with a comma":               {a, "X-Api-Key: " + adminKey[1:] + ",", true},
		"as a malformed key":         {a, "X-Api-Key: tny_" + adminKey, true},
		"as a malformed claim token": {a, "Authorization: Bearer tnc_" + adminKey, true},
		"a token without a provider": {a, "Authorization: Bearer " + p.SignIn(t, "ada"), true},
		"as a malformed token":       {signIn, "Authorization: Bearer a.b.c", true},
		"a word, with a provider":    {signIn, "Authorization: Bearer guess", true},
		"a claim token in X-Api-Key": {a, "X-Api-Key: " + claim, true},
		"a token for others": {signIn, "Authorization: Bearer " +
			p.SignInTo(t, oidcprovider.OtherClientID, "ada"), false},
		"an unknown key":       {a, "X-Api-Key: " + key, false},
		"what is not compared": {a, "Authorization: Basic YWRhOmFkYQ==", false},
		"the admin key":        {a, "X-Api-Key: " + adminKey, false},
		"a claim token":        {a, "Authorization: Bearer " + claim, false},
		"an ID token": {signIn, "Authorization: Bearer " + p.SignIn(t, "ada"),
			false},
	} {
		_, err := c.a.Caller(t.Context(), headers(c.line))
		if errors.Is(err, access.ErrGuess) != c.guess {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The admin key is a setting and may look like any other credential.
func TestAdminKeyLooksLikeAnything(t *testing.T) {
	var k keys
	key := k.add(t, access.Key{Owner: "ada"})
	claim := claimToken(t)
	for _, adminKey := range []string{key, claim, "tny_" + strings.Repeat("-guess", 7),
		strings.Repeat("abcdefg.", 8), strings.Repeat("~!@#$%^&", 4), strings.Repeat("Bearer,tny",
			5)} {
		a := access.New(access.Config{AdminKey: adminKey}, &k, time.Now)
		for _, name := range []string{"Authorization: Bearer ", "X-Api-Key: "} {
			line := name + adminKey
			if got, err := a.Caller(t.Context(), headers(line)); err != nil || !got.Admin ||
				got.Owner != access.AdminOwner {
				t.Errorf("%s: %+v, %v", line, got, err)
			}
		}
	}
	// Without an admin key, the empty text is not the admin key.
	a := access.New(access.Config{}, &k, time.Now)
	for _, line := range []string{"Authorization: Bearer ", "X-Api-Key:"} {
		if got, err := a.Caller(t.Context(), headers(line)); !isNobody(got) ||
			!errors.Is(err, access.ErrInvalid) {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
}

func TestKeysThatCannotBeLookedUp(t *testing.T) {
	down := errors.New("storage is down")
	k := keys{err: down}
	a := access.New(access.Config{AdminKey: adminKey}, &k, time.Now)
	key := k.add(t, access.Key{Owner: "ada"})
	if got, err := a.Caller(t.Context(), headers("X-Api-Key: "+key)); !isNobody(got) ||
		!errors.Is(err, access.ErrUnavailable) ||
		!errors.Is(err, down) || errors.Is(err, access.ErrInvalid) {
		t.Errorf("%+v, %v", got, err)
	}
	// Credentials that can be judged without storage cause no call to storage.
	k.asked = 0
	for line, want := range map[string]error{
		"X-Api-Key: " + key[:52] + "-":             access.ErrInvalid,
		"X-Api-Key: tny_":                          access.ErrInvalid,
		"X-Api-Key: " + adminKey:                   nil,
		"Authorization: Bearer " + adminKey:        nil,
		"Authorization: Basic " + key:              access.ErrInvalid,
		"Authorization: Bearer " + key + "," + key: access.ErrAmbiguous,
	} {
		if _, err := a.Caller(t.Context(), headers(line)); !errors.Is(err, want) {
			t.Errorf("%s: %v, wanted %v", line, err, want)
		}
	}
	if k.asked > 0 {
		t.Errorf("storage was asked %d times for what no key is", k.asked)
	}
}

func TestAdminKeysAndIssuersThatAreAccepted(t *testing.T) {
	key, issuer := access.CheckAdminKey, access.CheckIssuer
	for name, c := range map[string]struct {
		check func(string) error
		value string
		ok    bool
	}{
		"an admin key":          {key, strings.Repeat("k", 24) + "eightdif", true},
		"of seven characters":   {key, strings.Repeat("sevndif", 5), false},
		"of one":                {key, strings.Repeat("k", 32), false},
		"a short one":           {key, adminKey[:31], false},
		"a long one":            {key, strings.Repeat(adminKey, 33)[:1025], false},
		"with a space":          {key, adminKey + " k", false},
		"with a line's end":     {key, adminKey + "\n", false},
		"not ASCII":             {key, adminKey + "ü", false},
		"a provider":            {issuer, "https://login.example.org", true},
		"with a path":           {issuer, "https://login.example.org/tenant/v2.0", true},
		"with a slash":          {issuer, "https://login.example.org/", true},
		"on this machine":       {issuer, "http://127.0.0.1:4000", true},
		"on localhost":          {issuer, "http://localhost:4000", true},
		"on ::1":                {issuer, "http://[::1]:4000", true},
		"without TLS":           {issuer, "http://login.example.org", false},
		"as if on this machine": {issuer, "http://localhost.example.org", false},
		"of another scheme":     {issuer, "ftp://localhost", false},
		"without a scheme":      {issuer, "login.example.org", false},
		"without a host":        {issuer, "https:///tenant", false},
		"with a port alone":     {issuer, "https://:443", false},
		"with a user":           {issuer, "https://ada@login.example.org", false},
		"with a query":          {issuer, "https://login.example.org?a", false},
		"with an empty query":   {issuer, "https://login.example.org?", false},
		"with a fragment":       {issuer, "https://login.example.org#a", false},
		"with spaces":           {issuer, "https://login.example.org/a b", false},
		"not ASCII, the issuer": {issuer, "https://lögin.example.org", false},
		"no issuer":             {issuer, "", false},
	} {
		if err := c.check(c.value); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

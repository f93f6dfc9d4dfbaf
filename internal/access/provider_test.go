package access_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tiney/internal/access"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

// longLived makes tokens that live longer than the tests need.
var longLived = oidcprovider.Options{Alg: "ES256", Life: 10 * 24 * time.Hour}

func wantFetches(t testing.TB, what string, p *oidcprovider.Provider, want int) {
	t.Helper()
	if got := p.Fetches(); got != want {
		t.Errorf("%s: the provider was asked for its keys %d times, wanted %d", what, got, want)
	}
}

func TestRotatedKey(t *testing.T) {
	t.Parallel()
	p, clock, a := start(t, longLived)
	before := p.SignIn(t, "ada")
	wantOwner(t, "before", p, a, before, "ada")
	p.Rotate(t, true)
	wantOwner(t, "by the new key, at once", p, a, p.SignIn(t, "grace"), "grace")
	wantOwner(t, "by the old key", p, a, before, "ada")
	clock.Advance(2 * time.Hour)
	wantOwner(t, "by the old key, later", p, a, before, "ada")
}

func TestWithdrawnKey(t *testing.T) {
	t.Parallel()
	t.Run("while nobody comes", func(t *testing.T) {
		t.Parallel()
		p, clock, a := start(t, longLived)
		before := p.SignIn(t, "ada")
		wantOwner(t, "before", p, a, before, "ada")
		p.Rotate(t, false)
		clock.Advance(time.Hour)
		wantError(t, "an hour later", a, before, access.ErrInvalid)
		wantOwner(t, "by the new key", p, a, p.SignIn(t, "ada"), "ada")
	})
	t.Run("while it is used", func(t *testing.T) {
		t.Parallel()
		p, clock, a := start(t, longLived)
		before := p.SignIn(t, "ada")
		wantOwner(t, "before", p, a, before, "ada")
		p.Rotate(t, false)
		clock.Advance(15*time.Minute - time.Second)
		wantOwner(t, "before the keys are fetched again", p, a, before, "ada")
		wantFetches(t, "before the keys are fetched again", p, 1)
		clock.Advance(time.Second)
		// This request is served with the known keys, and starts a fetch.
		wantOwner(t, "after a quarter of an hour", p, a, before, "ada")
		testutil.Eventually(t, "the withdrawn key is refused", func() bool {
			_, err := bearer(t, a, before)
			return errors.Is(err, access.ErrInvalid)
		})
	})
	t.Run("with all others", func(t *testing.T) {
		t.Parallel()
		p, clock, a := start(t, longLived)
		before := p.SignIn(t, "ada")
		wantOwner(t, "before", p, a, before, "ada")
		publish(t, p, func([]members) []members { return []members{} })
		clock.Advance(time.Hour)
		wantError(t, "an hour later", a, before, access.ErrInvalid)
	})
}

// TestUnknownKey counts the fetches that tokens with unknown keys can cause.
func TestUnknownKey(t *testing.T) {
	t.Parallel()
	p, clock, a := start(t, longLived)
	right := p.SignIn(t, "ada")
	junk := func() string {
		return p.Key().Sign(t, p.Claims("ada"), members{"kid": rand.Text()})
	}
	wantError(t, "the first token", a, junk(), access.ErrInvalid)
	wantFetches(t, "the first token", p, 1)
	for range 30 {
		for range 10 {
			wantError(t, "junk", a, junk(), access.ErrInvalid)
		}
		wantOwner(t, "among junk", p, a, right, "ada")
		clock.Advance(time.Second)
	}
	wantFetches(t, "30 seconds of junk", p, 2)
	wantError(t, "junk", a, junk(), access.ErrInvalid)
	wantError(t, "junk", a, junk(), access.ErrInvalid)
	wantFetches(t, "after 30 seconds", p, 3)
}

// TestProviderThatIsDown takes the provider down and brings it back.
func TestProviderThatIsDown(t *testing.T) {
	t.Parallel()
	p, clock := oidcprovider.Start(t, longLived), testutil.NewClock()
	var failed atomic.Int64
	a := signInWith(t, access.OIDCConfig{Issuer: p.Issuer(), ClientID: oidcprovider.ClientID,
		Failed: func(err error) {
			if err == nil || strings.Contains(err.Error(), "/.well-known/") {
				t.Errorf("what is told of the failure is %v", err)
			}
			failed.Add(1)
		}}, clock)
	token := p.SignIn(t, "ada")

	p.Down()
	wantError(t, "down, without keys", a, token, access.ErrUnavailable)
	wantError(t, "down, a moment later", a, token, access.ErrUnavailable)
	wantFetches(t, "down, a moment later", p, 1)
	if failed.Load() != 1 {
		t.Errorf("%d failures were told of", failed.Load())
	}
	p.Up()
	clock.Advance(5 * time.Second)
	wantOwner(t, "up", p, a, token, "ada")
	wantFetches(t, "up", p, 2)

	p.Down()
	unknown := p.Key().Sign(t, p.Claims("ada"), members{"kid": "unknown"})
	wantError(t, "down, an unknown key", a, unknown, access.ErrUnavailable)
	wantError(t, "down, an unknown key again", a, unknown, access.ErrUnavailable)
	wantFetches(t, "down, an unknown key again", p, 3)
	wantOwner(t, "down, a known key", p, a, token, "ada")
	for hour := range 23 {
		clock.Advance(time.Hour)
		for range 3 {
			wantOwner(t, fmt.Sprintf("down for %d hours", hour+1), p, a, token, "ada")
		}
		wantError(t, "down, a forged signature", a, token[:len(token)-8]+"AAAAAAAA",
			access.ErrInvalid)
	}
	wantFetches(t, "each hour once", p, 3+23)
	clock.Advance(time.Hour - time.Second)
	wantOwner(t, "down for almost 24 hours", p, a, token, "ada")
	clock.Advance(time.Second)
	wantError(t, "down for 24 hours", a, token, access.ErrUnavailable)
	clock.Advance(5 * time.Second)
	p.Up()
	wantOwner(t, "up again", p, a, token, "ada")

	// The last issuer is an address without a server.
	gone := httptest.NewServer(nil)
	gone.Close()
	nowhere := signInWith(t, access.OIDCConfig{Issuer: gone.URL, ClientID: oidcprovider.ClientID},
		clock)
	wantError(t, "nobody listens", nowhere, token, access.ErrUnavailable)
}

func TestSlowProvider(t *testing.T) {
	t.Parallel()
	// hold delays all responses of the provider until it is released.
	hold := func(p *oidcprovider.Provider) (release func()) {
		held := make(chan struct{})
		p.Intercept(func(w http.ResponseWriter, r *http.Request, provider http.Handler) {
			select {
			case <-held:
				provider.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		})
		return sync.OnceFunc(func() { close(held) })
	}

	t.Run("is as one that is down", func(t *testing.T) {
		t.Parallel()
		p, clock, a := start(t, longLived)
		token := p.SignIn(t, "ada")
		release := hold(p)
		a.SetFetchLimit(100 * time.Millisecond)
		wantError(t, "slow", a, token, access.ErrUnavailable)
		a.SetFetchLimit(time.Minute)
		release()
		clock.Advance(5 * time.Second)
		wantOwner(t, "no longer slow", p, a, token, "ada")
	})
	t.Run("is asked once for all who wait", func(t *testing.T) {
		t.Parallel()
		p, _, a := start(t, longLived)
		token := p.SignIn(t, "ada")
		release := hold(p)
		ctx, giveUp := context.WithCancel(t.Context())
		first := make(chan error)
		go func() {
			_, err := a.Caller(ctx, headers("Authorization: Bearer "+token))
			first <- err
		}()
		testutil.Eventually(t, "the first one asks", func() bool { return p.Fetches() == 1 })
		giveUp()
		if err := <-first; !errors.Is(err, access.ErrUnavailable) ||
			!errors.Is(err, context.Canceled) {
			t.Errorf("who gave up: %v", err)
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { wantOwner(t, "who waits", p, a, token, "ada") })
		}
		release()
		all.Wait()
		wantFetches(t, "all who waited", p, 1)
	})
	t.Run("holds up nobody whose key is known", func(t *testing.T) {
		t.Parallel()
		p, clock, a := start(t, longLived)
		token := p.SignIn(t, "ada")
		wantOwner(t, "before", p, a, token, "ada")
		release := hold(p)
		defer release()
		clock.Advance(30 * time.Minute)
		wantOwner(t, "slow", p, a, token, "ada")
		testutil.Eventually(t, "the keys are asked for", func() bool { return p.Fetches() == 2 })
		wantOwner(t, "while they are on their way", p, a, token, "ada")
	})
}

// members are the members of a JSON object.
type members = map[string]any

// publish has the provider publish other keys than its own.
func publish(t testing.TB, p *oidcprovider.Provider, change func(keys []members) []members) {
	t.Helper()
	p.Intercept(func(w http.ResponseWriter, r *http.Request, provider http.Handler) {
		if r.URL.Path != "/jwks" {
			provider.ServeHTTP(w, r)
			return
		}
		real := httptest.NewRecorder()
		provider.ServeHTTP(real, r)
		var set struct {
			Keys []members `json:"keys"`
		}
		if err := json.Unmarshal(real.Body.Bytes(), &set); err != nil {
			t.Errorf("the provider's keys: %v", err)
		}
		set.Keys = change(set.Keys)
		if err := json.NewEncoder(w).Encode(set); err != nil {
			t.Error(err)
		}
	})
}

// TestNonsense has the provider send wrong responses.
func TestNonsense(t *testing.T) {
	t.Parallel()
	p := oidcprovider.Start(t, longLived)
	token := p.SignIn(t, "ada")

	// elsewhere is another server with everything that the provider has.
	elsewhere := httptest.NewServer(http.HandlerFunc(p.ServeHTTP))
	t.Cleanup(elsewhere.Close)

	discovery := func(issuer, keys string) string {
		return fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, issuer, keys)
	}
	const discoveryPath, keysPath = "/.well-known/openid-configuration", "/jwks"
	keysAt := func(place string) string { return discovery(p.Issuer(), place) }
	right := keysAt(p.Issuer() + keysPath)
	body := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	manyKeys := `{"keys":[` + strings.Repeat(`{"kty":"oct"},`, 64) + `{"kty":"oct"}]}`
	for name, c := range map[string]struct {
		path    string
		respond http.HandlerFunc
	}{
		"a page": {discoveryPath,
			body(200, "<!DOCTYPE html><title>Maintenance</title>")},
		"nothing":                     {discoveryPath, body(200, "")},
		"no document":                 {discoveryPath, body(404, "")},
		"a right document with a 500": {discoveryPath, body(500, right)},
		"a right document with a 203": {discoveryPath, body(203, right)},
		"null":                        {discoveryPath, body(200, "null")},
		"an empty object":             {discoveryPath, body(200, "{}")},
		"a list":                      {discoveryPath, body(200, "[]")},
		"half a document":             {discoveryPath, body(200, `{"issuer":"`+p.Issuer())},
		"two documents":               {discoveryPath, body(200, right+"{}")},
		"another issuer": {discoveryPath,
			body(200, discovery("https://login.example.org", p.Issuer()+keysPath))},
		"the issuer with a slash": {discoveryPath,
			body(200, discovery(p.Issuer()+"/", p.Issuer()+keysPath))},
		"no place of keys":               {discoveryPath, body(200, keysAt(""))},
		"a place of keys that is no URL": {discoveryPath, body(200, keysAt("http://127.0.0.1:x/"))},
		"a place of keys without TLS": {discoveryPath,
			body(200, keysAt("http://keys.example.org/jwks"))},
		"a place of keys in a file":      {discoveryPath, body(200, keysAt("file:///etc/passwd"))},
		"a place of keys that is a path": {discoveryPath, body(200, keysAt("/jwks"))},
		"a large document": {discoveryPath,
			body(200, right+strings.Repeat(" ", 256<<10))},
		"a document without end": {discoveryPath, func(w http.ResponseWriter, _ *http.Request) {
			for range 1024 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
			t.Error("64 MiB of a document were read")
		}},
		"a document elsewhere": {discoveryPath, http.RedirectHandler(elsewhere.URL+
			discoveryPath, http.StatusFound).ServeHTTP},
		"a connection that is cut": {discoveryPath, func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}},
		"keys that are a page": {keysPath, body(200, "<!DOCTYPE html>")},
		"keys with a 500":      {keysPath, body(500, `{"keys":[]}`)},
		"no keys at all":       {keysPath, body(200, `{}`)},
		"null for keys":        {keysPath, body(200, `{"keys":null}`)},
		"an object for keys":   {keysPath, body(200, `{"keys":{}}`)},
		"a list of keys alone": {keysPath, body(200, `[]`)},
		"too many keys":        {keysPath, body(200, manyKeys)},
		"a large set of keys": {keysPath,
			body(200, `{"keys":[]}`+strings.Repeat(" ", 256<<10))},
		"keys elsewhere": {keysPath, http.RedirectHandler(elsewhere.URL+keysPath,
			http.StatusTemporaryRedirect).ServeHTTP},
		"keys whose connection is cut": {keysPath, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"keys":[`)
		}},
	} {
		p.Up()
		clock := testutil.NewClock()
		knows := signIn(t, p, clock)
		wantOwner(t, "before "+name, p, knows, token, "ada")
		p.Intercept(func(w http.ResponseWriter, r *http.Request, provider http.Handler) {
			if r.Host == strings.TrimPrefix(p.Issuer(), "http://") && r.URL.Path == c.path {
				c.respond(w, r)
			} else {
				provider.ServeHTTP(w, r)
			}
		})
		wantError(t, name, signIn(t, p, clock), token, access.ErrUnavailable)
		// A place where keys must not be is not asked, whether or not it has keys.
		_, err := bearer(t, signIn(t, p, clock), token)
		if strings.Contains(name, "place of keys") != strings.Contains(err.Error(), "jwks_uri") {
			t.Errorf("%s: %v", name, err)
		}
		clock.Advance(time.Hour)
		fetches := p.Fetches()
		wantOwner(t, "in spite of "+name, p, knows, token, "ada")
		if p.Fetches() == fetches {
			t.Errorf("%s: the provider was not asked", name)
		}
	}
}

// TestKeysOfOtherPurposes publishes keys with which tokens must not be checked, and signs tokens
// with those keys.
func TestKeysOfOtherPurposes(t *testing.T) {
	t.Parallel()
	p := oidcprovider.Start(t, longLived)
	elliptical := func(curve elliptic.Curve) *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	numeric := func(bits int) *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	p256, small, large := elliptical(elliptic.P256()), numeric(1024), numeric(2048)
	ec, rsaKey := oidcprovider.Key{Private: p256}, oidcprovider.Key{Private: large}
	// short returns a key with a coordinate that begins with zeros, and that one without them.
	short := func(coordinate int) (oidcprovider.Key, string) {
		for {
			key := elliptical(elliptic.P256())
			point, err := key.PublicKey.Bytes() // 4, x, y
			if err != nil {
				t.Fatal(err)
			}
			if own := point[1+32*coordinate:][:32]; own[0] == 0 {
				return oidcprovider.Key{Private: key},
					base64.RawURLEncoding.EncodeToString(bytes.TrimLeft(own, "\x00"))
			}
		}
	}
	shortX, x := short(0)
	shortY, y := short(1)
	longer := func(text string) string { // with a zero in front, as Java writes numbers
		octets, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(append([]byte{0}, octets...))
	}
	standard := strings.NewReplacer("-", "+", "_", "/").Replace
	n, ecX := rsaKey.JWK(t)["n"], ec.JWK(t)["x"]
	const ok, silent = "ok", "" // else what is told of the key
	for name, c := range map[string]struct {
		key  oidcprovider.Key
		with members // nil removes a member
		want string
	}{
		"an EC key":  {ec, nil, ok},
		"an RSA key": {rsaKey, nil, ok},
		"for signatures": {ec, members{"use": "sig", "alg": "ES256",
			"key_ops": []string{"sign", "verify"}}, ok},
		"with members unknown here":  {ec, members{"x5t": "AAAA", "ext": true}, ok},
		"with members of other keys": {rsaKey, members{"crv": "", "x": "!", "y": ""}, ok},
		"padded":                     {rsaKey, members{"n": n + "==", "e": "AQAB="}, ok},
		"in standard base64":         {rsaKey, members{"n": standard(n)}, ok},
		"in standard base64, padded": {rsaKey, members{"n": standard(n) + "=="}, ok},
		"with line breaks":           {rsaKey, members{"n": n[:64] + "\r\n" + n[64:]}, ok},
		"with a zero in front":       {rsaKey, members{"n": longer(n), "e": "AAEAAQ"}, ok},
		"EC, padded":                 {ec, members{"x": ecX + "="}, ok},
		"EC, in standard base64":     {ec, members{"x": standard(ecX) + "="}, ok},
		"EC, with a zero in front":   {ec, members{"x": longer(ecX)}, ok},
		"EC, with zeros in front":    {ec, members{"x": "AAAA" + ecX}, ok},
		"EC, x of 31 octets":         {shortX, members{"x": x}, ok},
		"EC, y of 31 octets":         {shortY, members{"y": y}, ok},

		"for encryption":      {ec, members{"use": "enc"}, silent},
		"for encryption, RSA": {rsaKey, members{"use": "enc", "alg": "RSA-OAEP"}, silent},
		"for no verification": {ec, members{"key_ops": []string{"deriveKey"}}, silent},
		"for nothing":         {ec, members{"key_ops": []string{}}, silent},

		"for another use":       {ec, members{"use": "x"}, `is for the use "x"`},
		"to sign":               {ec, members{"key_ops": []string{"sign"}}, "is not to verify"},
		"for another algorithm": {rsaKey, members{"alg": "RS512"}, `is for "RS512": only RS256`},
		"for PSS":               {rsaKey, members{"alg": "PS256"}, `is for "PS256"`},
		"for key agreement":     {ec, members{"alg": "ECDH-ES"}, `is for "ECDH-ES"`},
		"of 1,024 bits":         {oidcprovider.Key{Private: small}, nil, "has 1024 bits"},
		"of 1,024 bits and zeros": {oidcprovider.Key{Private: small},
			members{"n": longer(longer(oidcprovider.Key{Private: small}.JWK(t)["n"]))},
			"has 1024 bits"},
		"of an exponent of 1": {rsaKey, members{"e": "AQ"}, "has an exponent"},
		"of a long exponent":  {rsaKey, members{"e": "AQAAAAAB"}, "has an exponent"},
		"of a huge modulus": {rsaKey, members{"n": strings.Repeat("_", 1400)},
			"has 8400 bits"},
		"without a modulus":        {rsaKey, members{"n": nil}, "has a number"},
		"of another curve":         {ec, members{"crv": "P-384"}, `is of the kind "EC P-384"`},
		"of a curve in lower case": {ec, members{"crv": "p-256"}, `is of the kind "EC p-256"`},
		"off the curve": {ec, members{"x": strings.Repeat("A", 42) + "E"},
			"is no point of its curve"},

		"of a huge coordinate":  {ec, members{"x": "AQ" + ecX + "AA"}, "has a coordinate"},
		"without a coordinate":  {ec, members{"y": nil}, "has a number"},
		"of another type":       {ec, members{"kty": "OKP"}, `is of the kind "OKP"`},
		"of no type":            {ec, members{"kty": nil}, `is of the kind ""`},
		"whose name is no text": {ec, members{"kid": 1}, "is not of the JSON"},
		"of broken base64":      {ec, members{"x": "!"}, "has a number"},
		"of half an octet":      {rsaKey, members{"n": n[:len(n)-1] + "=="}, "has a number"},
	} {
		c.key.ID = "published"
		published := members{}
		for member, value := range c.key.JWK(t) {
			published[member] = value
		}
		for member, value := range c.with {
			if published[member] = value; value == nil {
				delete(published, member)
			}
		}
		publish(t, p, func(keys []members) []members {
			return append([]members{published}, keys...)
		})
		var lost []string
		a := signInWith(t, access.OIDCConfig{Issuer: p.Issuer(), ClientID: oidcprovider.ClientID,
			Lost: func(_, reason string) { lost = append(lost, reason) }},
			testutil.NewClock())
		if token := c.key.Sign(t, p.Claims("ada"), nil); c.want == ok {
			wantOwner(t, name, p, a, token, "ada")
		} else {
			wantError(t, name, a, token, access.ErrInvalid)
			if _, err := bearer(t, a, token); err != nil &&
				!strings.Contains(err.Error(), "no such key") {
				t.Errorf("%s: it was tried: %v", name, err)
			}
		}
		if told := c.want != ok && c.want != silent; (len(lost) == 1) != told || len(lost) > 1 ||
			told && !strings.Contains(lost[0], `" `+c.want) {
			t.Errorf("%s: %q is told", name, lost)
		}
		// The other keys of the set still work.
		wantOwner(t, "beside one "+name, p, a, p.Key().Sign(t, p.Claims("grace"), nil), "grace")
	}
}

// TestTokensThatNameNoKey: tokens that name no key are tried with the keys of their algorithm, but
// only with a limited number of them.
func TestTokensThatNameNoKey(t *testing.T) {
	t.Parallel()
	p := oidcprovider.Start(t, longLived)
	token := p.Key().Sign(t, p.Claims("ada"), members{"kid": nil})
	for others, want := range map[int]error{0: nil, 1: nil, 7: nil, 8: access.ErrInvalid} {
		publish(t, p, func(keys []members) []members {
			var all []members
			for i := range others {
				private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
				if err != nil {
					t.Error(err)
				}
				all = append(all, members{"kid": fmt.Sprintf("rsa-%d", i), "kty": "RSA",
					"e": "AQAB", "n": strings.Repeat("_", 342)})
				other := members{}
				for member, value := range (oidcprovider.Key{Private: private}).JWK(t) {
					other[member] = value
				}
				all = append(all, other)
			}
			return append(all, keys...)
		})
		if _, err := bearer(t, signIn(t, p, testutil.NewClock()), token); !errors.Is(err, want) {
			t.Errorf("beside %d others: %v, wanted %v", others, err, want)
		}
	}
}

// FuzzCaller sends credentials that were never issued. They belong to no owner, and cause no panic.
func FuzzCaller(f *testing.F) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	key := oidcprovider.Key{ID: "k", Private: signer}
	set, err := json.Marshal(members{"keys": []any{key.JWK(f)}})
	if err != nil {
		f.Fatal(err)
	}
	var issuer string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/jwks" {
			w.Write(set)
			return
		}
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, issuer, issuer+"/jwks")
	}))
	defer provider.Close()
	issuer = provider.URL
	clock := testutil.NewClock()
	a := access.New(access.Config{AdminKey: adminKey, OIDC: &access.OIDCConfig{Issuer: issuer,
		ClientID: "c"}}, &keys{}, clock.Now)
	a.SetFetchLimit(time.Minute)

	claims := jwt.MapClaims{"iss": issuer, "aud": "c", "sub": "ada",
		"exp": clock.Now().Add(time.Hour).Unix()}
	token := key.Sign(f, claims, nil)
	wantCaller, err := bearer(f, a, token)
	if err != nil || wantCaller.Owner == "" {
		f.Fatalf("the right token: %+v, %v", wantCaller, err)
	}
	f.Add("Bearer "+token[:len(token)-1], "")
	f.Add("Bearer "+token[:strings.LastIndexByte(token, '.')+1], "")
	f.Add("Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.", "")
	f.Add("Bearer "+adminKey[1:], "")
	f.Add("", "tny_a,tny_b")
	f.Add("bearer tnc_", " ")
	f.Fuzz(func(t *testing.T, authorization, apiKey string) {
		h := http.Header{}
		if authorization != "" {
			h.Set("Authorization", authorization)
		}
		if apiKey != "" {
			h.Set("X-Api-Key", apiKey)
		}
		got, err := a.Caller(t.Context(), h)
		if got.Owner != "" || got.Admin || got.Name != "" || err != nil &&
			!isNobody(got) {
			t.Errorf("%q and %q are %+v, %v", authorization, apiKey, got, err)
		}
		if err == nil && len(h) > 0 {
			if hash, ok := access.ClaimHash(authorization[strings.LastIndexByte(authorization, ' ')+
				1:]); !ok || hash != got.ClaimHash {
				t.Errorf("%q and %q count as no credentials", authorization, apiKey)
			}
		}
		if err != nil && !errors.Is(err, access.ErrInvalid) &&
			!errors.Is(err, access.ErrAmbiguous) {
			t.Errorf("%q and %q: %v", authorization, apiKey, err)
		}
	})
}

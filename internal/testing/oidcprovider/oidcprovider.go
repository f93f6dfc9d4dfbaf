// Package oidcprovider runs an OpenID Connect provider for the tests, and signs users in with it.
//
// package-lock.json beside this file pins the provider's npm package, `make oidcprovider` installs
// it, and provider.mjs runs it. A proxy at the issuer's address stands in front of it. So the
// provider can be down or slow, or say what a test wants.
package oidcprovider

import (
	"bufio"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// These clients exist at every provider. ID tokens for one are not meant for the other.
const (
	ClientID      = "tiney"
	OtherClientID = "another-service"
)

// callback is the address that SignIn is sent back to. Nobody listens there.
const callback = "http://127.0.0.1/callback"

// Options says which provider a test needs. The zero value is valid.
type Options struct {
	// Alg signs tokens: RS256 or ES256. "" is RS256, which most providers use.
	Alg  string
	Life time.Duration // of ID tokens; 0 means an hour
}

// Key is a key that the provider signs ID tokens with.
type Key struct {
	ID      string
	Private crypto.Signer // *rsa.PrivateKey or *ecdsa.PrivateKey
}

// Provider is a running provider.
type Provider struct {
	options       Options
	server        *httptest.Server // at the issuer's address
	input         io.Writer
	output        *bufio.Scanner
	proxy         *httputil.ReverseProxy
	made, fetches atomic.Int64

	mu sync.Mutex
	// intercept is nil if the provider itself responds.
	intercept func(w http.ResponseWriter, r *http.Request, provider http.Handler)
	// The first key signs.
	keys      []Key
	redirects []string // redirect URIs
}

// Start runs a provider until the test ends.
func Start(t testing.TB, options Options) *Provider {
	t.Helper()
	if options.Alg == "" {
		options.Alg = "RS256"
	}
	if options.Life == 0 {
		options.Life = time.Hour
	}
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Dir(file)
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "oidc-provider")); err != nil {
		t.Fatalf("the OpenID Connect provider is not installed; run `make oidcprovider` first (%v)",
			err)
	}
	cmd := exec.Command("node", filepath.Join(dir, "provider.mjs"))
	cmd.Stderr = t.Output()
	input, err := cmd.StdinPipe()
	must(t, err)
	output, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		input.Close() // this ends the process
		kill := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		defer kill.Stop()
		cmd.Wait()
	})

	p := &Provider{options: options, input: input, output: bufio.NewScanner(output)}
	p.server = httptest.NewServer(p)
	// A client repeats a request if a kept connection is closed. Then a request would come twice
	// while the provider is down.
	p.server.Config.SetKeepAlivesEnabled(false)
	t.Cleanup(func() {
		p.server.CloseClientConnections() // some may wait for a response that would never come
		p.server.Close()
	})
	target := &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1",
		p.configure(t, []Key{p.newKey(t)}))}
	p.proxy = &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // the provider's own URLs begin with it
		}}
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Issuer returns the issuer of the provider's tokens, an http URL on this machine.
func (p *Provider) Issuer() string { return p.server.URL }

// Key returns the key that the provider currently signs with.
func (p *Provider) Key() Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[0]
}

// Redirect lets the provider send users back to the exact URL uri, of a page that signs them in
// itself.
func (p *Provider) Redirect(t testing.TB, uri string) {
	t.Helper()
	p.mu.Lock()
	p.redirects = append(p.redirects, uri)
	keys := p.keys
	p.mu.Unlock()
	p.configure(t, keys)
}

// Rotate makes the provider sign with a new key from now on. If keepOld, the provider still
// publishes the previous key. It withdraws all others.
func (p *Provider) Rotate(t testing.TB, keepOld bool) {
	t.Helper()
	var old []Key
	if keepOld {
		old = []Key{p.Key()}
	}
	p.configure(t, append([]Key{p.newKey(t)}, old...))
}

func (p *Provider) newKey(t testing.TB) Key {
	t.Helper()
	k := Key{ID: fmt.Sprintf("key-%d", p.made.Add(1))}
	var err error
	if p.options.Alg == "ES256" {
		k.Private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	} else {
		k.Private, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	must(t, err)
	return k
}

// configure sends the whole configuration to the process, and returns the port that it listens on.
func (p *Provider) configure(t testing.TB, keys []Key) (port string) {
	t.Helper()
	type client struct {
		ID           string   `json:"client_id"`
		RedirectURIs []string `json:"redirect_uris"`
		Auth         string   `json:"token_endpoint_auth_method"`
	}
	config := struct {
		Issuer  string              `json:"issuer"`
		Keys    []map[string]string `json:"keys"`
		Alg     string              `json:"alg"`
		Clients []client            `json:"clients"`
		Life    int                 `json:"life"` // seconds
	}{Issuer: p.Issuer(), Alg: p.options.Alg, Life: int(p.options.Life / time.Second)}
	for _, k := range keys {
		config.Keys = append(config.Keys, k.JWK(t))
	}
	for _, id := range []string{ClientID, OtherClientID} {
		config.Clients = append(config.Clients,
			client{id, append([]string{callback}, p.redirects...), "none"})
	}
	must(t, json.NewEncoder(p.input).Encode(config))
	if !p.output.Scan() {
		t.Fatalf("the OpenID Connect provider has ended: %v", p.output.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
	return p.output.Text()
}

// Down makes the provider close every connection without a response, until Up.
func (p *Provider) Down() {
	p.Intercept(func(http.ResponseWriter, *http.Request, http.Handler) {
		panic(http.ErrAbortHandler)
	})
}

// Up makes the provider respond again.
func (p *Provider) Up() { p.Intercept(nil) }

// Intercept makes respond handle each request instead of the provider. respond may pass it on to
// the provider.
func (p *Provider) Intercept(respond func(w http.ResponseWriter, r *http.Request,
	provider http.Handler)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.intercept = respond
}

// ServeHTTP implements http.Handler. It is the proxy in front of the provider.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/.well-known/openid-configuration" {
		p.fetches.Add(1)
	}
	p.mu.Lock()
	intercept := p.intercept
	p.mu.Unlock()
	if intercept != nil {
		intercept(w, r, p.proxy)
	} else {
		p.proxy.ServeHTTP(w, r)
	}
}

// Fetches returns how often somebody tried to fetch the provider's keys, even while it was down.
// Each fetch begins with discovery.
func (p *Provider) Fetches() int { return int(p.fetches.Load()) }

// SignIn signs a user in, with roles in the claim "roles", and returns the ID token. Like a page,
// it uses an authorization code with PKCE.
func (p *Provider) SignIn(t testing.TB, user string, roles ...string) (idToken string) {
	t.Helper()
	return p.SignInTo(t, ClientID, user, roles...)
}

// SignInTo is SignIn for another client.
func (p *Provider) SignInTo(t testing.TB, clientID, user string, roles ...string) (idToken string) {
	t.Helper()
	return p.signIn(t, clientID, user, url.Values{"roles": {strings.Join(roles, " ")}}, nil).ID
}

// AccessToken signs a user in to another client, and returns its access token for a resource, with
// a scope: "links.read" or "links.write".
func (p *Provider) AccessToken(t testing.TB, user, resource, scope string) string {
	t.Helper()
	return p.signIn(t, OtherClientID, user, url.Values{"roles": {""}},
		url.Values{"resource": {resource}, "scope": {scope}}).Access
}

// SignInWith is SignIn for a user with other claims. The provider knows "groups" and "hasgroups",
// and claims that are elsewhere, by "_claim_names" and "_claim_sources".
func (p *Provider) SignInWith(t testing.TB, user string, claims jwt.MapClaims) (idToken string) {
	t.Helper()
	text, err := json.Marshal(claims)
	must(t, err)
	return p.signIn(t, ClientID, user, url.Values{"roles": {""}, "claims": {string(text)}}, nil).ID
}

type tokens struct {
	ID     string `json:"id_token"`
	Access string `json:"access_token"`
}

// signIn fills in the form. parameters replace or join those of the requests.
func (p *Provider) signIn(
	t testing.TB, clientID, user string, form, parameters url.Values,
) (got tokens) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	browser := &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(r *http.Request,
		_ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), callback) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	state, verifier := rand.Text(), rand.Text()+rand.Text() // at least 43 characters
	challenge := sha256.Sum256([]byte(verifier))
	begin := url.Values{
		"client_id": {clientID}, "redirect_uri": {callback}, "response_type": {"code"},
		"scope": {"openid groups"}, "state": {state},
		"code_challenge":        {base64.RawURLEncoding.EncodeToString(challenge[:])},
		"code_challenge_method": {"S256"},
	}
	maps.Copy(begin, parameters)
	resp, err := browser.Get(p.Issuer() + "/auth?" + begin.Encode())
	must(t, err)
	body(t, resp, http.StatusOK) // the form
	form.Set("user", user)
	resp, err = browser.PostForm(resp.Request.URL.String(), form)
	must(t, err)
	body(t, resp, http.StatusSeeOther)
	back, err := resp.Location()
	must(t, err)
	if got := back.Query().Get("state"); got != state {
		t.Fatalf("signing in led to %s, without the state", back)
	}
	end := url.Values{
		"client_id": {clientID}, "redirect_uri": {callback}, "grant_type": {"authorization_code"},
		"code": {back.Query().Get("code")}, "code_verifier": {verifier},
	}
	maps.Copy(end, parameters)
	resp, err = browser.PostForm(p.Issuer()+"/token", end)
	must(t, err)
	must(t, json.Unmarshal(body(t, resp, http.StatusOK), &got))
	return got
}

func body(t testing.TB, resp *http.Response, status int) []byte {
	t.Helper()
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != status {
		t.Fatalf("the OpenID Connect provider responds with %s to %s, wanted %d: %s", resp.Status,
			resp.Request.URL, status, data)
	}
	return data
}

// Claims returns the claims of a valid token of the provider. Tests may spoil them.
func (p *Provider) Claims(user string) jwt.MapClaims {
	now := time.Now()
	return jwt.MapClaims{"iss": p.Issuer(), "aud": ClientID, "sub": user, "iat": now.Unix(),
		"exp": now.Add(p.options.Life).Unix()}
}

// Sign makes a token with any claims, signed with the provider's key. The members of header replace
// or join "alg", "typ" and "kid"; nil removes one.
func (k Key) Sign(t testing.TB, claims jwt.MapClaims, header map[string]any) string {
	t.Helper()
	var method jwt.SigningMethod = jwt.SigningMethodRS256
	if _, ok := k.Private.(*ecdsa.PrivateKey); ok {
		method = jwt.SigningMethodES256
	}
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = k.ID
	for name, value := range header {
		if token.Header[name] = value; value == nil {
			delete(token.Header, name)
		}
	}
	signed, err := token.SignedString(k.Private)
	must(t, err)
	return signed
}

// JWK returns the key as a JSON Web Key (RFC 7518, section 6), including the private members.
func (k Key) JWK(t testing.TB) map[string]string {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString
	switch key := k.Private.(type) {
	case *ecdsa.PrivateKey:
		d, err := key.Bytes()
		must(t, err)
		point, err := key.PublicKey.Bytes() // 4, x, y
		must(t, err)
		return map[string]string{"kty": "EC", "crv": "P-256", "kid": k.ID, "x": text(point[1:33]),
			"y": text(point[33:]), "d": text(d)}
	case *rsa.PrivateKey:
		number := func(n *big.Int) string { return text(n.Bytes()) }
		return map[string]string{"kty": "RSA", "kid": k.ID, "n": number(key.N),
			"e": number(big.NewInt(int64(key.E))), "d": number(key.D),
			"p": number(key.Primes[0]), "q": number(key.Primes[1]),
			"dp": number(key.Precomputed.Dp), "dq": number(key.Precomputed.Dq),
			"qi": number(key.Precomputed.Qinv)}
	default:
		t.Fatalf("no key of a provider: %T", key)
		return nil
	}
}

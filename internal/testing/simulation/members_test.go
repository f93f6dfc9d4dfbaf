//go:build unix

package simulation

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	issuer   = "https://login.example"
	clientID = "simulation"

	// team is a group. Its members sign in, and act for themselves or for the team.
	team        = "login.example|group|team"
	carol, dave = "login.example|carol", "login.example|dave"
)

// enrol gives a round its owners, and each of them a credential.
func (r *round) enrol() {
	r.owners = []string{"alice", "bob"}
	if r.team {
		r.owners = []string{"alice", carol, dave, team}
		for member, token := range signIn() {
			k := key{owner: member, secret: token, groups: []string{team}}
			r.keys[member] = []*key{&k}
			forTeam := k
			forTeam.as = team
			r.keys[team] = append(r.keys[team], &forTeam)
		}
	}
	for _, owner := range r.owners {
		if len(r.keys[owner]) == 0 {
			r.newKey(r.nodes[0], owner)
		}
	}
}

// provider is the sign-in provider of all nodes. It responds to what is sent to issuer.
type provider struct{ others http.RoundTripper }

var providerKey = sync.OnceValue(func() *ecdsa.PrivateKey {
	// The key is always the same, since nodes that are processes have a provider each.
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{1}, 32))
	if err != nil {
		panic(err)
	}
	return key
})

// signIn returns the ID tokens of all members, which never end. Members do not leave the team.
var signIn = sync.OnceValue(func() map[string]string {
	tokens := map[string]string{}
	for member, subject := range map[string]string{carol: "carol", dave: "dave"} {
		token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": issuer,
			"aud": clientID, "sub": subject, "groups": []string{"team"},
			"exp": time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).Unix()}).SignedString(providerKey())
		if err != nil {
			panic(err)
		}
		tokens[member] = token
	}
	return tokens
})

func (p provider) RoundTrip(req *http.Request) (*http.Response, error) {
	var document any
	switch req.URL.String() {
	case issuer + "/.well-known/openid-configuration":
		document = map[string]string{"issuer": issuer, "jwks_uri": issuer + "/keys"}
	case issuer + "/keys":
		point, err := providerKey().PublicKey.Bytes() // 4, x and y
		if err != nil {
			return nil, err
		}
		document = map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256",
			"x": base64.RawURLEncoding.EncodeToString(point[1:33]),
			"y": base64.RawURLEncoding.EncodeToString(point[33:])}}}
	default:
		return p.others.RoundTrip(req)
	}
	w := httptest.NewRecorder()
	err := json.NewEncoder(w).Encode(document)
	return w.Result(), err
}

package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/golang-jwt/jwt/v5"

	"tiney/internal/link"
	"tiney/internal/telemetry"
)

const (
	leeway     = time.Minute // for the difference between the provider's clock and ours
	maxSubject = 255         // characters (OpenID Connect Core 1.0, section 2)
	maxName    = 100         // characters
	maxGroup   = 128         // characters
	maxGroups  = 200         // of a token
)

func (p *provider) newParser() *jwt.Parser {
	audiences := []string{p.ClientID}
	if p.APIAudience != "" {
		audiences = append(audiences, p.APIAudience)
	}
	return jwt.NewParser(
		jwt.WithValidMethods([]string{"RS256", "ES256"}),
		jwt.WithIssuer(p.Issuer),
		jwt.WithAudience(audiences...),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(leeway),
		jwt.WithTimeFunc(p.now),
		jwt.WithStrictDecoding())
}

// caller returns the person that an ID token or an access token identifies.
func (p *provider) caller(ctx context.Context, token string) (Caller, error) {
	claims := jwt.MapClaims{} // a struct would take "Sub" for "sub"
	var keyErr error
	_, err := p.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		var keys jwt.VerificationKeySet
		keys.Keys, keyErr = p.keysOf(ctx, t)
		return keys, keyErr
	})
	switch {
	case keyErr != nil:
		return Caller{}, keyErr
	case errors.Is(err, jwt.ErrTokenMalformed):
		return Caller{}, fmt.Errorf("%w: %w: %w", ErrInvalid, ErrGuess, jwt.ErrTokenMalformed)
	case err != nil:
		return Caller{}, fmt.Errorf("%w: %w", ErrInvalid, reason(err))
	}
	if err := p.checkRecipient(claims); err != nil {
		return Caller{}, err
	}
	subject, _ := claims[cmp.Or(p.SubjectClaim, "sub")].(string)
	if subject == "" || len(subject) > maxSubject || !printableASCII(subject) {
		return Caller{}, fmt.Errorf(
			"%w: the token's subject is not 1 to %d printable ASCII characters",
			ErrInvalid, maxSubject)
	}
	owner := p.host + "|" + subject
	if isGroup(owner) {
		return Caller{}, fmt.Errorf("%w: the token's subject looks like a group", ErrInvalid)
	}
	if p.forAPI(claims) && !p.hasScope(claims) {
		return Caller{}, ErrScope
	}
	return Caller{
		Owner:  owner,
		Groups: p.groups(claims),
		Admin: p.AdminRole != "" &&
			slices.Contains(p.texts(claims["roles"], telemetry.LogRolesLost), p.AdminRole),
		Name: cmp.Or(printable(claims["name"]), printable(claims["preferred_username"])),
	}, nil
}

// groups returns the owners that are the groups of a token. With too many groups, Entra leaves all
// of them out, and the token names another source of the claim or has "hasgroups". That source is
// not asked: groups come from the token alone.
func (p *provider) groups(claims jwt.MapClaims) (groups []string) {
	if p.GroupsClaim == "" {
		return nil
	}
	elsewhere, _ := claims["_claim_names"].(map[string]any)
	has := claims["hasgroups"]
	if _, named := elsewhere[p.GroupsClaim]; named ||
		p.GroupsClaim == "groups" && (has == any(true) || has == any("true")) {
		p.lose(telemetry.LogGroupsLost, "the token has none, because they are too many")
		return nil
	}
	for _, text := range p.texts(claims[p.GroupsClaim], telemetry.LogGroupsLost) {
		group := p.host + groupMark + text
		switch {
		case !link.IsPrintable(text, maxGroup):
			p.lose(telemetry.LogGroupsLost,
				fmt.Sprintf("one does not have 1 to %d printable characters", maxGroup))
		case slices.Contains(groups, group):
		case len(groups) == maxGroups:
			p.lose(telemetry.LogGroupsLost, fmt.Sprintf("there are more than %d", maxGroups))
			return groups
		default:
			groups = append(groups, group)
		}
	}
	return groups
}

// texts returns the texts of a claim: one text, a list, or those names of a map that name an object
// or true, as Zitadel has them ({"admin": {…}}). In a map of texts or lists, such as Keycloak's
// realm_access, the names describe these. They would be the same for everybody.
func (p *provider) texts(claim any, message string) (texts []string) {
	list, ok := claim.([]any)
	if byName, isMap := claim.(map[string]any); isMap {
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			switch value := byName[name].(type) {
			case map[string]any:
				list = append(list, name)
			case bool:
				if value {
					list = append(list, name)
				}
			case nil:
			default:
				p.lose(message, "in a map, one is not an object, true or false")
			}
		}
	} else if !ok && claim != nil {
		list = []any{claim}
	}
	for _, value := range list {
		if text, ok := value.(string); ok {
			texts = append(texts, text)
		} else {
			p.lose(message, "one is not a string")
		}
	}
	return texts
}

// lose reports why something is left out, unless that was reported before.
func (p *provider) lose(message, reason string) {
	if _, before := p.lost.LoadOrStore(message+reason, true); !before && p.Lost != nil {
		p.Lost(message, reason)
	}
}

// forAPI reports whether a token is an access token, by its audience. One that is for the client,
// too, is judged as an ID token.
func (p *provider) forAPI(claims jwt.Claims) bool {
	audiences, _ := claims.GetAudience()
	return p.APIAudience != "" && slices.Contains(audiences, p.APIAudience) &&
		!slices.Contains(audiences, p.ClientID)
}

// hasScope reports whether an access token has the scope that it needs. Entra is asked for a scope
// by its URI, and writes only what follows the last slash, as scp.
func (p *provider) hasScope(claims jwt.MapClaims) bool {
	scope, _ := claims["scope"].(string)
	text, _ := claims["scp"].(string)
	scp := strings.Fields(text)
	list, _ := claims["scp"].([]any)
	for _, one := range list {
		word, _ := one.(string)
		scp = append(scp, word)
	}
	if p.APIScope == "" || slices.Contains(scp, p.APIScope) ||
		slices.Contains(strings.Fields(scope), p.APIScope) {
		return true
	}
	uri, err := url.Parse(p.APIScope)
	short := p.APIScope[strings.LastIndexByte(p.APIScope, '/')+1:]
	return err == nil && uri.IsAbs() && short != "" && slices.Contains(scp, short)
}

// checkRecipient returns an error unless a token is for this service: an access token for its API,
// or an ID token (OpenID Connect Core 1.0, section 3.1.3.7). A logout token has the same issuer,
// audience and subject, and may have the same type, but it has events (OpenID Connect Back-Channel
// Logout 1.0, section 2.4).
func (p *provider) checkRecipient(claims jwt.MapClaims) error {
	audiences, _ := claims.GetAudience() // the parser has checked that this service is in it
	azp, given := claims["azp"]
	_, logout := claims["events"]
	switch {
	case p.forAPI(claims) && !logout:
	case given && azp != any(p.ClientID):
		return fmt.Errorf("%w: the token was made for another client", ErrInvalid)
	case !given && len(audiences) > 1:
		return fmt.Errorf("%w: the token has several audiences, and no client that it was made for",
			ErrInvalid)
	case logout:
		return fmt.Errorf("%w: the token is no ID token by its events", ErrInvalid)
	}
	return nil
}

// keysOf returns the keys that may have signed a token, according to its header.
func (p *provider) keysOf(ctx context.Context, t *jwt.Token) ([]jwt.VerificationKey, error) {
	if _, ok := t.Header["crit"]; ok {
		return nil, fmt.Errorf("%w: the token has critical extensions, and none is known here",
			ErrInvalid)
	}
	// Providers also sign logout tokens and other access tokens with these keys. Those tokens have
	// another type.
	types := []string{"jwt"}
	if p.forAPI(t.Claims) {
		types = append(types, "at+jwt", "application/at+jwt")
	}
	if typ, ok := t.Header["typ"].(string); ok && !slices.Contains(types, strings.ToLower(typ)) {
		return nil, fmt.Errorf("%w: the token is none for this service by its type", ErrInvalid)
	}
	kid, isText := t.Header["kid"].(string)
	if _, given := t.Header["kid"]; given && !isText {
		return nil, fmt.Errorf("%w: the name of the token's key is no text", ErrInvalid)
	}
	return p.keysFor(ctx, kid, t.Method.Alg())
}

// reason returns why a token was refused. The parser's own text may quote the token.
func reason(err error) error {
	for _, known := range []error{
		jwt.ErrTokenUnverifiable, jwt.ErrTokenSignatureInvalid,
		jwt.ErrTokenExpired, jwt.ErrTokenNotValidYet, jwt.ErrTokenUsedBeforeIssued,
		jwt.ErrTokenInvalidIssuer, jwt.ErrTokenInvalidAudience, jwt.ErrTokenRequiredClaimMissing,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	return jwt.ErrTokenInvalidClaims
}

// printable returns the text of a claim, made fit to be shown; "" if the claim is not a text.
func printable(claim any) string {
	text, _ := claim.(string)
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	characters := []rune(strings.TrimSpace(text))
	return string(characters[:min(len(characters), maxName)])
}

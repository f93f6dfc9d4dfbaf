package functions

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/pages"
)

// problem is an error response as in RFC 9457. It is also an error, so that functions can return
// it.
type problem struct {
	Type   string `json:"type"` // a URI reference that identifies the kind of problem
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`          // what to do about it
	Field  string `json:"field,omitempty"` // the wrong field of the body or query parameter

	page   string      // replaces the detail on a page, if not ""
	offer  pages.Offer // the link that is not there, if a page offers to make it
	form   []byte      // if not nil, the response: the page with the form that was sent
	header http.Header // further headers of the response
	limit  string      // the name of the limit that the client exceeded; "": none
}

func (p *problem) Error() string { return p.Title }

// inOneLine returns what is wrong, and where.
func (p *problem) inOneLine() string {
	if p.Field == "" {
		return p.Detail
	}
	return p.Field + ": " + p.Detail
}

// Problems that are always the same.
var (
	notFoundProblem = newProblem(http.StatusNotFound, "not-found", "No such link",
		"There is no short link at this address. Check it for typing mistakes: upper-case and "+
			"lower-case letters differ.")
	anyCaseProblem = newProblem(http.StatusNotFound, "not-found", "No such link",
		"There is no short link at this address. Check it for typing mistakes; upper-case and "+
			"lower-case letters make no difference.")
	notStartedProblem = newProblem(http.StatusNotFound, "not-started", "Not started yet",
		"The short link at this address starts later. Come back then.")
	tooLongProblem = newProblem(http.StatusRequestURITooLong, "too-long",
		"This address is too long", "The short link at this address appends what follows it to "+
			"its long URL, and the result would be too long. Leave out some of the path or the "+
			"query.")
	nothingHereProblem = newProblem(http.StatusNotFound, "not-found", "Nothing at this path",
		"The API has nothing at this path. Check it for typing mistakes.")
	expiredProblem = newProblem(http.StatusGone, "link-expired", "This link has expired",
		"The short link at this address has come to the end of its life. Ask whoever gave it to "+
			"you for a new one.")
	disabledProblem = newProblem(http.StatusGone, "link-disabled", "This link is disabled",
		"The short link at this address has been disabled. Ask whoever gave it to you for the "+
			"address that it led to.")
	deletedProblem = newProblem(http.StatusGone, "link-deleted", "This link has been deleted",
		"The short link at this address has been deleted. Ask whoever gave it to you for the "+
			"address that it led to.")
	linkBlockedProblem = newProblem(http.StatusGone, "link-blocked", "This link is blocked",
		"The short link at this address leads to a website that the people who run this service "+
			"have blocked.")
	damagedProblem = newProblem(http.StatusGone, "link-damaged", "This link is damaged",
		"There is a short link at this address, but its record is damaged. Ask whoever gave it "+
			"to you for the address that it led to.")
	targetBlockedProblem = newProblem(http.StatusForbidden, "target-blocked",
		"This website is blocked",
		"The people who run this service have blocked the website of this URL, so no link can "+
			"lead there.")
	readOnlyProblem = newProblem(http.StatusForbidden, "read-only", "This key may only read",
		"This API key was made with access read, so it changes nothing. Use a key with access "+
			"write, or sign in.")
	foreignOriginProblem = newProblem(http.StatusForbidden, "cross-site",
		"Another website sent this", "This came from a page of another website. Programs send no "+
			"header Origin.")
	lockedProblem = newProblem(http.StatusForbidden, "link-locked", "This link was taken down",
		"The people who run this service have taken this link down, so only they can change it.")
	foreignOwnerProblem = newProblem(http.StatusForbidden, "forbidden", "Not yours",
		"Name yourself or a group that you belong to. Only an admin can name somebody else.").
		about("owner")
	disabledTargetProblem = newProblem(http.StatusForbidden, "target-disabled",
		"This URL's link is disabled",
		"The link of this URL is disabled, so the URL gets no new one. Choose an alias to make "+
			"another one. If the link is yours, and an admin has not taken it down, you can "+
			"enable it.")
	invalidCredentialsProblem = newProblem(http.StatusUnauthorized, "credentials-invalid",
		"These credentials are not valid",
		"The API key or token is malformed, unknown, expired or revoked. Send a valid one, as "+
			"Authorization: Bearer or, if it is an API key, as X-Api-Key.").
		with("WWW-Authenticate", `Bearer error="invalid_token"`)
	noCredentialsProblem = newProblem(http.StatusUnauthorized, "credentials-missing",
		"Sign in first",
		"This needs credentials: send an API key or an ID token as Authorization: Bearer.").
		with("WWW-Authenticate", "Bearer")
	uncheckedProblem = newProblem(http.StatusServiceUnavailable, "credentials-unchecked",
		"Try again in a moment",
		"The credentials cannot be checked at the moment. Nothing is wrong with your request: "+
			"repeat it in a few seconds.")
	ambiguousProblem = badRequest("credentials-ambiguous", "More than one credential",
		"Send one credential: either Authorization or X-Api-Key, and one line of it.", "")
	forbiddenProblem = newProblem(http.StatusForbidden, "forbidden", "Not yours",
		"This belongs to somebody else. Sign in as its owner.")
	ownerNeededProblem = newProblem(http.StatusForbidden, "owner-needed",
		"A claim token is not enough",
		"A claim token can read, delete and restore its one link, and read its statistics. Sign "+
			"in with an API key or an ID token; POST /api/claims makes the link yours.")
	adminNeededProblem = newProblem(http.StatusForbidden, "admin-needed", "For admins only",
		"This takes an admin: sign in with the admin key of this service, or as somebody who has "+
			"the role of an admin.")
	foreignHostProblem = newProblem(http.StatusForbidden, "foreign-host", "For this machine only",
		"This service has the admin key of development, so it responds to requests to localhost "+
			"alone. Set an ADMIN_KEY of your own.")
	conflictProblem = newProblem(http.StatusConflict, "conflict", "The link was changed meanwhile",
		"Somebody else changed this link at the same time. Read it again, and repeat the request "+
			"if it still applies.")
	aliasTakenProblem = newProblem(http.StatusConflict, "alias-taken", "This alias is taken",
		"There is a link with this alias, or there was one not long ago. Choose another one.")
	linkDeletedProblem = newProblem(http.StatusConflict, "link-deleted", "This link is deleted",
		"A deleted link cannot be edited. Restore it first, by POST to its address with /restore "+
			"at the end.")
	notDeletedProblem = newProblem(http.StatusConflict, "link-not-deleted", "Nothing to restore",
		"This link is not deleted, or was deleted too long ago to be restored.")
	sharedProblem = newProblem(http.StatusConflict, "link-shared", "This link is shared",
		"Others were given this link too, and rely on it: its long URL, rules, goneUrl, password "+
			"and maxOpens stay, and it cannot start at another time, end earlier, be disabled, "+
			"enabled or deleted. An admin can do that.")
	preconditionProblem = newProblem(http.StatusPreconditionFailed, "precondition",
		"The link is not what you expect",
		"The link has changed since you read it: none of the tags in If-Match is its ETag. Read "+
			"it again, and repeat the request if it still applies.")
	noKeyProblem = newProblem(http.StatusNotFound, "not-found", "No such key",
		"There is no API key with this id. GET /api/keys lists yours.")
	tooManyKeysProblem = newProblem(http.StatusConflict, "too-many-keys", "Too many API keys",
		fmt.Sprintf("An owner may have %d API keys that have not ended. "+
			"Revoke one that nobody needs; GET /api/keys lists them.", access.MaxKeys))
	badHostProblem = badRequest("host", "Not a host",
		"Name one host, such as example.com or [2001:db8::1], without scheme, user name, port "+
			"and path. All hosts below it are blocked with it.", "")
	notBlockedProblem = newProblem(http.StatusNotFound, "not-found", "Not blocked",
		"This host itself is not blocked; one above it may be. GET /api/blocked lists those that "+
			"are.")
	unavailableProblem = newProblem(http.StatusServiceUnavailable, "storage-unavailable",
		"Try again in a moment",
		"The place where links are kept does not respond at the moment. Nothing is wrong with "+
			"your request: repeat it in a few seconds.")
	computingProblem = newProblem(http.StatusServiceUnavailable, "computing",
		"Being computed",
		"The links with the most clicks are being computed. If this takes minutes, the place where "+
			"clicks are kept does not respond. Nothing is wrong with your request: repeat it in a "+
			"few seconds.")
	aliasesTakenProblem = newProblem(http.StatusInternalServerError, "aliases-taken",
		"No free alias found",
		"Every alias that was tried is taken. Repeat the request; if this happens again, "+
			"ALIAS_LENGTH needs to be larger.")
	internalProblem = newProblem(http.StatusInternalServerError, "internal",
		"Something went wrong here",
		"The service failed in a way that it should not. Repeat the request; the log of the "+
			"service says more.")
	notObjectProblem = badRequest("body", "Invalid body",
		"The body must be one JSON object in UTF-8, and nothing else.", "")
	noURLProblem = badRequest("body", "Invalid body", "The body must be one JSON object in UTF-8, "+
		`such as {"longUrl":"https://example.com/page"}, and nothing else.`, "")
	notAcceptableProblem = newProblem(http.StatusNotAcceptable, "not-acceptable",
		"Accept JSON",
		"The response is JSON: send Accept: application/json, text/event-stream, or no Accept.")
	mediaTypeProblem = newProblem(http.StatusUnsupportedMediaType, "media-type", "Send JSON",
		"The body must be JSON: send it with the header Content-Type: application/json.")
	patchTypeProblem = newProblem(http.StatusUnsupportedMediaType, "media-type",
		"Send a JSON merge patch",
		"The body must be a JSON merge patch: send it with the header Content-Type: "+mergePatch+
			", or application/json.").
		with("Accept-Patch", mergePatch+", application/json")
	codingProblem = newProblem(http.StatusUnsupportedMediaType, "media-type",
		"Send the body as it is",
		"The body must not be compressed: send it without Content-Encoding.").
		with("Accept-Encoding", "identity")
	timeoutProblem = newProblem(http.StatusRequestTimeout, "body-too-slow",
		"The body took too long",
		"The body did not arrive in time. Send the request again.")
)

// problems maps the errors of other packages to problems. The first match counts.
var problems = []struct {
	err     error
	problem *problem
}{
	{access.ErrInvalid, invalidCredentialsProblem},
	{access.ErrAmbiguous, ambiguousProblem},
	{access.ErrUnavailable, uncheckedProblem},
	{access.ErrUnknownKey, noKeyProblem},
	{access.ErrTooManyKeys, tooManyKeysProblem},
	{link.ErrNotFound, notFoundProblem},
	{link.ErrDamaged, damagedProblem},
	{link.ErrNotBlocked, notBlockedProblem},
	{link.ErrDisabled, disabledTargetProblem},
	{link.ErrLocked, lockedProblem},
	{link.ErrForbidden, forbiddenProblem},
	{link.ErrConflict, conflictProblem},
	{link.ErrShared, sharedProblem},
	{link.ErrDeleted, linkDeletedProblem},
	{link.ErrNotDeleted, notDeletedProblem},
	{link.ErrAliasTaken, aliasTakenProblem},
	{link.ErrAliasesTaken, aliasesTakenProblem},
	{clicks.ErrComputing, computingProblem},
	{link.ErrUnavailable, unavailableProblem},
}

func newProblem(status int, kind, title, detail string) *problem {
	p := &problem{Type: "/problems/" + kind, Title: title, Status: status, Detail: detail,
		header: http.Header{}}
	if status == http.StatusServiceUnavailable {
		p.header.Set("Retry-After", "5") // seconds; about the time of a failover of storage
	}
	return p
}

func badRequest(kind, title, detail, field string) *problem {
	return newProblem(http.StatusBadRequest, kind, title, detail).about(field)
}

// fieldKinds has the kinds of problems by field.
var fieldKinds = map[string]struct{ kind, title string }{
	"longUrl":          {"long-url", "This URL cannot be shortened"},
	"expiresInSeconds": {"expires-in-seconds", "Invalid lifetime"},
	"expiresAtUtc":     {"expires-at-utc", "Invalid end"},
	"startsAtUtc":      {"starts-at-utc", "Invalid start"},
	"rules":            {"rules", "Invalid rules"},
	"goneUrl":          {"gone-url", "Invalid URL for after the end"},
	"password":         {"password", "Invalid password"},
	"maxOpens":         {"max-opens", "Invalid number of openings"},
	"alias":            {"alias", "Invalid alias"},
	"statusCode":       {"status-code", "Invalid status code"},
	"title":            {"title", "Invalid title"},
	"tags":             {"tags", "Invalid tags"},
	"forward":          {"forward", "This cannot be forwarded"},
	"domain":           {"domain", "Invalid domain"},
}

// fieldProblem returns the problem of a wrong field, or of a part of one, such as "tags.0" or
// "rules[1].countries".
func fieldProblem(field, detail string) *problem {
	name := field[:len(field)-len(strings.TrimLeftFunc(field, unicode.IsLetter))]
	if is, ok := fieldKinds[name]; ok {
		return badRequest(is.kind, is.title, detail, field)
	}
	return badRequest("body", "Invalid field", detail, field)
}

// with adds a header of the response, and returns the problem.
func (p *problem) with(name, value string) *problem {
	p.header.Set(name, value)
	return p
}

// about sets the field, and returns the problem.
func (p *problem) about(field string) *problem {
	p.Field = field
	return p
}

// exceeding sets the limit that the client exceeded, and returns the problem.
func (p *problem) exceeding(limit string) *problem {
	p.limit = limit
	return p
}

func methodProblem(allow string) *problem {
	return newProblem(http.StatusMethodNotAllowed, "method", "Method not allowed",
		"Allowed here: "+allow+".").with("Allow", allow)
}

// problemOf returns the problem of an error. An unknown error becomes internalProblem, which does
// not reveal its cause.
func problemOf(err error) *problem {
	var p *problem
	var invalid *link.InvalidError
	var blocked *link.BlockedError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &blocked):
		named := *targetBlockedProblem
		return named.about(string(blocked.Field))
	case errors.As(err, &invalid):
		return fieldProblem(string(invalid.Field), invalid.Detail)
	}
	for _, known := range problems {
		if errors.Is(err, known.err) {
			return known.problem
		}
	}
	return internalProblem
}

// problemOf is problemOf, and that of an alias that is not there says whether case matters.
func (s *service) problemOf(err error) *problem {
	p := problemOf(err)
	if p == notFoundProblem && s.Rules.AnyCase {
		return anyCaseProblem
	}
	return p
}

// pageStatuses are the statuses of problems that become pages outside of /api/, if the client
// prefers HTML.
var pageStatuses = []int{http.StatusForbidden, http.StatusNotFound, http.StatusGone,
	http.StatusRequestURITooLong, http.StatusTooManyRequests, http.StatusServiceUnavailable}

// write responds with the problem, as a page of the site or as JSON.
func (p *problem) write(w http.ResponseWriter, r *http.Request, site pages.Site) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	page := p.form
	if page == nil && slices.Contains(pageStatuses, p.Status) && !isAPI(r.URL.Path) {
		w.Header().Set("Vary", "Accept")
		if prefers(r.Header, "text/html") {
			page = site.Problem(r.URL.EscapedPath(), p.Status, p.Title, cmp.Or(p.page, p.Detail),
				p.offer)
		}
	}
	if page != nil {
		writePage(w, p.Status, page)
		return
	}
	body, _ := json.Marshal(p, jsonOptions)
	body = append(body, '\n')
	setHeaders(w, "application/problem+json")
	// With the length, the client knows that it has the whole response while the server still reads
	// the request's body.
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

// prefers reports whether a client prefers a media type to JSON: it must name the type, with at
// least the quality of every type that matches JSON. Azure Front Door does not forward Accept if it
// caches. Then Sec-Fetch-Mode (https://www.w3.org/TR/fetch-metadata/) shows that a browser opens a
// page.
func prefers(h http.Header, mediaType string) bool {
	if len(h.Values("Accept")) == 0 {
		return mediaType == "text/html" && h.Get("Sec-Fetch-Mode") == "navigate"
	}
	accept := strings.Join(h.Values("Accept"), ",")
	if len(accept) > 1<<10 {
		return false // no browser sends so much
	}
	var named, json float64
	for part := range strings.SplitSeq(accept, ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if given, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(given, 64); err != nil || !(q >= 0 && q <= 1) { // or NaN
				continue
			}
		}
		switch kind {
		case mediaType:
			named = max(named, q)
		case "application/json", "application/problem+json", "application/*", "*/*":
			json = max(json, q)
		}
	}
	return named > 0 && named >= json
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/testutil"
)

// step is one request of a walk, with the expected response. $NAME stands for a value that an
// earlier step has kept. It may be used in a header, the target, the body and want.
type step struct {
	name string
	// as is the NAME of the credential in the Authorization header; "" for no credential.
	as                   string
	method, target, body string
	headers              []string
	status               int
	want                 string // members and headers of the response, as JSON; see matches
	keep                 string // NAME=member of the response, separated by spaces
}

// owned is a walk through everything that owners, admins and holders of claim tokens can do. Its
// long URLs, titles and tags contain the secret, which must not be logged or reported.
var owned = []step{
	{name: "a key without credentials", method: "POST", target: "/api/keys",
		body: `{"name":"laptop"}`, status: 401,
		want: `{"type":"/problems/credentials-missing","Www-Authenticate":"Bearer"}`},
	{name: "a key of the admin's own", as: "ADMIN", method: "POST", target: "/api/keys",
		body: `{"name":"laptop"}`, status: 400, want: `{"field":"owner"}`},
	{name: "a key without a name", as: "ADMIN", method: "POST", target: "/api/keys",
		body: `{"owner":"ada"}`, status: 400, want: `{"field":"name"}`},
	{name: "Ada's first key", as: "ADMIN", method: "POST", target: "/api/keys",
		body: `{"name":"laptop","owner":"ada"}`, status: 201,
		want: `{"name":"laptop","owner":"ada","expiresAtUtc":null,"lastUsedOn":null}`,
		keep: "ADA=key"},
	{name: "Bob's key", as: "ADMIN", method: "POST", target: "/api/keys",
		body: `{"name":"phone","owner":"bob","expiresAtUtc":"2999-01-01T00:00:00Z"}`, status: 201,
		want: `{"expiresAtUtc":"2999-01-01T00:00:00Z"}`, keep: "BOB=key BOBS=id"},
	{name: "a key that ends too soon", as: "BOB", method: "POST", target: "/api/keys",
		body: `{"name":"x","expiresAtUtc":"2020-01-01T00:00:00Z"}`, status: 400,
		want: `{"field":"expiresAtUtc"}`},
	{name: "a key for somebody else", as: "ADA", method: "POST", target: "/api/keys",
		body: `{"name":"x","owner":"bob"}`, status: 403},
	{name: "Ada's second key", as: "ADA", method: "POST", target: "/api/keys",
		body: `{"name":"second"}`, status: 201, want: `{"owner":"ada"}`,
		keep: "SECOND=key SECONDS=id"},
	{name: "Ada's keys", as: "ADA", method: "GET", target: "/api/keys", status: 200,
		want: `{"items":[{"owner":"ada","key":"ABSENT"},{"owner":"ada"}]}`},
	{name: "everybody's keys", as: "ADMIN", method: "GET", target: "/api/keys", status: 200,
		want: `{"items":[{},{},{}]}`},
	{name: "revoking another's key", as: "ADA", method: "DELETE", target: "/api/keys/$BOBS",
		status: 403},

	{name: "nobody", method: "GET", target: "/api/me", status: 200,
		want: `{"owner":null,"admin":"ABSENT"}`},
	{name: "Ada", as: "ADA", method: "GET", target: "/api/me", status: 200,
		want: `{"owner":"ada","admin":false,"name":"laptop"}`},
	{name: "Ada, by X-Api-Key", method: "GET", target: "/api/me", headers: []string{"X-Api-Key",
		"$ADA"}, status: 200, want: `{"owner":"ada"}`},
	{name: "the admin", as: "ADMIN", method: "GET", target: "/api/me", status: 200,
		want: `{"owner":"admin","admin":true}`},
	{name: "a key that does not exist", as: "FORGED", method: "GET", target: "/api/me", status: 401,
		want: `{"type":"/problems/credentials-invalid","Www-Authenticate":"Bearer ` +
			`error=\"invalid_token\""}`},
	{name: "a proxy's password", method: "GET", target: "/api/me", headers: []string{
		"Authorization", "Basic YTpi"}, status: 200, want: `{"owner":null}`},
	{name: "a key beside it", method: "GET", target: "/api/me", headers: []string{"Authorization",
		"Basic YTpi", "X-Api-Key", "$ADA"}, status: 200, want: `{"owner":"ada"}`},
	{name: "another scheme", method: "GET", target: "/api/me", headers: []string{"Authorization",
		"Digest YTpi"}, status: 401},
	{name: "two kinds of credentials", as: "ADA", method: "GET", target: "/api/me",
		headers: []string{"X-Api-Key", "$ADA"}, status: 400},
	{name: "the reaper's runs", as: "ADMIN", method: "GET", target: "/api/admin/cleanup/stats",
		status: 200, want: `{"deletedTotal":0,"lastDeleted":0,"failedRuns":0}`},
	{name: "the reaper's runs, for an owner", as: "ADA", method: "GET",
		target: "/API/Admin/cleanup/stats/", status: 403,
		want: `{"type":"/problems/admin-needed"}`},
	{name: "the reaper's runs, without credentials", method: "GET",
		target: "/api/admin/cleanup/stats", status: 401, want: `{"Www-Authenticate":"Bearer"}`},
	{name: "health, whatever the credential", as: "FORGED", method: "GET", target: "/api/health",
		status: 200},

	{name: "a chosen alias", as: "ADA", method: "POST", target: "/api/shorten", status: 201,
		body: `{"longUrl":"https://example.com/s3cr3t/docs","alias":"docs","statusCode":308,` +
			`"title":"The s3cr3t docs","tags":["s3cr3t","work"]}`,
		want: `{"alias":"docs","shortUrl":"https://tiney.to/docs","expiresAtUtc":null,` +
			`"claimToken":"ABSENT","Location":"https://tiney.to/docs"}`},
	{name: "the same again", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/docs","alias":"docs"}`, status: 200,
		want: `{"alias":"docs"}`},
	{name: "the alias for another URL", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/other","alias":"docs"}`, status: 409,
		want: `{"type":"/problems/alias-taken"}`},
	{name: "the alias for another owner", as: "BOB", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/docs","alias":"docs"}`, status: 409},
	{name: "the alias for nobody", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/docs","alias":"docs"}`, status: 409},
	{name: "a reserved alias", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t","alias":"Admin"}`, status: 400,
		want: `{"field":"alias"}`},
	{name: "two ends", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t","expiresInSeconds":60,` +
			`"expiresAtUtc":"2999-01-01T00:00:00Z"}`, status: 400},
	{name: "an end far away", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/far","alias":"far",` +
			`"expiresAtUtc":"2099-01-01T00:00:00Z","tags":["far"]}`,
		status: 201, want: `{"expiresAtUtc":"2099-01-01T00:00:00Z"}`},
	{name: "an end too far away", as: "ADA", method: "POST", target: "/api/shorten",
		body:   `{"longUrl":"https://example.com/s3cr3t","expiresAtUtc":"2999-01-01T00:00:00Z"}`,
		status: 400, want: `{"type":"/problems/expires-at-utc","field":"expiresAtUtc"}`},
	{name: "redirect", method: "GET", target: "/docs", status: 308,
		want: `{"Location":"https://example.com/s3cr3t/docs"}`},
	{name: "preview", method: "GET", target: "/docs+",
		headers: []string{"Accept", "application/json"}, status: 200,
		want: `{"alias":"docs","shortUrl":"https://tiney.to/docs",` +
			`"longUrl":"https://example.com/s3cr3t/docs","expiresAtUtc":null,"title":"ABSENT",` +
			`"owner":"ABSENT"}`},
	{name: "preview of nothing", method: "GET", target: "/nobody+", status: 404},
	{name: "QR code without credentials", method: "GET", target: "/api/links/docs/qr", status: 200,
		want: `{"Content-Type":"image/svg+xml"}`},

	{name: "reading", as: "ADA", method: "GET", target: "/api/links/docs", status: 200,
		keep: "FIRST=Etag",
		want: `{"alias":"docs","shortUrl":"https://tiney.to/docs",` +
			`"longUrl":"https://example.com/s3cr3t/docs","expiresAtUtc":null,"updatedAtUtc":null,` +
			`"statusCode":308,"disabled":false,` +
			`"shared":false,"deletedAtUtc":null,"title":"The s3cr3t docs","tags":["s3cr3t",` +
			`"work"],"owner":"ada"}`},
	{name: "reading, HEAD", as: "ADA", method: "HEAD", target: "/api/links/docs", status: 200,
		want: `{"Etag":"$FIRST"}`},
	{name: "reading, by the admin", as: "ADMIN", method: "GET", target: "/api/links/docs",
		status: 200, want: `{"Etag":"$FIRST"}`},
	{name: "reading, without credentials", method: "GET", target: "/api/links/docs",
		headers: []string{"Accept", browser}, status: 401,
		want: `{"Content-Type":"application/problem+json"}`},
	{name: "reading what is not there", as: "ADA", method: "GET", target: "/api/links/nobody",
		status: 404},
	{name: "editing with the right tag", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"title":"s3cr3t 2","statusCode":null}`, headers: []string{"If-Match",
			`"x,y", $FIRST`}, status: 200,
		want: `{"title":"s3cr3t 2","statusCode":302,"tags":["s3cr3t","work"]}`,
		keep: "THEN=Etag WHEN=updatedAtUtc"},
	{name: "editing with an old tag", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"title":"lost"}`, headers: []string{"If-Match", "$FIRST"}, status: 412,
		want: `{"type":"/problems/precondition"}`},
	{name: "editing with no tag at all", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"title":"lost"}`, headers: []string{"If-Match", "x"}, status: 400},
	{name: "editing nothing", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"title":"s3cr3t 2"}`, headers: []string{"If-Match", "*"}, status: 200,
		want: `{"Etag":"$THEN"}`},
	{name: "editing, as JSON", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body:    `{"longUrl":"https://example.com/s3cr3t/moved","tags":["s3cr3t"]}`,
		headers: []string{"Content-Type", "application/json"}, status: 200},
	{name: "editing, as a form", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `title=x`, headers: []string{"Content-Type", "application/x-www-form-urlencoded"},
		status: 415},
	{name: "editing what must not be null", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"longUrl":null}`, status: 400, want: `{"field":"longUrl"}`},
	{name: "editing what is not known", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"name":"x"}`, status: 400, want: `{"field":"name"}`},
	{name: "the history", as: "ADA", method: "GET", target: "/api/links/docs/history", status: 200,
		want: `{"items":[{"by":"ada","what":"edited"},{"before":{"statusCode":308}}]}`},
	{name: "redirect after the edit", method: "GET", target: "/docs", status: 302,
		want: `{"Location":"https://example.com/s3cr3t/moved"}`},
	{name: "disabling", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"disabled":true}`, status: 200, want: `{"disabled":true}`},
	{name: "redirect of what is disabled", method: "GET", target: "/docs", status: 410,
		want: `{"type":"/problems/link-disabled"}`},
	{name: "enabling", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"disabled":false}`, status: 200},
	{name: "redirect of what is enabled", method: "GET", target: "/docs", status: 302},
	{name: "an end", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"expiresInSeconds":3600}`, status: 200},
	{name: "no end", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"expiresAtUtc":null}`, status: 200, want: `{"expiresAtUtc":null}`,
		keep: "NOW=Etag"},
	{name: "deleting with an old tag", as: "ADA", method: "DELETE", target: "/api/links/docs",
		headers: []string{"If-Match", "$THEN"}, status: 412},
	{name: "deleting", as: "ADA", method: "DELETE", target: "/api/links/docs",
		headers: []string{"If-Match", "$NOW"}, status: 204},
	{name: "deleting again", as: "ADA", method: "DELETE", target: "/api/links/docs", status: 204},
	{name: "redirect of what is deleted", method: "GET", target: "/docs", status: 410,
		want: `{"type":"/problems/link-deleted"}`},
	{name: "redirect of what is deleted, browser", method: "GET", target: "/docs",
		headers: []string{"Accept", browser}, status: 410,
		want: `{"Content-Type":"text/html; charset=utf-8"}`},
	{name: "preview of what is deleted", method: "GET", target: "/docs+",
		headers: []string{"Accept", "application/json"}, status: 410},
	{name: "editing what is deleted", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"title":"x"}`, status: 409, want: `{"type":"/problems/link-deleted"}`},
	{name: "the alias of what is deleted", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/moved","alias":"docs"}`, status: 409},
	{name: "reading what is deleted", as: "ADA", method: "GET", target: "/api/links/docs",
		status: 200, keep: "DELETED=deletedAtUtc"},
	{name: "restoring", as: "ADA", method: "POST", target: "/api/links/docs/restore", status: 200,
		want: `{"alias":"docs","deletedAtUtc":null,"longUrl":"https://example.com/s3cr3t/moved"}`},
	{name: "restoring again", as: "ADA", method: "POST", target: "/api/links/docs/restore",
		status: 409, want: `{"type":"/problems/link-not-deleted"}`},
	{name: "redirect of what is restored", method: "GET", target: "/docs", status: 302},

	{name: "one of Ada's own", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/Umlaut"}`, status: 201, keep: "DRAWN=alias"},
	{name: "one link per URL and owner", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/Umlaut"}`, status: 200,
		want: `{"alias":"$DRAWN"}`},
	{name: "disabling it", as: "ADA", method: "PATCH", target: "/api/links/$DRAWN",
		body: `{"disabled":true}`, status: 200},
	{name: "listing", as: "ADA", method: "GET", target: "/api/links", status: 200,
		want: `{"items":[{"owner":"ada"},{"owner":"ada"},{"owner":"ada"}],"nextCursor":null}`},
	{name: "listing, the first page", as: "ADA", method: "GET", target: "/api/links?limit=1",
		status: 200, want: `{"items":[{}]}`, keep: "CURSOR=nextCursor"},
	{name: "listing, the second page", as: "ADA", method: "GET",
		target: "/api/links?limit=2&cursor=$CURSOR", status: 200, want: `{"items":[{},{}]}`},
	{name: "listing with another's cursor", as: "BOB", method: "GET",
		target: "/api/links?cursor=$CURSOR", status: 400, want: `{"field":"cursor"}`},
	{name: "listing too many", as: "ADA", method: "GET", target: "/api/links?limit=101",
		status: 400, want: `{"field":"limit"}`},
	{name: "listing by text", as: "ADA", method: "GET", target: "/api/links?q=UMLAUT", status: 200,
		want: `{"items":[{"alias":"$DRAWN"}]}`},
	{name: "listing by tag", as: "ADA", method: "GET", target: "/api/links?tag=far", status: 200,
		want: `{"items":[{"alias":"far"}]}`},
	{name: "listing by state", as: "ADA", method: "GET", target: "/api/links?state=disabled",
		status: 200, want: `{"items":[{"alias":"$DRAWN","disabled":true}]}`},
	{name: "deleting one", as: "ADA", method: "DELETE", target: "/api/links/far", status: 204},
	{name: "listing what is deleted", as: "ADA", method: "GET", target: "/api/links?state=deleted",
		status: 200, want: `{"items":[{"alias":"far"}]}`},
	{name: "listing what is not", as: "ADA", method: "GET", target: "/api/links", status: 200,
		want: `{"items":[{},{}]}`},
	{name: "listing for the admin", as: "ADMIN", method: "GET", target: "/api/links?owner=ada",
		status: 200, want: `{"items":[{},{}]}`},
	{name: "listing another's", as: "BOB", method: "GET", target: "/api/links?owner=ada",
		status: 403},
	{name: "listing without credentials", method: "GET", target: "/api/links", status: 401},

	{name: "nobody's link", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/first"}`, status: 201,
		keep: "CLAIM=claimToken NOBODYS=alias"},
	{name: "reading by claim token", as: "CLAIM", method: "GET", target: "/api/links/$NOBODYS",
		status: 200, want: `{"owner":null,"shared":false}`},
	{name: "who has a claim token", as: "CLAIM", method: "GET", target: "/api/me", status: 200,
		want: `{"owner":null}`},
	{name: "finding one's own", as: "CLAIM", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/first"}`, status: 200,
		want: `{"alias":"$NOBODYS"}`},
	{name: "deleting by claim token", as: "CLAIM", method: "DELETE", target: "/api/links/$NOBODYS",
		status: 204},
	{name: "restoring by claim token", as: "CLAIM", method: "POST",
		target: "/api/links/$NOBODYS/restore", status: 200, want: `{"shared":false}`},
	{name: "editing by claim token", as: "CLAIM", method: "PATCH", target: "/api/links/$NOBODYS",
		body: `{"title":"x"}`, status: 403, want: `{"type":"/problems/owner-needed"}`},
	{name: "another of nobody's", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/second"}`, status: 201,
		keep: "CLAIM2=claimToken SHARED=alias"},
	{name: "given to somebody else", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/second"}`, status: 200,
		want: `{"alias":"$SHARED","claimToken":"ABSENT"}`},
	{name: "deleting what is shared", as: "CLAIM2", method: "DELETE", target: "/api/links/$SHARED",
		status: 409, want: `{"type":"/problems/link-shared"}`},
	{name: "claiming", as: "ADA", method: "POST", target: "/api/claims", status: 200,
		body: `{"claims":[{"alias":"$NOBODYS","claimToken":"$CLAIM"},{"alias":"$SHARED",` +
			`"claimToken":"$CLAIM"},{"alias":"nobody","claimToken":"$CLAIM"},{"alias":"docs",` +
			`"claimToken":"x"},{"alias":"$NOBODYS","claimToken":"$CLAIM"}]}`,
		want: `{"results":[{"alias":"$NOBODYS","result":"claimed"},{"result":"invalid"},` +
			`{"result":"gone"},{"alias":"docs","result":"already yours"},{"result":"already ` +
			`yours"}]}`},
	{name: "what was claimed", as: "ADA", method: "GET", target: "/api/links/$NOBODYS", status: 200,
		want: `{"owner":"ada","expiresAtUtc":null}`},
	{name: "its token is void", as: "CLAIM", method: "GET", target: "/api/links/$NOBODYS",
		status: 403},
	{name: "nobody is given it any more", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/s3cr3t/first"}`, status: 201,
		keep: "CLAIM3=claimToken NEXT=alias"},
	{name: "claiming what is shared", as: "BOB", method: "POST", target: "/api/claims",
		body:   `{"claims":[{"alias":"$SHARED","claimToken":"$CLAIM2","keepExpiry":true}]}`,
		status: 200, want: `{"results":[{"result":"claimed"}]}`},
	{name: "moving what is shared", as: "BOB", method: "PATCH", target: "/api/links/$SHARED",
		body: `{"longUrl":"https://example.com/s3cr3t/elsewhere"}`, status: 409,
		want: `{"type":"/problems/link-shared"}`},
	{name: "disabling what is shared", as: "BOB", method: "PATCH", target: "/api/links/$SHARED",
		body: `{"disabled":true}`, status: 409},
	{name: "naming what is shared", as: "BOB", method: "PATCH", target: "/api/links/$SHARED",
		body: `{"title":"s3cr3t 3"}`, status: 200, want: `{"shared":true}`},
	{name: "the admin may", as: "ADMIN", method: "DELETE", target: "/api/links/$SHARED",
		status: 204},

	{name: "many links", as: "BOB", method: "POST", target: "/api/links/bulk", status: 200,
		body: `{"links":[{"longUrl":"https://example.com/s3cr3t/bulk","alias":"bulk",` +
			`"title":"s3cr3t"},{"longUrl":"https://example.com/s3cr3t/bulk"},` +
			`{"longUrl":"https://example.com/s3cr3t/bulk","alias":"docs"},` +
			`{"longUrl":"s3cr3t"},{"longUrl":"https://example.com/s3cr3t/bulk"}]}`,
		want: `{"results":[{"status":201,"link":{"alias":"bulk",` +
			`"shortUrl":"https://tiney.to/bulk","claimToken":"ABSENT"},"problem":"ABSENT"},` +
			`{"status":201},{"status":409,"problem":{"type":"/problems/alias-taken"},` +
			`"link":"ABSENT"},{"status":400,"problem":{"field":"longUrl"}},{"status":200}]}`},
	{name: "too many links", as: "BOB", method: "POST", target: "/api/links/bulk",
		body: `{"links":[` + strings.Repeat("{},", 100) + `{}]}`, status: 400,
		want: `{"field":"links"}`},
	{name: "many links without credentials", method: "POST", target: "/api/links/bulk",
		body: `{"links":[{}]}`, status: 401},
	{name: "a link of that name", as: "BOB", method: "GET", target: "/api/links/bulk", status: 200,
		want: `{"alias":"bulk","owner":"bob"}`},
	{name: "what it takes", method: "OPTIONS", target: "/api/links/Bulk/", status: 204,
		want: `{"Allow":"DELETE, GET, HEAD, PATCH, POST, OPTIONS"}`},

	{name: "what a link takes", method: "OPTIONS", target: "/api/links/docs", status: 204,
		want: `{"Allow":"DELETE, GET, HEAD, PATCH, OPTIONS"}`},
	{name: "what a link does not take", as: "ADA", method: "PUT", target: "/api/links/docs",
		status: 405,
		want:   `{"Allow":"DELETE, GET, HEAD, PATCH, OPTIONS","type":"/problems/method"}`},
	{name: "what keys take", method: "OPTIONS", target: "/api/keys", status: 204,
		want: `{"Allow":"GET, HEAD, POST, OPTIONS"}`},
	{name: "what claims take", method: "GET", target: "/api/claims", status: 405,
		want: `{"Allow":"POST, OPTIONS"}`},
	{name: "nothing there", as: "ADA", method: "DELETE", target: "/api/links/docs/qr/x",
		headers: []string{"Accept", browser}, status: 404,
		want: `{"type":"/problems/not-found","Content-Type":"application/problem+json"}`},
	{name: "in another case, with a slash", as: "ADA", method: "GET", target: "/API/Links/docs/",
		status: 200, want: `{"alias":"docs"}`},
	{name: "restoring in another case", as: "ADA", method: "POST",
		target: "/Api/LINKS/docs/Restore/", status: 409},
	{name: "the alias in another case", as: "ADA", method: "GET", target: "/api/links/DOCS",
		status: 404},
	{name: "the alias escaped", as: "ADA", method: "GET", target: "/api/links/d%6fc%73",
		status: 200, want: `{"alias":"docs"}`},
	{name: "the path escaped", as: "ADA", method: "GET", target: "/api/%6Cinks/docs", status: 200,
		want: `{"alias":"docs"}`},
	{name: "dots in place of the alias", as: "ADA", method: "GET", target: "/api/links/%252e%252e",
		status: 404},
	{name: "a slash in the alias", as: "ADA", method: "GET", target: "/api/links/docs%2Frestore",
		status: 404},
	{name: "an alias that is too long", as: "ADA", method: "GET", target: "/api/links/" +
		strings.Repeat("a", 101), status: 404},
	{name: "an alias that is none", as: "ADA", method: "DELETE", target: "/api/links/%C3%BC",
		status: 404},
	{name: "a reserved alias, in the path", as: "ADA", method: "GET", target: "/api/links/Manage",
		status: 404},
	{name: "no path", as: "ADA", method: "GET", target: "/api/", status: 404},
	{name: "not below /api/", as: "ADA", method: "GET", target: "/API", status: 404},

	{name: "Ada's second key, used", as: "SECOND", method: "GET", target: "/api/me", status: 200},
	{name: "revoking it", as: "ADA", method: "DELETE", target: "/api/keys/$SECONDS", status: 204},
	{name: "revoking it again", as: "ADA", method: "DELETE", target: "/api/keys/$SECONDS",
		status: 404},
	{name: "it is refused", as: "SECOND", method: "GET", target: "/api/me", status: 401},
	{name: "it is refused where none is needed", as: "SECOND", method: "POST",
		target: "/api/shorten", body: `{"longUrl":"https://example.com/s3cr3t/first"}`,
		status: 401},
	{name: "it does not matter elsewhere", as: "SECOND", method: "GET", target: "/docs",
		status: 302},
}

// take takes a walk, and returns the values that its steps have kept.
func take(t *testing.T, base string, steps []step) map[string]string {
	t.Helper()
	kept := map[string]string{"ADMIN": adminKey, "FORGED": "tny_" + strings.Repeat("0", 49)}
	expand := func(text string) string {
		return os.Expand(text, func(name string) string { return kept[name] })
	}
	for _, s := range steps {
		var headers []string
		for _, h := range s.headers {
			headers = append(headers, expand(h))
		}
		as := caller{t, base, kept[s.as]}
		got := as.send(s.method, expand(s.target), expand(s.body), headers...)
		// A status of 503 in the body is that of one link among many.
		slow := func() bool {
			return got.Status == 503 ||
				strings.Contains(got.Body, `"status":503`)
		}
		tooSlow := slow()
		for slow() { // on a busy machine; a 503 tells the caller to repeat the request
			got = as.send(s.method, expand(s.target), expand(s.body), headers...)
		}
		all := members(got)
		if tooSlow && (got.Status != s.status || s.target == "/api/links/bulk") &&
			slices.Contains([]int{200, 404, 409, 412}, got.Status) {
			t.Logf("%s: the repeated request got %+v", s.name, got) // the first one took effect
			continue
		}
		if got.Status != s.status {
			t.Errorf("%s: got %+v, want %d", s.name, got, s.status)
		}
		if s.want != "" {
			var want any
			if err := json.Unmarshal([]byte(escapeTags(s.want, kept)), &want); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			if !matches(all, want) {
				t.Errorf("%s: got %+v, want %v", s.name, got, want)
			}
		}
		for name := range strings.FieldsSeq(s.keep) {
			name, member, _ := strings.Cut(name, "=")
			if kept[name], _ = all[member].(string); kept[name] == "" {
				t.Fatalf("%s: the response lacks %s: %+v", s.name, member, got)
			}
		}
	}
	return kept
}

// escapeTags expands kept values in JSON text. It escapes quotes, since an ETag has some.
func escapeTags(text string, kept map[string]string) string {
	return os.Expand(text, func(name string) string {
		return strings.ReplaceAll(kept[name], `"`, `\"`)
	})
}

// matches reports whether got has every member of want with a matching value, and lists of the same
// length. A member that is "ABSENT" in want must be missing in got.
func matches(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		members, ok := got.(map[string]any)
		for name, value := range want {
			there, has := members[name]
			ok = ok && (value == "ABSENT" && !has || has && matches(there, value))
		}
		return ok
	case []any:
		list, ok := got.([]any)
		ok = ok && len(list) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = matches(list[i], want[i])
		}
		return ok
	}
	return got == want
}

func TestOwnersInEveryMode(t *testing.T) {
	for mode, start := range modes {
		t.Run(mode, func(t *testing.T) {
			s := newSite(t)
			base, _ := start(s)
			awaitReady(t, base)
			take(t, base, owned)
			s.WantNoLeak()
		})
	}
}

// A forwarding host joins two lines of one header into one line.
func TestDoubledCredentials(t *testing.T) {
	for mode, start := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			base, _ := start(newSite(t))
			ada := owner(t, base, "ada")
			for _, lines := range [][2]string{
				{"Authorization: Bearer " + ada.token, "Authorization: Bearer " + adminKey},
				{"Authorization: Bearer " + ada.token, "Authorization: Bearer " + ada.token},
				{"Authorization: Basic YTpi", "Authorization: Bearer " + ada.token},
				{"X-Api-Key: " + ada.token, "X-Api-Key: " + adminKey},
				{"X-Api-Key: " + adminKey, "Authorization: Bearer " + ada.token},
			} {
				req, err := http.NewRequest(http.MethodGet, base+"/api/me", nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range lines {
					name, value, _ := strings.Cut(line, ": ")
					req.Header.Add(name, value)
				}
				resp, err := testutil.Client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != 400 {
					t.Errorf("%q: got %s, want 400", lines, resp.Status)
				}
			}
		})
	}
}

func TestOnlyOwnersMayShorten(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.PutLink(link.Link{Name: "live", LongURL: "https://example.com/live",
		ExpiresAt: time.Now().Add(time.Hour)})
	base := s.standalone(emulator.ConnectionString(), "SHORTEN_ACCESS=owners").url
	const body = `{"longUrl":"https://example.com/live"}`
	for want, c := range map[int]caller{
		401: {t: t, base: base},
		403: {t, base, "tnc_" + strings.Repeat("0", 43)},
		201: owner(t, base, "ada"),
	} {
		if got := c.send("POST", "/api/shorten", body); got.Status != want {
			t.Errorf("shorten: got %+v, want %d", got, want)
		}
	}
	if got := get(t, base+"/live"); got.Status != 302 {
		t.Errorf("what is there: %+v", got)
	}
}

// A reaped link leaves a tombstone. Until the tombstone is gone too, the alias leads nowhere and
// nobody can get it.
func TestTombstones(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hosted(true, emulator.ConnectionString(), "CACHE_ENABLED=false")
	ada := owner(t, h.URL(), "ada")
	const body = `{"longUrl":"https://example.com/","alias":"%s","expiresInSeconds":3600}`
	ada.must(201, "POST", "/api/shorten", fmt.Sprintf(body, "expired"))
	ada.must(201, "POST", "/api/shorten", fmt.Sprintf(body, "deleted"))
	ada.must(204, "DELETE", "/api/links/deleted", "")
	reap := func(d time.Duration) {
		t.Helper()
		s.Age(d)
		if _, err := h.FireTimer(ctx, "reaper"); err != nil {
			t.Error(err)
		}
	}
	reap(8 * 24 * time.Hour) // by then a deleted link can no longer be restored
	s.WantNoLeak()
	for alias, kind := range map[string]string{"expired": "/problems/link-expired",
		"deleted": "/problems/link-deleted"} {
		if got := get(t, h.URL()+"/"+alias); got.Status != 410 ||
			!strings.Contains(got.Body, kind) {
			t.Errorf("%s, reaped: %+v", alias, got)
		}
		for target, method := range map[string]string{"/api/links/" + alias: "GET", "/api/links/" +
			alias + "/restore": "POST"} {
			if got := ada.send(method, target, ""); got.Status != 404 {
				t.Errorf("%s %s: %+v", method, target, got)
			}
		}
		if got := ada.send("POST", "/api/shorten", fmt.Sprintf(body, alias)); got.Status != 409 {
			t.Errorf("the alias of %s: %+v", alias, got)
		}
	}
	if got := ada.must(200, "GET", "/api/links?state=deleted", ""); !matches(got["items"],
		[]any{}) {
		t.Errorf("a tombstone is listed: %v", got)
	}
	reap(31 * 24 * time.Hour)
	for _, alias := range []string{"expired", "deleted"} {
		if got := get(t, h.URL()+"/"+alias); got.Status != 404 {
			t.Errorf("%s, long gone: %+v", alias, got)
		}
	}
	s.WantNothing()
}

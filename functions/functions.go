// Package functions responds to requests: one file per function or route, and a folder with a
// function.json for each function that the Functions host knows. It declares as interfaces what it
// needs from other packages.
package functions

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/pages"
	"tiney/internal/telemetry"
)

// Config is what the functions work with. Every field is required unless it says otherwise.
type Config struct {
	Settings

	Links   Links
	Keys    Keys
	Blocked Blocked
	Clicks  Clicks

	Version      string // of this build
	Callers      Callers
	Reaper       Runner
	Tables, Lock Pinger
	Now          func() time.Time
	Random       io.Reader // a cryptographic source, for keys and claim tokens
	Log          *slog.Logger
	Metrics      *telemetry.Metrics
	Sender       *telemetry.Sender // reports requests if no host does; nil disables it
}

// Settings are what the operator of a site decides.
type Settings struct {
	// HostAddress is the address at which the Functions host reaches this process, such as
	// "127.0.0.1:49152". It is "" without a host; then the timer triggers have no endpoint.
	HostAddress string
	LocalOnly   bool   // requests to any name but this machine's get a 403
	SiteName    string // what pages call the service
	SiteNotice  string // what stands on every page; "": nothing
	Memory      bool   // everything is kept in the memory of this process

	Rules      link.Rules
	OwnersOnly bool // only owners may shorten
	// DomainsOwnersOnly: only owners may make links of the domains besides the default one.
	DomainsOwnersOnly bool
	DeletedKeep       time.Duration // how long a deleted link can be restored

	DomainHeader string // names the header that says which domain a request is for; "": Host
	// Where people are sent from the root, from unknown aliases and from links that have ended.
	HomeURL, UnknownURL, GoneURL link.Fallback

	RedirectMaxAge  time.Duration // how long caches in front may keep a redirect; zero: not at all
	StrictTransport time.Duration // the max-age of HSTS of https domains; zero: no HSTS

	Addresses access.Addresses // how to find the client's address
	Rates     access.Rates     // how many requests each client may send

	CountClicks clicks.Mode // what to count of clicks
	CountsKept  int         // for how many days daily counts are kept
	PublicStats bool        // anyone may read the statistics of the whole service, not only admins
	MCP         bool        // assistants may call POST /api/mcp
	OAuth       OAuth       // how these sign people in
}

// service responds to every request. Its methods are the functions.
type service struct {
	Config
	hosted bool
	// strictTransport is the header Strict-Transport-Security of the responses of https domains. It
	// is nil for none.
	strictTransport []string
	plain           map[link.Domain]bool // the domains that are not https
	varyDomain      []string             // the header Vary of redirects that caches may keep, or nil
	routes          *router
	hosts           map[link.Domain]link.Domain // the domains by their names, also the default one
	site            pages.Site
	homePage        []byte
	document        func() (text, etag string) // of OpenAPI
	tools           func() http.Handler        // of MCP

	limits    *limits
	passwords *access.Passwords
	large     largeCalls
	drawing   chan struct{} // a semaphore; limits how many QR codes are drawn at once
	checks    checks

	forwardingKnown atomic.Bool            // noteForwarding knows the kind of the Functions host
	lastLocal       atomic.Pointer[string] // the last name that toThisMachine found to be its own
}

// New returns the handler of all functions.
func New(c Config) http.Handler {
	s := &service{
		Config: c,
		hosted: c.HostAddress != "",
		site: pages.Site{Base: c.Rules.Base.String(), Default: string(c.Rules.DomainName("")),
			Schemes: strings.Join(c.Rules.ExtraSchemes, " "), OwnersOnly: c.OwnersOnly,
			DefaultTTL: min(c.Rules.DefaultTTL, c.Rules.MaxTTL), MaxTTL: c.Rules.MaxTTL,
			Keep: c.DeletedKeep, Memory: c.Memory, Name: c.SiteName, Notice: c.SiteNotice,
			Elsewhere: c.HomeURL != ""},
		document: newDocument(c.Rules.Base, c.Version),
		limits: &limits{
			Limits: access.NewLimits(c.Rates, c.Now), addresses: c.Addresses, log: c.Log},
		passwords: access.NewPasswords(),
		large:     largeCalls{owners: map[string]bool{}},
		drawing:   make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	// Make the home page once: the Functions host requests it every 25 ms while it waits for the
	// handler.
	s.homePage = s.site.Home(pages.Form{})
	s.hosts, s.plain = map[link.Domain]link.Domain{}, map[link.Domain]bool{}
	for d, base := range c.Rules.Bases() {
		s.hosts[base.Domain()] = d
		if !strings.HasPrefix(base.Origin(), "https:") {
			s.plain[d] = true
		}
	}
	if c.StrictTransport > 0 && len(s.plain) < len(s.hosts) {
		s.strictTransport = []string{fmt.Sprintf("max-age=%d", int64(c.StrictTransport.Seconds()))}
	}
	if c.DomainHeader != "" && len(s.hosts) > 1 {
		s.varyDomain = []string{c.DomainHeader}
	}
	s.tools = s.newTools()
	s.routes = newRouter(c.HostAddress, s.all())
	return s
}

// all returns the routes of the service. Each function has a function.json, which the Functions
// host reads. Behind the host, web-api gets the paths below /api/ that no other function has.
func (s *service) all() []route {
	whoMayCount := s.admins
	if s.PublicStats {
		whoMayCount = s.anyone
	}
	mcp := notFound
	if s.MCP {
		mcp = s.challenged(s.identified(access.LimitAPI, s.serveMCP))
	}
	routes := []route{
		{function: "home", pattern: "/", serve: s.home},
		{function: "redirect", pattern: "GET /{alias}", serve: s.redirect},
		{function: "redirect", pattern: "GET /favicon.ico", serve: favicon},
		{function: "redirect", pattern: "GET /robots.txt", serve: robots},
		{function: "redirect", pattern: "GET /opensearch.xml", serve: s.openSearch},
		{function: "with-path", pattern: "GET /{alias}/{rest...}", serve: s.redirect},
		{function: "with-path", pattern: "GET " + metadataPath, serve: s.resource},
		{function: "with-path", pattern: "GET " + metadataPath + mcpPath, serve: s.resource},
		{function: "manage", pattern: "GET /manage/{path...}", serve: s.manage, limit: waitTime},
		{function: "reaper", pattern: "POST /reaper", serve: s.reap, timer: true},
		{function: "health", pattern: "GET /api/health", serve: s.health},
		{function: "ready", pattern: "GET /api/ready", serve: s.ready},
		{function: "shorten", pattern: "POST /api/shorten",
			serve: s.countRejected(s.limited(access.LimitShorten, s.shorten)), limit: waitTime},
		{function: webAPI, pattern: "/api/{path...}", serve: notFound},
	}
	for _, to := range []route{
		{pattern: "GET /api/links", serve: s.owners(s.listLinks)},
		{pattern: "POST /api/links/bulk", serve: s.owners(s.bulk), limit: manyTime},
		{pattern: "PATCH /api/links/bulk", serve: s.owners(s.bulkEdit), limit: manyTime},
		{pattern: "GET /api/links/{alias}", serve: s.holders(s.readLink)},
		{pattern: "PATCH /api/links/{alias}", serve: s.owners(s.editLink)},
		{pattern: "DELETE /api/links/{alias}", serve: s.holders(s.deleteLink)},
		{pattern: "POST /api/links/{alias}/restore", serve: s.holders(s.restoreLink)},
		{pattern: "GET /api/links/{alias}/history", serve: s.owners(s.linkHistory)},
		{pattern: "GET /api/links/{alias}/stats", serve: s.holders(s.linkStats)},
		{pattern: "GET /api/links/{alias}/qr", serve: s.public(s.qr)},
		{pattern: "POST /api/links/{alias}/open", serve: s.open},
		{pattern: "GET /api/aliases/{alias}", serve: s.owners(s.freeAlias)},
		{pattern: "GET /api/tags", serve: s.owners(s.listTags)},
		{pattern: "GET /api/domains", serve: s.owners(s.listDomains)},
		{pattern: "POST /api/claims", serve: s.owners(s.claim)},
		{pattern: "GET /api/export", serve: s.owners(s.export)},
		{pattern: "POST /api/import", serve: s.owners(s.importLinks), limit: manyTime},
		{pattern: "GET /api/stats", serve: whoMayCount(s.serviceStats)},
		{pattern: "GET /api/stats/links", serve: s.owners(s.linksStats)},
		{pattern: "GET /api/stats/clicks", serve: s.owners(s.linkTotals)},
		{pattern: "GET /api/stats/top", serve: s.owners(s.topLinks)},
		{pattern: "GET /api/me", serve: s.anyone(me)},
		{pattern: "POST /api/keys", serve: s.owners(s.createKey)},
		{pattern: "GET /api/keys", serve: s.owners(s.listKeys)},
		{pattern: "DELETE /api/keys/{id}", serve: s.owners(s.revokeKey)},
		{pattern: "PUT /api/blocked/{host}", serve: s.admins(s.block)},
		{pattern: "DELETE /api/blocked/{host}", serve: s.admins(s.unblock)},
		{pattern: "GET /api/blocked", serve: s.admins(s.listBlocked)},
		{pattern: "GET /api/admin/cleanup/stats", serve: s.admins(s.reaperStats)},
		{pattern: "GET /api/openapi.json", serve: s.anyone(s.openAPI)},
		{pattern: "POST " + mcpPath, serve: mcp},
	} {
		to.function, to.limit = webAPI, cmp.Or(to.limit, waitTime)
		routes = append(routes, to)
	}
	return routes
}

// handlerFunc is one function. It responds, or returns an error before it has written anything. ctx
// is the context of the operation, and ends when the limit of the route is over. It is passed
// beside the request, because changing a request's context copies the request. Most functions of
// the API are an apiFunc instead.
type handlerFunc func(ctx context.Context, w http.ResponseWriter, r *http.Request) error

func notFound(context.Context, http.ResponseWriter, *http.Request) error {
	return nothingHereProblem
}

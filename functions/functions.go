// Package functions responds to requests: one file per function or route, and a folder with a
// function.json for each function that the Functions host knows. It declares as interfaces what it
// needs from other packages.
package functions

import (
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
	Stores
	Infrastructure
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
	RawURLHeader string // names the header in which a front end gives the URL as it came; "": none
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
}

// Stores keep what the functions read and write.
type Stores struct {
	Links interface {
		Creator
		Getter
		Reader
		Editor
		Lister
		Mover
	}
	Keys       Keys
	Blocked    BlockChecker
	Blocklist  Blocklist
	Clicks     Clicks
	LinkTotals LinkTotals
	Statistics Statistics
}

// Infrastructure is everything else.
type Infrastructure struct {
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

	limits  *limits
	large   few           // calls that take megabytes
	drawing chan struct{} // a semaphore; limits how many QR codes are drawn at once
	checks  checks

	forwardingKnown atomic.Bool // noteForwarding knows the kind of the Functions host
}

// New returns the handler of all functions, with the routes of the function.json files and those
// behind web-api.
func New(c Config) (http.Handler, error) {
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
		large:   few{owners: map[string]bool{}},
		drawing: make(chan struct{}, runtime.GOMAXPROCS(0)),
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
	whoMayCount := s.admins
	if c.PublicStats {
		whoMayCount = s.anyone
	}
	s.tools = s.newTools()
	serveMCP := notFound
	if c.MCP {
		serveMCP = s.identified(access.LimitAPI, s.serveMCP)
	}
	var err error
	s.routes, err = newRouter(functionFiles, c.HostAddress, map[string]handlerFunc{
		"shorten":   s.counted(s.limited(access.LimitShorten, s.shorten)),
		"redirect":  s.redirect,
		"with-path": s.redirect,
		"health":    s.health,
		"ready":     s.ready,
		"home":      s.home,
		"manage":    s.manage,
		"reaper":    s.reap,
		webAPI:      notFound,
	}, map[string]handlerFunc{
		"GET /api/links/{alias}/qr":       s.public(s.qr),
		"GET /api/openapi.json":           s.anyone(s.openAPI),
		"GET /api/me":                     s.anyone(me),
		"GET /api/domains":                s.owners(s.listDomains),
		"GET /api/aliases/{alias}":        s.owners(s.freeAlias),
		"GET /api/tags":                   s.owners(s.listTags),
		"GET /api/links":                  s.owners(s.listLinks),
		"POST /api/links/bulk":            s.owners(s.bulk),
		"GET /api/links/{alias}":          s.holders(s.readLink),
		"PATCH /api/links/{alias}":        s.owners(s.editLink),
		"DELETE /api/links/{alias}":       s.holders(s.deleteLink),
		"POST /api/links/{alias}/restore": s.holders(s.restoreLink),
		"GET /api/links/{alias}/history":  s.owners(s.linkHistory),
		"GET /api/links/{alias}/stats":    s.holders(s.linkStats),
		"GET /api/stats/links":            s.owners(s.linksStats),
		"GET /api/stats/clicks":           s.owners(s.clicksOf),
		"GET /api/stats/top":              s.owners(s.topLinks),
		"GET /api/stats":                  whoMayCount(s.serviceStats),
		"POST /api/claims":                s.owners(s.claim),
		"GET /api/export":                 s.owners(s.export),
		"POST /api/import":                s.owners(s.importLinks),
		"POST /api/keys":                  s.owners(s.createKey),
		"GET /api/keys":                   s.owners(s.listKeys),
		"DELETE /api/keys/{id}":           s.owners(s.revokeKey),
		"PUT /api/blocked/{host}":         s.admins(s.block),
		"DELETE /api/blocked/{host}":      s.admins(s.unblock),
		"GET /api/blocked":                s.admins(s.listBlocked),
		"GET /api/admin/cleanup/stats":    s.admins(s.reaperStats),
		"POST /api/mcp":                   serveMCP,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// handlerFunc is one function. It responds, or returns an error before it has written anything. ctx
// is the context of the request and of its operation. It is passed beside the request, because
// changing a request's context copies the request.
type handlerFunc func(ctx context.Context, w http.ResponseWriter, r *http.Request) error

func notFound(context.Context, http.ResponseWriter, *http.Request) error {
	return nothingHereProblem
}

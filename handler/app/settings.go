// Package app reads the settings and wires the packages of the service.
package app

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage"
	"tiney/storage/counts"
	"tiney/storage/lock"
	"tiney/storage/table"
)

// Settings are the settings from the environment, as configurations of the packages. New completes
// the configurations.
type Settings struct {
	Address string // to listen on
	// MetricsAddress is where Prometheus finds metrics; "": nowhere. It has no effect behind the
	// Functions host.
	MetricsAddress string
	LogLevel       slog.Level
	Access         access.Config
	Functions      functions.Settings
	Tables         table.Connection  // to the tables
	Copies         *table.Connection // to their copy in the account's second region; nil for none
	Storage        storage.Config
	ReapLimit      time.Duration // how long one run of the reaper may take
	Lock           lock.Config
	Telemetry      *telemetry.Config // nil disables it
}

// Hosted reports whether the process runs behind the Functions host.
func (s Settings) Hosted() bool { return s.Functions.HostAddress != "" }

// ReadSettings reads the settings from the environment. Its error names every setting that is
// wrong, and quotes no value that may be secret.
func ReadSettings(getenv func(string) string) (Settings, error) {
	r, s := &reader{getenv: getenv}, Settings{}

	port := r.port()
	if getenv("FUNCTIONS_CUSTOMHANDLER_PORT") != "" {
		hosted := r.integer("FUNCTIONS_CUSTOMHANDLER_PORT", 0, 1, 65535)
		s.Address = net.JoinHostPort("127.0.0.1", strconv.FormatInt(hosted, 10))
		s.Functions.HostAddress = s.Address
	} else {
		s.Address = net.JoinHostPort(r.listenAddress(), strconv.FormatInt(port, 10))
	}
	s.LogLevel = levels[r.choice("LOG_LEVEL", "info", "debug", "info", "warn", "error")]
	s.MetricsAddress = r.hostAndPort("METRICS_ADDRESS")

	r.links(&s, port)
	s.Functions.OwnersOnly = r.choice("SHORTEN_ACCESS", "anyone", "anyone", "owners") == "owners"
	s.Functions.DomainsOwnersOnly =
		r.choice("DOMAINS_ACCESS", "anyone", "anyone", "owners") == "owners"
	s.Functions.DomainHeader = r.header("DOMAIN_HEADER", "")
	if s.Functions.DomainHeader == "Host" { // net/http keeps it apart
		r.wrong("DOMAIN_HEADER", "must not be Host, which is read without this setting")
	}
	fallback := func(name string, alias bool) link.Fallback {
		return parsed(r, name, func(given string) (link.Fallback, error) {
			return s.Functions.Rules.ParseFallback(given, alias)
		})
	}
	s.Functions.HomeURL = fallback("HOME_URL", false)
	s.Functions.UnknownURL = fallback("UNKNOWN_URL", true)
	s.Functions.GoneURL = fallback("GONE_URL", true)
	s.Functions.RedirectMaxAge = r.duration("REDIRECT_MAX_AGE_SECONDS", time.Second, 0, 0, 31536000)
	s.Functions.StrictTransport = r.duration("HSTS_SECONDS", time.Second, 31536000, 0, 63072000)

	s.Functions.SiteName = r.words("SITE_NAME", "tiney", 50)
	s.Functions.SiteNotice = r.words("SITE_NOTICE", "", 200)
	s.Functions.PublicStats = r.boolean("PUBLIC_STATS", true)
	s.Functions.MCP = r.choice("MCP", "on", "on", "off") == "on"
	s.Functions.Rates = access.Rates{
		access.LimitShorten:  r.rate("RATE_SHORTEN_PER_MINUTE", 30),
		access.LimitUnknown:  r.rate("RATE_UNKNOWN_PER_MINUTE", 60),
		access.LimitAPI:      r.rate("RATE_API_PER_MINUTE", 300),
		access.LimitRedirect: r.rate("RATE_REDIRECT_PER_MINUTE", 0),
		access.LimitProbes:   r.rate("RATE_PROBES_PER_DAY", 1000),
	}
	s.Functions.Addresses = r.addresses("CLIENT_ADDRESS_HEADER", "CLIENT_ADDRESS_HOPS", s.Hosted())

	s.Access.AdminKey = r.adminKey("ADMIN_KEY", s.Address, s.Functions.Rules.Base)
	s.Functions.LocalOnly = s.Access.AdminKey == developmentKey
	s.Access.OIDC = r.oidc("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_ADMIN_ROLE", "OIDC_GROUPS_CLAIM",
		"OIDC_SCOPES", "OIDC_API_AUDIENCE", "OIDC_API_SCOPE", "OIDC_SUBJECT_CLAIM")
	if p := s.Access.OIDC; p != nil {
		s.Functions.OAuth = functions.OAuth{Issuer: p.Issuer, Scope: p.APIScope,
			Scopes: []string{p.APIScope}}
		if p.APIScope == "" {
			s.Functions.OAuth.Scopes = strings.Fields(p.Scopes)
		}
	}

	s.ReapLimit = r.duration("GC_MAX_SECONDS", time.Second, 240, 1, 1800)
	cache := storage.CacheConfig{
		Bytes:    r.integer("CACHE_SIZE_MB", 10, 1, 1024) << 20,
		Fresh:    r.duration("CACHE_DURATION_SECONDS", time.Second, 900, 1, 86400),
		Negative: r.duration("CACHE_NEGATIVE_SECONDS", time.Second, 60, 0, 3600),
		Stale:    r.duration("CACHE_STALE_SECONDS", time.Second, 3600, 0, 86400),
	}
	if r.boolean("CACHE_ENABLED", true) {
		s.Storage.Cache = &cache
	}

	if !s.Functions.Memory {
		s.Lock.Connection = r.connection(
			table.BlobService, "GC_BLOB_LOCK_CONNECTION", "AzureWebJobsStorage")
	}
	s.Lock.Container = r.text("GC_BLOB_LOCK_CONTAINER", "locks", `^[a-z0-9](-?[a-z0-9])*$`,
		"lower-case letters and digits, with single hyphens between them")
	if n := len(s.Lock.Container); n < 3 || n > 63 {
		r.wrong("GC_BLOB_LOCK_CONTAINER", "must have 3 to 63 characters")
	}
	s.Lock.Blob = r.short("GC_BLOB_LOCK_BLOB", "expiry-reaper.lock", 256,
		`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`,
		"up to 256 letters, digits, dots, hyphens and underscores, "+
			"with a letter or a digit at both ends")

	machine, _ := os.Hostname()
	t := telemetry.Config{
		SamplingPercent: int(r.integer("TELEMETRY_SAMPLING_PERCENT", 100, 1, 100)),
		Hosted:          s.Hosted(),
		// The Functions host sends its own telemetry under these names.
		Role:     cmp.Or(getenv("WEBSITE_SITE_NAME"), "tiney"),
		Instance: cmp.Or(getenv("WEBSITE_INSTANCE_ID"), machine, "unknown"),
	}
	if r.boolean("TELEMETRY_CLIENT_IP", false) {
		t.ClientAddress = s.Functions.Addresses.Of
	}
	const insights = "APPLICATIONINSIGHTS_CONNECTION_STRING"
	t.Connection = parsed(r, insights, telemetry.ParseConnection)
	if getenv(insights) != "" {
		s.Telemetry = &t
	}
	t.Credential = parsed(r, "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
		func(given string) (azcore.TokenCredential, error) {
			return telemetry.ParseAuthentication(given, t.Connection)
		})

	return s, r.err()
}

// OpenTables opens the tables, unless they are open. It makes no call.
func (s *Settings) OpenTables(sender *telemetry.Sender) error {
	if s.Storage.Open != nil {
		return nil
	}
	open := func(c table.Connection) (func(string) table.Table, error) {
		service, err := table.Open(c, sender)
		if err != nil {
			return nil, fmt.Errorf("TABLE_CONNECTION or AzureWebJobsStorage: %w", err)
		}
		return service.Table, nil
	}
	var err error
	if s.Storage.Open, err = open(s.Tables); err == nil && s.Copies != nil {
		s.Storage.OpenCopy, err = open(*s.Copies)
	}
	return err
}

// ReadLinkSettings reads only the settings of links and their tables, for a process that does not
// serve. Its error is like the error of ReadSettings.
func ReadLinkSettings(getenv func(string) string) (Settings, error) {
	r, s := &reader{getenv: getenv}, Settings{}
	r.links(&s, r.port())
	if s.Functions.Memory {
		r.wrong(tableConnection, "must be a storage account: what a service keeps in memory, "+
			"only its API can reach")
	}
	return s, r.err()
}

// InMemory returns an environment for a first try of the service that needs no other setting: all
// of getenv's, with everything in memory, and by default the public admin key.
func InMemory(getenv func(string) string) func(string) string {
	return func(name string) string {
		switch given := getenv(name); name {
		case tableConnection:
			return memory
		case "ADMIN_KEY":
			return cmp.Or(given, developmentKey)
		default:
			return given
		}
	}
}

const (
	tableConnection = "TABLE_CONNECTION"
	memory          = "memory" // as a connection: the tables are in this process
)

// links reads the rules of links and the settings of their storage, except those of its cache. The
// default BaseUrl has this port.
func (r *reader) links(s *Settings, port int64) {
	const minTTL, maxTTL = int64(link.MinTTL / time.Second), 36500 * 86400
	s.Functions.Rules.Base = r.base("BaseUrl", port)
	s.Functions.Rules.Domains = r.domains("DOMAINS", s.Functions.Rules.Base)
	s.Functions.Rules.OtherHosts = r.otherHosts("OTHER_HOSTS")
	s.Functions.Rules.ExtraSchemes = r.schemes("EXTRA_SCHEMES")
	s.Functions.Rules.AnyCase =
		r.choice("ALIAS_CASE", "sensitive", "sensitive", "insensitive") == "insensitive"
	s.Storage.AnyCase = s.Functions.Rules.AnyCase
	days := r.integer("DefaultTtlDays", 30, 1, 36500)
	s.Functions.Rules.DefaultTTL = r.duration(
		"ANONYMOUS_TTL_SECONDS", time.Second, days*86400, minTTL, maxTTL)
	s.Functions.Rules.MaxTTL = min(r.duration("MaxTtlDays", day, 365, 1, 36500),
		r.duration("MAX_TTL_SECONDS", time.Second, 7776000, minTTL, maxTTL))

	s.Functions.Memory = strings.EqualFold(r.getenv(tableConnection), memory)
	switch {
	case !s.Functions.Memory:
		s.Tables = r.connection(table.TableService, tableConnection, "AzureWebJobsStorage")
		s.Copies = r.secondary("TABLE_SECONDARY", s.Tables)
	case r.getenv("FUNCTIONS_CUSTOMHANDLER_PORT") != "":
		r.wrong(tableConnection, "must not be memory behind the Functions host, which may run "+
			"several processes: each would have other links")
	case r.getenv("TABLE_SECONDARY") != "":
		r.wrong("TABLE_SECONDARY", "must be empty, since "+tableConnection+" is memory")
	}
	s.Storage.Timeout = table.Timeout
	s.Storage.ChangesWait, s.Storage.StaleWait = changesWait, staleWait
	s.Storage.Tables = r.tables()
	s.Storage.DeletedKeep = r.duration("DELETED_KEEP_SECONDS", time.Second, 604800, 1, 365*86400)
	s.Functions.DeletedKeep = s.Storage.DeletedKeep
	s.Storage.TombstoneFor = r.duration("TOMBSTONE_DAYS", day, 30, 0, 3650)
	s.Storage.ChangesEvery = r.duration("CHANGES_SECONDS", time.Second, 5, 0, 10)
	s.Storage.AliasLength = int(r.integer("ALIAS_LENGTH", 6, 4, 32))
	s.Storage.Reap = storage.ReapConfig{
		Buffer:       r.duration("GC_BUFFER_SECONDS", time.Second, 0, 0, 30*86400),
		PageSize:     int(r.integer("GC_PAGE_SIZE", 1000, 1, 1000)),
		StorageClock: true,
		Pause:        time.Second,
	}
	s.Storage.Clicks = counts.Settings{
		Mode:       clicks.Mode(r.choice("CLICKS", "full", "full", "totals", "off")),
		FlushEvery: r.duration("CLICKS_FLUSH_SECONDS", time.Second, 10, 1, 300),
		KeepDays:   int(r.integer("CLICKS_KEEP_DAYS", 400, 3, 3650)),
	}
	s.Functions.CountClicks = s.Storage.Clicks.Mode
	s.Functions.CountsKept = s.Storage.Clicks.KeepDays
}

// defaultPort is the port on which the Functions host itself listens under `func start`.
const defaultPort = 7071

// port reads the port of the default BaseUrl. Without the host, the process listens on it.
func (r *reader) port() int64 {
	if r.getenv("FUNCTIONS_CUSTOMHANDLER_PORT") != "" {
		return defaultPort
	}
	name := "PORT"
	if r.getenv("HTTP_PLATFORM_PORT") != "" {
		name = "HTTP_PLATFORM_PORT"
	}
	return r.integer(name, defaultPort, 1, 65535)
}

const (
	changesWait = 500 * time.Millisecond // how long a request waits for changes of other processes
	staleWait   = time.Second            // how long it waits for a table if a stale link is there
)

const day = 24 * time.Hour

// reader reads settings and collects what is wrong with them.
type reader struct {
	getenv func(string) string
	errs   []error
}

// err returns an error that lists everything that is wrong, or nil.
func (r *reader) err() error {
	if len(r.errs) == 0 {
		return nil
	}
	return fmt.Errorf("these settings are wrong:\n%w", errors.Join(r.errs...))
}

// wrong notes what is wrong with a setting.
func (r *reader) wrong(name, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("  %s %s", name, fmt.Sprintf(format, args...)))
}

// check notes the error of a setting, if there is one.
func (r *reader) check(name string, err error) {
	if err != nil {
		r.wrong(name, "%v", err)
	}
}

// parsed reads a value by parse, whose error says what is wrong with it. The default is zero.
func parsed[T any](r *reader, name string, parse func(string) (T, error)) (value T) {
	if given := r.getenv(name); given != "" {
		var err error
		value, err = parse(given)
		r.check(name, err)
	}
	return value
}

// integer reads 64 bits also on 32-bit machines, on which an int cannot hold the seconds of a
// century.
func (r *reader) integer(name string, byDefault, low, high int64) int64 {
	given := r.getenv(name)
	if given == "" {
		return byDefault
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil || n < low || n > high {
		r.wrong(name, "must be a whole number from %d to %d, not %q", low, high, given)
		return byDefault // so that settings derived from it are not reported too
	}
	return n
}

func (r *reader) duration(
	name string, unit time.Duration, byDefault, low, high int64,
) time.Duration {
	return time.Duration(r.integer(name, byDefault, low, high)) * unit
}

func (r *reader) rate(name string, byDefault int64) int {
	return int(r.integer(name, byDefault, 0, 1_000_000))
}

func (r *reader) boolean(name string, byDefault bool) bool {
	given := r.getenv(name)
	if given == "" {
		return byDefault
	}
	b, err := strconv.ParseBool(strings.ToLower(given))
	if err != nil {
		r.wrong(name, "must be true or false, not %q", given)
	}
	return b
}

// choice reads one of some words, in any case.
func (r *reader) choice(name, byDefault string, words ...string) string {
	given := cmp.Or(strings.ToLower(r.getenv(name)), byDefault)
	if !slices.Contains(words, given) {
		n := len(words) - 1
		r.wrong(name, "must be %s or %s, not %q",
			strings.Join(words[:n], ", "), words[n], r.getenv(name))
	}
	return given
}

func (r *reader) text(name, byDefault, pattern, form string) string {
	given := r.getenv(name)
	if given == "" {
		return byDefault
	}
	if !regexp.MustCompile(pattern).MatchString(given) {
		r.wrong(name, "must be %s, not %q", form, given)
	}
	return given
}

// short reads a text of at most longest bytes. That limit is not part of the pattern, since each
// repetition would be compiled: the pattern of a table's name would take 50 KB.
func (r *reader) short(name, byDefault string, longest int, pattern, form string) string {
	if given := r.getenv(name); len(given) > longest {
		r.wrong(name, "must be %s, not %q", form, given)
		return given
	}
	return r.text(name, byDefault, pattern, form)
}

// words reads a text for people, of at most most characters. A mark of direction would also turn
// what a page says after the text.
func (r *reader) words(name, byDefault string, most int) string {
	const fit = `[^\p{Cc}\p{Zl}\p{Zp}\x{61C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2066}-\x{2069}]*`
	given := r.text(name, byDefault, `^`+fit+`[^\p{C}\p{Z}]`+fit+`$`,
		"a text that can be seen, without control characters, line breaks and marks of direction")
	if !utf8.ValidString(given) {
		r.wrong(name, "must be UTF-8")
	}
	if utf8.RuneCountInString(given) > most {
		r.wrong(name, "must have at most %d characters", most)
	}
	return given
}

// tables reads the names of the tables, which are case-insensitive. Five of them begin with that of
// the table of links. A day or a month follows the name of the tables of clicks, in at most eight
// digits.
func (r *reader) tables() (t storage.Tables) {
	name := func(setting, byDefault string, longest int) string {
		table := r.short(setting, byDefault, longest, `^[A-Za-z][A-Za-z0-9]{2,}$`,
			fmt.Sprintf("3 to %d letters and digits, a letter first", longest))
		if strings.EqualFold(table, "tables") {
			r.wrong(setting, `must not be "Tables", a name that the service reserves`)
		}
		return table
	}
	const links = "SHORTURL_TABLE_NAME"
	t.Links = name(links, "ShortUrls", 49)
	t.Owners, t.Keys, t.State = t.Links+"ByOwner", t.Links+"Keys", t.Links+"State"
	t.Clicks, t.ClickTotals = t.Links+"Clicks", t.Links+"ClickTotals"
	taken := map[string]string{}
	for _, table := range []string{t.Links, t.Owners, t.Keys, t.State, t.Clicks, t.ClickTotals} {
		taken[strings.ToLower(table)] = links
	}
	other := func(setting, byDefault string) string {
		table := name(setting, byDefault, 63)
		// The roll-up drops tables that are named like those of clicks.
		key := strings.TrimRight(strings.ToLower(table), "0123456789")
		if key != strings.ToLower(t.Clicks) {
			key = strings.ToLower(table)
		}
		if by := taken[key]; by != "" {
			r.wrong(setting, "must differ from the names that %s gives: %s is one of them", by,
				table)
		}
		taken[key] = setting
		return table
	}
	t.Index = other("URLINDEX_TABLE_NAME", "UrlIndex")
	t.Expiry = other("EXPIRYINDEX_TABLE_NAME", "ShortUrlsExpiryIndex")
	return t
}

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "error": slog.LevelError}

// developmentKey is the ADMIN_KEY of local.settings.json. That file is public. The Core Tools can
// publish its values to a site, and people copy them.
const developmentKey = "not-secret-and-for-development-only"

// adminKey reads a key. No error quotes it.
func (r *reader) adminKey(name, address string, base link.Base) string {
	key := r.getenv(name)
	if key == "" {
		return ""
	}
	r.check(name, access.CheckAdminKey(key))
	switch {
	case strings.HasPrefix(key, "@Microsoft.KeyVault("): // as a key it would be easy to guess
		r.wrong(name, "is a reference to Key Vault that Azure has not resolved: "+
			"look at the site's identity and its rights")
	case key == developmentKey &&
		!(onThisMachine(base.String()) && onThisMachine("tcp://"+address)):
		r.wrong(name, "is the key of local.settings.json, which serves with a BaseUrl and a "+
			"LISTEN_ADDRESS of this machine only; set one of your own")
	}
	return key
}

func onThisMachine(address string) bool {
	u, err := url.Parse(address)
	return err == nil && access.IsLoopback(u)
}

// oidc reads the provider that people sign in with; nil if there is none. A role, a groups claim or
// scopes without a provider have no effect. They are no error, because the Bicep always sets them.
func (r *reader) oidc(
	issuer, client, role, groups, scopes, audience, scope, subject string,
) *access.OIDCConfig {
	c := access.OIDCConfig{
		Issuer: r.getenv(issuer),
		ClientID: r.short(client, "", 200, `^[!-~]+$`,
			"up to 200 printable ASCII characters without spaces"),
		AdminRole: r.short(role, "admin", 200, `^[!-~]([ -~]*[!-~])?$`,
			"up to 200 printable ASCII characters without spaces at its ends"),
		GroupsClaim: r.short(groups, "", 200, `^[!-~]+$`,
			"up to 200 printable ASCII characters without spaces"),
		Scopes: r.short(scopes, "openid profile", 200, `^([!-~]+ )*openid( [!-~]+)*$`,
			"up to 200 printable ASCII characters, openid among the scopes, single spaces between"),
		APIAudience: r.short(audience, "", 200, `^[!-~]([ -~]*[!-~])?$`,
			"up to 200 printable ASCII characters without spaces at its ends"),
		APIScope: r.short(scope, "", 200, `^[!#-\[\]-~]+$`,
			"one word of up to 200 printable ASCII characters without quotes and backslashes"),
		SubjectClaim: r.short(subject, "sub", 200, `^[!-~]+$`,
			"up to 200 printable ASCII characters without spaces"),
	}
	if c.APIAudience != "" && c.APIAudience == c.ClientID {
		r.wrong(audience, "must not be the value of %s, whose tokens are ID tokens", client)
	}
	switch {
	case c.Issuer == "" && c.ClientID == "":
		return nil
	case c.Issuer == "":
		r.wrong(issuer, "is required, since %s is set", client)
	case c.ClientID == "":
		r.wrong(client, "is required, since %s is set", issuer)
	}
	parsed(r, issuer, func(given string) (_ link.Base, err error) {
		if err = access.CheckIssuer(given); err != nil {
			return link.Base{}, err
		}
		return link.ParseBase(given)
	})
	return &c
}

// addresses reads how many proxies are trusted, and their header. Behind the Functions host,
// Azure's front end is trusted by default.
func (r *reader) addresses(header, hops string, hosted bool) access.Addresses {
	a := access.Addresses{Header: r.header(header, "X-Forwarded-For"), Hosted: hosted}
	if a.Header == "Forwarded" {
		r.wrong(header, "must not be Forwarded, which is no plain list of addresses")
	}
	proxies := int64(0)
	if hosted {
		proxies = 1
	}
	a.Hops = int(r.integer(hops, proxies, 0, 10))
	return a
}

// header reads the name of a header. It returns the name as http.Header has it.
func (r *reader) header(name, byDefault string) string {
	return http.CanonicalHeaderKey(r.short(name, byDefault, 100, "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
		"the name of a header, up to 100 characters"))
}

func (r *reader) connection(service string, names ...string) table.Connection {
	c, err := table.ParseConnection(r.getenv, service, names...)
	if err == nil {
		return c
	}
	err = fmt.Errorf("  %w", err)
	// Both connections may come from one setting. Report its error once.
	same := func(reported error) bool { return reported.Error() == err.Error() }
	if !slices.ContainsFunc(r.errs, same) {
		r.errs = append(r.errs, err)
	}
	return c
}

// secondary reads the connection to the copy of the tables in a second region; nil if there is
// none.
func (r *reader) secondary(name string, primary table.Connection) *table.Connection {
	given := r.getenv(name)
	noPrimary := primary == (table.Connection{}) && strings.EqualFold(given, "true")
	if given == "" || strings.EqualFold(given, "false") || noPrimary { // r.errs has noPrimary
		return nil
	}
	c, err := primary.Secondary(given)
	r.check(name, err)
	return &c
}

func (r *reader) listenAddress() string {
	given := r.getenv("LISTEN_ADDRESS")
	if given == "" {
		return "127.0.0.1"
	}
	if _, err := netip.ParseAddr(given); err != nil {
		r.wrong("LISTEN_ADDRESS", "must be an IP address of this machine, or 0.0.0.0 or :: for "+
			"all of them, not %q", given)
	}
	return given
}

// hostAndPort reads an address to listen on. Whether it is one of this machine is left to the
// system.
func (r *reader) hostAndPort(name string) string {
	given := r.getenv(name)
	if given == "" {
		return ""
	}
	_, port, err := net.SplitHostPort(given)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		r.wrong(name, "must be host:port, such as 127.0.0.1:9464, or :9464 for all "+
			"addresses of this machine, not %q", given)
	}
	return given
}

// base reads the start of short URLs. In Azure it has no default, because that would be on
// localhost. Azure sets WEBSITE_HOSTNAME to the site's host name, the Core Tools to their own
// address, such as localhost:7071.
func (r *reader) base(name string, port int64) link.Base {
	given := r.getenv(name)
	if given == "" {
		given = "http://localhost:" + strconv.FormatInt(port, 10)
		if site, local := r.siteName(); local {
			given = "http://" + site
		} else if site != "" {
			r.wrong(name, "is required in Azure: the URL that people reach this service by, "+
				"such as https://%s", site)
		}
	}
	base, err := link.ParseBase(given)
	r.check(name, err)
	return base
}

// siteName returns the site's name as the platform gives it. local reports whether the name is the
// Core Tools' own address.
func (r *reader) siteName() (name string, local bool) {
	name = r.getenv("WEBSITE_HOSTNAME")
	return name, strings.HasPrefix(name, "localhost:") || strings.HasPrefix(name, "127.0.0.1:")
}

// list reads a list that is separated by commas or spaces.
func (r *reader) list(name string) []string {
	return strings.FieldsFunc(r.getenv(name), func(c rune) bool { return c == ',' || c == ' ' })
}

// maxDomains is how many domains a service may have besides the default one.
const maxDomains = 100

// domains reads the hosts that have links of their own. base is that of the default domain.
func (r *reader) domains(name string, base link.Base) map[link.Domain]link.Base {
	all := map[link.Domain]link.Base{}
	spelled := r.list(name)
	if len(spelled) > maxDomains {
		r.wrong(name, "may name %d hosts at most, not %d", maxDomains, len(spelled))
		return all
	}
	scheme := "http" // if BaseUrl is wrong
	if base != (link.Base{}) {
		scheme, _, _ = strings.Cut(base.String(), "://")
	}
	for _, host := range spelled {
		full := host
		if !strings.Contains(host, "://") {
			full = scheme + "://" + host
		}
		domain, err := link.ParseBase(full)
		_, ok := link.ParseDomain(string(domain.Domain()))
		switch _, again := all[domain.Domain()]; {
		case err != nil, !ok, domain.HasPath():
			r.wrong(name, "must be hosts such as go.example or https://go.example, "+
				"separated by commas, and %q is none", host)
		case domain.Domain() == base.Domain():
			r.wrong(name, "must not have %q, which is the host of BaseUrl: that is the default "+
				"domain", host)
		case again:
			r.wrong(name, "has %q twice", host)
		default:
			// As browsers write it: with the host in lower case and punycode.
			all[domain.Domain()], _ = link.ParseBase(domain.Origin())
		}
	}
	return all
}

// unsafeSchemes run code, read files or start programs where browsers or apps follow them.
var unsafeSchemes = []string{"javascript", "data", "vbscript", "file", "blob", "about",
	"filesystem", "view-source", "intent", "jar", "chrome", "resource", "ms-msdt", "search-ms",
	"ms-officecmd", "ms-appinstaller"}

// schemes reads the schemes that links of owners may have besides http and https.
func (r *reader) schemes(name string) (schemes []string) {
	form := regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)
	for _, spelled := range r.list(name) {
		scheme := strings.ToLower(spelled)
		switch {
		case !form.MatchString(spelled):
			r.wrong(name, "must be names of schemes such as mailto or tel, "+
				"separated by commas and without colons, and %q is none", spelled)
		case slices.Contains(unsafeSchemes, scheme):
			r.wrong(name, "must not have %q, by which a link could attack who follows it", scheme)
		case scheme == "http" || scheme == "https":
			r.wrong(name, "must not have %q, which is always there", scheme)
		case !slices.Contains(schemes, scheme):
			schemes = append(schemes, scheme)
		}
	}
	return schemes
}

// otherHosts reads the hosts of this service other than the host of BaseUrl. The site's own name is
// one of them. The Core Tools' address is not, because it leads each client to its own machine.
func (r *reader) otherHosts(name string) (hosts []link.Host) {
	for _, spelled := range r.list(name) {
		host, ok := link.ParseHost(spelled)
		if _, err := link.ParseBase("http://" + spelled); !ok || err != nil {
			r.wrong(name, "must be names of hosts, separated by commas, and %q is none", spelled)
		}
		hosts = append(hosts, host)
	}
	if site, local := r.siteName(); !local {
		if host, ok := link.ParseHost(site); ok {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tiney/link"
	"tiney/storage"
	"tiney/telemetry"
)

// settings are all that the environment says. They are read once, at the start.
type settings struct {
	hosted  bool // behind the Functions host
	address string

	tables, lock            storage.Connection
	linkTable, indexTable   string
	expiryTable             string
	lockContainer, lockBlob string
	reapBuffer, reapLimit   time.Duration
	reapPageSize            int
	rules                   link.Rules
	aliasLength             int
	cache                   *storage.CacheConfig // nil: switched off
	redirectMaxAge          time.Duration
	logLevel                slog.Level
	telemetry               *telemetry.Config // nil: none is sent
}

const day = 24 * time.Hour

// readSettings reads the settings of the environment. Its error names every setting that is wrong and quotes none
// that may be a secret.
func readSettings(getenv func(string) string) (settings, error) {
	r := &reader{getenv: getenv}
	var s settings

	port := int64(7071)
	switch {
	case getenv("FUNCTIONS_CUSTOMHANDLER_PORT") != "":
		s.hosted = true
		port = r.integer("FUNCTIONS_CUSTOMHANDLER_PORT", 0, 1, 65535)
		s.address = net.JoinHostPort("127.0.0.1", strconv.FormatInt(port, 10))
		port = 7071 // where the host itself listens, under `func start`
	default:
		for _, name := range []string{"HTTP_PLATFORM_PORT", "PORT"} {
			if getenv(name) != "" {
				port = r.integer(name, 0, 1, 65535)
				break
			}
		}
		s.address = net.JoinHostPort(r.listenAddress(), strconv.FormatInt(port, 10))
	}

	s.tables = r.connection(storage.TableService, "TABLE_CONNECTION", "AzureWebJobsStorage")
	s.lock = r.connection(storage.BlobService, "GC_BLOB_LOCK_CONNECTION", "AzureWebJobsStorage")

	const table, tableForm = `^[A-Za-z][A-Za-z0-9]{2,62}$`, "3 to 63 letters and digits, a letter first"
	s.linkTable = r.text("SHORTURL_TABLE_NAME", "ShortUrls", table, tableForm)
	s.expiryTable = r.text("EXPIRYINDEX_TABLE_NAME", "ShortUrlsExpiryIndex", table, tableForm)
	s.indexTable = r.text("URLINDEX_TABLE_NAME", "UrlIndex", table, tableForm)
	for _, name := range []string{"SHORTURL_TABLE_NAME", "EXPIRYINDEX_TABLE_NAME", "URLINDEX_TABLE_NAME"} {
		if strings.EqualFold(getenv(name), "tables") {
			r.wrong(name, "must not be \"Tables\", which is a name of the service's own")
		}
	}
	if strings.EqualFold(s.linkTable, s.expiryTable) || strings.EqualFold(s.linkTable, s.indexTable) || strings.EqualFold(s.indexTable, s.expiryTable) {
		r.wrong("SHORTURL_TABLE_NAME, EXPIRYINDEX_TABLE_NAME and URLINDEX_TABLE_NAME", "must differ in more than capital letters")
	}
	s.lockContainer = r.text("GC_BLOB_LOCK_CONTAINER", "locks", `^[a-z0-9](-?[a-z0-9])*$`, "3 to 63 small letters, digits and single hyphens")
	if n := len(s.lockContainer); n < 3 || n > 63 {
		r.wrong("GC_BLOB_LOCK_CONTAINER", "must have 3 to 63 characters")
	}
	s.lockBlob = r.text("GC_BLOB_LOCK_BLOB", "expiry-reaper.lock", `^[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?$`,
		"up to 256 letters, digits, dots, hyphens and underscores, with a letter or a digit at both ends")

	s.reapBuffer = r.duration("GC_BUFFER_SECONDS", time.Second, 0, 0, 30*86400)
	s.reapLimit = r.duration("GC_MAX_SECONDS", time.Second, 240, 1, 1800)
	s.reapPageSize = int(r.integer("GC_PAGE_SIZE", 1000, 1, 1000))

	s.rules.Base = r.base(port)
	s.rules.DefaultTTL = r.duration("DefaultTtlDays", day, 30, 1, 36500)
	longest := r.duration("MaxTtlDays", day, 365, 1, 36500)
	ceiling := r.duration("MAX_TTL_SECONDS", time.Second, 7776000, int64(link.MinTTL/time.Second), 36500*86400)
	s.rules.MaxTTL = min(longest, ceiling)
	s.aliasLength = int(r.integer("ALIAS_LENGTH", 6, 4, link.MaxAliasLength))

	cache := storage.CacheConfig{
		Bytes:    r.integer("CACHE_SIZE_MB", 10, 1, 1024) << 20,
		Fresh:    r.duration("CACHE_DURATION_SECONDS", time.Second, 900, 1, 86400),
		Negative: r.duration("CACHE_NEGATIVE_SECONDS", time.Second, 60, 0, 3600),
		Stale:    r.duration("CACHE_STALE_SECONDS", time.Second, 3600, 0, 86400),
	}
	if r.boolean("CACHE_ENABLED", true) {
		s.cache = &cache
	}
	s.redirectMaxAge = r.duration("REDIRECT_MAX_AGE_SECONDS", time.Second, 0, 0, 31536000)
	s.logLevel = r.level("LOG_LEVEL")

	percent := r.integer("TELEMETRY_SAMPLING_PERCENT", 100, 1, 100)
	addresses := r.boolean("TELEMETRY_CLIENT_IP", true)
	if c := r.applicationInsights("APPLICATIONINSIGHTS_CONNECTION_STRING"); c != (telemetry.Connection{}) {
		s.telemetry = &telemetry.Config{
			Connection: c, Hosted: s.hosted, SamplingPercent: int(percent), ClientAddresses: addresses,
			// The names that the Functions host sends its own telemetry under.
			Role: cmp.Or(getenv("WEBSITE_SITE_NAME"), "tiney"), Instance: instanceName(getenv),
		}
	}

	if len(r.errs) > 0 {
		return settings{}, fmt.Errorf("these settings are wrong:\n%w", errors.Join(r.errs...))
	}
	return s, nil
}

// reader reads one setting after the other and keeps what is wrong with them.
type reader struct {
	getenv func(string) string
	errs   []error
}

func (r *reader) wrong(name, what string) { r.errs = append(r.errs, fmt.Errorf("  %s %s", name, what)) }

// integer is 64 bits wide on 32-bit machines too: a hundred years have more seconds than an int there can count.
func (r *reader) integer(name string, byDefault, low, high int64) int64 {
	given := r.getenv(name)
	if given == "" {
		return byDefault
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil || n < low || n > high {
		r.wrong(name, fmt.Sprintf("must be a whole number from %d to %d, not %q", low, high, given))
		return byDefault // so that nothing that is made of it is wrong too
	}
	return n
}

func (r *reader) duration(name string, unit time.Duration, byDefault, low, high int64) time.Duration {
	return time.Duration(r.integer(name, byDefault, low, high)) * unit
}

func (r *reader) boolean(name string, byDefault bool) bool {
	given := r.getenv(name)
	if given == "" {
		return byDefault
	}
	b, err := strconv.ParseBool(strings.ToLower(given))
	if err != nil {
		r.wrong(name, fmt.Sprintf("must be true or false, not %q", given))
	}
	return b
}

func (r *reader) text(name, byDefault, pattern, form string) string {
	given := r.getenv(name)
	if given == "" {
		return byDefault
	}
	if !regexp.MustCompile(pattern).MatchString(given) {
		r.wrong(name, fmt.Sprintf("must be %s, not %q", form, given))
	}
	return given
}

func (r *reader) level(name string) slog.Level {
	switch given := r.getenv(name); strings.ToLower(given) {
	case "", "info":
		return slog.LevelInfo
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	default:
		r.wrong(name, fmt.Sprintf("must be debug, info, warn or error, not %q", given))
		return 0
	}
}

func (r *reader) connection(service string, names ...string) storage.Connection {
	c, err := storage.ParseConnection(r.getenv, service, names...)
	if err == nil {
		return c
	}
	err = fmt.Errorf("  %w", err)
	// Where both connections come from the one setting, what is wrong with it is said once.
	if !slices.ContainsFunc(r.errs, func(said error) bool { return said.Error() == err.Error() }) {
		r.errs = append(r.errs, err)
	}
	return c
}

func (r *reader) applicationInsights(name string) (c telemetry.Connection) {
	given := r.getenv(name)
	if given == "" {
		return c
	}
	c, err := telemetry.ParseConnection(given)
	if err != nil {
		r.wrong(name, err.Error())
	}
	return c
}

// instanceName is what Azure calls this instance, or the machine's name.
func instanceName(getenv func(string) string) string {
	if id := getenv("WEBSITE_INSTANCE_ID"); id != "" {
		return id
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

func (r *reader) listenAddress() string {
	given := r.getenv("LISTEN_ADDRESS")
	if given == "" {
		return "127.0.0.1"
	}
	if _, err := netip.ParseAddr(given); err != nil {
		r.wrong("LISTEN_ADDRESS", fmt.Sprintf("must be an IP address of this machine, or 0.0.0.0 or :: for all of them, not %q", given))
	}
	return given
}

// base reads BaseUrl. It has a default only on a machine of the developer's own: in Azure, a short URL that starts
// with localhost would be handed to people. WEBSITE_HOSTNAME tells: Azure sets it to the site's host name, and the Core
// Tools to their own address, such as localhost:7071.
func (r *reader) base(port int64) link.Base {
	given := r.getenv("BaseUrl")
	if given == "" {
		given = "http://localhost:" + strconv.FormatInt(port, 10)
		if site := r.getenv("WEBSITE_HOSTNAME"); strings.HasPrefix(site, "localhost:") || strings.HasPrefix(site, "127.0.0.1:") {
			given = "http://" + site
		} else if site != "" {
			r.wrong("BaseUrl", "is required in Azure: the URL that people reach this service by, such as https://"+site)
		}
	}
	base, err := link.ParseBase(given)
	if err != nil {
		r.wrong("BaseUrl", err.Error())
	}
	return base
}

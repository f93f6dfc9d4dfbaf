package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage"
	"tiney/storage/counts"
)

// pairs are the names and values of settings, alternately.
type pairs = []string

func environment(given ...string) func(string) string {
	values := map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true"}
	for i := 0; i < len(given); i += 2 {
		values[given[i]] = given[i+1]
	}
	return func(name string) string { return values[name] }
}

const insightsString = "InstrumentationKey=11111111-2222-3333-4444-555555555555;" +
	"IngestionEndpoint=https://canadacentral-1.in.applicationinsights.azure.com/"

func TestDefaultSettings(t *testing.T) {
	s, err := ReadSettings(environment())
	if err != nil {
		t.Fatal(err)
	}
	if s.Hosted() || s.Address != "127.0.0.1:7071" ||
		s.Functions.Rules.Base.String() != "http://localhost:7071" ||
		len(s.Functions.Rules.OtherHosts) != 0 {
		t.Errorf("hosted %t, at %s, base %s, others %q", s.Hosted(), s.Address,
			s.Functions.Rules.Base, s.Functions.Rules.OtherHosts)
	}
	if s.Storage.Tables.Links != "ShortUrls" || s.Storage.Tables.Expiry != "ShortUrlsExpiryIndex" ||
		s.Storage.Tables.Index != "UrlIndex" || s.Lock.Container != "locks" ||
		s.Lock.Blob != "expiry-reaper.lock" {
		t.Errorf("names: %+v", s)
	}
	if s.Storage.Reap.Buffer != 0 || s.ReapLimit != 4*time.Minute ||
		s.Storage.Reap.PageSize != 1000 {
		t.Errorf("reaper: %v %v %d", s.Storage.Reap.Buffer, s.ReapLimit, s.Storage.Reap.PageSize)
	}
	if tables := s.Storage.Tables; tables.Owners != "ShortUrlsByOwner" ||
		tables.Keys != "ShortUrlsKeys" || tables.State != "ShortUrlsState" {
		t.Errorf("tables: %+v", tables)
	}
	if tables := s.Storage.Tables; tables.Clicks != "ShortUrlsClicks" ||
		tables.ClickTotals != "ShortUrlsClickTotals" {
		t.Errorf("tables of clicks: %+v", tables)
	}
	if c := s.Storage.Clicks; c != (counts.Settings{Mode: clicks.ModeFull,
		FlushEvery: 10 * time.Second, KeepDays: 400}) || !s.Functions.PublicStats {
		t.Errorf("clicks: %+v, public: %t", c, s.Functions.PublicStats)
	}
	if a := s.Functions.Addresses; a != (access.Addresses{Header: "X-Forwarded-For"}) {
		t.Errorf("addresses: %+v", a)
	}
	if s.Functions.Rates != (access.Rates{30, 60, 300, 0, 1000}) {
		t.Errorf("rates: %v", s.Functions.Rates)
	}
	if s.Functions.OwnersOnly || s.Access.AdminKey != "" || s.Access.OIDC != nil {
		t.Errorf("access: %t, %+v", s.Functions.OwnersOnly, s.Access)
	}
	if s.Functions.DeletedKeep != 7*day || s.Storage.DeletedKeep != 7*day ||
		s.Storage.TombstoneFor != 30*day || s.Storage.ChangesEvery != 5*time.Second {
		t.Errorf("changes: %v, %v, %v, %v", s.Functions.DeletedKeep, s.Storage.DeletedKeep,
			s.Storage.TombstoneFor, s.Storage.ChangesEvery)
	}
	// 90 days: the smaller one of MaxTtlDays and MAX_TTL_SECONDS.
	if s.Functions.Rules.DefaultTTL != 30*day || s.Functions.Rules.MaxTTL != 90*day ||
		s.Storage.AliasLength != 6 {
		t.Errorf("links: %v %v %d", s.Functions.Rules.DefaultTTL, s.Functions.Rules.MaxTTL,
			s.Storage.AliasLength)
	}
	if c := s.Storage.Cache; c == nil || c.Bytes != 10<<20 || c.Fresh != 15*time.Minute ||
		c.Negative != time.Minute || c.Stale != time.Hour {
		t.Errorf("cache: %+v", c)
	}
	if r := s.Functions.Rules; r.AnyCase || s.Storage.AnyCase || len(r.ExtraSchemes) != 0 ||
		len(r.Domains) != 0 || s.Functions.DomainsOwnersOnly {
		t.Errorf("rules: %+v, domains for owners only: %t", r, s.Functions.DomainsOwnersOnly)
	}
	if f := s.Functions; f.HomeURL != "" || f.UnknownURL != "" || f.GoneURL != "" ||
		f.DomainHeader != "" {
		t.Errorf("fallbacks: %q, %q, %q, header: %q", f.HomeURL, f.UnknownURL, f.GoneURL,
			f.DomainHeader)
	}
	if s.Functions.RedirectMaxAge != 0 || s.Functions.StrictTransport != 365*day ||
		s.LogLevel != slog.LevelInfo || s.Telemetry != nil {
		t.Errorf("%v, %v, %v", s.Functions.RedirectMaxAge, s.LogLevel, s.Telemetry)
	}
}

func TestSettings(t *testing.T) {
	for name, test := range map[string]struct {
		given []string
		holds func(Settings) bool
	}{
		"behind the host": {pairs{"FUNCTIONS_CUSTOMHANDLER_PORT", "5000", "PORT", "6000",
			"LISTEN_ADDRESS", "0.0.0.0"},
			func(s Settings) bool {
				return s.Hosted() && s.Address == "127.0.0.1:5000" &&
					s.Functions.Rules.Base.String() == "http://localhost:7071"
			}},
		"PORT": {pairs{"PORT", "6000"}, func(s Settings) bool {
			return s.Address == "127.0.0.1:6000" &&
				s.Functions.Rules.Base.String() == "http://localhost:6000"
		}},
		"httpPlatformHandler": {pairs{"HTTP_PLATFORM_PORT", "5000", "PORT", "6000"},
			func(s Settings) bool { return s.Address == "127.0.0.1:5000" }},
		"all addresses": {pairs{"LISTEN_ADDRESS", "0.0.0.0"},
			func(s Settings) bool { return s.Address == "0.0.0.0:7071" }},
		"IPv6": {pairs{"LISTEN_ADDRESS", "::1"},
			func(s Settings) bool { return s.Address == "[::1]:7071" }},
		"Azure": {pairs{"WEBSITE_HOSTNAME", "x.azurewebsites.net", "BaseUrl", "https://tiney.to/"},
			func(s Settings) bool { return s.Functions.Rules.Base.String() == "https://tiney.to" }},
		"other hosts": {pairs{"OTHER_HOSTS", "Edge.AzureFD.net, bücher.example.,[2001:DB8::1]",
			"WEBSITE_HOSTNAME", "X.azurewebsites.net", "BaseUrl", "https://tiney.to"},
			func(s Settings) bool {
				return slices.Equal(s.Functions.Rules.OtherHosts, []link.Host{"edge.azurefd.net",
					"xn--bcher-kva.example", "[2001:db8::1]", "x.azurewebsites.net"})
			}},
		"no other hosts under the Core Tools": {pairs{"WEBSITE_HOSTNAME", "localhost:7071"},
			func(s Settings) bool { return len(s.Functions.Rules.OtherHosts) == 0 }},
		"any case": {pairs{"ALIAS_CASE", "Insensitive"},
			func(s Settings) bool { return s.Functions.Rules.AnyCase && s.Storage.AnyCase }},
		"case matters": {pairs{"ALIAS_CASE", "SENSITIVE"},
			func(s Settings) bool { return !s.Functions.Rules.AnyCase && !s.Storage.AnyCase }},
		"further schemes": {pairs{"EXTRA_SCHEMES", "mailto,Tel sms, x-y.z+1,, TEL"},
			func(s Settings) bool {
				return slices.Equal(s.Functions.Rules.ExtraSchemes,
					[]string{"mailto", "tel", "sms", "x-y.z+1"})
			}},
		"domains": {pairs{"BaseUrl", "https://tiney.to/s", "DOMAINS", "Go.Example, bücher.example." +
			",http://plain.example:80 HTTPS://ports.example:8443/ [2001:DB8::1]:8080 " +
			"tiney.to:8080 192.0.2.1"},
			func(s Settings) bool {
				names := slices.Sorted(maps.Keys(s.Functions.Rules.Domains))
				return slices.Equal(names, []link.Domain{"192.0.2.1", "[2001:db8::1]:8080",
					"go.example", "plain.example", "ports.example:8443", "tiney.to:8080",
					"xn--bcher-kva.example"}) &&
					s.Functions.Rules.BaseOf("plain.example") == "http://plain.example" &&
					s.Functions.Rules.BaseOf("xn--bcher-kva.example") ==
						"https://xn--bcher-kva.example."
			}},
		"domains have the scheme of BaseUrl": {pairs{"DOMAINS", "go.example:7072"},
			func(s Settings) bool {
				return s.Functions.Rules.BaseOf("go.example:7072") == "http://go.example:7072"
			}},
		"most domains": {pairs{"DOMAINS", domainList(100)},
			func(s Settings) bool { return len(s.Functions.Rules.Domains) == 100 }},
		"domains for owners only": {pairs{"DOMAINS_ACCESS", "OWNERS"},
			func(s Settings) bool {
				return s.Functions.DomainsOwnersOnly && !s.Functions.OwnersOnly
			}},
		"domains for anyone": {pairs{"DOMAINS_ACCESS", "Anyone"},
			func(s Settings) bool { return !s.Functions.DomainsOwnersOnly }},
		"a header": {pairs{"DOMAIN_HEADER", "x-tiney-HOST"},
			func(s Settings) bool { return s.Functions.DomainHeader == "X-Tiney-Host" }},
		"names of tables": {pairs{"SHORTURL_TABLE_NAME", "Links9", "URLINDEX_TABLE_NAME", "Index"},
			func(s Settings) bool {
				return s.Storage.Tables == storage.Tables{Links: "Links9", Index: "Index",
					Expiry: "ShortUrlsExpiryIndex", Owners: "Links9ByOwner", Keys: "Links9Keys",
					State: "Links9State", Clicks: "Links9Clicks", ClickTotals: "Links9ClickTotals"}
			}},
		"fallbacks": {pairs{"DOMAINS", "go.example",
			"HOME_URL", "https://example.com/?from={domain}",
			"UNKNOWN_URL", "https://example.com/{domain}/{alias}?q={alias}#{alias}",
			"GONE_URL", "HTTP://bücher.example:8080/gone"},
			func(s Settings) bool {
				f := s.Functions
				return f.HomeURL == "https://example.com/?from={domain}" &&
					f.UnknownURL == "https://example.com/{domain}/{alias}?q={alias}#{alias}" &&
					f.GoneURL == "HTTP://bücher.example:8080/gone"
			}},
		"telemetry": {pairs{"APPLICATIONINSIGHTS_CONNECTION_STRING", insightsString},
			func(s Settings) bool {
				c := s.Telemetry
				return c != nil && c.Credential == nil && !c.Hosted && c.SamplingPercent == 100 &&
					c.ClientAddress == nil && c.Role == "tiney" && c.Instance != ""
			}},
		"telemetry by identity": {pairs{"APPLICATIONINSIGHTS_CONNECTION_STRING", insightsString,
			"APPLICATIONINSIGHTS_AUTHENTICATION_STRING", "ClientId=an-id;Authorization=AAD"},
			func(s Settings) bool {
				return s.Telemetry != nil && s.Telemetry.Credential != nil
			}},
		"telemetry in Azure": {pairs{"APPLICATIONINSIGHTS_CONNECTION_STRING", insightsString,
			"FUNCTIONS_CUSTOMHANDLER_PORT", "5000",
			"TELEMETRY_SAMPLING_PERCENT", "10", "TELEMETRY_CLIENT_IP", "true",
			"CLIENT_ADDRESS_HEADER", "CLIENT-IP", "CLIENT_ADDRESS_HOPS", "2", "WEBSITE_SITE_NAME",
			"short", "WEBSITE_INSTANCE_ID", "abc"},
			func(s Settings) bool {
				c := s.Telemetry
				return c != nil && c.Hosted && c.SamplingPercent == 10 &&
					c.ClientAddress(&http.Request{Header: http.Header{"Client-Ip": {"6.6.6.6, " +
						"203.0.113.9, 198.51.100.7"}}}) == netip.MustParseAddr("203.0.113.9") &&
					c.Role == "short" && c.Instance == "abc"
			}},
		"no cache": {pairs{"CACHE_ENABLED", "False"},
			func(s Settings) bool { return s.Storage.Cache == nil }},
		"MaxTtlDays is smaller": {pairs{"MaxTtlDays", "7"},
			func(s Settings) bool { return s.Functions.Rules.MaxTTL == 7*day }},
		"longer than a year": {pairs{"MaxTtlDays", "3650", "MAX_TTL_SECONDS", "315360000"},
			func(s Settings) bool { return s.Functions.Rules.MaxTTL == 3650*day }},
		"eight hours without an owner": {pairs{"ANONYMOUS_TTL_SECONDS", "28800", "MAX_TTL_SECONDS",
			"28800"},
			func(s Settings) bool {
				return s.Functions.Rules.DefaultTTL == 8*time.Hour &&
					s.Functions.Rules.MaxTTL == 8*time.Hour
			}},
		"ANONYMOUS_TTL_SECONDS wins": {pairs{"ANONYMOUS_TTL_SECONDS", "60", "DefaultTtlDays", "7"},
			func(s Settings) bool { return s.Functions.Rules.DefaultTTL == time.Minute }},
		"DefaultTtlDays stands for it": {pairs{"DefaultTtlDays", "7"},
			func(s Settings) bool { return s.Functions.Rules.DefaultTTL == 7*day }},
		"no tombstones, and no polling": {pairs{"TOMBSTONE_DAYS", "0", "CHANGES_SECONDS", "0"},
			func(s Settings) bool {
				return s.Storage.TombstoneFor == 0 &&
					s.Storage.ChangesEvery == 0
			}},
		"kept for an hour": {pairs{"DELETED_KEEP_SECONDS", "3600"}, func(s Settings) bool {
			return s.Functions.DeletedKeep == time.Hour && s.Storage.DeletedKeep == time.Hour
		}},
		"totals of clicks, written each minute, for ten years": {pairs{"CLICKS", "Totals",
			"CLICKS_FLUSH_SECONDS", "60", "CLICKS_KEEP_DAYS", "3650"},
			func(s Settings) bool {
				return s.Storage.Clicks == counts.Settings{Mode: clicks.ModeTotals,
					FlushEvery: time.Minute, KeepDays: 3650}
			}},
		"no clicks, and statistics for admins": {pairs{"CLICKS", "off", "PUBLIC_STATS", "false"},
			func(s Settings) bool {
				return s.Storage.Clicks.Mode == clicks.ModeOff && !s.Functions.PublicStats
			}},
		"limits": {pairs{"RATE_SHORTEN_PER_MINUTE", "0", "RATE_UNKNOWN_PER_MINUTE", "1",
			"RATE_API_PER_MINUTE", "1000000", "RATE_REDIRECT_PER_MINUTE", "7",
			"RATE_PROBES_PER_DAY", "8"},
			func(s Settings) bool {
				return s.Functions.Rates == access.Rates{0, 1, 1_000_000, 7,
					8}
			}},
		"one proxy in Azure": {pairs{"FUNCTIONS_CUSTOMHANDLER_PORT", "5000",
			"CLIENT_ADDRESS_HEADER", "CLIENT-IP"},
			func(s Settings) bool {
				return s.Functions.Addresses == access.Addresses{Header: "Client-Ip", Hops: 1,
					Hosted: true}
			}},
		"proxies of one's own": {pairs{"CLIENT_ADDRESS_HOPS", "2"}, func(s Settings) bool {
			return s.Functions.Addresses == access.Addresses{Header: "X-Forwarded-For", Hops: 2}
		}},
		"no proxy behind the host": {pairs{"FUNCTIONS_CUSTOMHANDLER_PORT", "5000",
			"CLIENT_ADDRESS_HOPS", "0"},
			func(s Settings) bool { return s.Functions.Addresses.Hops == 0 }},
		"owners only": {pairs{"SHORTEN_ACCESS", "Owners"},
			func(s Settings) bool { return s.Functions.OwnersOnly }},
		"admin key": {pairs{"ADMIN_KEY", ownKey},
			func(s Settings) bool { return s.Access.AdminKey == ownKey && !s.Functions.LocalOnly }},
		"development key": {pairs{"ADMIN_KEY", developmentKey}, func(s Settings) bool {
			return s.Access.AdminKey == developmentKey && s.Functions.LocalOnly
		}},
		"development key, by address": {pairs{"ADMIN_KEY", developmentKey, "BaseUrl",
			"http://[::1]:7071", "LISTEN_ADDRESS", "::1"},
			func(s Settings) bool {
				return s.Access.AdminKey == developmentKey && s.Functions.LocalOnly
			}},
		"development key, behind the host": {pairs{"ADMIN_KEY", developmentKey,
			"FUNCTIONS_CUSTOMHANDLER_PORT", "5000", "LISTEN_ADDRESS", "0.0.0.0"},
			func(s Settings) bool {
				return s.Access.AdminKey == developmentKey && s.Functions.LocalOnly
			}},
		"sign-in": {pairs{"OIDC_ISSUER", "https://login.example/tenant/v2.0", "OIDC_CLIENT_ID",
			"an-app"},
			func(s Settings) bool {
				c := s.Access.OIDC
				return c != nil && c.Issuer == "https://login.example/tenant/v2.0" &&
					c.ClientID == "an-app" && c.AdminRole == "admin" && c.GroupsClaim == "" &&
					c.Scopes == "openid profile" && c.APIAudience == "" && c.SubjectClaim == "sub" &&
					slices.Equal(s.Functions.OAuth.Scopes, []string{"openid", "profile"})
			}},
		"access tokens": {pairs{"OIDC_ISSUER", "https://login.example", "OIDC_CLIENT_ID", "an-app",
			"OIDC_API_AUDIENCE", "an API", "OIDC_API_SCOPE", "api://x/[a]",
			"OIDC_SUBJECT_CLAIM", "oid"},
			func(s Settings) bool {
				c, o := s.Access.OIDC, s.Functions.OAuth
				return c.APIAudience == "an API" && c.APIScope == "api://x/[a]" &&
					c.SubjectClaim == "oid" && o.Issuer == "https://login.example" &&
					o.Scope == "api://x/[a]" && slices.Equal(o.Scopes, []string{"api://x/[a]"})
			}},
		"sign-in on this machine, with a role": {pairs{"OIDC_ISSUER", "http://127.0.0.1:9000",
			"OIDC_CLIENT_ID", "an-app", "OIDC_ADMIN_ROLE", "link admins"},
			func(s Settings) bool {
				return s.Access.OIDC != nil && s.Access.OIDC.AdminRole == "link admins"
			}},
		"groups by a URL, and scopes": {pairs{"OIDC_ISSUER", "https://login.example",
			"OIDC_CLIENT_ID", "an-app", "OIDC_GROUPS_CLAIM", "https://go.example.com/groups",
			"OIDC_SCOPES", "groups openid api://x/.default"},
			func(s Settings) bool {
				c := s.Access.OIDC
				return c != nil && c.GroupsClaim == "https://go.example.com/groups" &&
					c.Scopes == "groups openid api://x/.default"
			}},
		"a role without sign-in": {pairs{"OIDC_ADMIN_ROLE", "admin", "OIDC_GROUPS_CLAIM", "groups",
			"OIDC_SCOPES", "openid groups"},
			func(s Settings) bool { return s.Access.OIDC == nil }},
		"log level": {pairs{"LOG_LEVEL", "WARN"},
			func(s Settings) bool { return s.LogLevel == slog.LevelWarn }},
		"container with hyphens": {pairs{"GC_BLOB_LOCK_CONTAINER", "a-b"},
			func(s Settings) bool { return s.Lock.Container == "a-b" }},
		"longest container": {pairs{"GC_BLOB_LOCK_CONTAINER", "a" + strings.Repeat("-b", 31)},
			func(s Settings) bool { return len(s.Lock.Container) == 63 }},
		"connections of its own": {pairs{"AzureWebJobsStorage", "", "TABLE_CONNECTION__accountName",
			"a", "GC_BLOB_LOCK_CONNECTION", "UseDevelopmentStorage=true"},
			func(Settings) bool { return true }},
	} {
		s, err := ReadSettings(environment(test.given...))
		if err != nil || !test.holds(s) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// domainList returns n different domains.
func domainList(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "d%d.example,", i)
	}
	return b.String()
}

const ownKey = "32-characters-that-are-no-secret"

// wrongSettings has a value for each setting that must not be accepted. It leaves out the
// platform's own settings and the connections that replace AzureWebJobsStorage.
var wrongSettings = map[string]string{
	"AzureWebJobsStorage":                   "AccountName=a;AccountKey=a secret",
	"SHORTURL_TABLE_NAME":                   "no-hyphens",
	"TABLE_SECONDARY":                       "yes",
	"METRICS_ADDRESS":                       "9464",
	"EXPIRYINDEX_TABLE_NAME":                "1st",
	"URLINDEX_TABLE_NAME":                   "ab",
	"GC_BLOB_LOCK_CONTAINER":                "Capitals",
	"GC_BLOB_LOCK_BLOB":                     "a/b",
	"GC_BUFFER_SECONDS":                     "-1",
	"GC_MAX_SECONDS":                        "0",
	"GC_PAGE_SIZE":                          "1001",
	"BaseUrl":                               "tiney.to",
	"OTHER_HOSTS":                           "go.example.com, other.example:8080",
	"DOMAINS":                               "go.example/path",
	"DOMAINS_ACCESS":                        "nobody",
	"DOMAIN_HEADER":                         "X Tiney Host",
	"EXTRA_SCHEMES":                         "mailto:",
	"ALIAS_CASE":                            "lower",
	"HOME_URL":                              "https://example.com/{alias}",
	"UNKNOWN_URL":                           "https://{domain}/",
	"GONE_URL":                              "ftp://example.com/",
	"DefaultTtlDays":                        "0",
	"MaxTtlDays":                            "1.5",
	"MAX_TTL_SECONDS":                       "59",
	"SHORTEN_ACCESS":                        "nobody",
	"ANONYMOUS_TTL_SECONDS":                 "59",
	"ADMIN_KEY":                             "a secret",
	"OIDC_ISSUER":                           "http://login.example",
	"OIDC_CLIENT_ID":                        "two words",
	"OIDC_ADMIN_ROLE":                       "admin ",
	"OIDC_GROUPS_CLAIM":                     "my groups",
	"OIDC_SCOPES":                           "profile groups",
	"OIDC_API_AUDIENCE":                     "an-api ",
	"OIDC_API_SCOPE":                        "two words",
	"OIDC_SUBJECT_CLAIM":                    "my id",
	"DELETED_KEEP_SECONDS":                  "0",
	"TOMBSTONE_DAYS":                        "3651",
	"CHANGES_SECONDS":                       "11",
	"CLICKS":                                "some",
	"CLICKS_FLUSH_SECONDS":                  "301",
	"CLICKS_KEEP_DAYS":                      "2",
	"CLIENT_ADDRESS_HEADER":                 "Client IP",
	"CLIENT_ADDRESS_HOPS":                   "11",
	"PUBLIC_STATS":                          "often",
	"SITE_NAME":                             "a\tb",
	"SITE_NOTICE":                           "a\nb",
	"MCP":                                   "maybe",
	"RATE_API_PER_MINUTE":                   "1000001",
	"RATE_REDIRECT_PER_MINUTE":              "-1",
	"RATE_PROBES_PER_DAY":                   "1000001",
	"RATE_SHORTEN_PER_MINUTE":               "30/m",
	"RATE_UNKNOWN_PER_MINUTE":               "1.5",
	"ALIAS_LENGTH":                          "3",
	"CACHE_ENABLED":                         "maybe",
	"CACHE_SIZE_MB":                         "10MB",
	"CACHE_DURATION_SECONDS":                "0",
	"CACHE_NEGATIVE_SECONDS":                "ten",
	"CACHE_STALE_SECONDS":                   "1e3",
	"REDIRECT_MAX_AGE_SECONDS":              " 5",
	"HSTS_SECONDS":                          "1y",
	"LOG_LEVEL":                             "loud",
	"TELEMETRY_SAMPLING_PERCENT":            "0",
	"TELEMETRY_CLIENT_IP":                   "sometimes",
	"APPLICATIONINSIGHTS_CONNECTION_STRING": "InstrumentationKey=a secret",
	"PORT":                                  "70000",
	"LISTEN_ADDRESS":                        "a b",
	"FUNCTIONS_CUSTOMHANDLER_PORT":          "x",

	"APPLICATIONINSIGHTS_AUTHENTICATION_STRING": "Authorization=ikey",
}

func TestEverySettingCanBeWrong(t *testing.T) {
	get := environment()
	_, err := ReadSettings(func(name string) string {
		_, ok := wrongSettings[name]
		exempt := name == "TABLE_CONNECTION" || name == "GC_BLOB_LOCK_CONNECTION" ||
			strings.Contains(name, "__") ||
			name == "HTTP_PLATFORM_PORT" || strings.HasPrefix(name, "WEBSITE_")
		if !ok && !exempt {
			t.Errorf("wrongSettings has no value for %s", name)
		}
		return get(name)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantNamed checks that an error about settings says what is wanted.
func wantNamed(t *testing.T, want string, given ...string) {
	t.Helper()
	if _, err := ReadSettings(environment(given...)); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%q: got %v, want %s", given, err, want)
	}
}

func TestEachWrongSettingIsNamed(t *testing.T) {
	for name, value := range wrongSettings {
		wantNamed(t, name+" ", name, value)
	}
	for _, name := range []string{"SITE_NAME", "SITE_NOTICE"} {
		wantNamed(t, name+" must be UTF-8", name, "n\xfe")
	}
	for value, wrong := range map[string]bool{" ": true, "\u00a0\u2003": true, "\u200b": true,
		"\u2060\ufeff": true, "a\u2028b": true, "a\u202eb": true, "\u200fa": true, "a\u2066": true,
		"a\u061c": true, "a\u0085b": true, " a ": false, "👩\u200d💻": false, "می\u200cخواهم": false,
		"קיצור": false, "é": false, ".": false, "1": false} {
		for _, name := range []string{"SITE_NAME", "SITE_NOTICE"} {
			_, err := ReadSettings(environment(name, value))
			if named := err != nil && strings.Contains(err.Error(), name+" must be a text that can "+
				"be seen"); named != wrong || (err != nil) != wrong {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
	for _, address := range []string{"localhost", ":0", ":65536", "::1:9464", "x:http", "http://x:1"} {
		wantNamed(t, "METRICS_ADDRESS must be host:port", "METRICS_ADDRESS", address)
	}
	for other, value := range map[string]string{"FUNCTIONS_CUSTOMHANDLER_PORT": "5000",
		"TABLE_SECONDARY": "true"} {
		wantNamed(t, "TABLE_CONNECTION ", "TABLE_CONNECTION", "memory", other, value)
	}
	wantNamed(t, "BaseUrl is required in Azure", "WEBSITE_HOSTNAME", "x.azurewebsites.net")
	for name, value := range map[string]string{
		"CLIENT_ADDRESS_HEADER": "forwarded", "SHORTURL_TABLE_NAME": "tables",
		"GC_BLOB_LOCK_BLOB": "..", "GC_BLOB_LOCK_CONTAINER": strings.Repeat("a", 64),
		"LISTEN_ADDRESS":          "127.0.0.1:80",
		"TABLE_CONNECTION":        "BlobEndpoint=https://a.example;SharedAccessSignature=x",
		"GC_BLOB_LOCK_CONNECTION": "TableEndpoint=https://a.example;SharedAccessSignature=x",
	} {
		wantNamed(t, name+" ", name, value)
	}
	for name, wrong := range map[string]string{"TABLE_CONNECTION__AccountName": "a",
		"AzureWebJobsStorage__clientSecret": "t", "gc_blob_lock_connection__accountName": "a"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, wrong)
			_, err := ReadSettings(environment("AzureWebJobsStorage", "",
				"AzureWebJobsStorage__accountName", "a"))
			if err == nil || strings.Count(err.Error(), name+" has no effect: the names that work "+
				"are ") != 1 {
				t.Errorf("got %v", err)
			}
		})
	}
	for name, longest := range map[string]int{
		"SHORTURL_TABLE_NAME": 49, "URLINDEX_TABLE_NAME": 63, "GC_BLOB_LOCK_BLOB": 256, "OIDC_CLIENT_ID": 200,
		"OIDC_ADMIN_ROLE": 200, "OIDC_GROUPS_CLAIM": 200, "OIDC_API_AUDIENCE": 200,
		"OIDC_API_SCOPE": 200, "OIDC_SUBJECT_CLAIM": 200, "CLIENT_ADDRESS_HEADER": 100,
		"DOMAIN_HEADER": 100,
	} {
		for length, wrong := range map[int]bool{longest: false, longest + 1: true} {
			_, err := ReadSettings(environment("OIDC_ISSUER", "https://login.example",
				"OIDC_CLIENT_ID", "an-app", name, strings.Repeat("a", length)))
			if named := err != nil && strings.Contains(err.Error(), name+" must be"); named != wrong {
				t.Errorf("%s with %d characters: %v", name, length, err)
			}
		}
	}
	for _, container := range []string{"ab", "a" + strings.Repeat("-b", 32), "a--b", "-ab", "ab-"} {
		wantNamed(t, "GC_BLOB_LOCK_CONTAINER ", "GC_BLOB_LOCK_CONTAINER", container)
	}
	if _, err := ReadSettings(environment("AzureWebJobsStorage", "x")); err == nil ||
		strings.Count(err.Error(), "AzureWebJobsStorage") != 1 {
		t.Errorf("one setting for two connections: %v", err)
	}
	if s, err := ReadSettings(environment("FUNCTIONS_CUSTOMHANDLER_PORT", "5000",
		"WEBSITE_HOSTNAME", "localhost:8080")); err != nil ||
		s.Functions.Rules.Base.String() != "http://localhost:8080" {
		t.Errorf("under the Core Tools: %v, %v", s.Functions.Rules.Base, err)
	}
	for _, name := range []string{"shorturls", "shortURLsClicks202001", "ShortUrlsKEYS",
		"ShortUrlsExpiryIndex"} {
		wantNamed(t, "must differ", "URLINDEX_TABLE_NAME", name)
	}
	if _, err := ReadSettings(func(string) string { return "" }); err == nil ||
		!strings.Contains(err.Error(), "AzureWebJobsStorage is required") {
		t.Errorf("nothing set: %v", err)
	}
}

// mistake is an environment with one wrong setting, and what the error must say about it.
type mistake struct {
	given []string
	want  string
}

func wantOneMistake(t *testing.T, all map[string]mistake) {
	t.Helper()
	for name, test := range all {
		_, err := ReadSettings(environment(test.given...))
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			strings.Count(err.Error(), "\n") != 1 {
			t.Errorf("%s: got %v, want one mistake: %s", name, err, test.want)
		} else if test.given[0] == "ADMIN_KEY" && strings.Contains(err.Error(), test.given[1]) {
			t.Errorf("%s: a key is quoted: %v", name, err)
		}
	}
}

// TestWrongAccess has further wrong settings of access, and what the error must say about each.
func TestWrongAccess(t *testing.T) {
	wantOneMistake(t, map[string]mistake{
		"a key of 31 characters": {pairs{"ADMIN_KEY", ownKey[1:]}, "ADMIN_KEY must be 32"},
		"a key of 7 characters": {pairs{"ADMIN_KEY", strings.Repeat("sevndif", 5)},
			"ADMIN_KEY must be 32"},
		"a key with a space": {pairs{"ADMIN_KEY", strings.Replace(ownKey, "-", " ", 1)},
			"ADMIN_KEY must be 32"},
		"a key with an umlaut": {pairs{"ADMIN_KEY", ownKey + "ä"}, "ADMIN_KEY must be 32"},
		"the development key online": {pairs{"ADMIN_KEY", developmentKey, "BaseUrl",
			"https://go.example.com"}, "ADMIN_KEY is the key of local.settings.json"},
		"the development key for all": {pairs{"ADMIN_KEY", developmentKey, "LISTEN_ADDRESS",
			"0.0.0.0"}, "ADMIN_KEY is the key of local.settings.json"},
		"the same, for all of IPv6": {pairs{"ADMIN_KEY", developmentKey, "LISTEN_ADDRESS", "::"},
			"ADMIN_KEY is the key of local.settings.json"},
		"the same, for a network": {pairs{"ADMIN_KEY", developmentKey, "LISTEN_ADDRESS",
			"192.168.0.7"}, "ADMIN_KEY is the key of local.settings.json"},
		"a reference that is none": {pairs{"ADMIN_KEY",
			"@Microsoft.KeyVault(SecretUri=https://v.vault.azure.net/secrets/s)"},
			"ADMIN_KEY is a reference"},
		"an issuer alone": {pairs{"OIDC_ISSUER", "https://login.example"},
			"OIDC_CLIENT_ID is required"},
		"a client alone": {pairs{"OIDC_CLIENT_ID", "an-app"},
			"OIDC_ISSUER is required"},
		"an issuer with a query": {pairs{"OIDC_ISSUER", "https://login.example?p=policy",
			"OIDC_CLIENT_ID", "an-app"}, "OIDC_ISSUER must be"},
		"an issuer with a fragment": {pairs{"OIDC_ISSUER", "https://login.example#x",
			"OIDC_CLIENT_ID", "an-app"}, "OIDC_ISSUER must be"},
		"the client as audience": {pairs{"OIDC_ISSUER", "https://login.example", "OIDC_CLIENT_ID",
			"an-app", "OIDC_API_AUDIENCE", "an-app"}, "OIDC_API_AUDIENCE must not be the value of " +
			"OIDC_CLIENT_ID"},
		"a scope with a quote":     {pairs{"OIDC_API_SCOPE", `a"b`}, "OIDC_API_SCOPE must be"},
		"a scope with a backslash": {pairs{"OIDC_API_SCOPE", `a\b`}, "OIDC_API_SCOPE must be"},
		"scopes in two steps":      {pairs{"OIDC_SCOPES", "openid  groups"}, "OIDC_SCOPES must be"},
		"a space after the scopes": {pairs{"OIDC_SCOPES", "openid "}, "OIDC_SCOPES must be"},
		"scopes alike":             {pairs{"OIDC_SCOPES", "openidx OPENID"}, "OIDC_SCOPES must be"},
		"too many scopes": {pairs{"OIDC_SCOPES", "openid " + strings.Repeat("a", 194)},
			"OIDC_SCOPES must be"},
		"an issuer that is no URL": {pairs{"OIDC_ISSUER", "login.example", "OIDC_CLIENT_ID",
			"an-app"}, "OIDC_ISSUER must be"},
	})
}

// TestWrongDestinations has further wrong settings of where links lead and of their domains, and
// what the error must say about each.
func TestWrongDestinations(t *testing.T) {
	const hosts = `DOMAINS must be hosts such as go.example or https://go.example, separated by ` +
		`commas, and %q is none`
	const fallback = " must be a URL such as https://example.com/: The URL "
	tests := map[string]mistake{
		"too many domains": {pairs{"DOMAINS", domainList(101)},
			"DOMAINS may name 100 hosts at most, not 101"},
		"a domain twice": {pairs{"DOMAINS", "go.example,GO.example"},
			`DOMAINS has "GO.example" twice`},
		"a domain twice, with ports": {pairs{"DOMAINS", "go.example,http://go.example:443"},
			`DOMAINS has "http://go.example:443" twice`},
		"a domain twice, in punycode": {pairs{"DOMAINS", "bücher.example xn--bcher-kva.example."},
			`DOMAINS has "xn--bcher-kva.example." twice`},
		"the default domain": {pairs{"BaseUrl", "https://tiney.to/s", "DOMAINS",
			"go.example,Tiney.TO:80"}, `DOMAINS must not have "Tiney.TO:80", which is the host of ` +
			`BaseUrl: that is the default domain`},
		"the default domain, with a port": {pairs{"DOMAINS", "localhost:7071"},
			`DOMAINS must not have "localhost:7071"`},
		"two wrong settings": {pairs{"BaseUrl", "tiney.to", "DOMAINS", "go.example"},
			"BaseUrl must be a URL"},
		"a header that is not kept": {pairs{"DOMAIN_HEADER", "host"},
			"DOMAIN_HEADER must not be Host, which is read without this setting"},
		"a header that is none": {pairs{"DOMAIN_HEADER", "X-Url, Y"},
			"DOMAIN_HEADER must be the name of a header"},
		"an unknown case": {pairs{"ALIAS_CASE", "true"},
			`ALIAS_CASE must be sensitive or insensitive, not "true"`},
		"unknown access": {pairs{"DOMAINS_ACCESS", "admins"},
			`DOMAINS_ACCESS must be anyone or owners, not "admins"`},
		"an alias at home": {pairs{"HOME_URL", "https://example.com/?{alias}"},
			"HOME_URL may not have {alias}: no alias was asked for"},
		"a fallback with a domain in its port": {pairs{"GONE_URL", "https://a.example:{domain}/"},
			"GONE_URL may have {alias} and {domain} in its path, query or fragment only"},
		"a fallback with an alias in its host": {pairs{"UNKNOWN_URL", "https://{alias}.example/"},
			"UNKNOWN_URL may have {alias} and {domain} in its path, query or fragment only"},
		"a fallback that is the service": {pairs{"HOME_URL", "http://localhost:8080/home"},
			"HOME_URL" + fallback + "leads to the host of this URL shortener itself"},
		"a fallback to a domain": {pairs{"DOMAINS", "go.example", "UNKNOWN_URL",
			"https://GO.example:8080/"},
			"UNKNOWN_URL" + fallback + "leads to the host of this URL shortener itself"},
		"a fallback to another name of the service": {pairs{"OTHER_HOSTS", "edge.example",
			"GONE_URL", "https://edge.example/{alias}"},
			"GONE_URL" + fallback + "leads to the host of this URL shortener itself"},
		"a fallback without a scheme": {pairs{"UNKNOWN_URL", "example.com/{alias}"},
			"UNKNOWN_URL" + fallback + "must start with http:// or https://."},
		"a fallback with another scheme": {pairs{"EXTRA_SCHEMES", "mailto", "GONE_URL",
			"mailto:ann@example.com"},
			"GONE_URL" + fallback + "must start with http:// or https://."},
		"a fallback with a place in capitals": {pairs{"UNKNOWN_URL", "https://a.example/?q={Alias}"},
			"UNKNOWN_URL may have {alias} and {domain} in braces, nothing else."},
		"a fallback with an unknown place": {pairs{"HOME_URL", "https://a.example/{foo}"},
			"HOME_URL may have {alias} and {domain} in braces, nothing else."},
		"a scheme that is there": {pairs{"EXTRA_SCHEMES", "mailto,HTTPS"},
			`EXTRA_SCHEMES must not have "https", which is always there`},
		"the other one": {pairs{"EXTRA_SCHEMES", "http"},
			`EXTRA_SCHEMES must not have "http", which is always there`},
		"a fallback with an alias as scheme": {pairs{"UNKNOWN_URL", "{alias}://example.com/"},
			"UNKNOWN_URL" + fallback + "must start with http:// or https://."},
	}
	for _, host := range []string{"go.example/s", "https://go.example/s/", "ftp://go.example",
		"https://", "ann@go.example", "*.go.example", "go.example:0", "go.example:65536",
		"go.example?", "go!.example", "::1", strings.Repeat("a.", 127) + "example"} {
		tests["no domain: "+host] = mistake{pairs{"DOMAINS", "a.example," + host},
			fmt.Sprintf(hosts, host)}
	}
	// DNS can have none of these names.
	for _, host := range []string{"go..example", ".go.example", "go.example..", "go.example。。",
		"go。.example", "..", strings.Repeat("a", 64) + ".example", "go." + strings.Repeat("a", 64),
		strings.Repeat("ü", 60) + ".example", strings.Repeat("a.", 123) + "example.x"} {
		for name, value := range map[string]string{"BaseUrl": "https://" + host + "/s",
			"DOMAINS": "a.example " + host, "OTHER_HOSTS": "a.example " + host,
			"HOME_URL": "https://" + host + ":8443/", "UNKNOWN_URL": "http://" + host,
			"GONE_URL": "https://" + host + "?{alias}", "OIDC_ISSUER": "https://" + host + "/tenant"} {
			given := pairs{name, value}
			if name == "OIDC_ISSUER" {
				given = append(given, "OIDC_CLIENT_ID", "client")
			}
			tests[name+" has no name: "+host] = mistake{given, name + " must be "}
		}
	}
	for _, scheme := range []string{"javascript", "data", "vbscript", "file", "blob", "about",
		"filesystem", "view-source", "intent", "jar", "chrome", "resource", "ms-msdt", "search-ms",
		"ms-officecmd", "ms-appinstaller", "JavaScript"} {
		tests["the scheme "+scheme] = mistake{pairs{"EXTRA_SCHEMES", "mailto " + scheme},
			fmt.Sprintf("EXTRA_SCHEMES must not have %q, by which a link could attack who "+
				"follows it", strings.ToLower(scheme))}
	}
	for _, scheme := range []string{"mailto:", "tel://", "1x", "-x", "a_b", "ä", "\u212atel",
		"a;b"} {
		tests["no scheme: "+scheme] = mistake{pairs{"EXTRA_SCHEMES", scheme},
			"EXTRA_SCHEMES must be names of schemes such as mailto"}
	}
	wantOneMistake(t, tests)
}

// TestDefaultBase: subcommands and the service have the same default BaseUrl. With another one, an
// import would make links that cannot be reached.
func TestDefaultBase(t *testing.T) {
	for want, given := range map[string][]string{
		"http://localhost:7071": {"FUNCTIONS_CUSTOMHANDLER_PORT", "5000", "PORT", "8080"},
		"http://localhost:8080": {"PORT", "8080"},
		"http://localhost:8081": {"PORT", "8080", "HTTP_PLATFORM_PORT", "8081"},
		"http://localhost:7072": {"PORT", "8080", "WEBSITE_HOSTNAME", "localhost:7072"},
	} {
		for _, read := range []func(func(string) string) (Settings, error){ReadSettings,
			ReadLinkSettings} {
			s, err := read(environment(given...))
			if got := s.Functions.Rules.Base.String(); err != nil || got != want {
				t.Errorf("%q: %s, %v, want %s", given, got, err, want)
			}
		}
	}
	if _, err := ReadLinkSettings(environment("PORT", "x")); err == nil {
		t.Error("a wrong port is not reported")
	}
}

// TestDevelopmentKey: the key of local.settings.json is the key that the settings refuse anywhere
// else.
func TestDevelopmentKey(t *testing.T) {
	data, err := os.ReadFile("../../local.settings.json")
	if err != nil {
		t.Fatal(err)
	}
	var local struct{ Values map[string]string }
	if err := json.Unmarshal(data, &local); err != nil ||
		local.Values["ADMIN_KEY"] != developmentKey {
		t.Errorf("ADMIN_KEY of local.settings.json is %q, want %q (%v)", local.Values["ADMIN_KEY"],
			developmentKey, err)
	}
}

func TestAllWrongSettingsAreNamedAtOnce(t *testing.T) {
	_, err := ReadSettings(func(name string) string {
		if name == "FUNCTIONS_CUSTOMHANDLER_PORT" {
			return "" // otherwise PORT and LISTEN_ADDRESS are not read
		}
		return wrongSettings[name]
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for name := range wrongSettings {
		if name != "FUNCTIONS_CUSTOMHANDLER_PORT" && !strings.Contains(err.Error(), name+" ") {
			t.Errorf("%s is not named in:\n%v", name, err)
		}
	}
	if strings.Contains(err.Error(), "a secret") {
		t.Errorf("a key is quoted:\n%v", err)
	}
}

func FuzzSettings(f *testing.F) {
	for name, value := range wrongSettings {
		f.Add(name, value)
	}
	f.Add("ALIAS_LENGTH", "32")
	f.Add("BaseUrl", "https://bücher.example/s/")
	f.Fuzz(func(t *testing.T, name, value string) {
		s, err := ReadSettings(environment(name, value))
		if err != nil {
			return
		}
		if s.Storage.AliasLength < 4 || s.Storage.AliasLength > 32 ||
			s.Functions.Rules.DefaultTTL < day || s.Functions.Rules.MaxTTL < time.Minute ||
			s.Functions.Rules.Base.String() == "" || s.Storage.Reap.PageSize < 1 ||
			s.Storage.Reap.PageSize > 1000 {
			t.Errorf("%s=%q gives %+v", name, value, s)
		}
	})
}

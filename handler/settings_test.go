package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func environment(pairs ...string) func(string) string {
	values := map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true"}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

const insightsString = "InstrumentationKey=11111111-2222-3333-4444-555555555555;IngestionEndpoint=https://canadacentral-1.in.applicationinsights.azure.com/"

func TestDefaultSettings(t *testing.T) {
	s, err := readSettings(environment())
	if err != nil {
		t.Fatal(err)
	}
	if s.hosted || s.address != "127.0.0.1:7071" || s.rules.Base.String() != "http://localhost:7071" {
		t.Errorf("hosted %t, at %s, base %s", s.hosted, s.address, s.rules.Base)
	}
	if s.linkTable != "ShortUrls" || s.expiryTable != "ShortUrlsExpiryIndex" || s.indexTable != "UrlIndex" || s.lockContainer != "locks" || s.lockBlob != "expiry-reaper.lock" {
		t.Errorf("names: %+v", s)
	}
	if s.reapBuffer != 0 || s.reapLimit != 4*time.Minute || s.reapPageSize != 1000 {
		t.Errorf("reaper: %v %v %d", s.reapBuffer, s.reapLimit, s.reapPageSize)
	}
	// 90 days: the smaller one of MaxTtlDays and MAX_TTL_SECONDS.
	if s.rules.DefaultTTL != 30*day || s.rules.MaxTTL != 90*day || s.aliasLength != 6 {
		t.Errorf("links: %v %v %d", s.rules.DefaultTTL, s.rules.MaxTTL, s.aliasLength)
	}
	if c := s.cache; c == nil || c.Bytes != 10<<20 || c.Fresh != 15*time.Minute || c.Negative != time.Minute || c.Stale != time.Hour {
		t.Errorf("cache: %+v", c)
	}
	if s.redirectMaxAge != 0 || s.logLevel != slog.LevelInfo || s.telemetry != nil {
		t.Errorf("%v, %v, %v", s.redirectMaxAge, s.logLevel, s.telemetry)
	}
}

func TestSettings(t *testing.T) {
	for name, test := range map[string]struct {
		given []string
		holds func(settings) bool
	}{
		"behind the host": {[]string{"FUNCTIONS_CUSTOMHANDLER_PORT", "5000", "PORT", "6000", "LISTEN_ADDRESS", "0.0.0.0"},
			func(s settings) bool {
				return s.hosted && s.address == "127.0.0.1:5000" && s.rules.Base.String() == "http://localhost:7071"
			}},
		"PORT": {[]string{"PORT", "6000"}, func(s settings) bool {
			return s.address == "127.0.0.1:6000" && s.rules.Base.String() == "http://localhost:6000"
		}},
		"httpPlatformHandler": {[]string{"HTTP_PLATFORM_PORT", "5000", "PORT", "6000"}, func(s settings) bool { return s.address == "127.0.0.1:5000" }},
		"all addresses":       {[]string{"LISTEN_ADDRESS", "0.0.0.0"}, func(s settings) bool { return s.address == "0.0.0.0:7071" }},
		"IPv6":                {[]string{"LISTEN_ADDRESS", "::1"}, func(s settings) bool { return s.address == "[::1]:7071" }},
		"Azure":               {[]string{"WEBSITE_HOSTNAME", "x.azurewebsites.net", "BaseUrl", "https://tiney.to/"}, func(s settings) bool { return s.rules.Base.String() == "https://tiney.to" }},
		"telemetry": {[]string{"APPLICATIONINSIGHTS_CONNECTION_STRING", insightsString}, func(s settings) bool {
			c := s.telemetry
			return c != nil && !c.Hosted && c.SamplingPercent == 100 && c.ClientAddresses && c.Role == "tiney" && c.Instance != ""
		}},
		"telemetry in Azure": {[]string{"APPLICATIONINSIGHTS_CONNECTION_STRING", insightsString, "FUNCTIONS_CUSTOMHANDLER_PORT", "5000",
			"TELEMETRY_SAMPLING_PERCENT", "10", "TELEMETRY_CLIENT_IP", "false", "WEBSITE_SITE_NAME", "short", "WEBSITE_INSTANCE_ID", "abc"}, func(s settings) bool {
			c := s.telemetry
			return c != nil && c.Hosted && c.SamplingPercent == 10 && !c.ClientAddresses && c.Role == "short" && c.Instance == "abc"
		}},
		"no cache":               {[]string{"CACHE_ENABLED", "False"}, func(s settings) bool { return s.cache == nil }},
		"MaxTtlDays is smaller":  {[]string{"MaxTtlDays", "7"}, func(s settings) bool { return s.rules.MaxTTL == 7*day }},
		"longer than a year":     {[]string{"MaxTtlDays", "3650", "MAX_TTL_SECONDS", "315360000"}, func(s settings) bool { return s.rules.MaxTTL == 3650*day }},
		"log level":              {[]string{"LOG_LEVEL", "WARN"}, func(s settings) bool { return s.logLevel == slog.LevelWarn }},
		"connections of its own": {[]string{"AzureWebJobsStorage", "", "TABLE_CONNECTION__accountName", "a", "GC_BLOB_LOCK_CONNECTION", "UseDevelopmentStorage=true"}, func(settings) bool { return true }},
	} {
		s, err := readSettings(environment(test.given...))
		if err != nil || !test.holds(s) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// wrongSettings is a value for each setting that must not be accepted.
var wrongSettings = map[string]string{
	"AzureWebJobsStorage":                   "AccountName=a;AccountKey=a secret",
	"SHORTURL_TABLE_NAME":                   "no-hyphens",
	"EXPIRYINDEX_TABLE_NAME":                "1st",
	"URLINDEX_TABLE_NAME":                   "ab",
	"GC_BLOB_LOCK_CONTAINER":                "Capitals",
	"GC_BLOB_LOCK_BLOB":                     "a/b",
	"GC_BUFFER_SECONDS":                     "-1",
	"GC_MAX_SECONDS":                        "0",
	"GC_PAGE_SIZE":                          "1001",
	"BaseUrl":                               "tiney.to",
	"DefaultTtlDays":                        "0",
	"MaxTtlDays":                            "1.5",
	"MAX_TTL_SECONDS":                       "59",
	"ALIAS_LENGTH":                          "3",
	"CACHE_ENABLED":                         "maybe",
	"CACHE_SIZE_MB":                         "10MB",
	"CACHE_DURATION_SECONDS":                "0",
	"CACHE_NEGATIVE_SECONDS":                "ten",
	"CACHE_STALE_SECONDS":                   "1e3",
	"REDIRECT_MAX_AGE_SECONDS":              " 5",
	"LOG_LEVEL":                             "loud",
	"TELEMETRY_SAMPLING_PERCENT":            "0",
	"TELEMETRY_CLIENT_IP":                   "sometimes",
	"APPLICATIONINSIGHTS_CONNECTION_STRING": "InstrumentationKey=a secret",
	"PORT":                                  "70000",
	"LISTEN_ADDRESS":                        "a b",
	"FUNCTIONS_CUSTOMHANDLER_PORT":          "x",
}

func TestEachWrongSettingIsNamed(t *testing.T) {
	for name, value := range wrongSettings {
		_, err := readSettings(environment(name, value))
		if err == nil || !strings.Contains(err.Error(), name+" ") {
			t.Errorf("%s=%s: got %v", name, value, err)
		}
	}
	if _, err := readSettings(environment("WEBSITE_HOSTNAME", "x.azurewebsites.net")); err == nil || !strings.Contains(err.Error(), "BaseUrl is required in Azure") {
		t.Errorf("in Azure without BaseUrl: %v", err)
	}
	for name, value := range map[string]string{
		"SHORTURL_TABLE_NAME": "tables", "GC_BLOB_LOCK_BLOB": "..", "GC_BLOB_LOCK_CONTAINER": strings.Repeat("a", 64), "LISTEN_ADDRESS": "127.0.0.1:80",
		"TABLE_CONNECTION": "BlobEndpoint=https://a.example;SharedAccessSignature=x", "GC_BLOB_LOCK_CONNECTION": "TableEndpoint=https://a.example;SharedAccessSignature=x",
	} {
		if _, err := readSettings(environment(name, value)); err == nil || !strings.Contains(err.Error(), name+" ") {
			t.Errorf("%s=%s: got %v", name, value, err)
		}
	}
	if _, err := readSettings(environment("AzureWebJobsStorage", "x")); err == nil || strings.Count(err.Error(), "AzureWebJobsStorage") != 1 {
		t.Errorf("one setting for two connections: %v", err)
	}
	if s, err := readSettings(environment("FUNCTIONS_CUSTOMHANDLER_PORT", "5000", "WEBSITE_HOSTNAME", "localhost:8080")); err != nil || s.rules.Base.String() != "http://localhost:8080" {
		t.Errorf("under the Core Tools: %v, %v", s.rules.Base, err)
	}
	if _, err := readSettings(environment("URLINDEX_TABLE_NAME", "shorturls")); err == nil || !strings.Contains(err.Error(), "must differ") {
		t.Errorf("two tables of one name: %v", err)
	}
	if _, err := readSettings(func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "AzureWebJobsStorage is required") {
		t.Errorf("nothing set: %v", err)
	}
}

func TestAllWrongSettingsAreNamedAtOnce(t *testing.T) {
	_, err := readSettings(func(name string) string {
		if name == "FUNCTIONS_CUSTOMHANDLER_PORT" {
			return "" // else PORT and LISTEN_ADDRESS are not looked at
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
		t.Errorf("a key is told:\n%v", err)
	}
}

func FuzzSettings(f *testing.F) {
	for name, value := range wrongSettings {
		f.Add(name, value)
	}
	f.Add("ALIAS_LENGTH", "32")
	f.Add("BaseUrl", "https://bücher.example/s/")
	f.Fuzz(func(t *testing.T, name, value string) {
		s, err := readSettings(environment(name, value))
		if err != nil {
			return
		}
		if s.aliasLength < 4 || s.aliasLength > 32 || s.rules.DefaultTTL < day || s.rules.MaxTTL < time.Minute || s.rules.Base.String() == "" || s.reapPageSize < 1 || s.reapPageSize > 1000 {
			t.Errorf("%s=%q gives %+v", name, value, s)
		}
	})
}

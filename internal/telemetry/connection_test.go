package telemetry

import (
	"net/url"
	"strings"
	"testing"
)

func TestParseConnection(t *testing.T) {
	const key = "InstrumentationKey=00000000-1111-2222-3333-444444444444"
	for given, want := range map[string]string{
		key:                                  "https://dc.services.visualstudio.com",
		" " + key + " ; ":                    "https://dc.services.visualstudio.com",
		strings.ToUpper(key[:18]) + key[18:]: "https://dc.services.visualstudio.com",
		key + ";IngestionEndpoint=https://canadacentral-1.in.applicationinsights.azure.com/;" +
			"LiveEndpoint=https://canadacentral.livediagnostics.monitor.azure.com/;" +
			"ApplicationId=5": "https://canadacentral-1.in.applicationinsights.azure.com",
		"IngestionEndpoint=http://127.0.0.1:8080;" + key: "http://127.0.0.1:8080",
		key + ";EndpointSuffix=applicationinsights.azure.cn": "https://dc." +
			"applicationinsights.azure.cn",
		key + ";EndpointSuffix=ai.contoso.com;Location=westus2": "https://westus2.dc." +
			"ai.contoso.com",
		key + ";Authorization=ikey": "https://dc.services.visualstudio.com",
	} {
		c, err := ParseConnection(given)
		if err != nil || c.endpoint != want || c.key != key[19:] {
			t.Errorf("%s: %+v, %v, want %s", given, c, err, want)
		}
	}
	for given, says := range map[string]string{
		"nonsense":                                      "Key=Value",
		"https://secret.example.com":                    "Key=Value",
		";":                                             "InstrumentationKey",
		"IngestionEndpoint=https://secret.com":          "InstrumentationKey",
		"InstrumentationKey=secret":                     "InstrumentationKey",
		"InstrumentationKey=":                           "InstrumentationKey",
		key + "0":                                       "InstrumentationKey",
		key + ";Authorization=aad":                      "Authorization",
		key + ";IngestionEndpoint=secret.com":           "IngestionEndpoint",
		key + ";IngestionEndpoint=ftp://secret.com":     "IngestionEndpoint",
		key + ";IngestionEndpoint=https://":             "IngestionEndpoint",
		key + ";IngestionEndpoint=https://u:secret@h":   "IngestionEndpoint",
		key + ";IngestionEndpoint=https://h?":           "IngestionEndpoint",
		key + ";IngestionEndpoint=https://h#":           "IngestionEndpoint",
		key + ";IngestionEndpoint=https://h?sig=secret": "IngestionEndpoint",
		key + ";IngestionEndpoint=https://h\x7f":        "IngestionEndpoint",
		key + ";EndpointSuffix=secret/%zz":              "IngestionEndpoint",
	} {
		c, err := ParseConnection(given)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(),
			"secret") || c != (Connection{}) {
			t.Errorf("%s: %+v, %v, want an error about %s", given, c, err, says)
		}
	}
}

func FuzzParseConnection(f *testing.F) {
	f.Add("InstrumentationKey=00000000-1111-2222-3333-444444444444;" +
		"IngestionEndpoint=https://example.com/")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseConnection(s)
		if err != nil {
			return
		}
		if u, err := url.Parse(c.endpoint); err != nil || u.Host == "" ||
			strings.HasSuffix(c.endpoint, "/") || len(c.key) != 36 {
			t.Errorf("%q gives %+v", s, c)
		}
	})
}

package telemetry

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// Connection is the address of an Application Insights resource. ParseConnection returns one.
type Connection struct {
	key      string // the instrumentation key
	endpoint string // the URL of the ingestion service, without a slash at its end
}

// defaultEndpoint is used if a connection string names no endpoint. Such strings are from the time
// before there were regional endpoints.
const defaultEndpoint = "https://dc.services.visualstudio.com"

// ParseConnection parses a connection string of Application Insights, such as
// "InstrumentationKey=…;IngestionEndpoint=https://…". Errors never quote the string.
func ParseConnection(s string) (Connection, error) {
	values, ok := pairs(s)
	if !ok {
		return Connection{}, errors.New(
			"is not a connection string of Application Insights: it must be Key=Value pairs with " +
				"semicolons between them")
	}
	c := Connection{key: values["instrumentationkey"]}
	// The pattern is compiled here, since a process without telemetry needs no memory for it.
	if !regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`).
		MatchString(c.key) {
		return Connection{}, errors.New(
			"must have an InstrumentationKey such as 00000000-0000-0000-0000-000000000000")
	}
	if way := values["authorization"]; way != "" && !strings.EqualFold(way, "ikey") {
		return Connection{}, errors.New(
			"has an Authorization that is not ikey, the only one that works here")
	}
	endpoint := values["ingestionendpoint"]
	if suffix := values["endpointsuffix"]; endpoint == "" && suffix != "" {
		endpoint = "https://dc." + suffix
		if location := values["location"]; location != "" {
			endpoint = "https://" + location + ".dc." + suffix
		}
	}
	if endpoint == "" {
		endpoint = defaultEndpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
		u.User != nil || strings.ContainsAny(endpoint, "?#") {
		return Connection{}, errors.New(
			"must have an IngestionEndpoint that is an http or https URL without a query")
	}
	c.endpoint = strings.TrimRight(endpoint, "/")
	return c, nil
}

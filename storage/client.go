package storage

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Timeout is the longest that a request waits for storage, all calls and retries of it together.
const Timeout = 5 * time.Second

// httpClient is one pool of connections for all tables and the lock.
//
// An instance on the Consumption plan has 600 outbound connections; one host is given less than half of them, and as
// many as that are kept open between bursts. The time limits here are for what a context does not end: with them, a
// network that swallows packets costs one try, not a whole request.
var httpClient = &http.Client{
	Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   2 * time.Second,
		ResponseHeaderTimeout: 10 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxConnsPerHost:       256,
		MaxIdleConnsPerHost:   256,
		ForceAttemptHTTP2:     true,
	},
	// A storage service never redirects; following one could carry a token elsewhere.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// clientOptions makes three tries fit well into Timeout: 1.4 s each, and a pause that is short because a refused
// connection or a dropped one is mostly gone at the next try. The SDK's defaults (0.8 s, 1.6 s, … and no limit for a
// try) would spend Timeout on a single frozen one. A Retry-After beyond MaxRetryDelay ends the tries at once.
func clientOptions() policy.ClientOptions {
	return policy.ClientOptions{
		Transport: httpClient,
		Telemetry: policy.TelemetryOptions{ApplicationID: "tiney"},
		Retry: policy.RetryOptions{
			MaxRetries:    2,
			RetryDelay:    50 * time.Millisecond,
			MaxRetryDelay: 200 * time.Millisecond,
			TryTimeout:    1400 * time.Millisecond,
		},
		PerRetryPolicies: []policy.Policy{countTries{}},
	}
}

// tries counts how often the call made with a context was sent. More than once means that an earlier try may have
// been applied although its answer never came.
type tries struct{ n int }

type triesKey struct{}

func withTries(ctx context.Context) (context.Context, *tries) {
	t := new(tries)
	return context.WithValue(ctx, triesKey{}, t), t
}

type countTries struct{}

func (countTries) Do(req *policy.Request) (*http.Response, error) {
	if t, ok := req.Raw().Context().Value(triesKey{}).(*tries); ok {
		t.n++
	}
	return req.Next()
}

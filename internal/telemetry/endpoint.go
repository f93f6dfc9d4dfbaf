package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/microsoft/ApplicationInsights-Go/appinsights/contracts"
)

const (
	// tryTimeout is how long one try to send a batch may take.
	tryTimeout = 10 * time.Second
	// longestPause is the longest pause between two tries, unless the endpoint asks for more.
	longestPause = 10 * time.Second
	// longestAsked is the longest pause that the endpoint may ask for.
	longestAsked = 5 * time.Minute
)

// endpoint posts to Application Insights, one batch at a time. The SDK's own channel would retry a
// failed batch in a goroutine of its own for minutes, with any number of such batches at once, and
// has no tokens.
type endpoint struct {
	url    string
	client http.Client
	tokens azcore.TokenCredential // nil: the instrumentation key is enough

	ctx    context.Context // for all posts
	cancel context.CancelFunc
}

// newEndpoint prepares for posts to the ingestion service at a URL. A post with a token goes to
// another version of its API, as the posts of Microsoft's SDKs do (EndpointContainer.cs in
// https://github.com/microsoft/ApplicationInsights-dotnet). A component that accepts only tokens
// refuses posts to the version without tokens.
func newEndpoint(service string, tokens azcore.TokenCredential) *endpoint {
	e := &endpoint{url: service + "/v2/track", tokens: tokens}
	if tokens != nil {
		e.url = service + "/v2.1/track"
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.client = http.Client{
		Timeout: tryTimeout,
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout: 5 * time.Second,
			MaxConnsPerHost:     1,
			IdleConnTimeout:     time.Minute,
			// HTTP/2 is off: with it, a try that times out would leave its dead connection to the
			// next try.
		},
		// A redirect that turns the POST into a GET would lose the batch.
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.Method != via[0].Method || len(via) >= 10 {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	return e
}

func (e *endpoint) close() {
	e.cancel()
	e.client.CloseIdleConnections()
}

// post tries once to send a batch.
func (e *endpoint) post(batch []*contracts.Envelope) (got result) {
	var body bytes.Buffer
	compressed := gzip.NewWriter(&body)
	lines := json.NewEncoder(compressed)
	for _, item := range batch {
		_ = lines.Encode(item) // writes nothing of an item with a number that JSON cannot have
	}
	_ = compressed.Close()
	post, err := http.NewRequestWithContext(e.ctx, http.MethodPost, e.url, &body)
	if err != nil {
		return result{err: err}
	}
	post.Header.Set("Content-Encoding", "gzip")
	post.Header.Set("Content-Type", "application/x-json-stream")
	if e.tokens != nil {
		ctx, cancel := context.WithTimeout(e.ctx, tryTimeout)
		token, err := e.tokens.GetToken(ctx,
			policy.TokenRequestOptions{Scopes: []string{ingestionScope}})
		cancel()
		if err != nil {
			says, _, _ := strings.Cut(err.Error(), "\n") // further lines may quote a response
			return result{err: errors.New("no token: " + says)}
		}
		post.Header.Set("Authorization", "Bearer "+token.Token)
	}
	resp, err := e.client.Do(post)
	if err != nil {
		return result{err: err}
	}
	defer resp.Body.Close()
	got.status = resp.StatusCode
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		got.asked = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(resp.Header.Get("Retry-After")); err == nil {
		got.asked = time.Until(at)
	}
	if resp.StatusCode == http.StatusPartialContent {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		_ = json.Unmarshal(body, &got.body) // an unreadable one counts as empty
	}
	return got
}

// result is the result of a try.
type result struct {
	err    error
	status int
	asked  time.Duration // the pause that the endpoint asks for
	body   struct {      // the response to a batch that was accepted in part
		ItemsReceived, ItemsAccepted int
		Errors                       []struct{ Index, StatusCode int }
	}
}

func (a result) ok() bool {
	return a.err == nil && (a.status == http.StatusOK || a.status == http.StatusPartialContent)
}

// sort returns the items of a batch that are worth another try, and the number of items that were
// refused for good.
func (a result) sort(batch []*contracts.Envelope) (again []*contracts.Envelope, refused int) {
	switch {
	case a.err != nil:
		return batch, 0
	case a.status == http.StatusOK:
		return nil, 0
	case a.status == http.StatusBadRequest || a.status == http.StatusRequestEntityTooLarge:
		return nil, len(batch) // another try would have the same result
	case a.status != http.StatusPartialContent:
		return batch, 0 // this includes a used-up quota of the month or the day
	}
	if a.body.ItemsReceived != len(batch) {
		// It is unknown which items were accepted. Sending an item twice would be worse than losing
		// it.
		return nil, len(batch)
	}
	seen := map[int]bool{}
	for _, item := range a.body.Errors {
		if item.Index < 0 || item.Index >= len(batch) || seen[item.Index] {
			continue
		}
		seen[item.Index] = true
		switch item.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, quotaExceeded,
			http.StatusInternalServerError, http.StatusServiceUnavailable:
			again = append(again, batch[item.Index])
		}
	}
	return again, max(0, len(batch)-a.body.ItemsAccepted-len(again))
}

// quotaExceeded is the HTTP status if the quota of the day is used up.
const quotaExceeded = 439

// pause returns how long to wait after a number of failures in a row.
func (a result) pause(failures int) time.Duration {
	pause := min(time.Second<<min(failures-1, 10), longestPause)
	// Instances that failed at the same time should not all try again at the same time.
	pause -= time.Duration(rand.Int64N(int64(pause / 4)))
	return max(pause, min(a.asked, longestAsked))
}

// String returns the result as a text for the log.
func (a result) String() string {
	var inURL *url.Error
	switch {
	case errors.As(a.err, &inURL):
		return inURL.Err.Error()
	case a.err != nil:
		return a.err.Error()
	}
	return fmt.Sprintf("status %d", a.status)
}

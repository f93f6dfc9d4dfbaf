package telemetry

import (
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
	"github.com/microsoft/ApplicationInsights-Go/appinsights"
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

// endpoint posts to Application Insights. The SDK's channel encodes the batches and posts them, one
// at a time, to a stand-in for the network. The stand-in does the real posting with limits, keeps
// the result, and tells the SDK that all is well. Otherwise the SDK would retry a failed batch in a
// goroutine of its own for minutes, with any number of such batches at once.
type endpoint struct {
	channel *appinsights.InMemoryChannel
	client  http.Client
	tokens  azcore.TokenCredential // nil: the instrumentation key is enough
	results chan result

	ctx    context.Context // for all posts
	cancel context.CancelFunc
}

// open prepares for posts to the ingestion service at a URL. A post with a token goes to another
// version of its API, as the posts of Microsoft's SDKs do (EndpointContainer.cs in
// https://github.com/microsoft/ApplicationInsights-dotnet). A component that accepts only tokens
// refuses posts to the version without tokens.
func (e *endpoint) open(service string, tokens azcore.TokenCredential) {
	url := service + "/v2/track"
	if tokens != nil {
		url = service + "/v2.1/track"
	}
	e.tokens = tokens
	e.results = make(chan result, 1)
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
	e.channel = appinsights.NewInMemoryChannel(&appinsights.TelemetryConfiguration{
		EndpointUrl: url,
		// The Sender makes the batches, so the channel must send none by itself.
		MaxBatchSize:     1 << 20,
		MaxBatchInterval: 1000 * time.Hour,
		Client:           &http.Client{Transport: (*standIn)(e)},
	})
}

func (e *endpoint) close() {
	e.channel.Stop()
	e.cancel()
	e.client.CloseIdleConnections()
}

// post tries once to send a batch, which must not be empty: the SDK ignores an empty one.
func (e *endpoint) post(batch []*contracts.Envelope) result {
	for _, item := range batch {
		e.channel.Send(item)
	}
	e.channel.Flush()
	return <-e.results
}

// standIn is the endpoint as the transport of the SDK's HTTP client.
type standIn endpoint

// RoundTrip posts a batch that the SDK has encoded.
func (e *standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	e.results <- e.try(r)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody,
		Request: r}, nil
}

func (e *standIn) try(r *http.Request) (got result) {
	post, err := http.NewRequestWithContext(e.ctx, r.Method, r.URL.String(), r.Body)
	if err != nil {
		return result{err: err}
	}
	post.Header, post.ContentLength, post.GetBody = r.Header.Clone(), r.ContentLength, r.GetBody
	post.Header.Del("Accept-Encoding") // with it, the response would not be decompressed
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

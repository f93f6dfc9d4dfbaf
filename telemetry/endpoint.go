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
	"time"

	"github.com/microsoft/ApplicationInsights-Go/appinsights"
	"github.com/microsoft/ApplicationInsights-Go/appinsights/contracts"
)

const (
	// tryTimeout is how long one try to send a batch may take.
	tryTimeout = 10 * time.Second
	// longestPause is the longest pause between two tries, unless the endpoint asks for more.
	longestPause = 10 * time.Second
	// longestAsked is how much more it may ask for.
	longestAsked = 5 * time.Minute
)

// endpoint is the way to Application Insights. The SDK's channel writes the batches and posts them, one at a time, and
// endpoint stands in for the network: it does the posting with limits, keeps the answer for whoever sends, and tells
// the SDK that all is well. For the SDK itself would go on with a batch that fails in a goroutine of its own, for
// minutes, and any number of such batches at once.
type endpoint struct {
	channel *appinsights.InMemoryChannel
	client  http.Client
	answers chan answer

	ctx    context.Context // ends what is being sent
	cancel context.CancelFunc
}

func (e *endpoint) open(url string) {
	e.answers = make(chan answer, 1)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.client = http.Client{
		Timeout: tryTimeout,
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout: 5 * time.Second,
			MaxConnsPerHost:     1,
			IdleConnTimeout:     time.Minute,
			// Not HTTP/2, where a try that runs out of time leaves a dead connection to the next one.
		},
		// A redirect that turns the batch into a GET has not taken it.
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if r.Method != via[0].Method || len(via) >= 10 {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	e.channel = appinsights.NewInMemoryChannel(&appinsights.TelemetryConfiguration{
		EndpointUrl: url,
		// Batches are of our making: none is sent by itself.
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

// post tries once to send a batch, which is not empty: the SDK does nothing at all with one that is.
func (e *endpoint) post(batch []*contracts.Envelope) answer {
	for _, item := range batch {
		e.channel.Send(item)
	}
	e.channel.Flush()
	return <-e.answers
}

// standIn is the endpoint as the SDK's HTTP client has it.
type standIn endpoint

// RoundTrip posts what the SDK has written.
func (e *standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	e.answers <- e.try(r)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func (e *standIn) try(r *http.Request) (got answer) {
	post, err := http.NewRequestWithContext(e.ctx, r.Method, r.URL.String(), r.Body)
	if err != nil {
		return answer{err: err}
	}
	post.Header, post.ContentLength, post.GetBody = r.Header.Clone(), r.ContentLength, r.GetBody
	post.Header.Del("Accept-Encoding") // or the answer would not be unpacked
	resp, err := e.client.Do(post)
	if err != nil {
		return answer{err: err}
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
		_ = json.Unmarshal(body, &got.said) // what cannot be read says nothing
	}
	return got
}

// answer is what came of a try.
type answer struct {
	err    error
	status int
	asked  time.Duration // the pause that the endpoint asks for
	said   struct {      // of a batch that was taken in part
		ItemsReceived, ItemsAccepted int
		Errors                       []struct{ Index, StatusCode int }
	}
}

func (a answer) ok() bool {
	return a.err == nil && (a.status == http.StatusOK || a.status == http.StatusPartialContent)
}

// sort returns the items of a batch that are worth another try, and how many are refused for good.
func (a answer) sort(batch []*contracts.Envelope) (again []*contracts.Envelope, refused int) {
	switch {
	case a.err != nil:
		return batch, 0
	case a.status == http.StatusOK:
		return nil, 0
	case a.status == http.StatusBadRequest || a.status == http.StatusRequestEntityTooLarge:
		return nil, len(batch) // it would be no better next time
	case a.status != http.StatusPartialContent:
		return batch, 0 // also where the quota of the month or the day is used up
	}
	if a.said.ItemsReceived != len(batch) {
		return nil, len(batch) // there is no telling what was taken, and twice would be worse than not at all
	}
	seen := map[int]bool{}
	for _, item := range a.said.Errors {
		if item.Index < 0 || item.Index >= len(batch) || seen[item.Index] {
			continue
		}
		seen[item.Index] = true
		switch item.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, quotaExceeded, http.StatusInternalServerError, http.StatusServiceUnavailable:
			again = append(again, batch[item.Index])
		}
	}
	return again, max(0, len(batch)-a.said.ItemsAccepted-len(again))
}

// quotaExceeded is what Application Insights answers once the quota of a day is used up.
const quotaExceeded = 439

// pause is how long to wait after a number of failures in a row.
func (a answer) pause(failures int) time.Duration {
	pause := min(time.Second<<min(failures-1, 10), longestPause)
	pause -= time.Duration(rand.Int64N(int64(pause / 4))) // instances that failed together need not try together
	return max(pause, min(a.asked, longestAsked))
}

// String is fit for a log.
func (a answer) String() string {
	var inURL *url.Error
	switch {
	case errors.As(a.err, &inURL):
		return inURL.Err.Error()
	case a.err != nil:
		return a.err.Error()
	}
	return fmt.Sprintf("status %d", a.status)
}

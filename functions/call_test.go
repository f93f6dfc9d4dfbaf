package functions_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/teststore"
)

// slow is a storage in which each call takes this long, unless the context of the call ends before.
type slow time.Duration

func (s slow) call(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(s)):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", link.ErrUnavailable, ctx.Err())
	}
}

type slowCallers struct {
	functions.Callers
	slow
}

func (s slowCallers) Caller(ctx context.Context, h http.Header) (access.Caller, error) {
	if err := s.call(ctx); err != nil {
		return access.Caller{}, fmt.Errorf("%w: %w", access.ErrUnavailable, err)
	}
	return s.Callers.Caller(ctx, h)
}

type slowStore struct {
	*teststore.Store
	slow
}

func (s slowStore) Create(ctx context.Context, want link.Link, claimHash string) (link.Link, bool,
	error) {
	if err := s.call(ctx); err != nil {
		return link.Link{}, false, err
	}
	return s.Store.Create(ctx, want, claimHash)
}

func (s slowStore) Read(ctx context.Context, a link.Name) (link.Link, error) {
	if err := s.call(ctx); err != nil {
		return link.Link{}, err
	}
	return s.Store.Read(ctx, a)
}

func (s slowStore) Get(ctx context.Context, a link.Name) (link.Link, error) {
	if err := s.call(ctx); err != nil {
		return link.Link{}, err
	}
	return s.Store.Get(ctx, a)
}

func (s slowStore) Edit(ctx context.Context, a link.Name, once bool,
	change func(link.Link) (link.Link, error)) (link.Link, error) {
	if err := s.call(ctx); err != nil {
		return link.Link{}, err
	}
	return s.Store.Edit(ctx, a, once, change)
}

func (s slowStore) EditAll(ctx context.Context, edits []link.Edit) ([]link.EditResult, error) {
	if len(edits) == 0 {
		return nil, nil
	}
	if err := s.call(ctx); err != nil {
		return nil, err
	}
	return s.Store.EditAll(ctx, edits)
}

func (s slowStore) List(ctx context.Context, owner, after string, limit int,
	keep func(link.Link) bool) ([]link.Link, string, error) {
	if err := s.call(ctx); err != nil {
		return nil, "", err
	}
	return s.Store.List(ctx, owner, after, limit, keep)
}

type slowStatistics struct {
	functions.Clicks
	slow
}

func (s slowStatistics) Days(ctx context.Context, l link.Link, from, to clicks.Day) ([]clicks.Count,
	error) {
	if err := s.call(ctx); err != nil {
		return nil, err
	}
	return s.Clicks.Days(ctx, l, from, to)
}

func (s slowStatistics) Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error) {
	if err := s.call(ctx); err != nil {
		return nil, err
	}
	return s.Clicks.Totals(ctx, links)
}

// newSlowRig returns a rig whose storage takes the time each for every call.
func newSlowRig(t *testing.T, each time.Duration, change ...func(*functions.Config)) *rig {
	s := slow(each)
	slowly := func(c *functions.Config) {
		c.Rates = access.Rates{access.LimitUnknown: 2}
		// behind a host that forwards, bodies are read to their end after an error
		c.HostAddress = ""
		c.Callers, c.Links = slowCallers{c.Callers, s}, slowStore{c.Links.(*teststore.Store), s}
		c.Clicks = slowStatistics{c.Clicks, s}
	}
	r := newRig(t, append([]func(*functions.Config){slowly}, change...)...)
	r.fake.Put(link.Link{Name: "ann1", LongURL: "https://example.com/", Owner: "ann"})
	return r
}

// aliases returns a number of aliases with commas between them.
func aliases(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint("ann", i))
	}
	return strings.Join(all, ",")
}

// A request waits for five seconds in all, however many calls it makes.
func TestARequestWaitsFiveSeconds(t *testing.T) {
	for _, test := range []struct {
		method, target, body string
		each                 time.Duration
		status               int
		took                 time.Duration
	}{
		{"GET", "/api/links", "", 2 * time.Second, 200, 4 * time.Second},
		{"GET", "/api/links", "", 3 * time.Second, 503, 5 * time.Second},
		// with the rest of the time for totals, which do not suffice
		{"GET", "/api/links?clicks=true", "", 2 * time.Second, 200, 5 * time.Second},
		{"GET", "/api/stats/links?tag=t", "", 2 * time.Second, 200, 4 * time.Second},
		{"GET", "/api/stats/links?tag=t", "", 3 * time.Second, 503, 5 * time.Second},
		// 100 links are read in four times the time of one
		{"GET", "/api/stats/clicks?alias=" + aliases(100), "", 800 * time.Millisecond, 200,
			4800 * time.Millisecond},
		{"GET", "/api/stats/clicks?alias=" + aliases(100), "", time.Second, 503, 5 * time.Second},
		{"GET", "/api/links/ann1/stats", "", 1600 * time.Millisecond, 200, 4800 * time.Millisecond},
		{"GET", "/api/links/ann1/stats", "", 2 * time.Second, 503, 5 * time.Second},
		{"GET", "/api/export", "", 2 * time.Second, 503, 5 * time.Second},
		{"POST", "/api/shorten", `{"longUrl":"https://example.com/"}`, 2 * time.Second, 200,
			4 * time.Second},
		{"POST", "/api/shorten", `{"longUrl":"https://example.com/"}`, 3 * time.Second, 503,
			5 * time.Second},
		{"GET", "/api/links", "", time.Hour, 503, 5 * time.Second},
		{"POST", "/api/links/bulk", `{"links":[{"longUrl":"https://example.com/"}]}`,
			6 * time.Second, 200, 12 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowRig(t, test.each)
			begun := time.Now()
			w := r.as("ann", test.method, test.target, test.body)
			took := time.Since(begun)
			if w.Code != test.status || took != test.took || w.Code == 503 &&
				w.Header().Get("Retry-After") != "5" {
				t.Errorf("%s %s, %v a call: got %d %v after %v, want %d after %v",
					test.method, test.target, test.each, w.Code, w.Header(), took, test.status,
					test.took)
			}
		})
	}
}

// A client that disconnects does not end its request. So a look-up that it breaks off counts, and
// does not look like a failure of storage.
func TestAClientThatDisconnects(t *testing.T) {
	for _, test := range []struct {
		method, target, body string
		statuses             []int
	}{
		{"GET", "/ann1", "", []int{302, 302, 302}},
		{"GET", "/nobody", "", []int{404, 404, 429}},
		{"GET", "/api/links/ann1", "", []int{200, 200, 200}},
		{"POST", "/api/shorten", `{"longUrl":"https://example.com/"}`, []int{200, 200, 200}},
		{"POST", "/api/import", `{"longUrl":"https://example.com/","alias":"one"}`,
			[]int{200, 200, 200}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowRig(t, time.Second)
			r.as("ann", "GET", "/api/me", "") // makes the key
			for _, status := range test.statuses {
				ctx, disconnect := context.WithTimeout(t.Context(), time.Millisecond)
				defer disconnect()
				req := httptest.NewRequestWithContext(ctx, test.method, test.target,
					strings.NewReader(test.body))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("X-Api-Key", r.keys.of["ann"])
				if w := r.send(req); w.Code != status {
					t.Errorf("%s %s: got %d %s, want %d", test.method, test.target, w.Code, w.Body,
						status)
				}
			}
			if strings.Contains(r.log.String(), `"WARN"`) {
				t.Errorf("%s %s: logged %s", test.method, test.target, r.log)
			}
		})
	}
}

// slowBody is a body whose every read takes some time.
type slowBody struct {
	io.Reader
	slow
}

func (b slowBody) Read(p []byte) (int, error) {
	_ = b.call(context.Background())
	return b.Reader.Read(p)
}

// The time that a body takes, 15 seconds at most, does not count as time of storage. But the
// response of a call for many links has to be written in time.
func TestABodyTakesItsTime(t *testing.T) {
	const one = `{"longUrl":"https://example.com/"}`
	for _, test := range []struct {
		target, body string
		each, read   time.Duration // there are two reads; the second one finds the end
		statuses     string
		took         time.Duration
	}{
		{"/api/shorten", one, 2 * time.Second, 6 * time.Second, "200", 16 * time.Second},
		{"/api/shorten", one, 3 * time.Second, 6 * time.Second, "503", 17 * time.Second},
		{"/api/shorten", one, 4 * time.Second, 7500 * time.Millisecond, "503", 20 * time.Second},
		{"/api/links/bulk", `{"links":[` + one + `,` + one + `,` + one + `]}`, 4 * time.Second,
			4500 * time.Millisecond, "200 200 200 503", 21 * time.Second},
		{"/api/import", `{"longUrl":"https://example.com/","alias":"one"}`, 4 * time.Second,
			9 * time.Second, "503", 22 * time.Second},
		{"/api/links/guarded/open", `{"password":"open sesame"}`, 500 * time.Millisecond,
			6 * time.Second, "303", 12500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowRig(t, test.each)
			r.as("ann", "GET", "/api/me", "") // makes the key
			if strings.HasSuffix(test.target, "/open") {
				r.guarded(t, "guarded", `"password":"open sesame","maxOpens":1`)
			}
			req := httptest.NewRequest("POST", test.target, slowBody{strings.NewReader(test.body),
				slow(test.read)})
			req.ContentLength = int64(len(test.body))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-Api-Key", r.keys.of["ann"])
			w := httptest.NewRecorder()
			begun := time.Now()
			r.ServeHTTP(w, req)
			statuses := fmt.Sprint(w.Code)
			for _, part := range strings.Split(w.Body.String(), `{"status":`)[1:] {
				statuses += " " + part[:3]
			}
			if took := time.Since(begun); statuses != test.statuses || took != test.took {
				t.Errorf("%s, %v a call, %v a read: got %s after %v, want %s after %v", test.target,
					test.each, test.read,
					statuses, took, test.statuses, test.took)
			}
		})
	}
}

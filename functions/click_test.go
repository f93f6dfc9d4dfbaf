package functions_test

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/teststore"
	"tiney/storage/counts"
)

// recorded are the clicks of a store. Tests see each one, and can hold up what reads them.
type recorded struct {
	*counts.Clicks
	store *teststore.Store

	mu      sync.Mutex
	clicked map[link.Name][]clicked
	created int

	top     error                           // the error of Top and InWindow, if there is to be one
	totals  func(ctx context.Context) error // called by Totals, which returns its error
	totaled []int                           // how many links each call of Totals was for
}

// clicked is a click, and the owner that the link had.
type clicked struct {
	clicks.Click
	owner string
}

func (r *recorded) Click(l link.Link, k clicks.Click) {
	r.store.Click(l, k)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clicked == nil {
		r.clicked = map[link.Name][]clicked{}
	}
	r.clicked[l.Name] = append(r.clicked[l.Name], clicked{k, l.Owner})
}

func (r *recorded) Created(links int) {
	r.store.Created(links)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.created += links
}

func (r *recorded) Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totaled = append(r.totaled, len(links))
	if r.totals != nil {
		if err := r.totals(ctx); err != nil {
			return nil, err
		}
	}
	return r.Clicks.Totals(ctx, links)
}

func (r *recorded) Top(ctx context.Context, owner string, d *link.Domain, window clicks.Window,
	limit int) ([]link.Link, []int64, time.Time, error) {
	if r.top != nil {
		return nil, nil, time.Time{}, r.top
	}
	return r.Clicks.Top(ctx, owner, d, window, limit)
}

func (r *recorded) InWindow(ctx context.Context, links []link.Link, window clicks.Window) (
	[]clicks.Total, error) {
	if r.top != nil {
		return nil, r.top
	}
	return r.Clicks.InWindow(ctx, links, window)
}

const (
	chrome = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/142.0.0.0 Safari/537.36"
	host = " Azure-Functions-Host/4.1037.0"
)

// TestWhatCountsAsAClick goes over requests for a live link.
func TestWhatCountsAsAClick(t *testing.T) {
	from := func(address, userAgent string) clicks.Visitor {
		return clicks.NewVisitor(netip.MustParseAddr(address), userAgent)
	}
	whole := clicks.Click{
		Names:   [clicks.Dimensions]string{"example.com", "DE", "Chrome", "Windows", "desktop"},
		Visitor: from("84.128.0.1", chrome),
	}
	with := func(change func(*clicks.Click)) *clicks.Click {
		k := whole
		change(&k)
		return &k
	}
	bare, bot := &clicks.Click{}, &clicks.Click{Bot: true}
	headers := []string{"User-Agent", chrome, "Referer", "https://example.com/page?secret=1",
		"X-Forwarded-For", "84.128.0.1"}
	for name, test := range map[string]struct {
		mode   clicks.Mode
		method string
		more   []string
		want   *clicks.Click
	}{
		"a browser":        {want: &whole},
		"through the host": {more: []string{"User-Agent", chrome + host}, want: &whole},
		"a forged address": {more: []string{"X-Forwarded-For", "1.1.1.1, 84.128.0.1:4711"},
			want: &whole},
		"no referrer": {more: []string{"Referer", ""},
			want: with(func(k *clicks.Click) { k.Names[clicks.Referrers] = "(direct)" })},
		"a referrer that is HTML": {more: []string{"Referer", "<img src=x>"},
			want: with(func(k *clicks.Click) { k.Names[clicks.Referrers] = clicks.Other })},
		"an address of no country": {more: []string{"X-Forwarded-For", "10.0.0.1"},
			want: with(func(k *clicks.Click) {
				k.Names[clicks.Countries], k.Visitor = "(unknown)", from("10.0.0.1", chrome)
			})},
		"a bot":                  {more: []string{"User-Agent", "curl/8.5.0"}, want: bot},
		"a bot through the host": {more: []string{"User-Agent", "curl/8.5.0" + host}, want: bot},
		"no User-Agent":          {more: []string{"User-Agent", ""}, want: bot},
		"no User-Agent, but a host": {more: []string{"User-Agent", strings.TrimSpace(host)},
			want: bot},
		"Sec-GPC":                 {more: []string{"Sec-GPC", "1"}, want: bare},
		"Sec-GPC that is no wish": {more: []string{"Sec-GPC", "0"}, want: &whole},
		"totals only":             {mode: clicks.ModeTotals, want: bare},
		"a bot, totals only": {mode: clicks.ModeTotals,
			more: []string{"User-Agent", "curl/8.5.0"}, want: bot},
		"off":                {mode: clicks.ModeOff},
		"HEAD":               {method: "HEAD"},
		"a prefetch":         {more: []string{"Sec-Purpose", "prefetch;prerender"}},
		"a prefetch of old":  {more: []string{"Purpose", "prefetch"}},
		"a preview":          {more: []string{"X-Purpose", "preview"}},
		"Firefox's prefetch": {more: []string{"X-Moz", "prefetch"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *functions.Config) {
				c.CountClicks = cmp.Or(test.mode, clicks.ModeFull)
			})
			r.fake.Put(link.Link{Name: "abcdef", LongURL: "https://example.com/", Owner: "ann"})
			if w := r.do(cmp.Or(test.method, "GET"), "/abcdef", "",
				append(headers, test.more...)...); w.Code != http.StatusFound {
				t.Fatalf("got %d", w.Code)
			}
			got := r.clicks.clicked["abcdef"]
			if test.want == nil {
				if len(got) != 0 {
					t.Errorf("it counts: %+v", got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("%d clicks, want 1", len(got))
			}
			test.want.At = r.clock.Now()
			if got[0] != (clicked{*test.want, "ann"}) {
				t.Errorf("got  %+v\nwant %+v", got[0], *test.want)
			}
		})
	}
}

// TestWhatIsNoClick goes over requests whose response is not a redirect.
func TestWhatIsNoClick(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for _, l := range []link.Link{
		{Name: "abcdef", LongURL: "https://example.com/"},
		{Name: "expired", LongURL: "https://example.com/", ExpiresAt: now},
		{Name: "disabled", LongURL: "https://example.com/", Disabled: true},
		{Name: "deleted", LongURL: "https://example.com/", DeletedAt: now},
	} {
		r.fake.Put(l)
	}
	for _, target := range []string{"/expired", "/disabled", "/deleted", "/nobody", "/abcdef+",
		"/a.b", "/", "/robots.txt", "/api/links/abcdef/qr"} {
		r.get(target, "User-Agent", chrome)
	}
	r.fake.Fail(link.ErrUnavailable)
	r.get("/abcdef", "User-Agent", chrome)
	if len(r.clicks.clicked) != 0 {
		t.Errorf("got %+v", r.clicks.clicked)
	}
}

// TestOnlyNewLinksCountAsCreated: the second caller gets the link of the first.
func TestOnlyNewLinksCountAsCreated(t *testing.T) {
	r := newRig(t)
	for _, url := range []string{"https://example.com/", "https://example.com/",
		"https://example.com/2", "ftp://example.com"} {
		r.do("POST", "/api/shorten", `{"longUrl":"`+url+`"}`)
	}
	if r.clicks.created != 2 {
		t.Errorf("%d, want 2", r.clicks.created)
	}
}

package browser

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"image/png"
	"io"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/azurite"
	"tiney/storage"
	"tiney/storage/counts"
	"tiney/storage/table"
)

var screenshots = flag.String("browser.screenshots", "",
	"the folder that TestScreenshots writes its pictures to; none: it only looks whether they "+
		"are there")

// clickFor makes clicks on links for the given number of past days, and rolls them up. The clicks
// are the same ones on each call.
func (s *site) clickFor(t *testing.T, days map[link.Name]int) {
	t.Helper()
	open, err := azurite.Tables(emulator.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	store, err := storage.Open(storage.Config{Open: open, Timeout: table.Timeout, AliasLength: 6,
		Tables: storage.Tables{Links: s.Links, Index: s.Index, Expiry: s.Expiry, Owners: s.Owners,
			Keys: s.Keys, State: s.State, Clicks: s.Clicks, ClickTotals: s.ClickTotals},
		Clicks: counts.Settings{Mode: clicks.ModeFull, FlushEvery: time.Hour, KeepDays: 400},
		Now:    func() time.Time { return now },
		Random: rand.Reader, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Metrics: new(telemetry.Metrics)})
	if err != nil {
		t.Fatal(err)
	}
	names := [][clicks.Dimensions]string{ // as clicks.Dimension has them
		{"news.example", "DE", "Chrome", "Windows", "desktop"}, {"(direct)", "FR", "Safari", "iOS",
			"mobile"}, {"social.example", "DE", "Firefox", "Linux", "desktop"},
		{"(direct)", "US", "Chrome", "Android", "mobile"}, {"wiki.example", "IL", "Edge", "Windows",
			"desktop"}, {"news.example", "DE", "Safari", "macOS", "desktop"},
	}
	pick := mathrand.New(mathrand.NewPCG(1, 2))
	for past := slices.Max(slices.Collect(maps.Values(days))) - 1; past >= 0; past-- {
		// Clicks are written on their day: later they would count for the day of the writing.
		now = time.Now().UTC().AddDate(0, 0, -past)
		for _, alias := range slices.Sorted(maps.Keys(days)) {
			l, err := store.Read(context.Background(), alias)
			if err != nil {
				t.Fatal(err)
			}
			if past >= days[alias] {
				continue
			}
			day := days[alias] - 1 - past
			var visitor clicks.Visitor
			for i := range 20 + day + pick.IntN(40) {
				k := clicks.Click{At: now, Took: time.Millisecond, Bot: i%11 == 5}
				if !k.Bot {
					if i%4 > 0 { // else the same one again
						visitor = clicks.NewVisitor(netip.AddrFrom4([4]byte{192, 0, 2,
							byte(pick.IntN(256))}), firefox)
					}
					k.Names, k.Visitor = names[min(pick.IntN(len(names)), pick.IntN(len(names)))],
						visitor
				}
				store.Clicks.Click(l, k)
			}
		}
		if err := store.Clicks.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := store.Clicks.RollUp(context.Background()); err != nil || !done.Complete {
		t.Fatalf("the roll-up: %+v, %v", done, err)
	}
}

// docs/screenshots must have a picture of each main state, light and dark, and none may be large.
// `make screenshots` makes them anew.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	s := serveStored(t, "BaseUrl=https://go.example.com")
	key := s.keyOf(t, "ada")
	for i, l := range []link.Link{
		{Name: "team", LongURL: "https://intranet.example.com/people/team?view=all",
			Title: "Who we are", Tags: []string{"team"}},
		{Name: "summer",
			LongURL: "https://shop.example.com/campaigns/2026/summer?utm_source=poster",
			Title:   "Summer campaign", Tags: []string{"poster", "2026"}, Disabled: true},
		{Name: "8k3e3D", LongURL: "https://maps.example.com/@52.5200,13.4050,15z"},
		{Name: "handbook", LongURL: "https://example.com/docs/handbook/2026/edition-2.html",
			Title: "The handbook", Tags: []string{"team", "docs"}},
	} {
		l.Owner, l.CreatedAt = "ada", time.Now().AddDate(0, 0, 10*i-60)
		s.PutLink(l)
	}
	s.clickFor(t, map[link.Name]int{"handbook": 30, "team": 2, "8k3e3D": 1})
	p := chromium.New(t)
	p.Width(1000)
	shoot := func(name string) {
		t.Helper()
		for _, dark := range []bool{true, false} {
			file := name + map[bool]string{true: "-dark"}[dark] + ".png"
			if *screenshots != "" {
				p.Dark(dark)
				Eval[any](p, `scrollTo(0, 0)`)
				p.drawn()
				img, err := png.Decode(bytes.NewReader(p.Screen()))
				if err != nil {
					t.Fatal(err)
				}
				var smaller bytes.Buffer
				if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&smaller,
					img); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(*screenshots, file), smaller.Bytes(),
					0o644); err != nil {
					t.Fatal(err)
				}
			}
			if info, err := os.Stat(filepath.Join("../../../docs/screenshots", file)); err != nil {
				t.Errorf("%v; `make screenshots` makes it", err)
			} else if info.Size() > 200<<10 {
				t.Errorf("%s has %d bytes", file, info.Size())
			}
		}
	}
	p.Open(s.url)
	p.AwaitTrue(find("#history") + ".checkVisibility()")
	shoot("home")
	p.Fill("#url", "https://example.com/a/long/path?with=a&query")
	p.Fill("#alias", "path")
	p.Press(kb.Enter)
	p.Await("#result", "Your short link")
	p.AwaitTrue(awaitPicture)
	shoot("result")
	p.Open(s.url + "/path+")
	p.AwaitTrue(find("figure img") + ".naturalWidth > 0")
	shoot("preview")
	p.Open(s.url + "/nobody")
	shoot("error")
	Eval[any](p, `void localStorage.clear()`)
	p.Open(s.url + "/manage")
	p.wantFocus("key")
	p.Press(key + kb.Enter)
	p.Await("#list-count", "4 links")
	p.AwaitTrue(`document.querySelectorAll("#list-rows .clicks:not(:empty)").length === 4`)
	p.Width(1200)
	shoot("links")
	p.Width(1000)
	p.GoTo("#/link/handbook", "#stats-body", "Germany")
	p.AwaitTrue(`document.querySelectorAll(".chart.clicks .bar").length === 30`)
	p.AwaitTrue(find("#link-qr") + ".naturalWidth > 0")
	shoot("link")
}

package e2e

import (
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
)

// A run of the timer rolls up clicks and reaps links, even if clicks are no longer counted. An
// admin sees it in the statistics. A run that fails appears there once storage responds again.
func TestTheReaperIsToldOf(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.proxy()
	h := s.hosted(true, p.ConnectionString(), "CLICKS=off")
	awaitReady(t, h.URL())
	admin := caller{t, h.URL(), adminKey}
	want := func(members map[string]any) {
		t.Helper()
		if got := admin.must(200, "GET", "/api/admin/cleanup/stats", ""); !matches(got, members) {
			t.Errorf("got %v, want %v", got, members)
		}
	}
	want(map[string]any{"lastRunAtUtc": nil, "deletedTotal": 0.0, "lastDeleted": 0.0,
		"successfulRuns": 0.0, "failedRuns": 0.0, "averageMs": nil, "running": false})

	now := time.Now()
	s.PutLink(link.Link{Name: "clicked", LongURL: "https://example.com/clicked",
		ExpiresAt: now.Add(time.Hour)})
	s.PutLink(link.Link{Name: "due", LongURL: "https://example.com/due",
		ExpiresAt: now.Add(-time.Hour)})
	at := now.Add(-3 * 24 * time.Hour)
	s.PutClicks(at, rawtables.Clicks("clicked", "p-1", at, 7, 2))
	s.Put(s.State, rawtables.VisitorKey(at))
	p.Before(faultproxy.On("QueryEntities", s.Expiry, faultproxy.ServerBusy))
	if _, err := h.FireTimer(ctx, "reaper"); err == nil {
		t.Error("the run did not fail")
	}
	p.Reset()
	want(map[string]any{"deletedTotal": 0.0, "successfulRuns": 0.0, "failedRuns": 1.0})
	// This table has the statistics and the progress of the roll-up.
	p.Before(faultproxy.On("", s.State, faultproxy.ServerBusy))
	if _, err := h.FireTimer(ctx, "reaper"); err == nil {
		t.Error("the run did not fail")
	}
	p.Reset()
	want(map[string]any{"failedRuns": 1.0})
	if _, err := h.FireTimer(ctx, "reaper"); err != nil {
		t.Error(err)
	}
	want(map[string]any{"deletedTotal": 1.0, "lastDeleted": 0.0, "successfulRuns": 1.0,
		"failedRuns": 2.0, "running": false})
	s.WantNoLeak()
	if totals := s.Rows(s.ClickTotals); len(totals) != 1 || totals[0]["Clicks"] != "7" ||
		totals[0]["Bots"] != "2" {
		t.Errorf("totals: %v", totals)
	}
}

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/ingest"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

// newMonitoredSite makes a site and an ingestion endpoint. It also returns the setting that makes
// processes report to the endpoint.
func newMonitoredSite(t *testing.T) (s *site, e *ingest.Endpoint, setting string) {
	t.Helper()
	e = ingest.Start()
	t.Cleanup(e.Close)
	t.Cleanup(func() {
		if wrong := e.Wrong(); len(wrong) > 0 {
			t.Errorf("the endpoint got what is no telemetry: %q", wrong)
		}
	})
	return newSite(t), e, "APPLICATIONINSIGHTS_CONNECTION_STRING=" + e.ConnectionString()
}

// secret is in every long URL and every query of the mix. It must never be reported or logged.
const secret = "s3cr3t"

// mix sends a mix of requests, and returns the expected counts.
func mix(t *testing.T, s *site, base string) (counts map[string]float64, requests map[string]int) {
	t.Helper()
	s.PutLink(link.Link{Name: "live", LongURL: "https://example.com/" + secret,
		ExpiresAt: time.Now().Add(time.Hour)})
	s.PutLink(link.Link{Name: "expired", LongURL: "https://example.com/expired?" + secret,
		ExpiresAt: time.Now().Add(-time.Hour)})
	s.PutLink(link.Link{Name: "disabled", LongURL: "https://example.com/disabled#" + secret,
		Disabled: true})
	counts, requests = map[string]float64{"process.started": 1}, map[string]int{}
	post := func(body string) {
		status := request(t, http.MethodPost, base+"/api/shorten?code="+secret, body,
			"x-functions-key", secret).Status
		counts[map[int]string{201: "shorten.created", 200: "shorten.deduplicated"}[status]]++
		if status >= 400 {
			delete(counts, "")
			counts["shorten.rejected"]++
		}
		requests[fmt.Sprint("shorten ", status)]++
	}
	redirect := func(alias string) {
		status := get(t, base+"/"+alias+"?"+secret, "User-Agent",
			"Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0", "Referer",
			"https://"+secret+".example/").Status
		counts[map[int]string{302: "redirect.found", 404: "redirect.not_found",
			410: "redirect.gone"}[status]]++
		if status == http.StatusFound {
			counts["clicks.counted"]++
		}
		if _, possible := link.ParseAlias(alias); possible { // others are not looked up
			counts["redirect.duration_ms"]++
			counts["cache look-ups"]++
		}
		requests[fmt.Sprint("redirect ", status)]++
	}
	for n := range 8 {
		post(fmt.Sprintf(`{"longUrl":"https://example.com/%s/%d"}`, secret, n%5))
	}
	post(`{"longUrl":"ftp://` + secret + `"}`)
	post(secret)
	post(`{"longUrl":"https://example.com/disabled#` + secret + `"}`)
	for range 10 {
		redirect("live")
		redirect("nobody")
		redirect("expired")
	}
	redirect("disabled")
	redirect("no.alias-" + secret)
	return counts, requests
}

// counted returns the metrics that have arrived. It adds up the four counters of cache look-ups,
// since it depends on how soon the cache stores an entry which of them counts a look-up.
func counted(e *ingest.Endpoint) map[string]float64 {
	got := map[string]float64{}
	for name, m := range e.Metrics() {
		switch {
		case name == "redirect.duration_ms":
			got[name] = float64(m.Count)
		case name == "cache.bytes" || strings.HasPrefix(name, "reaper.") ||
			strings.HasPrefix(name, "changes."), name == "clicks.flush_ms", name == "clicks.age_s":
		case strings.HasPrefix(name, "cache."):
			got["cache look-ups"] += m.Value
		default:
			got[name] = m.Value
		}
	}
	return got
}

func TestTelemetryOfRequests(t *testing.T) {
	t.Parallel()
	t.Run("behind the host", func(t *testing.T) {
		t.Parallel()
		s, e, setting := newMonitoredSite(t)
		h := s.hosted(true, emulator.ConnectionString(), setting)
		want, _ := mix(t, s, h.URL())
		if _, err := h.FireTimer(ctx, "reaper"); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "all is counted", func() bool {
			return maps.Equal(counted(e), want)
		})
		testutil.Eventually(t, "the reaper's run arrives", func() bool {
			return len(e.Items("EventData")) == 1
		})
		if got := e.Metrics()["reaper.deleted"].Value; got != 1 {
			t.Errorf("reaper.deleted %v, want 1", got)
		}
		if all := e.Items("RequestData"); len(all) > 0 {
			t.Errorf("%d requests are reported twice, by the host too: %+v", len(all), all[0])
		}
		checkItems(t, e, "s3cr3t", "AccountKey", s.Links+"(")
	})
	t.Run("on its own", func(t *testing.T) {
		t.Parallel()
		s, e, setting := newMonitoredSite(t)
		p := s.standalone(emulator.ConnectionString(), setting, "LOG_LEVEL=debug")
		testutil.Eventually(t, "the first run of the reaper is over", func() bool {
			return strings.Contains(p.output.String(), "reaper: ")
		})
		want, requests := mix(t, s, p.url)
		p.stop(t) // this sends the rest
		if got := counted(e); !maps.Equal(got, want) {
			t.Errorf("counted\n%v, want\n%v", got, want)
		}
		got := map[string]int{}
		for _, i := range e.Items("RequestData") {
			name := fmt.Sprint(i.Data.BaseData.Name, " ", i.Data.BaseData.ResponseCode)
			if !strings.HasPrefix(name, "health") && !strings.HasPrefix(name, "reaper") {
				got[name]++
			}
			if address, sent := i.Tags["ai.location.ip"]; sent {
				t.Errorf("%s is reported as from %q", name, address)
			}
		}
		if !maps.Equal(got, requests) {
			t.Errorf("reported\n%v, want\n%v", got, requests)
		}
		checkItems(t, e, "s3cr3t", "AccountKey", s.Links+"(")
		if log := p.output.String(); strings.Contains(log, secret) ||
			strings.Contains(log, ingest.Key) || !strings.Contains(log, `"stopped"`) {
			t.Errorf("logged %s", log)
		}
	})
}

// Whatever anybody calls, and whatever then fails, no credential, title, tag or long URL gets into
// the log or into telemetry.
func TestNothingSecretIsReported(t *testing.T) {
	t.Parallel()
	s, e, setting := newMonitoredSite(t)
	provider := oidcprovider.Start(t, oidcprovider.Options{})
	proxy := s.proxy()
	p := s.standalone(proxy.ConnectionString(), setting, "LOG_LEVEL=debug", "OIDC_ISSUER="+
		provider.Issuer(), "OIDC_CLIENT_ID="+oidcprovider.ClientID)
	awaitReady(t, p.url)
	claim := caller{t, p.url, ""}.must(201, "POST", "/api/shorten",
		`{"longUrl":"https://example.com/`+secret+`"}`)["claimToken"].(string)
	ada, token := owner(t, p.url, "ada").token, provider.SignIn(t, "ada")
	tokens := []string{ada, claim, token, adminKey, provider.SignInTo(t, oidcprovider.OtherClientID,
		"ada"), "tny_" + strings.Repeat("0", 49)}
	caller{t, p.url, ada}.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/`+secret+
		`","alias":"abc","title":"`+secret+`","tags":["`+secret+`"]}`)
	var done atomic.Int64
	calls := everyCall(t)
	everybody := func(tokens ...string) {
		var all sync.WaitGroup
		for _, c := range calls {
			all.Go(func() {
				for _, token := range tokens {
					if got, err := c.send(p.url, token); err == nil && got.Status < 300 {
						done.Add(1)
					}
				}
			})
		}
		all.Wait()
	}
	everybody(append(tokens, "")...)
	if n := done.Load(); n < 100 {
		t.Errorf("only %d calls succeeded", n)
	}
	for _, fault := range []faultproxy.Fault{faultproxy.Refuse, faultproxy.ServerBusy} {
		proxy.Before(func(faultproxy.Call) faultproxy.Fault { return fault })
		everybody(ada, tokens[5])
	}
	proxy.Reset()
	provider.Down()
	everybody(token)
	p.stop(t) // this sends the rest
	never := []string{secret, "AccountKey"}
	for _, token := range tokens {
		never = append(never, token, token[len(token)-12:])
	}
	log := p.output.String()
	for _, text := range append(never, ingest.Key) {
		if at := strings.Index(log, text); at >= 0 {
			t.Errorf("%q was logged: %s", text, log[max(0, at-300):at+50])
		}
	}
	checkItems(t, e, never...)
	for _, text := range []string{`"msg":"request"`, "credentials refused",
		"storage is unavailable"} {
		if !strings.Contains(log, text) {
			t.Errorf("the log lacks %q, so this has tested nothing", text)
		}
	}
	if !slices.ContainsFunc(e.Items("EventData"), func(i ingest.Item) bool {
		d := i.Data.BaseData
		return d.Name == telemetry.EventStorageUnavailable && d.Properties["Target"] == "127.0.0.1"
	}) {
		t.Error("the outage is no event")
	}
}

var hexID = regexp.MustCompile(`^[0-9a-f-]{32,36}$`)

// checkItems checks that everything sent has the names that charts and alerts use, and contains
// none of the given texts.
func checkItems(t *testing.T, e *ingest.Endpoint, never ...string) {
	t.Helper()
	for _, text := range never {
		if raw := e.Raw(); strings.Contains(raw, text) {
			at := strings.Index(raw, text)
			t.Errorf("%q was sent: %s", text, raw[max(0, at-200):at+50])
		}
	}
	var names []string
	for _, sample := range new(telemetry.Metrics).Snapshot() {
		names = append(names, sample.Name)
	}
	for _, i := range e.Items("") {
		d := i.Data.BaseData
		for _, m := range d.Metrics {
			if !slices.Contains(names, m.Name) {
				t.Errorf("metric %q", m.Name)
			}
		}
		for key := range d.Properties {
			if !slices.Contains(telemetry.Properties, key) {
				t.Errorf("property %q of %q", key, d.Name)
			}
		}
		for key := range d.Measurements {
			if !slices.Contains(telemetry.Measurements, key) {
				t.Errorf("measurement %q of %q", key, d.Name)
			}
		}
		switch kind := i.Data.BaseType; kind {
		case "EventData":
			if !slices.Contains(telemetry.Events, d.Name) || d.Name == telemetry.EventReaperRun &&
				!slices.Contains(telemetry.Results, d.Properties[telemetry.PropertyResult]) {
				t.Errorf("event %+v", d)
			}
		case "RemoteDependencyData":
			if !slices.Contains(telemetry.Types, d.Type) || d.Target != "127.0.0.1" ||
				d.Data != "" {
				t.Errorf("dependency %+v", d)
			}
		case "RequestData":
			if d.URL != "" {
				t.Errorf("request %+v", d)
			}
		}
		if i.Data.BaseType != "MetricData" && !hexID.MatchString(i.Operation()) {
			t.Errorf("%s in operation %q", i.Data.BaseType, i.Operation())
		}
	}
}

// Behind a host that forwards, forged ids of invocations come before the host's own.
func TestStorageCallsBelongToTheirRequest(t *testing.T) {
	t.Parallel()
	const (
		trace  = "4bf92f3577b34da6a3ce929d0e0e4736"
		parent = "00f067aa0ba902b7"
	)
	s, e, setting := newMonitoredSite(t)
	h := s.hosted(false, emulator.ConnectionString(), setting)
	s.PutLink(link.Link{Name: "live", LongURL: "https://example.com/",
		ExpiresAt: time.Now().Add(time.Hour)})
	awaitReady(t, h.URL())
	c := caller{t, h.URL(), ""}
	for range 3 {
		c.must(302, http.MethodGet, "/live", "", "X-Azure-Functions-InvocationId",
			"11111111-1111-1111-1111-111111111111")
	}
	c.must(404, http.MethodGet, "/nobody", "", "traceparent", "<script>")
	c.must(201, http.MethodPost, "/api/shorten", `{"longUrl":"https://example.com/new"}`,
		"traceparent", "00-"+trace+"-"+parent+"-01")
	// calls returns the calls by operation. If a link is requested again before the cache
	// has it, it may be read again. On a busy machine, a call may get no response in time
	// and be made again.
	calls := func() map[string][]string {
		by := map[string][]string{}
		for _, i := range e.Items("RemoteDependencyData") {
			// Polls for changes belong to no request.
			others := []string{"start", "clicks", "ready"}
			if d := i.Data.BaseData; !slices.Contains(others,
				i.Tags["ai.operation.name"]) && !strings.HasSuffix(d.Name, " "+s.State) {
				id := i.Operation()
				switch invocation := d.Properties["InvocationId"]; {
				case !hexID.MatchString(invocation) || strings.HasPrefix(invocation,
					"1111"):
					t.Errorf("%s has the invocation %q", d.Name, invocation)
				case id == trace && i.Tags["ai.operation.parentId"] != parent:
					t.Errorf("%s has the parent %q", d.Name,
						i.Tags["ai.operation.parentId"])
				case id != trace && id != invocation:
					t.Errorf("%s is in %q, not in its invocation %q", d.Name, id,
						invocation)
				case id != trace:
					id = "invocation of " + i.Tags["ai.operation.name"]
				}
				if late := d.ResultCode == telemetry.ResultTimeout ||
					d.ResultCode == telemetry.ResultCanceled; !late {
					by[id] = append(by[id], fmt.Sprint(d.Name, " ", d.ResultCode, " ",
						d.Success))
				}
			}
		}
		for id := range by {
			by[id] = slices.Compact(by[id])
		}
		return by
	}
	want := map[string][]string{
		trace: {"GetEntity " + s.Index + " 404 true", "InsertEntity " + s.Expiry +
			" 201 true",
			"InsertEntity " + s.Links + " 201 true", "InsertEntity " + s.Index +
				" 201 true"},
		"invocation of redirect": {"GetEntity " + s.Links + " 200 true", "GetEntity " +
			s.Links + " 404 true"},
	}
	testutil.Eventually(t, "all calls arrive", func() bool {
		got := calls()
		return len(got[trace]) == 4 && len(got["invocation of redirect"]) == 2
	})
	for id, names := range calls() {
		if !slices.Equal(names, want[id]) {
			t.Errorf("%s: %q, want %q", id, names, want[id])
		}
	}
}

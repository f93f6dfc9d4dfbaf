package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
)

func TestManyWantOneAlias(t *testing.T) {
	s := newSite(t)
	var bases []string
	for range 3 {
		bases = append(bases, s.standalone(emulator.ConnectionString()).url)
	}
	ada := owner(t, bases[0], "ada")
	// Creates in different seconds may leave rows as well.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	start := time.Now()
	var all sync.WaitGroup
	var made, refused atomic.Int64
	for i := range 64 {
		all.Go(func() {
			body := fmt.Sprintf(`{"longUrl":"https://example.com/%d","alias":"wanted",`+
				`"expiresInSeconds":3600}`, i)
			c := caller{t, bases[i%3], ada.token}
			got := c.send("POST", "/api/shorten", body)
			for got.Status == 503 { // a busy machine is too slow: its caller repeats the request
				got = c.send("POST", "/api/shorten", body)
			}
			switch got.Status {
			case 200, 201: // 200: the response to the first try was a 503
				made.Add(1)
			case 409:
				refused.Add(1)
			default:
				t.Errorf("got %+v", got)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 || refused.Load() != 63 {
		t.Errorf("%d got the alias, %d were refused", made.Load(), refused.Load())
	}
	// Otherwise a storage call may have been retried, which leaves rows to the reaper and to the
	// lists.
	if time.Since(start) < time.Second {
		s.WantNoLeak()
		s.WantRows(1, 0, 1)
		if rows := s.Rows(s.Owners); len(rows) != 1 {
			t.Errorf("%d rows of owners, want 1: %v", len(rows), rows)
		}
	}
}

func TestTwoEditors(t *testing.T) {
	s := newSite(t)
	one := owner(t, s.standalone(emulator.ConnectionString()).url, "ada")
	two := caller{t, s.standalone(emulator.ConnectionString()).url, one.token}
	one.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/","alias":"edited"}`)
	for round := range 10 {
		read := one.must(200, "GET", "/api/links/edited", "")
		for _, conditional := range []bool{true, false} {
			var headers []string
			if conditional {
				headers = []string{"If-Match", read["Etag"].(string)}
			}
			var got [2]testutil.Response
			var both sync.WaitGroup
			both.Go(func() {
				got[0] = one.send("PATCH", "/api/links/edited",
					fmt.Sprintf(`{"title":"title %d %t"}`, round, conditional), headers...)
			})
			both.Go(func() {
				got[1] = two.send("PATCH", "/api/links/edited",
					fmt.Sprintf(`{"tags":["tag %d %t"]}`, round, conditional), headers...)
			})
			both.Wait()
			if got[0].Status == 503 || got[1].Status == 503 {
				continue // a busy machine was too slow
			}
			if conditional {
				if got[0].Status+got[1].Status != 200+412 {
					t.Errorf("with If-Match: got %+v and %+v", got[0], got[1])
				}
				continue
			}
			if got[0].Status != 200 || got[1].Status != 200 {
				t.Errorf("without If-Match: got %+v and %+v", got[0], got[1])
			}
			after := two.must(200, "GET", "/api/links/edited", "")
			if want := fmt.Sprintf("%d %t", round, conditional); after["title"] != "title "+want ||
				!matches(after["tags"], []any{"tag " + want}) {
				t.Errorf("an edit was lost: %v", after)
			}
		}
	}
}

// Every process knows of a change a few seconds later, long before its cached entries would be read
// again.
func TestChangesReachEveryProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ada := owner(t, s.standalone(emulator.ConnectionString()).url, "ada")
	other := caller{t, s.standalone(emulator.ConnectionString()).url, ada.token}
	// becomes waits until the other process responds with this status and Location. It asks often
	// enough that the process keeps polling.
	becomes := func(what string, status int, location string) {
		t.Helper()
		start := time.Now()
		testutil.Eventually(t, what, func() bool {
			got := get(t, other.base+"/travels")
			return got.Status == status && got.Header.Get("Location") == location
		})
		t.Logf("%s: known after %v", what, time.Since(start).Round(10*time.Millisecond))
	}
	becomes("it is not there yet", 404, "")
	made := caller{t: t, base: ada.base}.must(201, "POST", "/api/shorten",
		`{"longUrl":"https://example.com/1","alias":"travels"}`)
	becomes("a chosen alias", 302, "https://example.com/1")
	claim := fmt.Sprintf(`{"claims":[{"alias":"travels","claimToken":%q}]}`, made["claimToken"])
	ada.must(200, "POST", "/api/claims", claim)
	testutil.Eventually(t, "a claim: the link has no end any more", func() bool {
		return other.must(200, "GET", "/travels+", "", "Accept",
			"application/json")["expiresAtUtc"] == nil
	})
	for _, change := range []struct {
		method, target, body string
		status               int
		location             string
	}{
		{"PATCH", "", `{"longUrl":"https://example.com/2"}`, 302, "https://example.com/2"},
		{"PATCH", "", `{"disabled":true}`, 410, ""},
		{"PATCH", "", `{"disabled":false,"statusCode":307}`, 307, "https://example.com/2"},
		{"DELETE", "", "", 410, ""},
		{"POST", "/restore", "", 307, "https://example.com/2"},
	} {
		if got := ada.send(change.method, "/api/links/travels"+change.target,
			change.body); got.Status >= 300 {
			t.Fatalf("%+v: got %+v", change, got)
		}
		becomes(change.method+change.target+" "+change.body, change.status, change.location)
	}
	if got := other.send("GET", "/api/me", ""); got.Status != 200 {
		t.Errorf("the key before it is revoked: %+v", got)
	}
	key := ada.must(200, "GET", "/api/keys", "")["items"].([]any)[0].(map[string]any)
	ada.must(204, "DELETE", "/api/keys/"+key["id"].(string), "")
	if got := ada.send("GET", "/api/me", ""); got.Status != 401 {
		t.Errorf("the key where it was revoked: %+v", got)
	}
	testutil.Eventually(t, "a revoked key is refused elsewhere", func() bool {
		return other.send("GET", "/api/me", "").Status == 401
	})
}

// A page of 50 links costs one query and 50 reads.
func TestPageOfFiftyLinks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	now := time.Now().Truncate(time.Second)
	for i := range 120 {
		s.PutLink(link.Link{Name: link.Name(fmt.Sprintf("listed-%03d", i)),
			LongURL: fmt.Sprintf("https://example.com/%d", i),
			Owner:   "ada", CreatedAt: now.Add(time.Duration(i-200) * time.Second)})
	}
	proxy := s.proxy()
	// Behind a host, no reaper runs at the start.
	ada := owner(t, s.hosted(true, proxy.ConnectionString()).URL(), "ada")
	ada.must(200, "GET", "/api/me", "") // so that the key is cached
	next, cursor := 119, ""
	for pages := 1; ; pages++ {
		proxy.Reset()
		start := time.Now()
		page := ada.must(200, "GET", "/api/links?cursor="+cursor, "")
		calls := map[string]int{}
		for _, c := range proxy.Calls() {
			if c.Target == s.Links || c.Target == s.Owners || c.Target == s.Index ||
				c.Target == s.Expiry {
				calls[c.Operation+" "+c.Target]++
			}
		}
		items := page["items"].([]any)
		for _, item := range items { // newest first
			if want := fmt.Sprintf("listed-%03d", next); item.(map[string]any)["alias"] != want {
				t.Errorf("listed %v, want %s", item, want)
			}
			next--
		}
		inTime := time.Since(start) < time.Second // no storage call was retried
		if queries, reads := calls["QueryEntities "+s.Owners],
			calls["GetEntity "+s.Links]; len(calls) != 2 || inTime &&
			(queries != 1 || reads != len(items)) {
			t.Errorf("%d links took %v", len(items), calls)
		}
		var more bool
		if cursor, more = page["nextCursor"].(string); !more {
			if next != -1 || pages != 3 {
				t.Errorf("%d pages up to listed-%03d", pages, next+1)
			}
			return
		}
		if len(items) != 50 {
			t.Errorf("a page of %d links", len(items))
		}
	}
}

// While storage does not respond, the service uses what it has cached, and changes nothing.
func TestOwnersInAnOutage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	proxy := s.proxy()
	// Without polling, a cached key is valid for a minute.
	base := s.standalone(proxy.ConnectionString(), "CHANGES_SECONDS=0").url
	ada, unknown := owner(t, base, "ada"), owner(t, base, "bob")
	ada.must(201, "POST", "/api/shorten",
		`{"longUrl":"https://example.com/","alias":"adas","expiresInSeconds":3600}`)
	made := caller{t: t, base: base}.must(201, "POST", "/api/shorten",
		`{"longUrl":"https://example.com/n"}`)
	claim := caller{t, base, made["claimToken"].(string)}
	nobodys := made["alias"].(string)
	rows := func() string {
		var all strings.Builder
		for _, table := range []string{s.Links, s.Index, s.Expiry, s.Owners, s.Keys} {
			fmt.Fprintln(&all, s.Rows(table))
		}
		return all.String()
	}
	if got := get(t, base+"/adas"); got.Status != 302 {
		t.Fatalf("got %+v", got)
	}
	ada.must(200, "GET", "/api/me", "")
	before := rows()
	proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Refuse })
	var all sync.WaitGroup
	for _, try := range []struct {
		as                   caller
		method, target, body string
		status               int
		kind                 string
	}{
		{ada, "GET", "/adas", "", 302, ""},
		{ada, "GET", "/api/me", "", 200, ""},
		{caller{t, base, adminKey}, "GET", "/api/me", "", 200, ""},
		{unknown, "GET", "/api/me", "", 503, "credentials-unchecked"},
		{unknown, "POST", "/api/shorten", `{"longUrl":"https://example.com/b"}`, 503,
			"credentials-unchecked"},
		{caller{t, base, "tny_mistyped"}, "GET", "/api/me", "", 401, "credentials-invalid"},
		{claim, "GET", "/api/me", "", 200, ""},
		{claim, "GET", "/api/links/" + nobodys, "", 503, "storage-unavailable"},
		{claim, "DELETE", "/api/links/" + nobodys, "", 503, "storage-unavailable"},
		{ada, "GET", "/api/links", "", 503, "storage-unavailable"},
		{ada, "GET", "/api/links/adas", "", 503, "storage-unavailable"},
		{ada, "PATCH", "/api/links/adas", `{"longUrl":"https://example.com/lost"}`, 503,
			"storage-unavailable"},
		{ada, "DELETE", "/api/links/adas", "", 503, "storage-unavailable"},
		{ada, "POST", "/api/links/adas/restore", "", 503, "storage-unavailable"},
		{ada, "POST", "/api/shorten", `{"longUrl":"https://example.com/c","alias":"lost"}`, 503,
			"storage-unavailable"},
		{ada, "POST", "/api/claims", fmt.Sprintf(`{"claims":[{"alias":%q,"claimToken":%q}]}`,
			nobodys, claim.token), 503, "storage-unavailable"},
		{ada, "POST", "/api/keys", `{"name":"lost"}`, 503, "storage-unavailable"},
		{ada, "GET", "/api/keys", "", 503, "storage-unavailable"},
		{ada, "DELETE", "/api/keys/0123456789abcdef", "", 503, "storage-unavailable"},
	} {
		all.Go(func() {
			got := try.as.send(try.method, try.target, try.body)
			if got.Status != try.status || !strings.Contains(got.Body, try.kind) ||
				(got.Header.Get("Retry-After") != "") != (got.Status == 503) {
				t.Errorf("%s %s: got %+v, want %d %s", try.method, try.target, got, try.status,
					try.kind)
			}
		})
	}
	all.Wait()
	if after := rows(); after != before {
		t.Errorf("rows have changed from\n%s to\n%s", before, after)
	}
	proxy.Reset()
	unknown.must(200, "GET", "/api/me", "")
	ada.must(200, "PATCH", "/api/links/adas", `{"longUrl":"https://example.com/after"}`)
	if got := get(t, base+"/adas"); got.Header.Get("Location") != "https://example.com/after" {
		t.Errorf("after the outage: %+v", got)
	}
}

// If another program damages a link's row, only that link fails.
func TestDamagedLinkInAList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	base := s.standalone(emulator.ConnectionString()).url
	ada := owner(t, base, "ada")
	ada.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/","alias":"well"}`)
	ada.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/2","alias":"damaged"}`)
	s.Put(s.Links, rawtables.Entity{"PartitionKey": "da", "RowKey": "damaged", "Owner": "ada"})
	if got := ada.must(200, "GET", "/api/links", ""); !matches(got["items"],
		[]any{map[string]any{"alias": "well"}}) {
		t.Errorf("listed %v", got["items"])
	}
	// Whose it is cannot be told, so owners are answered as if it were somebody else's.
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if got := ada.send(method, "/api/links/damaged", ""); got.Status != 404 {
			t.Errorf("%s: got %+v", method, got)
		}
		if got := (caller{t, base, adminKey}).send(method, "/api/links/damaged", ""); got.Status != 410 {
			t.Errorf("admin, %s: got %+v", method, got)
		}
	}
}

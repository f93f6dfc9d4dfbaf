package functions_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf16"

	"tiney/internal/clicks"
	"tiney/internal/link"
)

// imported is a result of an import.
type imported struct {
	Line, Status  int
	Alias, Domain string
	Left          []string
	Problem       *struct {
		Type, Title, Detail, Field string
		Status                     int
	}
}

// String returns the stable parts of a result: "2 409 one alias-taken".
func (i imported) String() string {
	text := fmt.Sprintf("%d %d %s", i.Line, i.Status, i.Alias)
	if i.Problem != nil {
		text += " " + strings.TrimPrefix(i.Problem.Type, "/problems/") + " " + i.Problem.Field
	}
	return strings.TrimSpace(text)
}

// imports sends a file as an owner, and returns the result of each record.
func (r *rig) imports(who, query, file string) (results []string) {
	r.t.Helper()
	for _, i := range r.importFile(who, query, file) {
		results = append(results, i.String())
	}
	return results
}

// importFile is imports, with all that the results have.
func (r *rig) importFile(who, query, file string) []imported {
	r.t.Helper()
	w := r.as(who, http.MethodPost, "/api/import"+query, file,
		"Content-Type", "Text/Anything; x=\"")
	var body struct{ Results []imported }
	err := json.Unmarshal(w.Body.Bytes(), &body)
	if err != nil || w.Code != 200 || body.Results == nil {
		r.t.Fatalf("%s: got %d %s", query, w.Code, w.Body)
	}
	for _, i := range body.Results {
		p := i.Problem
		if p != nil && (p.Status != i.Status || p.Title == "" || p.Detail == "") {
			r.t.Errorf("got %+v", p)
		}
		if i.Left == nil || p != nil && len(i.Left) > 0 {
			r.t.Errorf("line %d: left %v", i.Line, i.Left)
		}
	}
	return body.Results
}

func (r *rig) wantResults(what string, got []string, want ...string) {
	r.t.Helper()
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func line(alias, url string, more string) string {
	return fmt.Sprintf("{\"alias\":%q,\"longUrl\":%q%s}\n", alias, url, more)
}

func TestImport(t *testing.T) {
	r := newRig(t)
	const past = "2001-02-03T04:05:06Z"
	file := "\xef\xbb\xbf" + line("one", "https://example.com/1",
		`,"owner":"bob","clicks":7,"title":"One","createdAtUtc":"`+past+`"`) + "\r\n" +
		line("one", "https://example.com/1", "") +
		line("one", "https://example.com/2", "") +
		"{\"alias\":\n" +
		line("a.b", "https://example.com/", "") +
		line("two", "javascript:alert(1)", "") +
		line("three", "https://example.com/", `,"expiresAtUtc":"01/02/2030"`) +
		`{"longUrl":"https://example.com/"}` + "\n" +
		line("four", "https://example.com/", `,"expiresAtUtc":"`+past+`","disabled":true`)
	want := []string{"1 201 one", "3 200 one", "4 409 one alias-taken", "5 400  record",
		"6 400 a.b alias alias", "7 400 two long-url longUrl", "8 400 three record", "9 400  alias alias",
		"10 201 four"}
	r.wantResults("tried", r.imports("ann", "?dryRun=true", file), want...)
	if w := r.do(http.MethodGet, "/one", ""); w.Code != 404 || r.clicks.created != 0 {
		t.Errorf("a dry run made links: %d", w.Code)
	}
	r.wantResults("done", r.imports("ann", "?format=ndjson", file), want...)
	wantStatus(t, r.do(http.MethodGet, "/one", ""), 302)
	wantStatus(t, r.do(http.MethodGet, "/four", ""), 410)
	got := r.as("ann", http.MethodGet, "/api/links/one", "").Body.String()
	for _, member := range []string{`"createdAtUtc":"` + past + `"`, `"owner":"ann"`,
		`"title":"One"`, `"expiresAtUtc":null`} {
		if !strings.Contains(got, member) {
			t.Errorf("got %s without %s", got, member)
		}
	}
	want[0], want[8] = "1 200 one", "10 200 four"
	r.wantResults("again", r.imports("ann", "", file), want...)
	if r.clicks.created != 2 {
		t.Errorf("counted %d", r.clicks.created)
	}
}

// A file without a link in it says so, and is no success.
func TestImportOfNothing(t *testing.T) {
	r := newRig(t)
	for format, files := range map[string][]string{
		"ndjson": {"", " \n\r\n", "\ufeff"},
		"auto": {"", "\n", "alias,longUrl", "alias,longUrl\n\n", "sep=,\nalias,longUrl\n",
			`{"links":[]}`},
		"csv":            {"alias,longUrl\n"},
		"dub":            {"Short link,URL"},
		"kutt":           {"[]", `{"data":[]}`, `{"data":[]}{"data":[]}`},
		"sink":           {`{"version":"1.0","count":0,"links":[]}`},
		"golink":         {"\n"},
		"azurlshortener": {"RowKey,Url\n"},
	} {
		for _, file := range files {
			for _, dryRun := range []string{"", "&dryRun=true"} {
				w := r.as("ann", http.MethodPost, "/api/import?format="+format+dryRun, file)
				wantProblem(t, w, 400, "file", "")
				if !strings.Contains(w.Body.String(), "There is no link in this file") {
					t.Errorf("%s, %q: %s", format, file, w.Body)
				}
			}
		}
	}
	// A part of a larger file may have nothing but rows that are no links.
	r.wantResults("the rest of a file",
		r.imports("ann", "?format=azurlshortener", "RowKey,Url\nKEY,\n"))
}

// An admin's import in our own formats keeps the owners of the file, or no owner. In any other
// import the links become the caller's.
func TestImportOfOwners(t *testing.T) {
	r := newRig(t)
	file := "alias,longUrl,owner\n" +
		"ann-%s,https://example.com/,bob\nnone-%[1]s,https://example.com/,\n"
	golink := `{"Short":"go-%s","Long":"https://example.com/"}` + "\n"
	for who, want := range map[string][3]string{
		"ann":   {"ann", "ann", "ann"},
		"admin": {"bob", "", "admin"},
	} {
		r.wantResults(who, r.imports(who, "?format=csv", fmt.Sprintf(file, who)),
			"2 201 ann-"+who, "3 201 none-"+who)
		r.wantResults(who, r.imports(who, "?format=golink", fmt.Sprintf(golink, who)),
			"1 201 go-"+who)
		for i, a := range []string{"ann-", "none-", "go-"} {
			l, err := r.fake.Read(t.Context(), link.Name(a+who))
			if err != nil || l.Owner != want[i] {
				t.Errorf("%s of %s: owner %q, %v, want %q", a, who, l.Owner, err, want[i])
			}
		}
	}
}

// A file of each format comes in, by a guess at what it is, and says what is left behind. A dry run
// and an import that is repeated say the same.
func TestImportOfOtherPrograms(t *testing.T) {
	for file, want := range map[string][]string{
		"azurlshortener-2026.csv": {"3 always", "4 nights schedule", "5 empty",
			"6 odd schedule created", "7 cut schedule", "8 type schedule"},
		"bitly.csv":    {"2 3abcDEF", "2 spring-sale", "3 4x", "4 only-custom", "5 400"},
		"bitly.json":   {"1 3abcDEF", "1 spring-sale", "2 4x", "3 5x", "4 400 6x"},
		"dub-2026.csv": {"2 live", "3 old"},
		"dub-2026.json": {"1 app", "2 zero password", "3 off", "4 archived rules", "5 test rules",
			"6 400"},
		"golink.ndjson": {"1 docs owner", "2 Who", "3 400 search", "4 400 mail"},
		"kutt.json": {"1 docs", "2 by-link", "3 bad", "4 secret password", "5 times created",
			"6 400", "7 400", "8 next-page"},
		"polr.csv":          {"2 docs", "3 0 owner", "4 shh password"},
		"shlink-limits.csv": {"2 once clicks limit", "3 ever"},
		"sink-2026.json":    {"1 app password", "2 400 mail", "3 odd password rules", "4 twice rules"},
		"yourls.csv":        {"2 ozh", "3 1", "4 c3"},
	} {
		r := newRig(t)
		data, err := os.ReadFile("../internal/formats/testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range []string{"&dryRun=true", "", ""} {
			var got []string
			for _, i := range r.importFile("ann", "?format=auto"+query, string(data)) {
				words := []string{fmt.Sprint(i.Line)}
				if i.Problem != nil {
					words = append(words, fmt.Sprint(i.Status))
				}
				if i.Alias != "" {
					words = append(words, i.Alias)
				}
				got = append(got, strings.Join(append(words, i.Left...), " "))
			}
			r.wantResults(file+query, got, want...)
		}
	}
}

// What other programs know comes along: after an import, people are led as they were there.
func TestImportedLinksLeadAsBefore(t *testing.T) {
	r := newRig(t)
	r.clock.Advance(time.Date(2026, 6, 2, 0, 0, 0, 0, time.UTC).Sub(r.clock.Now()))
	for _, file := range []string{"dub-2026.json", "azurlshortener-2026.csv", "kutt.json"} {
		data, err := os.ReadFile("../internal/formats/testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		r.imports("ann", "?format=auto", string(data))
	}
	r.imports("ann", "?format=auto", `{"links":[{"slug":"sink","url":"https://example.com/","apple":`+
		`"https://example.com/apple","geo":{"DE":"https://example.com/de"},"redirectWithQuery":true}]}`)
	const android = "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/142.0.0.0 Mobile Safari/537.36"
	const dub, azure = "https://example.com/app?utm_source=x", "https://example.com/shop"
	for _, test := range []struct{ path, agent, from, want string }{
		{"/app", chrome, ofAmerica, dub},
		{"/app", chrome, ofGermany, "https://example.com/dach"},
		{"/app", iPhone, ofGermany, "https://apps.apple.com/app/id1"},
		{"/app", android, ofGermany, "https://play.google.com/store/apps/details?id=a"},
		{"/sink?a=b", chrome, ofAmerica, "https://example.com/?a=b"},
		{"/sink", chrome, ofGermany, "https://example.com/de"},
		{"/sink", iPhone, ofGermany, "https://example.com/apple"},
		{"/always", chrome, ofGermany, "https://example.com/sale"},
		{"/nights", chrome, ofGermany, "https://example.com/open"},
		{"/zero", chrome, ofGermany, ""}, // these have passwords
		{"/secret", chrome, ofGermany, ""},
	} {
		w := r.get(test.path, "User-Agent", test.agent, "X-Forwarded-For", test.from)
		if test.want == "" {
			wantProblem(t, w, http.StatusGone, "link-disabled", "")
			continue
		}
		wantLocation(t, test.path+" of "+test.from, w, test.want)
	}
	r.clock.Advance(7 * 24 * time.Hour) // the sale is over
	wantLocation(t, "after the sale", r.get("/always"), azure)
	r.clock.Advance(5 * 365 * 24 * time.Hour) // the app, too
	wantLocation(t, "after the end", r.get("/app", "Accept", "text/html"), "https://example.com/over")
	created := members(t, r.as("ann", http.MethodGet, "/api/links/always", ""))["createdAtUtc"]
	if created != `"2025-03-04T00:00:00Z"` {
		t.Errorf("made %s", created)
	}
}

// An import ends when its time is over, even if the file has no records.
func TestImportEndsInTime(t *testing.T) {
	for _, format := range []string{"ndjson", "csv"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.imports("ann", "", "{}") // makes the key
			body := io.MultiReader(slowBody{strings.NewReader(""), slow(20 * time.Second)},
				strings.NewReader(strings.Repeat("\n", 4<<20)))
			req := httptest.NewRequest(http.MethodPost, "/api/import?format="+format, body)
			req.Header.Set("Authorization", "Bearer "+r.keys.of["ann"])
			wantProblem(t, r.send(req), http.StatusServiceUnavailable, "storage-unavailable", "")
		})
	}
}

func TestImportIsRefused(t *testing.T) {
	r := newRig(t)
	many := strings.Repeat(line("one", "https://example.com/", ""), 1001)
	for name, test := range map[string]struct {
		query, body string
		status      int
		kind, field string
	}{
		"another format":    {"?format=xml", "", 400, "parameter", "format"},
		"another dry run":   {"?dryRun=yes", "", 400, "parameter", "dryRun"},
		"no such file":      {"?format=csv", "{}", 400, "file", ""},
		"JSON lines in CSV": {"", "alias,longUrl\n", 400, "file", ""},
		"too many lines":    {"", many, 400, "file", ""},
		"too many bytes":    {"", strings.Repeat(" ", 4<<20+1), 413, "body-too-large", ""},
	} {
		w := r.as("ann", http.MethodPost, "/api/import"+test.query, test.body)
		wantProblem(t, w, test.status, test.kind, test.field)
		if r.fake.Calls() != 0 {
			t.Errorf("%s: the store was asked", name)
		}
	}
	// This file has the most records that are allowed, with a header and blank lines.
	file := "alias,longUrl\n\n" + strings.Repeat("one,https://example.com/\n\n", 1000)
	r.wantResults("1,000 lines", r.imports("ann", "?format=csv", file)[998:],
		"1999 200 one", "2001 200 one")
}

// While storage is down, an import has a result for each line, and a line in the log.
func TestImportWhileStorageIsDown(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(fmt.Errorf("with a secret: %w", link.ErrUnavailable))
	file := line("one", "https://example.com/", "") + line("..", "https://example.com/", "")
	r.wantResults("down", r.imports("ann", "", file),
		"1 503 one storage-unavailable", "2 400 .. alias alias")
	const logged = `storage is unavailable","function":"import","error":"with a secret`
	if !strings.Contains(r.log.String(), logged) {
		t.Errorf("logged %s", r.log)
	}
}

// exported follows an export to its end, and returns its lines and the number of its pages.
func (r *rig) exported(who, target string) (lines []string, pages int) {
	r.t.Helper()
	for target != "" {
		w := r.as(who, http.MethodGet, target, "")
		if w.Code != 200 {
			r.t.Fatalf("%s: got %d %s", target, w.Code, w.Body)
		}
		pages++
		for line := range strings.Lines(w.Body.String()) {
			lines = append(lines, line)
		}
		target = next(w)
	}
	return lines, pages
}

// An export takes the filters of a list, and its next pages have them too.
func TestExportOfSome(t *testing.T) { synctest.Test(t, testExportOfSome) } // however busy the machine is

func testExportOfSome(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for i := range 2100 {
		l := link.Link{Name: link.Name(fmt.Sprintf("many%04d", i)), Owner: "ann",
			LongURL: "https://example.com/", CreatedAt: now.Add(time.Duration(i) * time.Second)}
		if i%2 == 0 {
			l.Tags, l.Title, l.Disabled = []string{"a b", "Even"}, "The number", i%4 == 0
		}
		r.fake.Put(l)
	}
	r.fake.Put(link.Link{Name: "bobs", Owner: "bob", LongURL: "https://example.com/",
		Tags: []string{"even"}})
	for request, want := range map[string][2]int{
		"ann ?tag=even&tag=A+B":               {1050, 2},
		"ann ?q=number+the&state=disabled":    {525, 1},
		"ann ?tag=odd":                        {0, 1},
		"ann ?q=https://tiney.to/many0001":    {1, 1},
		"ann ?q=tiney.to/bobs":                {0, 1},
		"admin ?owner=*&q=tiney.to/bobs":      {1, 1},
		"admin ?owner=*&tag=even&state=live":  {526, 3},
		"admin ?owner=ann&tag=even&q=many000": {5, 1},
	} {
		who, query, _ := strings.Cut(request, " ")
		if lines, pages := r.exported(who, "/api/export"+query); len(lines) != want[0] ||
			pages > want[1] {
			t.Errorf("%s: got %d links in %d pages, want %v", request, len(lines), pages, want)
		}
	}
	wantProblem(t, r.as("ann", http.MethodGet, "/api/export?state=deleted", ""), 400, "parameter",
		"state")
	// A cursor belongs to its filters.
	cursor, _, _ := strings.Cut(next(r.as("ann", http.MethodGet, "/api/export?tag=even", "")), "&format")
	wantProblem(t, r.as("ann", http.MethodGet, cursor+"&tag=odd", ""), 400, "parameter", "cursor")
}

// The format of a file is guessed, and every response names the format.
func TestImportGuessesTheFormat(t *testing.T) {
	r := newRig(t)
	for body, want := range map[string]string{
		`{"alias":"own","longUrl":"https://example.com/1"}`:                          "ndjson",
		"longUrl,alias\nhttps://example.com/2,own2":                                  "csv",
		"Short link,Destination URL,Archived\nhttps://d.sh/x,https://e.example/,No":  "dub",
		`{"links":[{"url":"https://example.com/3","slug":"own3"}]}`:                  "sink",
		"\xff\xfe" + utf16Text("longUrl\talias\nhttps://example.com/4\town4\n"):      "csv",
		"short_url,long_url,secret_key,is_disabled\nown5,https://example.com/5,,0\n": "polr",
	} {
		var got struct {
			Format  string
			Results []struct{ Status int }
		}
		w := r.as("ann", http.MethodPost, "/api/import?format=auto", body)
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Format != want ||
			len(got.Results) > 0 && got.Results[0].Status != 201 {
			t.Errorf("%q: got %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
	for _, body := range []string{"hello", "a,b,c\n1,2,3", `{"a":1}`, "[1]"} {
		wantProblem(t, r.as("ann", http.MethodPost, "/api/import?format=auto", body), 400, "file",
			"format")
	}
	w := r.as("ann", http.MethodPost, "/api/import?format=csv", "longUrl,alias\n,a")
	if !strings.Contains(w.Body.String(), `"format":"csv"`) {
		t.Errorf("a format that was chosen: %s", w.Body)
	}
}

// utf16Text returns a text in UTF-16, without a byte order mark.
func utf16Text(text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return string(b)
}

// next returns the target of a response's Link header.
func next(w *httptest.ResponseRecorder) string {
	target, ok := strings.CutPrefix(w.Header().Get("Link"), "<https://tiney.to")
	if !ok {
		return ""
	}
	target, _ = strings.CutSuffix(target, `>; rel="next"`)
	return target
}

func TestExport(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for i := range 1001 {
		r.fake.Put(link.Link{
			Name:      link.Name(fmt.Sprintf("many%04d", i)),
			LongURL:   fmt.Sprintf("https://example.com/%d", i),
			Owner:     "bob",
			CreatedAt: now.Add(time.Duration(i) * time.Second),
		})
	}
	r.fake.Put(link.Link{Name: "one", LongURL: "https://example.com/ü", Owner: "ann",
		CreatedAt: now, Title: "=1+1", Tags: []string{"a"}, Disabled: true, StatusCode: 307,
		Before: link.Count{Clicks: 5, Bots: 2, LastAt: now}})
	r.fake.Put(link.Link{Name: "gone", LongURL: "https://example.com/", Owner: "ann",
		CreatedAt: now, DeletedAt: now})
	r.fake.Put(link.Link{Name: "ended", LongURL: "https://example.com/", Owner: "ann",
		CreatedAt: now.Add(-time.Hour), ExpiresAt: now})
	r.fake.Put(link.Link{Name: "none", LongURL: "https://example.com/", CreatedAt: now})
	r.fake.Put(link.Link{Name: "tomb", GoneReason: link.StateDeleted, GoneAt: now})

	w := r.as("ann", http.MethodGet, "/api/export", "")
	for name, want := range map[string]string{
		"Content-Type":           "application/x-ndjson",
		"Content-Disposition":    `attachment; filename="links.ndjson"`,
		"Cache-Control":          "no-store",
		"Link":                   "",
		"X-Content-Type-Options": "nosniff",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	at := now.Format(time.RFC3339)
	want := fmt.Sprintf(`{"alias":"one","shortUrl":"https://tiney.to/one",`+
		`"longUrl":"https://example.com/ü","createdAtUtc":%q,"expiresAtUtc":null,`+
		`"updatedAtUtc":null,"statusCode":307,"disabled":true,"shared":false,`+
		`"deletedAtUtc":null,"title":"=1+1","tags":["a"],"owner":"ann","clicks":5,"bots":2,`+
		`"lastClickAtUtc":%[1]q,"domain":null,"forward":[],"locked":false,`+
		`"startsAtUtc":null,"goneUrl":null,"rules":[],"password":false,"maxOpens":null,`+
		`"opensLeft":null,"expiresAtUtcKept":null,"passwordHash":null}`, at)
	lines, pages := r.exported("ann", "/api/export?format=ndjson")
	if pages != 1 || len(lines) != 2 || strings.TrimSpace(lines[0]) != want ||
		!strings.Contains(lines[1], `"ended"`) {
		t.Errorf("got %d pages, %q\nwant %s", pages, lines, want)
	}
	lines, pages = r.exported("bob", "/api/export?format=csv")
	if pages != 2 || len(lines) != 1003 || !strings.HasPrefix(lines[0], "alias,") ||
		lines[0] != lines[1001] || !strings.HasPrefix(lines[1], "many1000,") {
		t.Errorf("got %d pages and %d lines", pages, len(lines))
	}
	got := r.as("bob", http.MethodGet, "/api/export?format=csv", "").Header()
	if got.Get("Content-Type") != "text/csv; charset=utf-8" ||
		got.Get("Content-Disposition") != `attachment; filename="links.csv"` {
		t.Errorf("got %v", got)
	}
	lines, pages = r.exported("bob", "/api/export?format=csv&for=spreadsheet")
	if pages != 2 || len(lines) != 1005 || lines[0] != "sep=,\n" || lines[1002] != lines[0] ||
		lines[1] != lines[1003] {
		t.Errorf("for a spreadsheet: got %d pages and %d lines", pages, len(lines))
	}
	lines, pages = r.exported("admin", "/api/export?owner=*")
	slices.Sort(lines)
	if lines = slices.Compact(lines); pages != 2 || len(lines) != 1004 {
		t.Errorf("all: got %d pages and %d links", pages, len(lines))
	}
	if lines, _ := r.exported("admin", "/api/export"); len(lines) != 0 {
		t.Errorf("the admin's own: %q", lines)
	}
	// An import of the export restores the links as they were.
	other := newRig(t)
	results := other.imports("admin", "", strings.Join(lines[:3], ""))
	if len(results) != 3 || !strings.Contains(results[0], " 201 ") {
		t.Errorf("got %q", results)
	}
}

// An export has the totals of all its links. If they take long or cannot be read, its page is
// shorter.
func TestExportWaitsForClicks(t *testing.T) {
	for name, test := range map[string]struct {
		totals func(call int) slow // how long each call takes, counted from 0
		links  int                 // on the first page
		status int
		took   time.Duration
	}{
		"fast": {func(int) slow { return 0 }, 1000, 200, 0},
		"slow": {func(int) slow { return slow(time.Second) }, 300, 200, 3 * time.Second},
		"just within half of the time": {func(int) slow { return slow(500 * time.Millisecond) },
			500, 200, 2500 * time.Millisecond},
		"one of them too slow": {func(call int) slow { return slow(call/7) * slow(time.Hour) },
			700, 200, 5 * time.Second},
		"too slow": {func(int) slow { return slow(time.Hour) }, 0, 503, 5 * time.Second},
	} {
		for _, target := range []string{"ann /api/export", "admin /api/export?owner=*"} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				for i := range 1010 {
					r.fake.Put(link.Link{Name: link.Name(fmt.Sprintf("a%04d", i)), Owner: "ann",
						LongURL: "https://example.com/", Before: link.Count{Clicks: int64(i)},
						CreatedAt: r.clock.Now().Add(-time.Duration(i) * time.Second)})
				}
				call := 0
				r.clicks.totals = func(ctx context.Context) error {
					call++
					return test.totals(call - 1).call(ctx)
				}
				who, path, _ := strings.Cut(target, " ")
				begun := time.Now()
				w := r.as(who, http.MethodGet, path, "")
				took := time.Since(begun)
				if w.Code != test.status || took != test.took {
					t.Fatalf("%s: %s: got %d after %v", name, target, w.Code, took)
				}
				if test.status != 200 {
					wantProblem(t, w, test.status, "storage-unavailable", "")
					return
				}
				first := strings.Count(w.Body.String(), "\n")
				r.clicks.totals = nil
				rest, _ := r.exported(who, next(w))
				all := slices.Collect(strings.Lines(w.Body.String() + strings.Join(rest, "")))
				for i, line := range all {
					if !strings.HasPrefix(line, fmt.Sprintf(`{"alias":"a%04d"`, i)) ||
						!strings.Contains(line, fmt.Sprintf(`"clicks":%d,`, i)) {
						t.Fatalf("%s: %s: line %d is %s", name, target, i, line)
					}
				}
				if first != test.links || len(all) != 1010 || slices.Max(r.clicks.totaled) != 100 {
					t.Errorf("%s: %s: %d links, then %d, in calls for %v", name, target, first,
						len(rest), r.clicks.totaled)
				}
			})
		}
	}
	r := newRig(t)
	r.putClicked()
	r.clicks.totals = func(context.Context) error { return errors.New("a fault") }
	wantProblem(t, r.as("ann", http.MethodGet, "/api/export", ""), 500, "internal", "")
}

func TestExportIsRefused(t *testing.T) {
	r := newRig(t)
	for i := range 1001 {
		for _, owner := range []string{"ann", "*"} {
			r.fake.Put(link.Link{
				Name:      link.Name(fmt.Sprintf("%x%d", owner, i)),
				LongURL:   "https://example.com/",
				Owner:     owner,
				CreatedAt: r.clock.Now(),
			})
		}
	}
	cursor := func(who, target string) string {
		_, cursor, _ := strings.Cut(next(r.as(who, http.MethodGet, target, "")), "cursor=")
		cursor, _, _ = strings.Cut(cursor, "&")
		if cursor == "" {
			t.Fatal("there is no next page")
		}
		return cursor
	}
	ann, star := cursor("ann", "/api/export"), cursor("*", "/api/export")
	all := cursor("admin", "/api/export?owner=*")
	for name, test := range map[string]struct {
		who, query  string
		status      int
		kind, field string
	}{
		"another format":         {"ann", "?format=shlink", 400, "parameter", "format"},
		"for something else":     {"ann", "?format=csv&for=pandas", 400, "parameter", "for"},
		"for nothing":            {"ann", "?format=csv&for=", 400, "parameter", "for"},
		"JSON for a spreadsheet": {"ann", "?for=spreadsheet", 400, "parameter", "for"},
		"another owner":          {"ann", "?owner=bob", 403, "forbidden", "owner"},
		"a made-up cursor":       {"ann", "?cursor=abcdefghijklmnop", 400, "parameter", "cursor"},
		"no cursor at all":       {"ann", "?cursor=%00", 400, "parameter", "cursor"},
		"another's cursor":       {"ann", "?cursor=" + star, 400, "parameter", "cursor"},
		"the cursor of all":      {"ann", "?cursor=" + all, 400, "parameter", "cursor"},
		"ann's cursor for all":   {"admin", "?owner=*&cursor=" + ann, 400, "parameter", "cursor"},
		"all":                    {"ann", "?owner=*", 403, "admin-needed", ""},
		"all, as *":              {"*", "?owner=*", 403, "admin-needed", ""},
	} {
		w := r.as(test.who, http.MethodGet, "/api/export"+test.query, "")
		if w.Code != test.status {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
			continue
		}
		wantProblem(t, w, test.status, test.kind, test.field)
	}
	if lines, pages := r.exported("*", "/api/export"); pages != 2 || len(lines) != 1001 {
		t.Errorf("the owner called * has %d links on %d pages", len(lines), pages)
	}
	r.fake.Fail(link.ErrUnavailable)
	wantProblem(t, r.as("ann", http.MethodGet, "/api/export", ""), 503, "storage-unavailable", "")
}

// No import takes more than 20 MB beyond its body, whatever the body has.
func TestNoImportTakesMuch(t *testing.T) {
	skipIfSlow(t)
	const size, record = 4 << 20, 1<<20 - 1000
	// filled repeats a text up to a size. A # in it becomes the number of the repetition.
	filled := func(size int, start, again, end string) string {
		before, after, numbered := strings.Cut(again, "#")
		b := append(make([]byte, 0, size), start...)
		for i := 0; len(b)+len(again)+len(end)+8 < size; i++ {
			if b = append(b, before...); numbered {
				b = strconv.AppendInt(b, int64(i), 10)
			}
			b = append(b, after...)
		}
		return string(append(b, end...))
	}
	lines := func(start, again, end string) string {
		return strings.Repeat(filled(record, start, again, end)+"\n", 4)
	}
	list := func(start, again, end string) string {
		return "[" + strings.Repeat(filled(record, start, again, end)+",", 3) + "{}]"
	}
	rows := func(names string, most int, start, again, end string) string {
		row := filled(most, start, again, end) + "\n"
		return names + "\n" + strings.Repeat(row, (size-len(names)-1)/len(row))
	}
	const csv = "alias,longUrl,title,tags,forward"
	const own, other = `{"longUrl":"https://e.example"`, `{"id":"b/a","long_url":"https://e.example"`
	const kutt = `{"address":"a","target":"https://e.example"`
	const sink = `{"slug":"a","url":"https://e.example"`
	const dub, dubRow = "link,url,tags", "d/a,https://e.example,"
	deep, deepList := strings.Repeat(`{"a":`, 9000)+"0"+strings.Repeat("}", 9000),
		strings.Repeat("[", 9000)+strings.Repeat("]", 9000)
	columns := strings.Repeat(",", 65_000)
	records := func(start, again, end string) string {
		return strings.Repeat(filled(4180, start, again, end), 1000)
	}
	byCountry := func(start string) string {
		var all []string
		for i, country := range clicks.CountryNames {
			all = append(all, fmt.Sprintf(`"%s":"a:%d"`, country, i))
		}
		return start + `,"geo":{` + strings.Join(all, ",") + "}},"
	}
	for name, body := range map[string]string{
		"ndjson of tiny lines":        filled(size, "", "{}\n", ""),
		"ndjson of records":           records(own+`,"alias":"a","title":"`, "x", "\"}\n"),
		"ndjson of tags":              records(own+`,"alias":"a","tags":[""`, `,"#"`, "]}\n"),
		"ndjson of many tags":         lines(own+`,"tags":[""`, `,"#"`, `]}`),
		"ndjson of empty tags":        lines(own+`,"tags":[""`, `,""`, `]}`),
		"ndjson of what it forwards":  lines(own+`,"forward":[""`, `,""`, `]}`),
		"ndjson of what is shared":    lines(own+`,"shared":[{}`, `,{}`, `]}`),
		"ndjson of deletions":         lines(own+`,"deletedAtUtc":[[0]`, `,[0]`, `]}`),
		"ndjson of unknown members":   lines(own, `,"#":0`, `}`),
		"ndjson of unknown objects":   lines(own+`,"x":{"":0`, `,"#":0`, `}}`),
		"ndjson of lists of objects":  lines(own+`,"x":[0`, `,{"#":0}`, `]}`),
		"ndjson of numbers":           lines(own+`,"x":[0`, `,0`, `]}`),
		"ndjson of deep objects":      lines(own+`,"shared":`, `{"a":`, ``),
		"ndjson of deep lists":        lines(own+`,"x":`, `[`, ``),
		"ndjson of less deep objects": lines(own+`,"shared":[`, deep+",", `0]}`),
		"ndjson of lists in lists":    lines(own+`,"tags":[`, deepList+",", `0]}`),
		"ndjson of middling records":  filled(size, "", filled(64<<10, own, `,"#":0`, "}\n"), ""),
		"ndjson of long titles":       lines(own+`,"title":"`, `x`, `"}`),
		"ndjson of long aliases":      lines(own+`,"alias":"`, `x`, `"}`),
		"ndjson of long URLs":         lines(`{"alias":"a","longUrl":"https://e.example/`, `x`, `"}`),
		"ndjson of long times":        lines(own+`,"expiresAtUtc":"`, `1`, `"}`),
		"ndjson of long numbers":      lines(own+`,"clicks":1`, `1`, `}`),
		"ndjson of long domains":      lines(own+`,"alias":"a","domain":"`, `ü`, `"}`),
		"ndjson of labels":            lines(own+`,"alias":"a","domain":"`, `ü.`, `"}`),
		"ndjson of long owners":       lines(own+`,"alias":"a","owner":"`, `ü`, `"}`),
		"ndjson of long short URLs":   lines(own+`,"shortUrl":"`, `/`, `"}`),
		"ndjson of hosts":             lines(`{"alias":"a","longUrl":"https://`, `ü.`, `"}`),
		"ndjson of escapes":           lines(own+`,"title":"`, `\u0001`, `"}`),
		"golink of brackets":          filled(size, "{", "[", ""),
		"golink of unknown members":   lines(`{"Short":"a","Long":"https://e.example/"`, `,"#":0`, `}`),
		"golink of long templates":    lines(`{"Short":"a","Long":"{{`, `x`, `"}`),

		"kutt of entries":          filled(size, `[{}`, `,{}`, `]`),
		"kutt of numbers":          filled(size, `[0`, `,0`, `]`),
		"kutt of pages":            filled(size, `[{}]`, `[]`, ``),
		"kutt of values":           filled(size, `[{}]`, ` 0`, ``),
		"kutt of marks":            filled(size, `[{}]`, "\ufeff", ``),
		"kutt of a page's members": filled(size, `{"data":[{}]`, `,"#":0`, `}`),
		"kutt of an ignored list":  filled(size, `{"data":[{}],"x":[0`, `,{"#":0}`, `]}`),
		"kutt of unknown members":  list(kutt, `,"#":0`, `}`),
		"bitly of custom links":    list(other+`,"custom_bitlinks":["b/a"`, `,"b/#"`, `]}`),
		"bitly of a few custom links": "[" + records(other+`,"custom_bitlinks":[""`,
			`,"b/#"`, `]},`) + "{}]",
		"bitly of tags":                  list(other+`,"tags":[""`, `,"#"`, `]}`),
		"kutt of control characters":     list(kutt+`,"description":"`, `x\u0001`, `"}`),
		"sink of tags":                   list(sink+`,"tags":[""`, `,"#"`, `]}`),
		"sink of rules":                  list(sink+`,"geo":{"":0`, `,"#":""`, `}}`),
		"sink of countries":              list(sink+`,"geo":{"DE":""`, `,"DE":"https://e.example/#"`, `}}`),
		"sink of records with countries": "[" + strings.Repeat(byCountry(sink), 900) + "{}]",
		"dub of tags in objects": list(`{"shortLink":"d/a","url":"https://e.example","tags":[{}`,
			`,{"name":"#"}`, `]}`),
		"azurlshortener of schedules": rows("RowKey,Url,SchedulesPropertyRaw", record,
			`a,https://e.example,"[{}`, `,{""Start"":""#""}`, `]"`),
		"sink of brackets":   strings.Repeat("[", size),
		"sink of a string":   `["` + strings.Repeat("x", size-2),
		"csv of rows":        filled(size, csv+"\n", "a,b\n", ""),
		"csv of blank rows":  filled(size, csv+"\n", "\n", ""),
		"csv of empty cells": filled(size, csv+"\n", ",,,,\n", ""),
		"csv of columns":     rows("alias,longUrl"+columns, 65_050, "a,b", ",", ""),
		"csv of names": filled(400_000, "alias,longUrl", ",#", "") +
			strings.Repeat("\na,b", 900_000),
		"csv of too many columns":    filled(size, csv+"\n", ",", ""),
		"csv of tags":                rows(csv, 130_000, `a,b,,"`, "x,", `",`),
		"csv of quoted tags":         rows(csv, 390_000, `a,b,,"`, `"""",`, `",`),
		"csv of what it forwards":    rows(csv, 130_000, `a,b,,,"`, "x,", `"`),
		"csv of forwards by spaces":  rows(csv, record, `a,b,,,"`, "x ", `"`),
		"csv of quotes":              filled(size, csv+"\n", `"`, ""),
		"csv of pairs of quotes":     rows(csv, record, `a,b,"`, `""`, `"`),
		"csv of lines in a quote":    rows(csv, record, `a,b,"`, "\n", `"`),
		"csv of quotes in text":      rows(csv, record, `a,b,x"`, "x", ``),
		"csv of rows in a quote":     filled(size, csv+"\na,\"", "b,c\n", ""),
		"csv in UTF-16":              "\xff\xfe" + utf16Text(filled(size/2-9, csv+"\n", "a,b\n", "")),
		"csv in UTF-16 of long rows": "\xff\xfe" + utf16Text(filled(record, csv+"\na,b,", "x", "\n")),
		"dub of tags":                rows(dub, 130_000, dubRow+`"`, "x,", `"`),
		"dub of tags behind bars":    rows(dub, record, dubRow, "x|", ``),
		"dub of control characters":  rows(dub+",title", record, dubRow+",", "x\x01", ""),
		"dub of control in tags":     rows(dub, record, dubRow, "x\x01", ""),
		"dub of tags in JSON":        rows(dub, 130_000, dubRow+`"[0`, ",0", `]"`),
		"bitly of links in CSV":      rows("Link,Long URL,Custom Links", record, dubRow, "/b ", ``),
		"auto of members":            filled(size, `{"":0`, `,"#":0`, `}`),
		"auto of columns":            rows(columns+"alias,longUrl", 65_050, "", ",", "a,b"),
	} {
		if len(body) > size {
			t.Fatalf("%s: %d bytes", name, len(body))
		}
		format, _, _ := strings.Cut(name, " ")
		r := newRig(t)
		r.imports("ann", "", "{}") // makes the key
		runtime.GC()
		before := heap()
		most := before
		done := make(chan *httptest.ResponseRecorder)
		percent := debug.SetGCPercent(5)
		go func() {
			done <- r.as("ann", http.MethodPost, "/api/import?dryRun=true&format="+format, body)
		}()
		var w *httptest.ResponseRecorder
		for w == nil {
			select {
			case w = <-done:
			default:
				most = max(most, heap())
			}
		}
		debug.SetGCPercent(percent)
		grown := int(most-before) - len(body)
		t.Logf("%-30s %5.1f MB: %d %.80s", name, float64(grown)/1e6, w.Code, w.Body)
		if grown > 20e6 || w.Code >= 500 {
			t.Errorf("%s: %d, takes %d MB", name, w.Code, grown/1e6)
		}
	}
}

// heap returns the size of what the last collection of garbage found alive, in bytes.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

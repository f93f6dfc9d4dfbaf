package e2e

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/testutil"
)

// runs runs a subcommand to its end, with the given text as stdin.
func (s *site) runs(connectionString, stdin string, args ...string) (stdout, stderr string,
	exit int) {
	s.t.Helper()
	cmd, out, errs := s.subcommand(connectionString, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// file returns an export of n links: some have owners, some expire, and they have different numbers
// of clicks.
func file(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"alias":"m%d","longUrl":"https://example.com/%d",`+
			`"createdAtUtc":"2020-01-02T03:04:05Z","clicks":%d`, i, i, i)
		if i%3 > 0 {
			fmt.Fprintf(&b, `,"owner":"owner-%d"`, i%3)
		}
		if i%4 == 0 {
			fmt.Fprintf(&b, `,"expiresAtUtc":"%d-01-02T03:04:05Z"`, 2990+i%7)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// The API exports and imports links in each way to run the app.
func TestMovingOverTheAPI(t *testing.T) {
	t.Parallel()
	for mode, start := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			base, _ := start(s)
			admin := caller{t, base, adminKey}
			ann := owner(t, base, "ann")
			lines := file(7) + "{}\n" + `{"alias":"m1","longUrl":"https://example.com/other"}` +
				"\n"
			want := []string{"1 201", "2 201", "3 201", "4 201", "5 201", "6 201", "7 201", "8 400",
				"9 409"}
			imports := func(c caller, query string) (got []string) {
				c.t.Helper()
				for _, r := range c.must(200, "POST", "/api/import"+query, lines, "Content-Type",
					"application/octet-stream")["results"].([]any) {
					r := r.(map[string]any)
					got = append(got, fmt.Sprintf("%v %v", r["line"], r["status"]))
				}
				return got
			}
			if got := imports(admin, "?dryRun=true"); !slices.Equal(got, want) {
				t.Errorf("tried: got %v", got)
			}
			var got []string
			// On a busy machine, there may be no time left for some links.
			testutil.Eventually(t, "the import is done", func() bool {
				got = imports(admin, "?format=ndjson")
				return !strings.Contains(fmt.Sprint(got), "503")
			})
			for i := range want {
				if got[i] != want[i] && got[i] != strings.Replace(want[i], "201", "200", 1) {
					t.Errorf("done: got %v, want %v", got, want)
				}
			}
			for i := range 7 {
				if r := get(t, fmt.Sprintf("%s/m%d", base, i)); r.Status != 302 ||
					r.Header.Get("Location") != fmt.Sprintf("https://example.com/%d", i) {
					t.Errorf("m%d: got %+v", i, r)
				}
			}
			if r := ann.send("GET", "/api/export?format=csv", ""); r.Status != 200 ||
				strings.Count(r.Body, "\n") != 1 ||
				r.Header.Get("Content-Type") != "text/csv; charset=utf-8" {
				t.Errorf("got %+v", r)
			}
			r := ann.send("GET", "/api/export?format=csv&for=spreadsheet", "")
			if r.Status != 200 || !strings.HasPrefix(r.Body, "sep=,\nalias,") {
				t.Errorf("got %+v", r)
			}
			r = admin.send("GET", "/api/export?owner=*", "")
			if r.Status != 200 || strings.Count(r.Body, "\n") != 7 ||
				!strings.Contains(r.Header.Get("Content-Disposition"), "links.ndjson") ||
				!strings.Contains(r.Body, `"clicks":6,`) {
				t.Errorf("got %+v", r)
			}
			if r := admin.send("GET", "/api/export?cursor=x", ""); r.Status != 400 {
				t.Errorf("got %+v", r)
			}
			if r := admin.send("POST", "/api/import", strings.Repeat("x", 4<<20+1), "Content-Type",
				"text/plain"); r.Status != 413 {
				t.Errorf("got %+v", r)
			}
			if r := (caller{t, base, ""}).send("POST", "/api/import", lines, "Content-Type",
				"text/plain"); r.Status != 401 {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// Storage is too slow to import the largest allowed number of links within one request. The
// response still comes in time, with a result for each link.
func TestImportWhileStorageIsSlow(t *testing.T) {
	notShort(t)
	t.Parallel()
	s := newSite(t)
	proxy := s.proxy()
	p := s.standalone(proxy.ConnectionString(), "RATE_API_PER_MINUTE=0")
	awaitReady(t, p.url)
	admin := caller{t, p.url, adminKey}
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		time.Sleep(700 * time.Millisecond)
		return faultproxy.None
	})
	begun := time.Now()
	got := admin.send("POST", "/api/import", file(1000), "Content-Type", "application/x-ndjson")
	if took := time.Since(begun); got.Status != 200 || took > 29*time.Second {
		t.Errorf("got %d after %v", got.Status, took)
	}
	made, late := strings.Count(got.Body, `"status":201,"alias"`),
		strings.Count(got.Body, `"status":503,"alias"`)
	if made == 0 || late == 0 || made+late != 1000 {
		t.Errorf("%d links were made, and %d not", made, late)
	}
}

func TestExportAndImportByCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := emulator.ConnectionString()
	const n = 1200 // two pages
	all := file(n)
	expect := func(what string, stderr string, exit int, wantStderr string, wantExit int) {
		t.Helper()
		if exit != wantExit || !strings.Contains(stderr, wantStderr) {
			t.Errorf("%s: exit code %d, %q", what, exit, stderr)
		}
	}
	_, stderr, exit := s.runs(direct, all, "import", "-dry-run")
	expect("dry run", stderr, exit, "1200 links would be made, 0 were there, 0 would be refused.\n",
		0)
	if rows := s.Rows(s.Links); len(rows) != 0 {
		t.Errorf("a dry run made %v", rows)
	}
	_, stderr, exit = s.runs(direct, all, "import")
	expect("import", stderr, exit, " were there, 0 were refused.\n", 0)
	// On a busy machine the response to an insert may be lost. Then the link is there at the next try.
	if made := len(s.Rows(s.Links)); made != n {
		t.Errorf("%d links were made", made)
	}
	s.WantNoLeak()
	_, stderr, exit = s.runs(direct, all, "import", "-format", "ndjson")
	expect("again", stderr, exit, "0 links were made, 1200 were there, 0 were refused.\n", 0)
	_, stderr, exit = s.runs(direct,
		"alias,longUrl\nm1,https://example.com/other\n\nm2,https://example.com/2\nnew,nowhere\n",
		"import", "-format=csv")
	expect("refused", stderr, exit, "line 2: m1: This alias is taken: ", 1)
	expect("refused", stderr, exit, "line 5: new: This URL cannot be shortened: ", 1)
	expect("refused", stderr, exit, "\n0 links were made, 1 were there, 2 were refused\n", 1)
	_, stderr, exit = s.runs(direct, "{}", "import", "-format", "csv")
	expect("no CSV", stderr, exit, "The file is JSON", 1)
	_, stderr, exit = s.runs(direct, "alias,longUrl\nm1,https://example.com/1\n", "import",
		"-format", "auto")
	expect("guessed", stderr, exit, "The format is csv.\n0 links were made, 1 were there", 0)
	_, stderr, exit = s.runs(direct, `[{"slug":"a.b","url":"https://example.com/"},`+
		`{"slug":"m1","url":"https://example.com/x","expiration":"soon"}]`, "import", "-format", "auto")
	expect("entries", stderr, exit, "The format is sink.\nentry 1: \"a.b\": Invalid alias: ", 1)
	expect("entries", stderr, exit, "\nentry 2: m1: This record cannot be read: \"expiration\"", 1)
	_, stderr, exit = s.runs(direct, "", "import")
	expect("nothing", stderr, exit, "There is no link in this file.", 1)
	_, stderr, exit = s.runs(direct, "a,b\n", "import", "-format", "auto")
	expect("no guess", stderr, exit, "Choose one of ndjson, csv, shlink", 1)
	_, stderr, exit = s.runs(direct, "", "import", "-format", "xml")
	expect("no format", stderr, exit, "xml", 2)
	_, stderr, exit = s.runs(direct, "", "export", "-format", "shlink")
	expect("not written", stderr, exit, "shlink", 2)

	exported, stderr, exit := s.runs(direct, "", "export")
	expect("export", stderr, exit, "1200 links were exported.\n", 0)
	if got := strings.Count(exported, "\n"); got != n ||
		!strings.Contains(exported, `"alias":"m1199","shortUrl":"https://tiney.to/m1199"`) {
		t.Errorf("exported %d lines", got)
	}
	asCSV, _, _ := s.runs(direct, "", "export", "-format", "csv")
	if got := strings.Count(asCSV, "\n"); got != n+1 {
		t.Errorf("exported %d lines of CSV", got)
	}
	forSheets, _, _ := s.runs(direct, "", "export", "-format", "csv", "-for", "spreadsheet")
	if forSheets != "sep=,\n"+asCSV {
		t.Errorf("for a spreadsheet it begins with %.200q", forSheets)
	}
	// An export can be imported elsewhere, and gives the same links there.
	for format, text := range map[string]string{"ndjson": exported, "csv": asCSV} {
		other := newSite(t)
		if _, stderr, exit := other.runs(direct, text, "import", "-format", format); exit != 0 {
			t.Errorf("%s: %q", format, stderr)
		}
		if again, _, _ := other.runs(direct, "", "export", "-format", format); again != text {
			t.Errorf("%s: an export of what was imported differs", format)
		}
	}
	s.Put(s.Links, map[string]any{"PartitionKey": "da", "RowKey": "damaged"})
	_, stderr, exit = s.runs(direct, "", "export")
	expect("damaged", stderr, exit, "1 rows are no links", 1)
}

// Links of all domains, also of a retired one, move to another service and from domain to domain,
// with what they forward and as their aliases are spelled.
func TestDomainsMoveByFiles(t *testing.T) {
	notShort(t)
	t.Parallel()
	madeOrThere := regexp.MustCompile(`\d+ links were made, \d+ were there`)
	run := func(s *site, exit int, stderr, domains, stdin string, args ...string) string {
		t.Helper()
		cmd, out, errs := s.subcommand(emulator.ConnectionString(), args...)
		cmd.Env = append(cmd.Env, "ALIAS_CASE=insensitive", "DOMAINS="+domains)
		cmd.Stdin = strings.NewReader(stdin)
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		// On a busy machine the response to an insert may be lost. Then the link is there at the
		// next try.
		said := madeOrThere.ReplaceAllStringFunc(errs.String(), func(counts string) string {
			var made, there int
			fmt.Sscanf(counts, "%d links were made, %d", &made, &there)
			return fmt.Sprintf("%d links are there", made+there)
		})
		if got := cmd.ProcessState.ExitCode(); got != exit || !strings.HasSuffix(said, stderr) {
			t.Fatalf("%v: exit %d, %q, want %q", args, got, said, stderr)
		}
		return out.String()
	}
	// one is what is left of both.
	const both, one = "go.example,http://old.example:8080", "go.example"
	lines := `{"alias":"Docs","longUrl":"https://example.com/1","owner":"ann","forward":["path"]}
{"alias":"DOCS","longUrl":"https://example.com/1"}
{"alias":"dOCS","longUrl":"https://example.com/2","domain":"tiney.to"}
{"alias":"docs","longUrl":"https://example.com/1","domain":"GO.example","owner":"ann"}
{"alias":"Docs","longUrl":"https://example.com/4","domain":"old.example:8080","clicks":7,` +
		`"expiresAtUtc":"2999-01-02T03:04:05Z","forward":["query","path"]}
{"alias":"x","longUrl":"https://example.com/5","domain":"no.example/x"}
{"alias":"x","longUrl":"https://old.example/","domain":"go.example"}
`
	const n = 120 // more than are exported at a time
	for i := range n {
		lines += fmt.Sprintf(`{"alias":"m%d","longUrl":"https://example.com/%d",`+
			`"domain":"go.example","createdAtUtc":"2020-01-02T03:04:05Z"}`+"\n", i, i)
	}
	s := newSite(t)
	run(s, 1, `line 3: dOCS: This alias is taken: There is a link with this alias, or there was `+
		`one not long ago. Choose another one.
line 6: x: Invalid domain: This service has no such domain. `+
		`It has: tiney.to, go.example, old.example:8080.
line 7: x@go.example: This URL cannot be shortened: The URL leads to the host of this URL `+
		`shortener itself; send the URL that the link should lead to.
124 links are there, 3 were refused
`, both, lines, "import")
	s.WantNoLeak()

	// The retired domain keeps its links.
	exported := run(s, 0, "123 links were exported.\n", one, "", "export")
	for _, want := range []string{
		`{"alias":"Docs","shortUrl":"https://tiney.to/Docs",`,
		`"domain":null,"forward":["path"],"locked":false}`,
		`{"alias":"docs","shortUrl":"https://go.example/docs",`,
		`"domain":"go.example","forward":[],"locked":false}`,
		`{"alias":"Docs","shortUrl":"https://old.example:8080/Docs",`,
		`"clicks":7,"bots":0,"lastClickAtUtc":null,"domain":"old.example:8080",` +
			`"forward":["query","path"],"locked":false}`,
	} {
		if !strings.Contains(exported, want) {
			t.Errorf("exported %.2000s, without %s", exported, want)
		}
	}
	asCSV := run(s, 0, "123 links were exported.\n", one, "", "export", "-format", "csv")
	var other *site
	for format, text := range map[string]string{"ndjson": exported, "csv": asCSV} {
		other = newSite(t)
		run(other, 0, "123 links would be made, 0 were there, 0 would be refused.\n", one, text,
			"import", "-dry-run", "-format", format)
		for range 2 {
			run(other, 0, "123 links are there, 0 were refused.\n", one, text, "import", "-format",
				format)
		}
		if again := run(other, 0, "", one, "", "export", "-format", format); again != text {
			t.Errorf("%s: an export of what was imported differs:\n%.2000s", format, again)
		}
		other.WantNoLeak()
	}

	// Links move to another domain. The former ones stay.
	var retired string
	for line := range strings.Lines(exported) {
		if strings.Contains(line, `"domain":"old.example:8080"`) {
			retired += line
		}
	}
	run(other, 2, "", one, retired, "import", "-domain", "old.example:8080")
	run(other, 1, `line 1: Docs@go.example: This alias is taken: There is a link with this `+
		`alias, or there was one not long ago. Choose another one.
0 links are there, 1 were refused
`, one, retired, "import", "-domain", "go.example")
	run(other, 0, "1 links are there, 0 were refused.\n", one+",new.example",
		retired, "import", "-domain", "New.Example")
	run(other, 0, "1 links are there, 0 were refused.\n", one+",new.example",
		strings.ReplaceAll(retired, "Docs", "Back"), "import", "-domain", "tiney.to")
	other.WantNoLeak()

	p := other.standalone(emulator.ConnectionString(), "DOMAINS=go.example,new.example",
		"ALIAS_CASE=insensitive")
	awaitReady(t, p.url)
	for _, want := range []struct{ host, path, location string }{
		{"tiney.to", "/dOcs?q", "https://example.com/1"},
		{"tiney.to", "/bACK?q", "https://example.com/4?q"},
		{"go.example", "/DOCS?q", "https://example.com/1"},
		{"GO.example:443", "/m119", "https://example.com/119"},
		{"new.example", "/docs?q", "https://example.com/4?q"},
		{"old.example:8080", "/docs", "https://example.com/1"}, // the default domain's
		{"tiney.to", "/m119", ""},
	} {
		got := get(t, p.url+want.path, "Host", want.host)
		if got.Header.Get("Location") != want.location || (got.Status == 302) != (want.location !=
			"") {
			t.Errorf("%s%s: got %d, %q, want %q", want.host, want.path, got.Status,
				got.Header.Get("Location"), want.location)
		}
	}
}

// An import is killed, or stopped by Ctrl-C, at some storage call, and run again. The result is the
// same as that of an uninterrupted import.
func TestImportStoppedAndRunAgain(t *testing.T) {
	t.Parallel()
	const n = 120
	all := file(n)
	for _, signal := range []os.Signal{os.Kill, os.Interrupt} {
		for _, call := range []int{1, 2, 16, 120, 280} {
			t.Run(fmt.Sprintf("%v at call %d", signal, call), func(t *testing.T) {
				t.Parallel()
				s := newSite(t)
				proxy := s.proxy()
				cmd, _, stderr := s.subcommand(proxy.ConnectionString(), "import")
				cmd.Stdin = strings.NewReader(all)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					if c.N == call {
						_ = cmd.Process.Signal(signal)
					}
					if c.N >= call && signal == os.Kill {
						return faultproxy.Refuse
					}
					return faultproxy.None
				})
				_ = cmd.Wait()
				proxy.Reset()
				// Later, it may have begun the last links before it gets the signal.
				early := call < 280
				if exit := cmd.ProcessState.ExitCode(); signal == os.Interrupt &&
					(early || exit != 0) && (exit != 1 || !strings.HasSuffix(stderr.String(),
					"import the file again to go on.\ninterrupted\n")) {
					t.Errorf("exit code %d, %q", cmd.ProcessState.ExitCode(), stderr)
				}
				if _, stderr, exit := s.runs(proxy.ConnectionString(), all, "import"); exit != 0 {
					t.Errorf("again: %d, %q", exit, stderr)
				}
				exported, _, _ := s.runs(proxy.ConnectionString(), "", "export")
				lines := strings.Split(strings.TrimSpace(exported), "\n")
				for i := range n {
					if !slices.ContainsFunc(lines, func(line string) bool {
						return strings.HasPrefix(line, fmt.Sprintf(`{"alias":"m%d",`, i)) &&
							strings.Contains(line, fmt.Sprintf(`"clicks":%d,`, i))
					}) {
						t.Errorf("m%d is not there as it was", i)
					}
				}
				s.WantNoLeak()
				if owned := len(s.Rows(s.Owners)); len(lines) != n || owned != n*2/3 {
					t.Errorf("%d links, %d of them listed", len(lines), owned)
				}
				for _, row := range s.Rows(s.Expiry) {
					if row["OldIndexKey"] != nil { // a guard of the index, which the reaper finds
						s.Drop(s.Expiry, row)
					}
				}
				s.WantRows(n, n/3, n/4)
			})
		}
	}
}

// TestBackup restores a backup as docs/moving.md describes.
func TestBackup(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := emulator.ConnectionString()
	settings := []string{"CLICKS_FLUSH_SECONDS=1", "RATE_API_PER_MINUTE=0",
		"RATE_SHORTEN_PER_MINUTE=0"}
	p := s.standalone(direct, settings...)
	awaitReady(t, p.url)
	owners := map[string]caller{"ann": owner(t, p.url, "ann"), "bob": owner(t, p.url, "bob"),
		"": {t, p.url, ""}}
	targets, clicked := map[string]string{}, map[string]int{}
	for name, c := range owners {
		for i := range 5 {
			longURL := fmt.Sprintf("https://example.com/%s/%d", name, i)
			a := c.must(201, "POST", "/api/shorten", fmt.Sprintf(`{"longUrl":%q}`,
				longURL))["alias"].(string)
			targets[a] = longURL
			for range i {
				if get(t, p.url+"/"+a, "User-Agent", visitors[2].agent).Status == 302 {
					clicked[a]++
				}
			}
		}
	}
	seen := func(base string) map[string]string {
		lists := map[string]string{}
		for name := range owners {
			if name != "" {
				list := caller{t, base, adminKey}.must(200, "GET", "/api/links?clicks=true&owner="+
					name, "")["items"].([]any)
				var links []string
				for _, l := range list {
					l := l.(map[string]any)
					links = append(links, fmt.Sprint(l["alias"], l["longUrl"], l["createdAtUtc"],
						l["expiresAtUtc"], l["clicks"]))
					if l["clicks"] != float64(clicked[l["alias"].(string)]) {
						t.Errorf("%v has %v clicks, want %d", l["alias"], l["clicks"],
							clicked[l["alias"].(string)])
					}
				}
				slices.Sort(links)
				lists[name] = strings.Join(links, "\n")
			}
		}
		return lists
	}
	p.stop(t) // this saves the last clicks
	p = s.standalone(direct, settings...)
	before := seen(p.url)
	p.stop(t)
	backup, stderr, exit := s.runs(direct, "", "export")
	if exit != 0 {
		t.Fatal(stderr)
	}
	s.Remove()
	s.Make()
	if _, stderr, exit := s.runs(direct, backup, "import"); exit != 0 {
		t.Fatal(stderr)
	}
	p = s.standalone(direct, settings...)
	awaitReady(t, p.url)
	for a, longURL := range targets {
		if r := get(t, p.url+"/"+a); r.Status != 302 || r.Header.Get("Location") != longURL {
			t.Errorf("%s: got %+v", a, r)
		}
	}
	if after := seen(p.url); len(after) != 2 || after["ann"] != before["ann"] ||
		after["bob"] != before["bob"] {
		t.Errorf("owners see\n%v\nand saw\n%v", after, before)
	}
	// A backup has no keys.
	key := owners["ann"]
	key.base = p.url
	if r := key.send(http.MethodGet, "/api/links", ""); r.Status != 401 {
		t.Errorf("got %+v", r)
	}
	s.WantNoLeak()
}

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tiney/internal/testing/faultproxy"
)

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

// Links of all domains, also of a retired one, move to another service and from domain to domain,
// with their owners, ends and clicks, with what they forward, and as their aliases are spelled.
func TestLinksMoveByFiles(t *testing.T) {
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
	lines += file(120) // more than are exported at a time
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
		`"domain":null,"forward":["path"],"locked":false,"startsAtUtc":null,"goneUrl":null,"rules":[],`,
		`{"alias":"docs","shortUrl":"https://go.example/docs",`,
		`"domain":"go.example","forward":[],"locked":false,"startsAtUtc":null,"goneUrl":null,"rules":[],`,
		`{"alias":"Docs","shortUrl":"https://old.example:8080/Docs",`,
		`"clicks":7,"bots":0,"lastClickAtUtc":null,"domain":"old.example:8080",` +
			`"forward":["query","path"],"locked":false,"startsAtUtc":null,"goneUrl":null,"rules":[],`,
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

	if sheet := run(s, 0, "", one, "", "export", "-format", "csv", "-for",
		"spreadsheet"); sheet != "sep=,\n"+asCSV {
		t.Errorf("for a spreadsheet it begins with %.200q", sheet)
	}

	// Links move to another domain. The former ones stay.
	var retired string
	for line := range strings.Lines(exported) {
		if strings.Contains(line, `"domain":"old.example:8080"`) {
			retired += line
		}
	}
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
	for _, want := range []struct{ host, path, location string }{
		{"tiney.to", "/bACK?q", "https://example.com/4?q"},
		{"tiney.to", "/m119", "https://example.com/119"},
		{"GO.example:443", "/DOCS?q", "https://example.com/1"},
		{"new.example", "/docs?q", "https://example.com/4?q"},
		{"old.example:8080", "/docs", "https://example.com/1"}, // the default domain's
	} {
		got := caller{t, p.url, ""}.must(302, "GET", want.path, "", "Host", want.host)
		if got["Location"] != want.location {
			t.Errorf("%s%s leads to %v, want %s", want.host, want.path, got["Location"], want.location)
		}
	}
	// What a file of another program has, and its links lack, is summed up.
	run(s, 0, "3 links are there, 0 were refused; left behind: password (2), rules (1).\n", one,
		`{"links":[{"slug":"k1","url":"https://example.com/","password":"x","geo":{"EU":"https://e.org/"}},`+
			`{"slug":"k2","url":"https://example.com/","password":"x"},`+
			`{"slug":"k3","url":"https://example.com/"}]}`, "import", "-format", "auto")
	s.Put(s.Links, map[string]any{"PartitionKey": "da", "RowKey": "damaged"})
	run(s, 1, "1 rows are no links, and are not in the export\n", one, "", "export")
}

// An import is stopped by Ctrl-C, and run again. The result is the same as that of an uninterrupted
// import. Package storage tests a kill at each call.
func TestImportStoppedAndRunAgain(t *testing.T) {
	t.Parallel()
	const n = 120
	all := file(n)
	s := newSite(t)
	proxy := s.proxy()
	cmd, _, stderr := s.subcommand(proxy.ConnectionString(), "import")
	cmd.Stdin = strings.NewReader(all)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.N == 16 { // which is in the middle
			_ = cmd.Process.Signal(os.Interrupt)
		}
		return faultproxy.None
	})
	_ = cmd.Wait()
	proxy.Reset()
	if exit := cmd.ProcessState.ExitCode(); exit != 1 ||
		!strings.HasSuffix(stderr.String(), "import the file again to go on.\ninterrupted\n") {
		t.Errorf("exit code %d, %q", exit, stderr)
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
}

package formats_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tiney/internal/clicks"
	"tiney/internal/formats"
	"tiney/internal/link"
	"tiney/internal/testing/teststore"
	"tiney/internal/testing/testutil"
	"tiney/storage"
)

// resultsOf imports a file, and returns the result of each record, such as "2 one created" or
// "2 one@go.example created".
func resultsOf(t *testing.T, im *formats.Import, f formats.Format,
	file string) (results []string) {
	t.Helper()
	for _, r := range im.Add(t.Context(), read(t, f, file), day) {
		what := "there"
		var damaged formats.RecordError
		var invalid *link.InvalidError
		switch {
		case errors.As(r.Err, &damaged):
			what = "damaged"
		case errors.As(r.Err, &invalid):
			what = fmt.Sprintf("invalid %s", invalid.Field)
		case r.Err != nil:
			what = r.Err.Error()
		case r.Created:
			what = "created"
		}
		results = append(results, fmt.Sprintf("%d %s %s", r.Line, r.Domain.Name(r.Alias), what))
	}
	return results
}

func TestImport(t *testing.T) {
	store := teststore.Open(t, testutil.NewClock())
	const file = "alias,longUrl,clicks\n" +
		"one,https://example.com/1,7\n" +
		"one,https://example.com/1,\n" +
		"one,https://example.com/2,\n" +
		"cut,https://example.com/,,\n" +
		"a.b,https://example.com/,\n" +
		"two,javascript:alert(1),\n" +
		",https://example.com/,\n"
	invalid := []string{"5  damaged", fmt.Sprintf("6 a.b invalid %s", link.FieldAlias),
		fmt.Sprintf("7 two invalid %s", link.FieldLongURL), fmt.Sprintf("8  invalid %s",
			link.FieldAlias)}
	want := func(what string, im *formats.Import, first, second, third string) {
		t.Helper()
		want := append([]string{"2 one " + first, "3 one " + second, "4 one " + third}, invalid...)
		if got := resultsOf(t, im, formats.CSV, file); !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
	dry := &formats.Import{Links: store, DryRun: true}
	want("dry run", dry, "created", "there", "the alias is taken")
	want("dry run of more", dry, "there", "there", "the alias is taken")
	if _, err := store.Read(t.Context(), "one"); !errors.Is(err, link.ErrNotFound) {
		t.Errorf("a dry run made a link: %v", err)
	}
	im := &formats.Import{Links: store, Owner: "ann"}
	want("import", im, "created", "there", "the alias is taken")
	want("import again", im, "there", "there", "the alias is taken")
	l, err := store.Read(t.Context(), "one")
	if err != nil || l.Owner != "ann" || !l.CreatedAt.Equal(day) || l.Before.Clicks != 7 {
		t.Errorf("got %+v, %v", l, err)
	}
	store.Fail(link.ErrUnavailable)
	want("import without the store", im, link.ErrUnavailable.Error(), link.ErrUnavailable.Error(),
		link.ErrUnavailable.Error())
}

func TestImportKeepsOwners(t *testing.T) {
	store := teststore.Open(t, testutil.NewClock())
	for keep, owners := range map[bool][2]string{false: {"ann", "ann"}, true: {"bob", ""}} {
		im := &formats.Import{Links: store, Owner: "ann", KeepOwners: keep}
		resultsOf(t, im, formats.CSV, fmt.Sprintf("alias,longUrl,owner\n"+
			"bob-%t,https://example.com/,bob\nnone-%[1]t,https://example.com/,\n", keep))
		for i, name := range []string{"bob", "none"} {
			alias := link.Name(fmt.Sprintf("%s-%t", name, keep))
			if l, err := store.Read(t.Context(), alias); err != nil || l.Owner != owners[i] {
				t.Errorf("%s: owner %q, %v, want %q", alias, l.Owner, err, owners[i])
			}
		}
	}
}

// Only an admin's import makes a link that was taken down.
func TestImportTakenDown(t *testing.T) {
	store := teststore.Open(t, testutil.NewClock())
	for admin, aliases := range map[bool][2]link.Name{false: {"a", "b"}, true: {"c", "d"}} {
		im := &formats.Import{Links: store, Owner: "ann", Admin: admin}
		resultsOf(t, im, formats.CSV, fmt.Sprintf("alias,longUrl,disabled,locked\n"+
			"%s,https://example.com/%[1]s,true,true\n%s,https://example.com/%[2]s,false,true\n",
			aliases[0], aliases[1]))
		for i, alias := range aliases {
			l, err := store.Read(t.Context(), alias)
			if err != nil || l.Locked != (admin && i == 0) { // what is live is not taken down
				t.Errorf("admin is %t, %s: locked is %t, %v", admin, alias, l.Locked, err)
			}
		}
	}
}

// foundOf returns what is found in a store under some names: the long URL, and what is forwarded.
func foundOf(t *testing.T, store *teststore.Store, names ...link.Name) (found []string) {
	t.Helper()
	for _, name := range names {
		l, err := store.Read(t.Context(), name)
		if err != nil {
			found = append(found, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		found = append(found, fmt.Sprintf("%s: %s as %s %s", name,
			strings.TrimPrefix(l.LongURL, "https://example.com/"), l.Alias(),
			strings.Join(l.Forward.Names(), ",")))
	}
	return found
}

func TestImportDomains(t *testing.T) {
	goExample, byDefault := link.Domain("go.example"), link.Domain("")
	own := map[formats.Format]string{
		formats.CSV: "alias,longUrl,domain,shortUrl\n" +
			"a,https://example.com/1,,https://go.example/a\n" +
			"a,https://example.com/2,Go.Example.,\n" +
			"a,https://example.com/3,go.example:443,\n" +
			"b,https://example.com/4,s.example.com,\n" +
			"a,https://example.com/5,old.example,\n" +
			"c,https://example.com/6,old example,\n" +
			"d,nowhere,go.example,\n",
		formats.NDJSON: "\n" +
			`{"alias":"a","longUrl":"https://example.com/1","domain":null,` +
			`"shortUrl":"https://go.example/a"}` + "\n" +
			`{"alias":"a","longUrl":"https://example.com/2","domain":"Go.Example."}` + "\n" +
			`{"alias":"a","longUrl":"https://example.com/3","domain":"go.example:443"}` + "\n" +
			`{"alias":"b","longUrl":"https://example.com/4","domain":"s.example.com"}` + "\n" +
			`{"alias":"a","longUrl":"https://example.com/5","domain":"old.example"}` + "\n" +
			`{"alias":"c","longUrl":"https://example.com/6","domain":"old example"}` + "\n" +
			`{"alias":"d","longUrl":"nowhere","domain":"go.example"}` + "\n",
	}
	for name, test := range map[string]struct {
		im    formats.Import
		files map[formats.Format]string
		want  []string // results, then links
	}{
		"of our own": {formats.Import{}, own, []string{"2 a created", "3 a@go.example created",
			"4 a@go.example the alias is taken", "5 b created", "6 a invalid domain", "7 c invalid domain",
			"8 d@go.example invalid longUrl",
			"a: 1 as a ", "a@go.example: 2 as a ", "b: 4 as b ", "a@old.example: no such link"}},
		"of our own, with retired ones": {formats.Import{Admin: true}, own, []string{
			"2 a created", "3 a@go.example created", "4 a@go.example the alias is taken",
			"5 b created", "6 a@old.example created", "7 c invalid domain", "8 d@go.example invalid longUrl",
			"a: 1 as a ", "a@go.example: 2 as a ", "b: 4 as b ", "a@old.example: 5 as a "}},
		"of our own, all to one": {formats.Import{Domain: &goExample}, own, []string{
			"2 a@go.example created", "3 a@go.example the alias is taken",
			"4 a@go.example the alias is taken", "5 b@go.example created",
			"6 a@go.example the alias is taken", "7 c@go.example created",
			"8 d@go.example invalid longUrl",
			"a: no such link", "a@go.example: 1 as a ", "b: no such link",
			"a@old.example: no such link"}},
		"of our own, all to the default one": {formats.Import{Domain: &byDefault}, own, []string{
			"2 a created", "3 a the alias is taken", "4 a the alias is taken", "5 b created",
			"6 a the alias is taken", "7 c created", "8 d invalid longUrl",
			"a: 1 as a ", "a@go.example: no such link", "b: 4 as b ",
			"a@old.example: no such link"}},
		"of others": {formats.Import{Admin: true}, map[formats.Format]string{
			formats.Shlink: "shortCode,longUrl,domain,shortUrl\n" +
				"a,https://example.com/1,,https://go.example/a\n" +
				"a,https://example.com/2,GO.EXAMPLE,\n" +
				"b,https://example.com/3,old.example,\n" +
				",https://example.com/4,s.example.com,https://go.example/c\n" +
				"d,https://example.com/5,no domain,\n",
			formats.Kutt: `[null,{"address":"a","target":"https://example.com/1","domain":null,` +
				`"link":"https://go.example/a"},` +
				`{"address":"a","target":"https://example.com/2","domain":"GO.EXAMPLE"},` +
				`{"address":"b","target":"https://example.com/3","domain":"old.example"},` +
				`{"target":"https://example.com/4","domain":"s.example.com",` +
				`"link":"https://go.example/c"},` +
				`{"address":"d","target":"https://example.com/5","domain":"no domain"}]`,
		}, []string{"2 a created", "3 a@go.example created", "4 b created", "5 c created",
			"6 d created",
			"a: 1 as a ", "a@go.example: 2 as a ", "b: 3 as b ", "a@old.example: no such link"}},
		"of others, all to one": {formats.Import{Domain: &goExample}, map[formats.Format]string{
			formats.Shlink: "shortCode,longUrl,domain\nb,https://example.com/1,old.example\n",
			formats.Dub:    "link,url\nhttps://s.example.com/b,https://example.com/1\n",
		}, []string{"2 b@go.example created",
			"a: no such link", "a@go.example: no such link", "b: no such link",
			"a@old.example: no such link"}},
	} {
		for format, file := range test.files {
			store := teststore.Open(t, testutil.NewClock())
			im := test.im
			im.Links, im.Rules, im.Format = store, rules, format
			got := resultsOf(t, &im, format, file)
			if format == formats.Kutt {
				got = got[1:] // the entry that makes the numbers those of the lines
			}
			got = append(got, foundOf(t, store, "a", "a@go.example", "b", "a@old.example")...)
			if !slices.Equal(got, test.want) {
				t.Errorf("%s, as %s: got\n%s\nwant\n%s", name, format, strings.Join(got, "\n"),
					strings.Join(test.want, "\n"))
			}
		}
	}
}

// golink appends the query and the path of a request to the target.
func TestImportForwards(t *testing.T) {
	store := teststore.Open(t, testutil.NewClock())
	extra := rules
	extra.ExtraSchemes = []string{"mailto"}
	im := &formats.Import{Links: store, Rules: extra, Format: formats.Golink}
	got := resultsOf(t, im, formats.Golink,
		`{"Short":"a","Long":"HTTPS://example.com/a"}`+"\n"+
			`{"Short":"b","Long":"mailto:ann@example.com"}`+"\n"+
			`{"Short":"c","Long":"https://example.com/{{.Path}}"}`+"\n"+
			`{"Short":"d","Long":"javascript:alert(1)"}`+"\n")
	im.Format = formats.CSV
	got = append(got, resultsOf(t, im, formats.CSV, "alias,longUrl,forward\n"+
		"e,https://example.com/e,\"path,query\"\n"+
		"f,https://example.com/f,query\n"+
		"g,https://example.com/g,\n"+
		"h,mailto:ann@example.com,query\n")...)
	got = append(got, foundOf(t, store, "a", "b", "e", "f", "g")...)
	want := []string{"1 a created", "2 b created", "3 c damaged", "4 d invalid longUrl",
		"2 e created", "3 f created", "4 g created", "5 h invalid forward",
		"a: HTTPS://example.com/a as a query,path", "b: mailto:ann@example.com as b ",
		"e: e as e query,path", "f: f as f query", "g: g as g "}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// leftOf imports a file of one link, and returns the link and what is left behind.
func leftOf(t *testing.T, im *formats.Import, file string) (link.Link, []string) {
	t.Helper()
	store := teststore.Open(t, testutil.NewClock())
	im.Links = store
	results := im.Add(t.Context(), read(t, im.Format, file), day)
	if len(results) != 1 || results[0].Err != nil {
		t.Fatalf("%s: got %+v", file, results)
	}
	l, err := store.Read(t.Context(), link.Name(results[0].Alias))
	if err != nil {
		t.Fatal(err)
	}
	return l, results[0].Left.Words()
}

// What is wrong with a rule of another program, or with where its link leads after its end, costs
// no more than that. Of rules that are too many or too long, the first come along.
func TestImportOfOtherRules(t *testing.T) {
	extra := rules
	extra.ExtraSchemes = []string{"market"}
	geo := func(n int, target func(i int) string) string {
		var all []string
		for i, country := range clicks.CountryNames[:n] {
			all = append(all, fmt.Sprintf("%q:%q", country, target(i)))
		}
		return `[{"slug":"a","url":"https://example.com/","geo":{` + strings.Join(all, ",") + `}`
	}
	numbered := func(i int) string { return fmt.Sprintf("https://example.com/%d", i) }
	long := func(i int) string { return numbered(i) + strings.Repeat("x", 4000) }
	same := func(int) string { return "https://example.com/same" }
	sink := func(more string) string {
		return `[{"slug":"a","url":"https://example.com/",` + more + `}]`
	}
	dub := func(more string) string {
		return `[{"shortLink":"https://d.sh/a","url":"https://example.com/",` + more + `}]`
	}
	var schedules []string
	for i := range 11 { // the first to start comes last
		schedules = append(schedules, fmt.Sprintf(`{""Start"":""20%d-01-01"",""End"":""2040-01-01"",`+
			`""AlternativeUrl"":""https://example.com/%[1]d""}`, 40-1-i))
	}
	scheduled := func(list ...string) string {
		return "RowKey,Url,SchedulesPropertyRaw\na,https://example.com/,\"[" +
			strings.Join(list, ",") + "]\"\n"
	}
	for _, test := range []struct {
		name   string
		format formats.Format
		file   string
		rules  string // their targets, without what all have in common
		left   string
	}{
		{"ten", formats.Sink, geo(10, numbered) + "}]", "0 1 2 3 4 5 6 7 8 9", ""},
		{"eleven", formats.Sink, geo(11, numbered) + "}]", "0 1 2 3 4 5 6 7 8 9", "rules"},
		{"all countries", formats.Sink, geo(249, numbered) + "}]", "0 1 2 3 4 5 6 7 8 9", "rules"},
		{"50 with one target", formats.Sink, geo(50, same) + "}]", "same", ""},
		{"51 with one target", formats.Sink, geo(51, same) + "}]", "same same", ""},
		{"249 with one target", formats.Sink, geo(249, same) + "}]", "same same same same same", ""},
		{"eleven, and one for iOS", formats.Sink,
			geo(11, numbered) + `,"google":"https://example.com/g","apple":"https://example.com/a"}]`,
			"a g 0 1 2 3 4 5 6 7", "rules"},
		{"too long ones", formats.Sink, strings.Replace(geo(4, long), `}`,
			`,"ZW":"https://example.com/"}`, 1) + "}]", "0 1 2", "rules"},
		{"one that leads here", formats.Sink, sink(`"apple":"https://s.example.com/x",` +
			`"google":"https://example.com/g"`), "g", "rules"},
		{"one of no country", formats.Sink, sink(`"geo":{"EU":"https://example.com/eu",` +
			`"de":"https://example.com/de"}`), "de", "rules"},
		{"one that cannot take a query", formats.Sink, sink(`"google":"market:a",` +
			`"apple":"https://example.com/a","redirectWithQuery":true`), "a", "rules"},
		{"the same without a query", formats.Sink, sink(`"google":"market:a"`), "market:a", ""},
		{"of chance", formats.Dub, dub(`"testVariants":[{"url":"https://example.com/"}]`), "", "rules"},
		{"none", formats.Dub, dub(`"testVariants":[],"geo":null,"ios":null,"android":""`), "", ""},
		{"an end", formats.Dub, dub(`"expiredUrl":"https://example.com/gone"`), "", ""},
		{"an end that leads to the target", formats.Dub, dub(`"expiredUrl":"https://example.com/"`), "",
			"gone"},
		{"an end that leads to an app", formats.Dub, dub(`"expiredUrl":"market:a",` +
			`"ios":"https://example.com/i"`), "i", "gone"},
		{"eleven schedules", formats.AzURLShortener, scheduled(schedules...),
			"29 30 31 32 33 34 35 36 37 38", "schedule"},
		{"ten schedules", formats.AzURLShortener, scheduled(schedules[1:]...),
			"29 30 31 32 33 34 35 36 37 38", ""},
		{"one that leads here, by time", formats.AzURLShortener, scheduled(
			strings.Replace(schedules[0], "example.com", "s.example.com", 1)), "", "schedule"},
		{"one that ends before it starts", formats.AzURLShortener, scheduled(
			strings.Replace(schedules[0], "2040", "2001", 1)), "", "schedule"},
	} {
		l, left := leftOf(t, &formats.Import{Rules: extra, Format: test.format}, test.file)
		var targets []string
		for _, r := range l.Rules {
			targets = append(targets, strings.TrimRight(
				strings.TrimPrefix(r.LongURL, "https://example.com/"), "x"))
		}
		if got := strings.Join(targets, " "); got != test.rules || strings.Join(left, " ") != test.left {
			t.Errorf("%s: rules %s, left %q; want %s, %s", test.name, got, left, test.rules, test.left)
		}
		if strings.Contains(test.file, "gone") != (l.GoneURL != "") {
			t.Errorf("%s: it leads to %q after its end", test.name, l.GoneURL)
		}
	}
}

// Each of our own formats, and each program that has owners, names those who lose their links.
func TestImportLeavesOwners(t *testing.T) {
	for _, test := range []struct {
		format formats.Format
		file   string
	}{
		{formats.CSV, "alias,longUrl,owner\na,https://example.com/,bob\n"},
		{formats.NDJSON, `{"alias":"a","longUrl":"https://example.com/","owner":"bob"}`},
		{formats.Golink, `{"Short":"a","Long":"https://example.com/","Owner":"bob"}`},
		{formats.Polr, "short_url,long_url,creator\na,https://example.com/,bob\n"},
	} {
		for owner, want := range map[string]string{"ann": "owner", "bob": ""} {
			l, left := leftOf(t, &formats.Import{Format: test.format, Owner: owner}, test.file)
			if l.Owner != owner || strings.Join(left, " ") != want {
				t.Errorf("%s to %s: owner %s, left %q", test.format, owner, l.Owner, left)
			}
		}
		without := strings.NewReplacer(`"bob"`, `""`, ",bob", ",").Replace(test.file)
		if _, left := leftOf(t, &formats.Import{Format: test.format, Owner: "ann"},
			without); len(left) > 0 {
			t.Errorf("%s, without an owner: left %q", test.format, left)
		}
	}
	if l, left := leftOf(t, &formats.Import{Format: formats.CSV, Owner: "ann", KeepOwners: true},
		"alias,longUrl,owner\na,https://example.com/,bob\n"); l.Owner != "bob" || len(left) > 0 {
		t.Errorf("kept: owner %s, left %q", l.Owner, left)
	}
}

// A line that is refused leaves nothing behind, since nothing of it comes along.
func TestRefusedLinesLeaveNothing(t *testing.T) {
	store := teststore.Open(t, testutil.NewClock())
	store.Put(link.Link{Name: "b", LongURL: "https://example.com/other", CreatedAt: day})
	im := &formats.Import{Links: store, Rules: rules, Format: formats.Golink, Owner: "ann"}
	for _, r := range im.Add(t.Context(), read(t, formats.Golink,
		`{"Short":"a","Long":"https://s.example.com/","Owner":"bob"}`+"\n"+
			`{"Short":"b","Long":"https://example.com/b","Owner":"bob"}`+"\n"), day) {
		if r.Err == nil || r.Left != 0 {
			t.Errorf("got %+v", r)
		}
	}
}

// The documents explain each word for what is left behind.
func TestLeftIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range formats.LeftWords {
		if !strings.Contains(string(page), "\n- `"+word+"`") {
			t.Errorf("docs/coming-from.md does not explain %s", word)
		}
	}
}

// If case does not matter, two spellings are one alias. A link that was made before with capitals
// is found by its own spelling only.
func TestImportInAnyCase(t *testing.T) {
	for _, anyCase := range []bool{false, true} {
		store := teststore.Open(t, testutil.NewClock(), func(c *storage.Config) {
			c.AnyCase = anyCase
		})
		store.Put(link.Link{Name: "Old", LongURL: "https://example.com/old", CreatedAt: day})
		im := &formats.Import{Links: store, Rules: rules, Format: formats.CSV}
		im.Rules.AnyCase = anyCase
		got := resultsOf(t, im, formats.CSV, "alias,longUrl,domain\n"+
			"Docs,https://example.com/1,\n"+
			"docs,https://example.com/1,\n"+
			"DOCS,https://example.com/2,\n"+
			"DOCS,https://example.com/3,go.example\n"+
			"Old,https://example.com/old,\n"+
			"Old,https://example.com/new,\n"+
			"old,https://example.com/new,\n"+
			"Api,https://example.com/,\n")
		got = append(got, foundOf(t, store, "Docs", "docs", "DOCS", "dOCS@go.example", "Old", "old",
			"oLD")...)
		want := []string{"2 Docs created", "3 docs created", "4 DOCS created",
			"5 DOCS@go.example created", "6 Old there", "7 Old the alias is taken", "8 old created",
			"9 Api invalid alias",
			"Docs: 1 as Docs ", "docs: 1 as docs ", "DOCS: 2 as DOCS ",
			"dOCS@go.example: no such link",
			"Old: old as Old ", "old: new as old ", "oLD: no such link"}
		if anyCase {
			want = []string{"2 Docs created", "3 docs there", "4 DOCS the alias is taken",
				"5 DOCS@go.example created", "6 Old there", "7 Old the alias is taken",
				"8 old created", "9 Api invalid alias",
				"Docs: 1 as Docs ", "docs: 1 as Docs ", "DOCS: 1 as Docs ",
				"dOCS@go.example: 3 as DOCS ",
				"Old: old as Old ", "old: new as old ", "oLD: new as old "}
		}
		if !slices.Equal(got, want) {
			t.Errorf("any case %t: got\n%s\nwant\n%s", anyCase, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
}

package formats_test

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/formats"
	"tiney/internal/link"
)

var (
	rules = link.Rules{Base: mustBase("https://s.example.com/to"),
		Domains: map[link.Domain]link.Base{"go.example": mustBase("https://go.example")}}
	day  = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	full = formats.Record{
		Link: link.Link{
			Name:      "-Spring_26",
			LongURL:   "https://example.com/a?b=%41,c;d#ü",
			CreatedAt: day,
			ExpiresAt: day.AddDate(1, 0, 0),
			StartsAt:  day.AddDate(0, 0, 1),
			Rules: []link.TargetRule{{Name: `Sí, "a"`, Countries: []string{"DE", "AT"}, From: &day,
				Percent: 50, LongURL: "http://x.example/1"},
				{Name: "2", Languages: []string{"de"}, LongURL: "mailto:a"}},
			GoneURL:    "http://x.example/{alias}",
			UpdatedAt:  day.Add(time.Hour),
			StatusCode: 301,
			Disabled:   true,
			Owner:      "=ann@example.com",
			Title:      `+1 "quoted", 雪; 'x'`,
			Tags:       []string{"-news", "a,b", `say "hi"`, " edge ", "", "plain words", "'"},
		},
		Total: clicks.Total{Clicks: 1 << 40, Bots: 3, Last: day.Add(2 * time.Hour)},
	}
	least = formats.Record{
		Link: link.Link{Name: "a", LongURL: "http://example.com", StatusCode: 302}}
)

func mustBase(raw string) link.Base {
	b, err := link.ParseBase(raw)
	if err != nil {
		panic(err)
	}
	return b
}

// write returns a file with some records.
func write(t testing.TB, f formats.Format, records ...formats.Record) string {
	t.Helper()
	var b bytes.Buffer
	w := formats.NewWriter(&b, f, rules, false)
	for _, rec := range records {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// read returns the records of a file. The file as a whole must be readable.
func read(t testing.TB, f formats.Format, file string) (records []formats.Record) {
	t.Helper()
	for rec, err := range formats.Read(strings.NewReader(file), f) {
		if err != nil {
			t.Fatalf("%s: %v in %.500q", f, err, file)
		}
		records = append(records, rec)
	}
	return records
}

func TestWrite(t *testing.T) {
	shared := full
	shared.Link.Shared, shared.Link.DeletedAt, shared.Link.Locked = true, day, true
	shared.Link.Guard = link.Guard{Password: "$argon2id$", MaxOpens: 3,
		EndKept: day.AddDate(0, 0, 1)}
	spelled := least
	spelled.Link.Name, spelled.Link.Spelling = "docs@go.example", "Docs"
	spelled.Link.Forward = link.ForwardQuery | link.ForwardPath
	retired := least
	retired.Link.Name, retired.Link.Forward = "a@old.example:8080", link.ForwardPath
	dash := least
	dash.Link.Name = "a@-x.example"
	const unguarded = `"password":false,"maxOpens":null,"opensLeft":null,` +
		`"expiresAtUtcKept":null,"passwordHash":null`
	const names = "alias,shortUrl,longUrl,createdAtUtc,expiresAtUtc,updatedAtUtc,statusCode," +
		"disabled,shared,deletedAtUtc,title,tags,owner,clicks,bots,lastClickAtUtc," +
		"domain,forward,locked,startsAtUtc,goneUrl,rules,password,maxOpens," +
		"opensLeft,expiresAtUtcKept,passwordHash\n"
	for _, test := range []struct {
		name    string
		format  formats.Format
		records []formats.Record
		want    string
	}{
		{"no links", formats.NDJSON, nil, ""},
		{"no links", formats.CSV, nil, names},
		{"nulls as the API has them", formats.NDJSON,
			[]formats.Record{{Link: link.Link{Name: "a", LongURL: "http://example.com"}}},
			`{"alias":"a","shortUrl":"https://s.example.com/to/a",` +
				`"longUrl":"http://example.com","createdAtUtc":null,"expiresAtUtc":null,` +
				`"updatedAtUtc":null,"statusCode":302,"disabled":false,"shared":false,` +
				`"deletedAtUtc":null,"title":null,"tags":[],"owner":null,` +
				`"clicks":0,"bots":0,"lastClickAtUtc":null,"domain":null,"forward":[],` +
				`"locked":false,"startsAtUtc":null,"goneUrl":null,"rules":[],` + unguarded + "}\n"},
		{"everything", formats.NDJSON, []formats.Record{shared},
			`{"alias":"-Spring_26","shortUrl":"https://s.example.com/to/-Spring_26",` +
				`"longUrl":"https://example.com/a?b=%41,c;d#ü",` +
				`"createdAtUtc":"2026-01-31T12:00:00Z","expiresAtUtc":"2027-01-31T12:00:00Z",` +
				`"updatedAtUtc":"2026-01-31T13:00:00Z","statusCode":301,` +
				`"disabled":true,"shared":true,"deletedAtUtc":"2026-01-31T12:00:00Z",` +
				`"title":"+1 \"quoted\", 雪; 'x'",` +
				`"tags":["-news","a,b","say \"hi\""," edge ","","plain words","'"],` +
				`"owner":"=ann@example.com","clicks":1099511627776,"bots":3,` +
				`"lastClickAtUtc":"2026-01-31T14:00:00Z","domain":null,"forward":[],` +
				`"locked":true,"startsAtUtc":"2026-02-01T12:00:00Z",` +
				`"goneUrl":"http://x.example/{alias}","rules":[{"name":"Sí, \"a\"",` +
				`"countries":["DE","AT"],"fromUtc":"2026-01-31T12:00:00Z","percent":50,` +
				`"longUrl":"http://x.example/1"},{"name":"2","languages":["de"],` +
				`"longUrl":"mailto:a"}],"password":true,"maxOpens":3,"opensLeft":0,` +
				`"expiresAtUtcKept":"2026-02-01T12:00:00Z","passwordHash":"$argon2id$"}` + "\n"},
		{"a domain, and a spelling", formats.NDJSON, []formats.Record{spelled},
			`{"alias":"Docs","shortUrl":"https://go.example/Docs",` +
				`"longUrl":"http://example.com","createdAtUtc":null,"expiresAtUtc":null,` +
				`"updatedAtUtc":null,"statusCode":302,"disabled":false,"shared":false,` +
				`"deletedAtUtc":null,"title":null,"tags":[],"owner":null,` +
				`"clicks":0,"bots":0,"lastClickAtUtc":null,"domain":"go.example",` +
				`"forward":["query","path"],"locked":false,` +
				`"startsAtUtc":null,"goneUrl":null,"rules":[],` + unguarded + "}\n"},
		{"empty fields", formats.CSV, []formats.Record{least},
			names + "a,https://s.example.com/to/a,http://example.com,,,," +
				"302,false,false,,,,,0,0,,,,false,,,,false,,,,\n"},
		{"domains, and a spelling", formats.CSV, []formats.Record{spelled, retired, dash},
			names + "Docs,https://go.example/Docs,http://example.com,,,," +
				"302,false,false,,,,,0,0,,go.example,\"query,path\",false,,,,false,,,,\n" +
				"a,https://old.example:8080/a,http://example.com,,,," +
				"302,false,false,,,,,0,0,,old.example:8080,path,false,,,,false,,,,\n" +
				"a,https://-x.example/a,http://example.com,,,," +
				"302,false,false,,,,,0,0,,'-x.example,,false,,,,false,,,,\n"},
		{"no formulas", formats.CSV, []formats.Record{shared},
			names + `'-Spring_26,https://s.example.com/to/-Spring_26,` +
				`"https://example.com/a?b=%41,c;d#ü",2026-01-31T12:00:00Z,2027-01-31T12:00:00Z,` +
				`2026-01-31T13:00:00Z,301,true,true,2026-01-31T12:00:00Z,` +
				`"'+1 ""quoted"", 雪; 'x'",` +
				`"'-news,""a,b"",""say """"hi"""""","" edge "","""",plain words,'",` +
				`'=ann@example.com,1099511627776,3,2026-01-31T14:00:00Z,,,true,` +
				`2026-02-01T12:00:00Z,http://x.example/{alias},"[{""name"":""Sí, \""a\"""",` +
				`""countries"":[""DE"",""AT""],""fromUtc"":""2026-01-31T12:00:00Z"",` +
				`""percent"":50,""longUrl"":""http://x.example/1""},{""name"":""2"",` +
				`""languages"":[""de""],""longUrl"":""mailto:a""}]",` +
				"true,3,0,2026-02-01T12:00:00Z,$argon2id$\n"},
	} {
		t.Run(string(test.format)+"/"+test.name, func(t *testing.T) {
			if got := write(t, test.format, test.records...); got != test.want {
				t.Errorf("wrote\n%s, want\n%s", got, test.want)
			}
		})
	}
}

// TestNoFormulas: no field of an export for a spreadsheet begins like a formula, even if the
// spreadsheet separates fields by semicolons or tabs by default. The spreadsheet obeys the first
// line.
func TestNoFormulas(t *testing.T) {
	evil := full
	evil.Link.LongURL = "https://example.com/;=cmd|' /C calc'!A0;@SUM(A1);\"+1"
	evil.Link.Title, evil.Link.Owner = "a;=1+1\t=2+2", "a;-1"
	evil.Link.Tags = []string{"a;=1", `"x";=1`}
	var b bytes.Buffer
	w := formats.NewWriter(&b, formats.CSV, rules, true)
	if err := errors.Join(w.Write(evil), w.Write(least), w.Flush()); err != nil {
		t.Fatal(err)
	}
	for _, own := range ",;\t" {
		if got := formulas(t, b.String(), own); got != 0 {
			t.Errorf("with the separator %q there are %d formulas in\n%s", own, got, &b)
		}
	}
	if formulas(t, write(t, formats.CSV, evil), ';') == 0 { // else this tests nothing
		t.Error("there are no formulas without the line")
	}
	want := []formats.Record{evil, least}
	want[0].Line, want[1].Line = 3, 4
	if got := read(t, formats.CSV, b.String()); !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
}

// formulas counts the formulas that a spreadsheet with its own separator finds in a file.
func formulas(t *testing.T, file string, own rune) (n int) {
	t.Helper()
	if line, rest, _ := strings.Cut(file, "\n"); strings.HasPrefix(line, "sep=") {
		own, file = rune(line[len("sep=")]), rest
	}
	r := csv.NewReader(strings.NewReader(file))
	r.Comma, r.LazyQuotes, r.FieldsPerRecord = own, true, -1
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range slices.Concat(rows...) {
		if field != "" && strings.ContainsAny(field[:1], "=+-@") {
			n++
		}
	}
	return n
}

func TestWriteErrors(t *testing.T) {
	w := formats.NewWriter(&bytes.Buffer{}, formats.Kutt, rules, false)
	if err := w.Write(least); !errors.Is(err, formats.ErrFormat) {
		t.Error(err)
	}
	broken := errors.New("broken pipe")
	for _, f := range []formats.Format{formats.NDJSON, formats.CSV} {
		w := formats.NewWriter(
			writerFunc(func([]byte) (int, error) { return 0, broken }), f, rules, false)
		if err := cmp.Or(w.Write(least), w.Flush()); !errors.Is(err, broken) {
			t.Errorf("%s: %v", f, err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// lineFeeds changes the line ends of a text as CSV does.
var lineFeeds = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace

// FuzzRoundTrip: records are read as they were written, whatever characters they have.
func FuzzRoundTrip(f *testing.F) {
	f.Add("a", "https://example.com", "title", "one\ntwo", "owner", "", uint8(0),
		int64(0), int64(1_800_000_000), true)
	f.Add("a", "https://example.com", "title", "one", "owner", "go.example", uint8(3),
		int64(0), int64(1_800_000_000), true)
	for _, s := range []string{"=1+1", "'=1", "''", "'", "+", "-x", "@", "\t=", "\r\n", "\r",
		"\n", `"`, `a"b`, `""`, ",", ";", "\x00", "\ufeff", "＝1", "\u2028", "a,b", " x ", "|",
		`\.`, `\`, "NULL"} {
		f.Add(s, s, s, s+"\n"+s, s, s, uint8(len(s)), int64(5), int64(3), false)
	}
	f.Fuzz(func(t *testing.T, alias, target, title, tags, owner, domain string, forward uint8,
		n, at int64, spelled bool) {
		valid := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
		const year10000 = 253402300800
		moment := func(at int64) time.Time { return time.Unix(at%year10000, 0).UTC() }
		// Each link has a target. An empty alias would be taken from the short URL when it is read.
		// A byte order mark that begins a line is left out.
		if at < 0 || target == "" || alias == "" ||
			strings.Count(tags, "\n") > 50 || // as many as no link has
			strings.Contains("\n"+lineFeeds(alias+title+"\n"+tags+owner+target), "\n\ufeff") {
			return
		}
		rec := formats.Record{
			Link: link.Link{
				LongURL:    valid(target),
				Title:      valid(title),
				Owner:      valid(owner),
				CreatedAt:  moment(at),
				ExpiresAt:  moment(at / 2),
				UpdatedAt:  moment(at / 3),
				Disabled:   n%2 == 0,
				Locked:     n%3 == 0,
				StatusCode: 307,
				Forward:    link.Forward(forward) & (link.ForwardQuery | link.ForwardPath),
			},
			Total: clicks.Total{Clicks: max(0, n), Bots: max(0, -(n + 1)), Last: moment(at / 4)},
		}
		if tags != "" {
			rec.Link.Tags = strings.Split(valid(tags), "\n")
		}
		alias = valid(alias)
		rec.Link.Name = link.Name(alias)
		d, _ := link.ParseDomain(domain)
		rec.Domain = string(d)
		written := rec
		written.Link.Name = d.Name(link.Alias(alias))
		if spelled || strings.Contains(alias, "@") { // in a name, it would begin a domain
			written.Link.Name, written.Link.Spelling = d.Name("other"), link.Alias(alias)
		}
		for _, format := range []formats.Format{formats.NDJSON, formats.CSV} {
			file := write(t, format, written, written)
			got, want := read(t, format, file), rec
			for i := range got {
				got[i].Line = 0
			}
			if format == formats.CSV {
				l := &want.Link
				l.Name = link.Name(lineFeeds(string(l.Name)))
				l.LongURL, l.Title = lineFeeds(l.LongURL), lineFeeds(l.Title)
				l.Owner = lineFeeds(l.Owner)
				l.Tags = slices.Clone(l.Tags)
				for i, tag := range l.Tags {
					l.Tags[i] = lineFeeds(tag)
				}
			}
			if !reflect.DeepEqual(got, []formats.Record{want, want}) {
				t.Errorf("%s: read\n%+v, want\n%+v, wrote\n%q", format, got, want, file)
			}
		}
	})
}

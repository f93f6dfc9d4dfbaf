package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"tiney/internal/testing/testutil"
)

// Campaign parameters are written into the long URL and read from it, and nothing else of the URL
// changes.
func TestManageCampaign(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	p.GoTo("#/new", "#link-title", "New link")
	for _, test := range [][4]string{ // a URL, a parameter, its value, and the URL with it
		{"https://e.example/", "utm_source", "a b", "https://e.example/?utm_source=a%20b"},
		{"https://e.example/a#f?x", "utm_term", "x", "https://e.example/a?utm_term=x#f?x"},
		{"https://e.example/?q=%41+b&&c#", "utm_term", "x",
			"https://e.example/?q=%41+b&&c&utm_term=x#"},
		{"https://e.example/?", "utm_term", "x", "https://e.example/?utm_term=x"},
		{"https://e.example/?a=1&utm_term=old&b=%zz", "utm_term", "ä&=",
			"https://e.example/?a=1&utm_term=%C3%A4%26%3D&b=%zz"},
		{"https://e.example/?utm_term=1&a&utm_term=2", "utm_term", "3",
			"https://e.example/?utm_term=3&a"},
		{"https://e.example/?a&utm%5Fterm=1&b#c", "utm_term", "", "https://e.example/?a&b#c"},
		{"https://e.example/?utm_term=1", "utm_term", "", "https://e.example/"},
		{"https://e.example/?UTM_TERM=1&xutm_term=2", "utm_term", "",
			"https://e.example/?UTM_TERM=1&xutm_term=2"},
		{"https://e.example/?utm_term=a+b", "utm_term", "a b", "https://e.example/?utm_term=a+b"},
		{"example.com/ü?ü=ü", "utm_source", "ü", "example.com/ü?ü=ü&utm_source=%C3%BC"},
	} {
		path := Eval[string](p, `performance.getEntriesByType("resource").map((e) => e.name)`+
			`.find((name) => name.includes("/manage/page."))`)
		got := Eval[string](p, fmt.Sprintf(`import(%s).then(({ write, read }) => { const url = `+
			`write(%s, %s, %s); return url + " " + read(url, %[3]s); })`,
			quote(strings.Replace(path, "/page.", "/utm.", 1)), quote(test[0]), quote(test[1]),
			quote(test[2])))
		if got != test[3]+" "+test[2] {
			t.Errorf("%s with %s=%s is %s, want %s", test[0], test[1], test[2], got, test[3])
		}
	}
	p.Click("#campaign summary")
	p.Fill("#longUrl", "https://example.com/?utm_medium=mail#top")
	p.AwaitTrue(find("#utm_medium") + `.value === "mail"`)
	p.Fill("#utm_source", "news letter")
	p.AwaitTrue(find("#longUrl") + `.value === ` +
		`"https://example.com/?utm_medium=mail&utm_source=news%20letter#top"`)
	p.Fill("#utm_medium", "")
	p.AwaitTrue(find("#longUrl") + `.value === "https://example.com/?utm_source=news%20letter#top"`)
	p.Check("campaign parameters")
	look(t, p, "manage-campaign")
	p.Click("#save")
	p.Await("#link-long", "utm_source=news%20letter#top")
}

// Whether an alias is free is said while it is typed.
func TestManageFreeAlias(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	s.put(t, s.keyOf(t, "bob"), "bobs", "")
	p := s.manage(t, s.keyOf(t, "ada"))
	p.GoTo("#/new", "#link-title", "New link")
	for alias, want := range map[string]string{"bobs": "This alias is taken", "adas": "is free",
		"a b": "An alias has 1 to", "api": "An alias has 1 to", "../x": "An alias has 1 to"} {
		p.Fill("#alias", alias)
		p.Await("#alias-says", want)
	}
	p.Check("an alias that is checked")
	s.down(true)
	p.Fill("#alias", "later")
	p.AwaitTrue(find("#alias-says") + `.textContent === ""`)
	s.down(false)
}

// Many URLs that are pasted become many links. Wrong ones stay, with their reason.
func TestManageManyLinks(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	p := s.manage(t, key)
	p.GoTo("#/new", "#link-title", "New link")
	var urls []string
	for i := range 250 {
		urls = append(urls, fmt.Sprintf("example.com/%d", i))
	}
	urls[120] = "ftp://example.com/wrong"
	pasted, err := json.Marshal(strings.Join(urls, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	Eval[any](p, `(() => { const data = new DataTransfer(); data.setData("text", `+string(pasted)+
		`); `+find("#longUrl")+`.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, `+
		`bubbles: true, cancelable: true })); })()`)
	p.wantFocus("many-urls")
	p.Fill("#many-name", "All of them")
	p.Fill("#many-tags", "bulk, spring")
	p.Check("many links")
	look(t, p, "manage-many")
	// What is typed stays while somebody looks elsewhere.
	p.GoTo("#/keys", "#keys-title", "API keys")
	p.GoTo("#/new", "#many-title", "Many links")
	p.Click("#many-go")
	p.Await("#many-says", "249 links made. Fix the 1 left above.")
	p.Await("#many-failed", "ftp://example.com/wrong: ")
	if got := p.Value("#many-urls"); got != "ftp://example.com/wrong" {
		t.Errorf("in the field is %q", got)
	}
	p.Check("many links that were made")
	p.Click("#many-copy")
	p.Await("#toast", "Copied")
	if got := Eval[string](p, "navigator.clipboard.readText()"); strings.Count(got, "\n") != 248 {
		t.Errorf("copied are %d lines", strings.Count(got, "\n")+1)
	}
	list := s.as(t, key, "GET", "/api/links?limit=100&tag=spring&q=%22All%22+of+example.com/7", "")
	if items, _ := list["items"].([]any); len(items) != 0 { // there is no quote in the title
		t.Errorf("found %v", items)
	}
	if list = s.as(t, key, "GET", "/api/tags", ""); fmt.Sprint(list["items"]) !=
		"[map[links:249 tag:bulk] map[links:249 tag:spring]]" {
		t.Errorf("the tags are %v", list)
	}
}

// A chart shows the value of a day by pointer and by keyboard, has a scale, and its range is free.
func TestManageCharts(t *testing.T) {
	t.Parallel()
	s := serve(t, "CLICKS_FLUSH_SECONDS=1")
	key := s.keyOf(t, "ada")
	s.put(t, key, "clicked", `,"tags":["print"]`)
	for range 3 {
		s.visit(t, "clicked", firefox, "https://news.example/")
	}
	s.visit(t, "clicked", firefox, "")
	testutil.Eventually(t, "the clicks are counted", func() bool {
		return s.as(t, key, "GET", "/api/links/clicked/stats", "")["clicks"] == 4.0
	})
	p := s.manage(t, key)
	p.GoTo("#/link/clicked", "#stats-body", "news.example")
	if top := Eval[bool](p, find("#form")+`.compareDocumentPosition(`+find("#stats")+
		`) === Node.DOCUMENT_POSITION_PRECEDING`); !top {
		t.Error("clicks do not come before editing")
	}
	if got := p.Text(".dimensions"); !strings.Contains(got, "75%") || !strings.Contains(got, "25%") {
		t.Errorf("no percentages in %s", got)
	}
	if got := p.Text(".chart.clicks .scale"); strings.Join(strings.Fields(got), " ") != "4 2 0" {
		t.Errorf("the scale is %s", got)
	}
	p.to(".chart.clicks input")
	today := time.Now().UTC().Format("Jan 2")
	p.Await(".chart.clicks .value", today+": 4")
	p.Press(kb.ArrowLeft)
	p.Await(".chart.clicks .value", ": 0")
	if text := Eval[string](p, find(".chart.clicks input")+".ariaValueText"); !strings.HasSuffix(
		text, ": 0") {
		t.Errorf("a screen reader says %q", text)
	}
	Eval[any](p, `(() => { const svg = `+find(".chart.clicks svg")+`, { right, top } = `+
		`svg.getBoundingClientRect(); svg.dispatchEvent(new PointerEvent("pointermove", { clientX: `+
		`right - 2, clientY: top + 5 })); })()`)
	p.Await(".chart.clicks .value", today+": 4")
	p.choose("#stats-range", "free day")
	from := time.Now().UTC().AddDate(0, 0, -4).Format(time.DateOnly)
	Eval[any](p, find("#stats-from")+".value = "+quote(from)+`, `+find("#stats-from")+
		`.dispatchEvent(new Event("change", { bubbles: true }))`)
	p.AwaitTrue(`document.querySelectorAll(".chart.clicks .bar").length === 5`)
	p.Check("a free range")
	look(t, p, "manage-chart")

	p.GoTo("#/clicks", "#stats-body", "news.example")
	p.Fill("#stats-tag", "print")
	p.Press(kb.Enter)
	p.AwaitTrue(`!document.querySelector("#stats-body").ariaBusy && ` +
		`!document.querySelector(".dimensions").innerText && ` +
		find("#stats-figures dd") + `.textContent === "4"`)
	p.Check("statistics of a tag")
	p.Fill("#stats-tag", "other")
	p.Press(kb.Enter)
	p.Await("#stats-body", "No clicks in this time")
}

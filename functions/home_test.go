package functions

import (
	"html"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestPagesHoldTheirTextsEscaped(t *testing.T) {
	const hostile = `</title><script>alert("{{.Script}}")</script>&'`
	for name, page := range map[string]string{
		"home":    fill(homePage, "Base", hostile),
		"problem": fill(problemPage, "Title", hostile, "Detail", hostile, "Status", "404"),
	} {
		if !strings.Contains(page, html.EscapeString(hostile)) || strings.Contains(page, "alert(\"") {
			t.Errorf("%s: the text is not in it as a text:\n%s", name, page)
		}
		if left := strings.ReplaceAll(page, html.EscapeString(hostile), ""); strings.Contains(left, "{{") {
			t.Errorf("%s: something is left to fill:\n%s", name, left)
		}
		if !strings.Contains(page, "<style>"+style+"</style>") {
			t.Errorf("%s: it has not its style", name)
		}
	}
	if !strings.Contains(fill(homePage, "Base", ""), "<script>"+script+"</script>") {
		t.Error("the home page has not its script")
	}
}

var (
	placeholder = regexp.MustCompile(`\{\{.*?\}\}`)
	notText     = regexp.MustCompile(`(?is)<!--.*?-->|<script\b.*?</script\s*>|<style\b.*?</style\s*>|<[a-z/!](?:[^"'<>]|"[^"]*"|'[^']*')*>`)
)

// outsideText lists what fill would put where an escaped text is not safe, besides style and script.
func outsideText(page string) (names []string) {
	page = strings.NewReplacer("<style>{{.Style}}</style>", "", "<script>{{.Script}}</script>", "").Replace(page)
	text := notText.ReplaceAllString(page, "")
	if _, after, open := strings.Cut(text, "<"); open {
		return append(names, "<"+after)
	}
	left := placeholder.FindAllString(text, -1)
	for _, name := range placeholder.FindAllString(page, -1) {
		if i := slices.Index(left, name); i >= 0 && name != "{{.Style}}" && name != "{{.Script}}" {
			left = slices.Delete(left, i, i+1)
		} else {
			names = append(names, name)
		}
	}
	return names
}

func TestPagesTakeTextsBetweenTagsOnly(t *testing.T) {
	pages, err := fs.Glob(pageFiles, "*.html")
	if err != nil || len(pages) != 2 {
		t.Fatalf("the pages are %v (%v)", pages, err)
	}
	for _, name := range pages {
		if names := outsideText(mustRead(name)); len(names) > 0 {
			t.Errorf("%s: not between tags: %q", name, names)
		}
	}
	for _, page := range []string{
		`<a href="{{.Base}}">it</a>`, `<a href='{{.Base}}'>it</a>`, `<a href={{.Base}}>it</a>`, `<p {{.Base}}>it</p>`,
		`<a title="a > b" href="{{.Base}}">it</a>`, `<p title='>"{{.Base}}'>it</p>`, `<{{.Base}}>`, `<p {{.Base}}`,
		`<script>let base = "{{.Base}}"</script>`, `<script src="x">{{.Script}}</script>`, `<p>{{.Script}}</p>`,
		`<style>p { color: {{.Base}} }</style>`, `<p>{{.Style}}</p>`, `<!-- {{.Base}} -->`, `<p>{{.Base}}</p><p id={{.Base}}>`,
	} {
		if names := outsideText(page); len(names) == 0 {
			t.Errorf("nothing was found in %s", page)
		}
	}
}

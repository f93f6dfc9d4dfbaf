package functions

import (
	"html"
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

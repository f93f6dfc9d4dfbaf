package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// inRule returns the selector of a field or a button of a rule.
func inRule(id string) string { return `[id="rules` + id + `"]` }

// Rules are rows that people add, fill in, move and remove, with a mouse or by keyboard. What is
// wrong is said at its field.
func TestManageRules(t *testing.T) {
	t.Parallel()
	s := serve(t, "CLICKS_FLUSH_SECONDS=1")
	ada := s.keyOf(t, "ada")
	p := s.manage(t, ada)
	p.GoTo("#/new", "#link-title", "New link")
	p.wantFocus("longUrl")
	p.Press("https://example.com/")
	p.Click("#options summary")
	p.Click("#rules-add")
	p.wantFocus("rules[0].longUrl")
	p.Press("example.com/apple" + kb.Enter)
	p.Await(inRule("[0]-error"), "A rule needs a condition")
	p.Click(inRule("[0].systems") + ` [value="iOS"]`)
	p.Fill(inRule("[0].countries"), "de, UK")
	p.Press(kb.Enter)
	p.Await(inRule("[0].countries-error"), "Name 1 to 50 of these")
	p.wantFocus("rules[0].countries")
	p.Check("a rule with an error")
	p.Fill(inRule("[0].countries"), "de gb")
	p.Fill("#alias", "ruled")
	p.to("#rules-add")
	p.Press(kb.Enter)
	p.wantFocus("rules[1].longUrl")
	p.Press("https://example.com/half")
	p.Fill(inRule("[1].percent"), "50")
	p.Fill(inRule("[1].name"), "half")
	p.Press(kb.Enter)
	p.Await("#link-about", "2 rules")
	want := func(state, rules string) {
		t.Helper()
		got := Eval[string](p, `fetch("api/links/ruled", { headers: { "X-Api-Key": `+quote(ada)+
			` } }).then((r) => r.json()).then(({ rules }) => rules.map((r) => [r.name, r.countries, `+
			`r.systems, r.percent, r.longUrl].flat().filter((one) => one !== null).join(" ")).join("; "))`)
		if got != rules {
			t.Errorf("%s: the rules are %s, want %s", state, got, rules)
		}
	}
	const apple, half = "1 DE GB iOS https://example.com/apple", "half 50 https://example.com/half"
	want("made", apple+"; "+half)

	p.edit()
	p.AwaitTrue(find(inRule("[1].name")) + `?.value === "half"`)
	if got := p.Value(inRule("[0].countries")); got != "DE, GB" {
		t.Errorf("the countries are %s", got)
	}
	if Eval[bool](p, find("#discard")+".checkVisibility()") {
		t.Error("a form as it was read has something to discard")
	}
	p.Width(320)
	p.Check("rules, narrow")
	p.Width(1100)
	p.Dark(true)
	p.Check("rules, dark")
	p.Dark(false)
	p.Click(inRule("[1]-up"))
	p.wantFocus("rules[0]-down")
	p.Press(kb.Enter)
	p.wantFocus("rules[1]-up")
	if Eval[bool](p, find("#discard")+".checkVisibility()") {
		t.Error("rules in their former order are something to discard")
	}
	p.Press(kb.Enter)
	p.Click("#save")
	p.Await("#toast", "Saved")
	want("moved", half+"; "+apple)
	p.Click(inRule("[0]") + ` button[aria-label="Remove: rule 1"]`)
	p.wantFocus("rules[0].longUrl")
	p.Click("#discard")
	p.AwaitTrue(find(inRule("[1].countries")) + `?.value === "DE, GB"`)
	p.Click(inRule("[0]") + ` button[aria-label="Remove: rule 1"]`)
	p.Click("#save")
	p.Await("#toast", "Saved")
	want("removed", apple)
	p.Click("#past summary")
	p.Await("#past-rows", "half: 50 % → https://example.com/half")

	s.visit(t, "ruled", firefox, "")
	p.GoTo("#/", "#list-rows", "Rules")
	p.AwaitTrue(`fetch("api/links/ruled/stats", { headers: { "X-Api-Key": ` + quote(ada) +
		` } }).then((r) => r.json()).then(({ targets }) => targets.length === 1)`)
	p.GoTo("#/link/ruled", "#stats-body", "(link)")
	p.Open(s.url + "/ruled+")
	if got := p.Text("main"); !strings.Contains(got, "https://example.com/apple") {
		t.Errorf("the preview says %s", got)
	}
	p.Check("the preview of a link with rules")
}

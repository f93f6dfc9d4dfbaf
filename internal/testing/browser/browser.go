// Package browser drives Chromium for the tests of the pages. It checks each page with axe-core.
// package.json beside this file pins axe-core, and `make browser` installs it.
// internal/tools/dev/install.sh installs the browser.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/css"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/chromedp"
)

// patience is how long a page may take for anything: far longer than it takes even on a busy
// machine, since only a test that fails waits for so long.
const patience = time.Minute

// Browser is a running Chromium.
type Browser struct {
	ctx  context.Context
	axe  string
	idle chan *Page // tabs that tests have left
}

// Start starts headless Chromium, or an installed browser of its kind. The caller must Close it.
func Start() (*Browser, error) {
	_, file, _, _ := runtime.Caller(0)
	axe, err := os.ReadFile(filepath.Join(filepath.Dir(file), "node_modules", "axe-core",
		"axe.min.js"))
	if err != nil {
		return nil, fmt.Errorf("axe-core is not installed; run `make browser` first (%w)", err)
	}
	// No page of these hosts is a secure context. Over http, only pages of this machine are.
	// A spare process for the next tab would be started for each tab, and rarely be used.
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1"),
		chromedp.Flag("disable-features", "Translate,SpareRendererForSitePerProcess"))
	// Chromium that can have no windows takes half of the time.
	if path, err := exec.LookPath("chromium-headless-shell"); err == nil {
		options = append(options, chromedp.ExecPath(path))
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to start as root otherwise
	}
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		return nil, fmt.Errorf("chromium does not start; `internal/tools/dev/install.sh chromium` "+
			"installs it (%w)", err)
	}
	return &Browser{ctx: ctx, axe: string(axe), idle: make(chan *Page, 10)}, nil
}

// Close ends the browser.
func (b *Browser) Close() {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	_ = chromedp.Cancel(ctx)
}

// Page is a tab of somebody who has never visited the site. Its methods fail the test if something
// is not as expected within patience.
type Page struct {
	t      testing.TB
	ctx    context.Context
	cancel context.CancelFunc
	axe    string

	noScripts bool
	origins   map[string]bool // which may have stored something
	changed   bool            // whether it is not as it was, even if it is reset

	mu     sync.Mutex
	errors []string // exceptions, and violations of a page's content security policy
	agrees bool     // whether to accept dialogs
	asked  []string // the messages of the dialogs so far
}

// New returns a tab, 1100 pixels wide, until the test ends. The test fails if a script throws, or
// does something that the page's policy forbids. The tab may be one that another test has left. To
// start a process for each takes longer than most tests.
func (b *Browser) New(t testing.TB) *Page {
	t.Helper()
	select {
	case p := <-b.idle:
		p.t = t
		t.Cleanup(func() { b.leave(p) })
		return p
	default:
		return b.Fresh(t)
	}
}

// Fresh is New with a tab whose process is new, too.
func (b *Browser) Fresh(t testing.TB) *Page {
	t.Helper()
	p := newPage(t, b.ctx, b.axe, chromedp.WithNewBrowserContext())
	t.Cleanup(func() { b.leave(p) })
	return p
}

// leave reports the errors of a page, and keeps the tab if it is as good as new.
func (b *Browser) leave(p *Page) {
	p.report()
	if p.changed || p.t.Failed() {
		p.cancel()
		return
	}
	p.reset()
	select {
	case b.idle <- p:
	default:
		p.cancel()
	}
}

// newPage opens a tab in the browser, or beside another tab, that a context is of.
func newPage(t testing.TB, in context.Context, axe string, options ...chromedp.ContextOption) *Page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(in, options...)
	p := &Page{t: t, ctx: ctx, cancel: cancel, axe: axe, origins: map[string]bool{}}
	// The tab lives as long as the context of its first action.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	Call(p, css.Disable, cdp.Empty{}) // chromedp has enabled it, and tests look at no rules
	p.Width(1100)
	p.Dark(false)
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		permission := browser.SetPermissionParams{
			Permission:       &browser.PermissionDescriptor{Name: name},
			Setting:          browser.PermissionSettingGranted,
			BrowserContextID: chromedp.FromContext(ctx).BrowserContextID}
		if _, err := chromedp.CallBrowser(ctx, browser.SetPermission, permission); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// Tab opens another tab of the same person.
func (p *Page) Tab(t testing.TB) *Page {
	t.Helper()
	tab := newPage(t, p.ctx, p.axe)
	tab.origins = p.origins
	t.Cleanup(func() { tab.report(); tab.cancel() })
	return tab
}

// report fails the test for each error of the page.
func (p *Page) report() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.errors {
		p.t.Errorf("the page's console says: %s", e)
	}
}

// reset leaves the page, and forgets all that it has stored.
func (p *Page) reset() {
	p.Agree(true) // to leave what is typed
	if p.noScripts {
		p.AllowScripts()
	}
	p.do(chromedp.Navigate("about:blank"))
	for origin := range p.origins {
		Call(p, storage.ClearDataForOrigin, storage.ClearDataForOriginParams{Origin: origin,
			StorageTypes: "all"})
	}
	clear(p.origins)
	Call(p, network.ClearBrowserCache, cdp.Empty{})
	Call(p, page.ResetNavigationHistory, cdp.Empty{})
	p.Width(1100)
	p.Dark(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errors, p.agrees, p.asked = nil, false, nil
}

// Call calls a command of the browser that acts on the page.
func Call[P, R any](p *Page, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	result, err := chromedp.Call(p.ctx, command, params)
	if err != nil {
		p.t.Fatal(err)
	}
	return result
}

// Emulate calls a command that changes the device or the preferences of the page's user.
func Emulate[P any](p *Page, command cdp.Command[P, cdp.Empty], params P) {
	p.t.Helper()
	p.changed = true
	Call(p, command, params)
}

// hear notes the errors of a page. It ignores error responses in the log, since a test may want
// them. It also answers dialogs.
func (p *Page) hear(event any) {
	var wrong string
	switch e := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		wrong = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			wrong += " " + e.ExceptionDetails.Exception.Description
		}
	case *log.EventEntryAdded:
		if e.Entry.Level != log.EntryLevelError || e.Entry.Source == log.EntrySourceNetwork {
			return
		}
		wrong = e.Entry.Text
	case *page.EventJavascriptDialogOpening:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked = append(p.asked, e.Message)
		answer := page.HandleJavaScriptDialogParams{Accept: p.agrees}
		go chromedp.Call(p.ctx, page.HandleJavaScriptDialog, answer) // after this event
		return
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errors = append(p.errors, wrong)
}

func (p *Page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// Eval returns the value of a JavaScript expression. If the value is a promise, Eval awaits it.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression[:min(len(expression), 200)], err)
	}
	return value
}

// quote returns a text as a JavaScript string literal.
func quote(text string) string {
	quoted, _ := json.Marshal(text) // a text can always be quoted
	return string(quoted)
}

// find returns a JavaScript expression for the element that a CSS selector finds.
func find(selector string) string { return "document.querySelector(" + quote(selector) + ")" }

// Width changes the size of the window. A narrow one is a phone's.
func (p *Page) Width(pixels int64) {
	p.t.Helper()
	p.Size(pixels, 800)
}

// Size sets the size of the window, in pixels.
func (p *Page) Size(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
	p.drawn() // what is clicked before would be somewhere else
}

// drawn waits until the page has been laid out and drawn anew.
func (p *Page) drawn() {
	p.t.Helper()
	Eval[any](p, `new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => `+
		`drawn(null))))`)
}

// Dark sets whether the person prefers dark pages.
func (p *Page) Dark(is bool) {
	p.t.Helper()
	scheme := map[bool]string{false: "light", true: "dark"}[is]
	params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion",
			Value: "reduce"}}}
	Call(p, emulation.SetEmulatedMedia, params)
}

// Agree sets whether the person accepts the browser's dialogs, and returns the messages of the
// dialogs so far.
func (p *Page) Agree(does bool) (asked []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.agrees = does
	return slices.Clone(p.asked)
}

// NoScripts makes the browser run no scripts of pages.
func (p *Page) NoScripts() {
	p.t.Helper()
	p.noScripts = true
	p.disableScripts(true)
}

// AllowScripts makes the browser run scripts again.
func (p *Page) AllowScripts() {
	p.t.Helper()
	p.noScripts = false
	p.disableScripts(false)
}

func (p *Page) disableScripts(is bool) {
	p.t.Helper()
	Call(p, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: is})
}

// Offline cuts the browser off from the network, or reconnects it.
func (p *Page) Offline(is bool) {
	p.t.Helper()
	// Some versions of Chromium, such as 148, want it beside the conditions, later ones in them.
	type params struct {
		network.EmulateNetworkConditionsByRuleParams
		Offline bool `json:"offline"`
	}
	conditions := &network.Conditions{Offline: is, DownloadThroughput: -1, UploadThroughput: -1}
	Call(p, cdp.Command[params, struct{}]{Method: network.CommandEmulateNetworkConditionsByRule},
		params{network.EmulateNetworkConditionsByRuleParams{
			MatchedNetworkConditions: []*network.Conditions{conditions}}, is})
	Call(p, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: is,
		DownloadThroughput: -1, UploadThroughput: -1})
	p.changed = true
}

// Open goes to a URL, and returns the status of its response.
func (p *Page) Open(url string) int {
	p.t.Helper()
	p.origins[origin.FindString(url)] = true
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	response, err := chromedp.Run(ctx, chromedp.NavigateResponse(url))
	if err != nil {
		p.t.Fatal(err)
	}
	return int(response.Status)
}

// Go calls does, which must lead to another page, and returns the status of the response.
func (p *Page) Go(does func()) int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	response, err := chromedp.RunResponse(ctx,
		chromedp.Func(func(context.Context, *chromedp.Target) error { does(); return nil }))
	if err != nil {
		p.t.Fatal(err)
	}
	return int(response.Status)
}

// Press presses keys, such as a text or kb.Enter, wherever the focus is. Of a long word, such as a
// URL, only the last one is pressed, since each takes long. The others are inserted at once.
func (p *Page) Press(keys string, options ...chromedp.KeyOption) {
	p.t.Helper()
	for keys != "" {
		next := len(keys)
		if at := word.FindStringIndex(keys); at != nil && at[0] > 0 {
			next = at[0]
		} else if at != nil {
			next = at[1] - 1
			Call(p, input.InsertText, input.InsertTextParams{Text: keys[:next]})
			keys, next = keys[next:], 1
		}
		p.do(chromedp.KeyEvent(keys[:next], options...))
		keys = keys[next:]
	}
}

// word matches a text whose single keys mean nothing else.
var word = regexp.MustCompile(`[\w:/.?=#-]{8,}`)

// Fill focuses a field and replaces its content with a text, as pasting does.
func (p *Page) Fill(selector, text string) {
	p.t.Helper()
	Eval[chromedp.Void](p, find(selector)+".focus(), "+find(selector)+".select()")
	Call(p, input.InsertText, input.InsertTextParams{Text: text})
}

// Click clicks with the mouse on an element, which has to be visible.
func (p *Page) Click(selector string) {
	p.t.Helper()
	// A list that is read again replaces its rows. What is below the statistics of a link moves
	// until they are there. They may also fail, and then nothing is there after two seconds.
	Eval[any](p, `(async () => {
		const stats = document.querySelector("#stats-body");
		const element = () => `+find(selector)+`;
		const above = () => stats?.checkVisibility() && element() &&
			stats.compareDocumentPosition(element()) & 4;
		const busy = () => element()?.closest("#list-rows[aria-busy]") ||
			above() && stats.hasAttribute("aria-busy");
		for (let n = 0; busy() || n < 100 && above() && !stats.children.length; n++)
			await new Promise((on) => setTimeout(on, 20));
		return null;
	})()`)
	click := chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible)
	p.do(func(ctx context.Context, target *chromedp.Target) (none chromedp.Void, err error) {
		for {
			none, err = click(ctx, target)
			if err == nil || ctx.Err() != nil || !replaced.MatchString(err.Error()) {
				return none, err
			}
		}
	})
}

var origin = regexp.MustCompile(`^https?://[^/?#]+`)

// replaced matches the errors of a click if the page has replaced the element just before.
var replaced = regexp.MustCompile(`(?i)could not find node|no node with given id|box model|` +
	`layout object|detached`)

// Focused returns the id of the focused element, or else its ARIA label or its text.
func (p *Page) Focused() string {
	p.t.Helper()
	return Eval[string](p, `document.activeElement.id || document.activeElement.ariaLabel || `+
		`document.activeElement.textContent.trim()`)
}

// Text returns the visible text of an element, or "" if it is hidden or missing.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	return Eval[string](p, "("+find(selector)+"?.checkVisibility() && "+find(selector)+
		".innerText.trim()) || ''")
}

// Await waits until the visible text of an element contains part.
func (p *Page) Await(selector, part string) {
	p.t.Helper()
	p.AwaitTrue(find(selector) + "?.checkVisibility() && " + find(selector) +
		".innerText.includes(" + quote(part) + ")")
}

// AwaitTrue waits until an expression, or the value of its promise, is true. The page may be
// replaced by another one meanwhile.
func (p *Page) AwaitTrue(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	// The page itself looks again, for a quarter of a second. To ask it each time takes longer.
	look := "(async () => { try { return Boolean(await (" + expression + ")) } " +
		"catch { return false } })"
	script := `(async () => { const look = ` + look + `; for (let n = 0; n < 10; n++) { ` +
		`if (await look()) return true; await new Promise((on) => setTimeout(on, 25)); } ` +
		`return look(); })()`
	if p.noScripts { // nor timers
		script = look + "()"
	}
	once := func() (bool, error) { // a page that is left may never respond
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return chromedp.Run(ctx, chromedp.Evaluate[bool](script, chromedp.EvalAwaitPromise))
	}
	for {
		is, err := once()
		if is && err == nil {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("not within %v: %s (%v)\n%s", patience, expression, err, p.Text("body"))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Busy returns how long the main thread of the tab has worked so far.
func (p *Page) Busy() time.Duration {
	p.t.Helper()
	Call(p, performance.Enable,
		performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	for _, m := range Call(p, performance.GetMetrics, cdp.Empty{}).Metrics {
		if m.Name == "TaskDuration" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	p.t.Fatal("the browser does not say how long it has worked")
	return 0
}

// Shot returns a picture of an element as PNG, with two pixels per CSS pixel.
func (p *Page) Shot(selector string) []byte {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.ScreenshotScale(chromedp.CSS(selector), 2))
	if err != nil {
		p.t.Fatal(err)
	}
	return png
}

// Screen returns a picture of the whole page, as PNG.
func (p *Page) Screen() []byte {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100)) // less than 100 is JPEG
	if err != nil {
		p.t.Fatal(err)
	}
	return png
}

// Check fails the test if axe-core finds the page's current state not accessible, in light or in
// dark, or if the page is wider than the window. The failure messages name state.
func (p *Page) Check(state string) {
	p.t.Helper()
	if p.noScripts { // axe-core is one
		p.disableScripts(false)
		defer p.disableScripts(true)
	}
	if !Eval[bool](p, `"axe" in window`) { // loading it takes half of the time of a check
		Eval[chromedp.Void](p, p.axe)
	}
	for _, dark := range []bool{true, false} {
		p.Dark(dark)
		rules := map[bool]string{true: `runOnly: "color-contrast",`}[dark] // all else is the same
		violations := Eval[[]struct {
			ID, Help string
			Nodes    []struct{ HTML, FailureSummary string }
		}](p, `axe.run({ `+rules+` resultTypes: ["violations"], preload: false })`+
			`.then((result) => result.violations)`)
		for _, v := range violations {
			for _, n := range v.Nodes {
				p.t.Errorf("%s, dark %t: %s: %s\n%s\n%s", state, dark, v.ID, v.Help, n.HTML,
					n.FailureSummary)
			}
		}
	}
	wide := Eval[string](p, `[document.documentElement.scrollWidth, innerWidth].join(" of ")`)
	if !strings.HasPrefix(wide, strings.Split(wide, " of ")[1]+" ") {
		p.t.Errorf("%s: the page is %s pixels wide", state, wide)
	}
}

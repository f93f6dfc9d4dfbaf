// Package pages has the pages that people see, and the files that the pages load. The files are
// embedded as they are: there is no build step, and nothing is loaded from elsewhere.
//
// html/template could fill in the pages too. But it can call any method by its name, so all
// exported methods of all types would stay in the executable: a quarter of its size.
package pages

import (
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// Policy is the Content-Security-Policy of all pages. It allows files and calls of this service,
// and nothing else. Its last two directives stop scripts that turn a text into markup.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; manifest-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types " +
	"'none'"

// PolicyWith returns Policy for a page that also calls these origins.
func PolicyWith(origins ...string) string {
	return strings.Replace(Policy, "connect-src 'self'",
		strings.Join(append([]string{"connect-src 'self'"}, origins...), " "), 1)
}

// PolicyOfForm returns Policy for a page with a form whose response leads to another website.
// Browsers hold the redirect against the form, too, and * would let through only http and https.
func PolicyOfForm(schemes []string) string {
	allowed := "form-action 'self' http: https:"
	for _, scheme := range schemes {
		allowed += " " + scheme + ":"
	}
	return strings.Replace(Policy, "form-action 'self'", allowed, 1)
}

//go:embed *.css *.js *.png
//go:embed admin.html bulk.html claims.html importexport.html keys.html link.html qr.html
var files embed.FS

// assetNames are the files that pages load. Those in HTML are parts of /manage for views that are
// not the first one.
var assetNames, _ = fs.Glob(files, "*")

// Asset is a file that pages load.
type Asset struct {
	Type string // its Content-Type
	Body string // of a script: without its comments
	Gzip string // Body, compressed; "" for pictures
}

var (
	assetTypes = map[string]string{".css": "text/css; charset=utf-8",
		".js": "text/javascript; charset=utf-8", ".html": "text/html; charset=utf-8",
		".png": "image/png"}
	version = hashAssets()
	names   = nameAssets() // replaces assets' names in pages and scripts by hashed ones
)

// hashAssets returns one hash of all assets. All assets share it, because each may import others,
// and because a start takes as little time and memory as it can.
func hashAssets() string {
	sum, buffer := sha256.New(), make([]byte, 4<<10)
	for _, name := range assetNames {
		file, err := files.Open(name)
		if err == nil {
			// The file is read in pieces, because a whole one would be garbage at once.
			_, err = io.CopyBuffer(sum, file, buffer)
		}
		if err != nil {
			panic(err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

func nameAssets() *strings.Replacer {
	var renamed []string
	for _, name := range assetNames {
		renamed = append(renamed, `"./`+name+`"`, `"./`+hashed(name)+`"`, "manage/"+name+`"`,
			"manage/"+hashed(name)+`"`)
	}
	return strings.NewReplacer(renamed...)
}

// hashed returns the name of an asset with a hash in it. An asset at such a name never changes.
func hashed(name string) string {
	ext := path.Ext(name)
	return strings.TrimSuffix(name, ext) + "." + version + ext
}

func mustRead(name string) string {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// AssetAt returns the asset that is at /manage/name, and whether there is one (ok). The name has a
// hash of the content, so the asset can be cached for ever if current is true. If current is false,
// the name is from another build, whose pages ask this build for assets during a deployment.
func AssetAt(name string) (a Asset, current, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 || !slices.Contains(assetNames, parts[0]+"."+parts[2]) {
		return Asset{}, false, false
	}
	return assets()[parts[0]+"."+parts[2]], parts[1] == version, true
}

// assets are the files that pages load, by name. They are made when the first one is asked for.
var assets = sync.OnceValue(func() map[string]Asset {
	comment := regexp.MustCompile(`(?m)^[ \t]*(?://.*)?\n`)
	all := map[string]Asset{}
	for _, name := range assetNames {
		a := Asset{Type: assetTypes[path.Ext(name)], Body: mustRead(name)}
		if path.Ext(name) != ".png" {
			a.Body = names.Replace(a.Body)
			if path.Ext(name) == ".js" {
				a.Body = comment.ReplaceAllString(a.Body, "")
			}
			a.Gzip = Gzip(a.Body)
		}
		all[name] = a
	}
	return all
})

// Gzip compresses a text.
func Gzip(text string) string {
	var zipped strings.Builder
	w := zippers.Get().(*gzip.Writer)
	defer zippers.Put(w)
	w.Reset(&zipped)
	_, _ = io.WriteString(w, text) // a Builder takes everything
	_ = w.Close()
	return zipped.String()
}

// zippers keeps writers, each of which takes 800 KB.
var zippers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// rootFrom returns the relative reference that leads from a page at an escaped path, such as
// "/a/b", to the service's root. All references in pages begin with it, because a proxy in front
// may put a path of its own before all paths of the service. For a path that is deeper than any
// page, the reference is absolute and leads to the proxy's root. A page repeats the reference, and
// a path may have thousands of slashes, so a relative one could be too long.
func rootFrom(escapedPath string) string {
	switch depth := strings.Count(escapedPath, "/") - 1; {
	case depth > maxDepth:
		return "/"
	case depth > 0:
		return strings.Repeat("../", depth)
	}
	return "./"
}

const maxDepth = 16

// markup is text that is HTML already. Other texts are escaped before they are put into a page.
type markup string

// fill replaces names in a page, such as {{.Title}}, by values. It escapes values that are texts,
// and inserts markup as it is. Names may stand between tags, or in the quotes of an attribute that
// may hold any text.
func fill(page string, namesAndValues ...any) markup {
	with := make([]string, len(namesAndValues))
	for i := 0; i < len(with); i += 2 {
		with[i] = "{{." + namesAndValues[i].(string) + "}}"
		if value, ok := namesAndValues[i+1].(markup); ok {
			with[i+1] = string(value)
		} else {
			with[i+1] = html.EscapeString(strings.ToValidUTF8(namesAndValues[i+1].(string),
				"\uFFFD"))
		}
	}
	return markup(strings.NewReplacer(with...).Replace(page))
}

// As strings, these need no copies in memory.
var (
	//go:embed layout.html
	layoutSource string
	//go:embed home.html
	homeFile string
	//go:embed preview.html
	previewFile string
	//go:embed guard.html
	guardFile string
	//go:embed problem.html
	problemFile string
	//go:embed manage.html
	manageFile string

	layoutFile = names.Replace(layoutSource)
)

// manifest returns the tag that names the manifest.
func manifest(root string) markup {
	return fill(`<link rel="manifest" href="{{.Root}}manage/manifest.webmanifest">`+"\n", "Root", root)
}

// OpenSearch returns the description of the site by which browsers open an alias that somebody
// types (OpenSearch 1.1). Its short name may have 16 characters.
func (s Site) OpenSearch() []byte {
	name := []rune(s.Name)
	return []byte(fill(`<?xml version="1.0" encoding="UTF-8"?>
<OpenSearchDescription xmlns="http://a9.com/-/spec/opensearch/1.1/">
<ShortName>{{.Name}}</ShortName>
<Description>Open a short link</Description>
<InputEncoding>UTF-8</InputEncoding>
<Url type="text/html" template="{{.Base}}/{searchTerms}"/>
</OpenSearchDescription>
`, "Name", string(name[:min(len(name), 16)]), "Base", s.Base))
}

// noIndex keeps a page out of search engines.
const noIndex markup = "<meta name=\"robots\" content=\"noindex\">\n"

// inMemory stands on every page of a service that forgets its links.
const inMemory markup = `<aside class="banner">This service keeps everything in memory: ` +
	"links are gone when it stops.</aside>\n"

func (s Site) layout(root, title string, head, main markup) []byte {
	if !strings.Contains(title, s.Name) {
		title += " – " + s.Name
	}
	if s.Memory {
		main = inMemory + main
	}
	return []byte(fill(layoutFile, "Root", root, "Title", title, "Head", head, "Main", main, "Name",
		s.Name, "Notice", notice(s.Notice)))
}

// linkInNotice matches a URL or a mail address in a notice, and the words and the colon before it
// that name it.
var linkInNotice = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:([^\s\pZ:.,;|·][^:.,;|·]*):\s+)?(https?://[^\s"<>]*[^\s"<>.,;:)]|` +
		`[\w.+-]+@[\w-]+(?:\.[\w-]+)+)`)
})

// notice returns a notice as markup, in which URLs and mail addresses are links.
func notice(text string) markup {
	if text == "" {
		return ""
	}
	var all markup
	end := 0 // of the link before
	for _, at := range linkInNotice().FindAllStringSubmatchIndex(text, -1) {
		name, to := text[at[4]:at[5]], text[at[4]:at[5]]
		if at[2] >= 0 {
			name = strings.TrimSpace(text[at[2]:at[3]])
		}
		if !strings.Contains(to, "://") {
			to = "mailto:" + to
		}
		all += fill(`{{.Before}}<a href="{{.To}}">{{.Name}}</a>`, "Before", text[end:at[0]],
			"To", to, "Name", name)
		end = at[1]
	}
	return fill("<footer class=\"quiet\">{{.Links}}{{.Rest}}</footer>\n", "Links", all, "Rest",
		text[end:])
}

// Manifest returns the web app manifest, which is at /manage/manifest.webmanifest. Its URLs are
// relative to that.
func (s Site) Manifest() []byte {
	start := "../"
	if s.Elsewhere {
		start = "../manage"
	}
	type icon struct {
		Source  string `json:"src"`
		Sizes   string `json:"sizes"`
		Type    string `json:"type"`
		Purpose string `json:"purpose"`
	}
	icons := []icon{
		{hashed("icon-192.png"), "192x192", "image/png", "any"},
		{hashed("icon-512.png"), "512x512", "image/png", "any"},
		{hashed("icon-maskable.png"), "512x512", "image/png", "maskable"},
	}
	text, err := json.Marshal(map[string]any{
		"id": start, "name": s.Name, "short_name": s.Name, "start_url": start, "scope": "../",
		"display": "minimal-ui", "icons": icons,
		"shortcuts": []map[string]string{{"name": "New link", "url": "../manage#/new"}},
		"share_target": map[string]any{"action": start, "method": "GET",
			"params": map[string]string{"title": "title", "text": "text", "url": "url"}},
	}, json.Deterministic(true))
	if err != nil {
		panic(err) // it has only texts
	}
	return text
}

// scripts returns the tags that load modules. The last one is the page's own, which imports the
// others.
func scripts(root string, modules ...string) markup {
	var tags markup
	for i, module := range modules {
		tag := `<link rel="modulepreload" href="{{.Root}}manage/{{.Name}}">`
		if i == len(modules)-1 {
			tag = `<script type="module" src="{{.Root}}manage/{{.Name}}"></script>`
		}
		tags += fill(tag+"\n", "Root", root, "Name", hashed(module))
	}
	return tags
}

// hidden returns the attribute that hides an element.
func hidden(is bool) markup {
	if is {
		return " hidden"
	}
	return ""
}

// items returns the items of a list of URLs.
func items(urls []string) (all markup) {
	for _, u := range urls {
		all += fill(`<li dir="ltr">{{.URL}}</li>`, "URL", u)
	}
	return all
}

// Site is what the pages of a service know about it.
type Site struct {
	Base    string // the start of the page's domain's short URLs, without a trailing slash
	Default string // the name of the default domain
	// Domain is the domain of a page, and Main the Base of the default domain. Both are "" on pages
	// of the default domain.
	Domain, Main string
	Schemes      string        // that owners may use besides http and https, with spaces between them
	OwnersOnly   bool          // only people who are signed in may shorten URLs
	DefaultTTL   time.Duration // lifetime of a link of somebody who is not signed in
	MaxTTL       time.Duration // longest lifetime of such a link
	Keep         time.Duration // how long a deleted link can be restored
	Memory       bool          // the service keeps everything in memory
	Name         string        // what the operator calls the service
	Notice       string        // what the operator says on every page; "": nothing
	Elsewhere    bool          // the home page is another website's
}

// Link is a link as pages show it.
type Link struct {
	Alias, ShortURL  string
	Name             string // its name in the API's paths
	LongURL          string
	ASCII            string    // the ASCII form of LongURL, which a redirect sends
	Targets          []string  // all that it may lead to
	Asked            string    // what a preview's request has after the alias that LongURL has too
	Created, Expires time.Time // zero: unknown; never
}

// Form is the content of the form on the home page. The zero Form is an empty form.
type Form struct {
	// These are as they were sent. Lifetime is in seconds; "" means the default.
	LongURL, Alias, Lifetime string

	// Title and Detail say what is wrong, if anything is. Field is the member of the API's request
	// that the problem is about, or "".
	Title, Detail, Field string

	Made *Link // the link that the form made or found
	New  bool  // the link did not exist before
}

// Home returns the home page.
func (s Site) Home(f Form) []byte {
	const focus markup = " autofocus"
	wrong := func(field string) (says string, invalid, focused markup) {
		if f.Title != "" && f.Field == field {
			return f.Detail, ` aria-invalid="true"`, focus
		}
		return "", "", ""
	}
	longURLError, longURLInvalid, _ := wrong("longUrl")
	aliasError, aliasInvalid, focusAlias := wrong("alias")
	lifeError, lifeInvalid, focusLife := wrong("expiresInSeconds")
	focusURL := focus
	if focusAlias+focusLife != "" {
		focusURL = ""
	}
	var problem markup
	if longURLInvalid+aliasInvalid+lifeInvalid == "" && f.Title != "" {
		problem = fill("<strong>{{.Title}}</strong>{{.Detail}}", "Title", f.Title, "Detail",
			f.Detail)
	}
	var member markup
	if s.Domain != "" {
		member = fill(`"domain": "{{.Domain}}",`+"\n       ", "Domain", s.Domain)
	}
	made, title, until, qr := Link{}, "", "", markup("")
	if f.Made != nil {
		made, title, until = *f.Made, "This URL had a link already", "Never expires"
		if f.New {
			title = "Your short link"
		}
		if !made.Expires.IsZero() {
			until = "Until " + date(made.Expires)
		}
		qr = fill(` src="api/links/{{.Name}}/qr"`, "Name", made.Name)
	}
	return s.layout("./", s.Name+": short links",
		fill(`<meta name="description" content="Paste a long URL, get a short one.">
<meta property="og:title" content="{{.Name}}">
<meta property="og:description" content="Paste a long URL, get a short one.">
<meta property="og:type" content="website">
<meta property="og:url" content="{{.Base}}/">
<meta property="og:image" content="{{.Base}}/manage/{{.Icon}}">
<link rel="search" type="application/opensearchdescription+xml" title="{{.Name}}" href="opensearch.xml">
`, "Name", s.Name, "Base", s.Base, "Icon", hashed("icon-512.png"))+manifest("./")+
			scripts("./", "page.js", "home.js"),
		fill(homeFile, "Name", s.Name, "Default", s.Default, "Domain", s.Domain, "Main", s.Main, "Schemes", s.Schemes,
			"Member", member, "Base", s.Base, "Keep", fmt.Sprint(int64(s.Keep/time.Second)), "Prefix",
			bare(s.Base)+"/", "Lifetimes", s.lifetimes(f.Lifetime),
			"LongURL", f.LongURL, "LongURLError", longURLError, "LongURLInvalid", longURLInvalid,
			"Alias", f.Alias, "AliasError", aliasError, "AliasInvalid", aliasInvalid,
			"LifeError", lifeError, "LifeInvalid", lifeInvalid, "Problem", problem,
			"FocusURL", focusURL, "FocusAlias", focusAlias, "FocusLife", focusLife,
			"ResultTitle", title, "ShortURL", made.ShortURL, "ShortText", bare(made.ShortURL),
			"ResultURL", made.LongURL,
			"ResultAlias", made.Alias, "ResultName", made.Name, "Until", until, "QRSource", qr,
			"HideForm", hidden(s.OwnersOnly), "HideMembers", hidden(!s.OwnersOnly), "HideResult",
			hidden(f.Made == nil)))
}

// lifetimes returns the options for a lifetime: the default, and some usual ones that the service
// allows.
func (s Site) lifetimes(chosen string) markup {
	const day = 24 * time.Hour
	options := fill(`<option value="">{{.Words}}</option>`, "Words", words(s.DefaultTTL))
	for _, d := range []time.Duration{time.Hour, day, 7 * day, 30 * day, 90 * day, 365 * day} {
		if d > s.MaxTTL || d == s.DefaultTTL {
			continue
		}
		seconds, selected := fmt.Sprint(int64(d/time.Second)), markup("")
		if seconds == chosen {
			selected = " selected"
		}
		options += fill(`<option value="{{.Seconds}}"{{.Selected}}>{{.Words}}</option>`, "Seconds",
			seconds, "Selected", selected, "Words", words(d))
	}
	return options
}

// words returns a lifetime in words, in the largest unit that divides it.
func words(d time.Duration) string {
	for _, unit := range []struct {
		is   time.Duration
		name string
	}{{365 * 24 * time.Hour, "year"}, {24 * time.Hour, "day"}, {time.Hour, "hour"},
		{time.Minute, "minute"}, {time.Second, "second"}} {
		if n := d / unit.is; n > 0 && d%unit.is == 0 {
			if n == 1 {
				return "1 " + unit.name
			}
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return d.String()
}

// Manage returns the page on which people manage their links, for a request of this escaped path.
// They may sign in with the OpenID Connect provider of this issuer, as its client clientID, and ask
// for these scopes. All three are "" if there is no provider.
func (s Site) Manage(escapedPath, issuer, clientID, scopes string) []byte {
	root := rootFrom(escapedPath)
	head := noIndex + manifest(root) + fill(`<link rel="stylesheet" href="{{.Root}}manage/{{.Name}}">`+"\n", "Root",
		root, "Name", hashed("manage.css")) +
		scripts(root, "page.js", "session.js", "elements.js", "list.js", "manage.js")
	return s.layout(root, "Your links – "+s.Name, head, fill(manageFile, "Root", root, "Base", s.Base,
		"Default", s.Default, "Name", s.Name,
		"Schemes", s.Schemes,
		"Issuer", issuer, "Client", clientID, "Scopes", scopes))
}

// Preview returns the page that shows where a link leads, for a request of this escaped path.
func (s Site) Preview(escapedPath string, l Link) []byte {
	root := rootFrom(escapedPath)
	before, host, after := split(l.LongURL)
	heading := cmp.Or(host, "An address of another kind")
	expires := "never"
	if !l.Expires.IsZero() {
		expires = date(l.Expires)
	}
	return s.layout(root, "Preview of "+bare(l.ShortURL), noIndex,
		fill(previewFile, "Root", root, "Alias", l.Alias, "Name", l.Name, "Asked", l.Asked,
			"ShortText", bare(l.ShortURL), "Heading", heading, "Before", before, "Host", host, "After", after,
			"Targets", items(l.Targets), "HideTargets", hidden(len(l.Targets) < 2),
			"ASCII", l.ASCII, "HideASCII", hidden(l.ASCII == l.LongURL), "HideCreated",
			hidden(l.Created.IsZero()), "Created", date(l.Created), "Expires", expires))
}

// split returns the part of a URL before its host, the host with its port, and the part after it. A
// row that another program wrote may have a user name, which is meant to deceive.
func split(longURL string) (before, host, after string) {
	start := strings.Index(longURL, "://") + 3
	if start < 3 {
		return longURL, "", ""
	}
	end := len(longURL)
	if i := strings.IndexAny(longURL[start:], `/?#\`); i >= 0 {
		end = start + i
	}
	start += strings.LastIndexByte(longURL[start:end], '@') + 1
	return longURL[:start], longURL[start:end], longURL[end:]
}

// Guarded is a guarded link for its page, which says nothing of the target.
type Guarded struct {
	Link
	Password bool   // it has one
	Source   string // of the visitor; "": none
	Wrong    string // what is wrong with the password that was sent; "": nothing
}

// Guard returns the page of a guarded link, for a request of this escaped path.
func (s Site) Guard(escapedPath string, l Guarded) []byte {
	root := rootFrom(escapedPath)
	title, lead := "Open this link?", "It may be opened a limited number of times: opening it counts."
	if l.Password {
		title, lead = "This link has a password", "Type it to open the link."
	}
	var query string
	if l.Source != "" {
		query = "?" + url.Values{"utm_source": {l.Source}}.Encode()
	}
	var invalid markup
	if l.Wrong != "" {
		invalid = ` aria-invalid="true"`
	}
	return s.layout(root, title, noIndex, fill(guardFile, "Root", root, "ShortURL",
		bare(l.ShortURL), "Title", title, "Lead", lead, "Name", l.Name, "Query", query,
		"HidePassword", hidden(!l.Password), "Wrong", l.Wrong, "Invalid", invalid, "Require",
		map[bool]markup{true: " required autofocus"}[l.Password]))
}

// Offer is a link that the page of an error offers to make. The zero Offer offers nothing.
type Offer struct {
	Alias string
	// Domain is the link's, and Main the Base of the default domain, where people sign in. Both are
	// "" for a link of the default domain.
	Domain, Main string
	Again        string // where to try again; "": at the same address
}

// Problem returns the page that shows an error, for a request of this escaped path.
func (s Site) Problem(escapedPath string, status int, title, detail string, offer Offer) []byte {
	root := rootFrom(escapedPath)
	start, query := root, url.Values{"alias": {offer.Alias}}
	if offer.Domain != "" {
		start = offer.Main + "/"
		query.Set("domain", offer.Domain)
	}
	again := slices.Contains([]int{429, 503}, status) || offer.Again != ""
	return s.layout(root, title, noIndex,
		fill(problemFile, "Root", root, "Again", offer.Again, "Status", fmt.Sprint(status), "Title", title, "Detail",
			detail, "Start", start, "Query", query.Encode(),
			"HideOffer", hidden(offer.Alias == ""), "HideAgain", hidden(!again)))
}

// date returns a time in UTC, as a text for people whose time zone is not known.
func date(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

// bare returns a URL without its scheme, as people read it.
func bare(shortURL string) string {
	if _, after, ok := strings.Cut(shortURL, "://"); ok {
		return after
	}
	return shortURL
}

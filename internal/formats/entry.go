package formats

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
)

// column is what a column of a CSV file or a member of a JSON object says about a link.
type column int

const (
	target column = iota
	code          // the alias, perhaps in slashes
	short         // a short URL; its path is the alias
	custom        // further short URLs
	title
	tags
	owner
	gone // where it leads after its end
	hash // of a password
	// Times.
	created
	starts
	expires
	updated
	last
	kept // the end that it had before it was used up
	// Whole numbers.
	status
	opens // how often it may be opened
	left
	visits
	bots
	// True or false.
	disabled
	locked

	domain
	forward  // names
	rules    // a list, as JSON
	password // what the link asks for

	// What only other programs have.
	limit     // how often the link may be opened
	query     // whether the query is appended to the target
	ios       // the target for iOS
	android   // and for Android
	countries // the targets by country
	variants  // targets by chance
	schedules // targets by time

	columns // how many there are
)

// columnNames are the names of each column in a format, as normal returns them. If a file has
// several of them, the first one counts.
type columnNames [columns][]string

// normal returns a name in lower case, without spaces, hyphens and underscores.
func normal(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \u00a0_-", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// member is a member of a link in our own formats, which is also a column.
type member struct {
	name  string
	read  column // columns: it is not read
	value func(w *Writer, rec *Record) any
}

// members are all members of a link in our own formats, in the order in which they are written.
var members = []member{
	{"alias", code, func(_ *Writer, rec *Record) any { return string(rec.Link.Alias()) }},
	{"shortUrl", short, func(w *Writer, rec *Record) any { return w.rules.ShortURL(rec.Link) }},
	{"longUrl", target, func(_ *Writer, rec *Record) any { return rec.Link.LongURL }},
	{"createdAtUtc", created, func(_ *Writer, rec *Record) any { return rec.Link.CreatedAt }},
	{"expiresAtUtc", expires, func(_ *Writer, rec *Record) any { return rec.Link.ExpiresAt }},
	{"updatedAtUtc", updated, func(_ *Writer, rec *Record) any { return rec.Link.UpdatedAt }},
	{"statusCode", status, func(_ *Writer, rec *Record) any { return int64(rec.Link.StatusCode) }},
	{"disabled", disabled, func(_ *Writer, rec *Record) any { return rec.Link.Disabled }},
	{"shared", columns, func(_ *Writer, rec *Record) any { return rec.Link.Shared }},
	{"deletedAtUtc", columns, func(_ *Writer, rec *Record) any { return rec.Link.DeletedAt }},
	{"title", title, func(_ *Writer, rec *Record) any { return rec.Link.Title }},
	{"tags", tags, func(_ *Writer, rec *Record) any { return rec.Link.Tags }},
	{"owner", owner, func(_ *Writer, rec *Record) any { return rec.Link.Owner }},
	{"clicks", visits, func(_ *Writer, rec *Record) any { return rec.Total.Clicks }},
	{"bots", bots, func(_ *Writer, rec *Record) any { return rec.Total.Bots }},
	{"lastClickAtUtc", last, func(_ *Writer, rec *Record) any { return rec.Total.Last }},
	{"domain", domain, func(_ *Writer, rec *Record) any { return string(rec.Link.Name.Domain()) }},
	{"forward", forward, func(_ *Writer, rec *Record) any { return rec.Link.Forward.Names() }},
	{"locked", locked, func(_ *Writer, rec *Record) any { return rec.Link.Locked }},
	{"startsAtUtc", starts, func(_ *Writer, rec *Record) any { return rec.Link.StartsAt }},
	{"goneUrl", gone, func(_ *Writer, rec *Record) any { return string(rec.Link.GoneURL) }},
	{"rules", rules, func(_ *Writer, rec *Record) any { return Rules(rec.Link.Rules) }},
	{"password", password, func(_ *Writer, rec *Record) any { return rec.Link.Password != "" }},
	{"maxOpens", opens, func(_ *Writer, rec *Record) any {
		return ifLimited(rec.Link, rec.Link.MaxOpens)
	}},
	{"opensLeft", left, func(_ *Writer, rec *Record) any {
		return ifLimited(rec.Link, rec.Link.OpensLeft)
	}},
	{"expiresAtUtcKept", kept, func(_ *Writer, rec *Record) any { return rec.Link.EndKept }},
	{"passwordHash", hash, func(w *Writer, rec *Record) any {
		if w.WithoutHashes {
			return ""
		}
		return rec.Link.Password
	}},
}

// ifLimited returns a number about openings, or "" for a link that may be opened at any time.
func ifLimited(l link.Link, n int) any {
	if l.MaxOpens == 0 {
		return ""
	}
	return n
}

// Rules are the rules of a link. As JSON, they are decoded up to the first that is too many.
type Rules []link.TargetRule

// UnmarshalJSONFrom decodes a list, or null.
func (r *Rules) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	*r = Rules{} // which an empty list is, other than null
	return DecodeFirst(in, (*[]link.TargetRule)(r), link.MaxTargetRules+1)
}

// ownNames returns the names of the members that are read.
func ownNames() (names columnNames) {
	for _, m := range members {
		if m.read < columns {
			names[m.read] = []string{normal(m.name)}
		}
	}
	return names
}

const (
	maxCustom = 100           // how many other short URLs an entry may have
	maxFew    = maxCustom + 1 // how many texts of a list are kept: one more than any may have
)

// entry is a row or an object of a file, which becomes one record or several.
type entry struct {
	Record
	own   bool            // the format is our own: records may lack an alias, and nothing is cut
	names [columns]string // as the file has them
	texts [columns]string // the values; "" if there is none
	// Lists.
	tags, custom, forward []string
	countries             []countryTarget
}

// fail sets the error of the record, unless the record has one.
func (e *entry) fail(format string, args ...any) {
	if e.Err == nil {
		e.Err = RecordError(fmt.Sprintf(format, args...))
	}
}

// records returns the records of the entry: one for each of its aliases. Only the first one has the
// clicks. needed is the name of the column with the target.
func (e *entry) records(needed string) []Record {
	e.fill()
	if e.Link.LongURL == "" {
		e.fail("There is no %s, which is where the link leads to.", needed)
	}
	if len(e.custom) > maxCustom {
		e.fail("There are more than %d custom short URLs.", maxCustom)
	}
	aliases := e.aliases()
	if len(aliases) == 0 {
		if aliases = []link.Name{""}; !e.own {
			e.fail("There is no alias: neither a short code nor a short URL with a path.")
		}
	}
	if e.Err != nil {
		return []Record{{Line: e.Line, Entry: e.Entry, Err: e.Err,
			Link: link.Link{Name: aliases[0]}}}
	}
	var all []Record
	for _, a := range aliases {
		e.Link.Name = a
		all = append(all, e.Record)
		e.Total = clicks.Total{}
	}
	return all
}

// fill sets the fields of the record, except the name of its link.
func (e *entry) fill() {
	l := &e.Link
	l.LongURL, l.Title, l.Owner = e.texts[target], e.texts[title], e.texts[owner]
	e.Domain, l.GoneURL = e.texts[domain], link.Fallback(e.texts[gone])
	if e.own {
		e.guard()
	}
	var err error
	if l.Forward, err = link.ParseForward(e.forward); err != nil {
		e.fail(`What is forwarded may be "query" and "path", not %s.`,
			quoted(strings.Join(e.forward, ",")))
	}
	if text := e.texts[rules]; !nothing(text) && text != "[]" {
		err := json.Unmarshal([]byte(text), (*Rules)(&l.Rules), json.RejectUnknownMembers(true))
		const form = `must be a JSON list such as [{"countries":["DE"],"longUrl":"https://a.example/"}]`
		var wrong *json.SemanticError
		switch {
		case errors.As(err, &wrong) && wrong.JSONPointer != "":
			place := e.names[rules]
			for token := range wrong.JSONPointer.Tokens() {
				if place == e.names[rules] {
					token = "[" + token + "]"
				} else {
					token = "." + token
				}
				place += token
			}
			e.fail("%s %s; %s is wrong.", quoted(e.names[rules]), form, quoted(place))
		case err != nil:
			e.fail("%s %s.", quoted(e.names[rules]), form)
		}
	}
	l.CreatedAt, l.UpdatedAt = e.date(created, leftCreated), e.date(updated, 0)
	l.ExpiresAt, l.StartsAt = e.time(expires), e.time(starts)
	e.Total.Clicks, e.Total.Bots = e.count(visits), e.count(bots)
	e.Total.Last = e.date(last, leftClicks)
	if code := e.texts[status]; !nothing(code) {
		n, ok := parseWhole(code)
		if l.StatusCode = int(n); !ok || n > 999 { // an int may have 32 bits
			e.fail("%s is %s; it must be 301, 302, 307 or 308.",
				quoted(e.names[status]), quoted(code))
		}
	}
	l.Disabled, l.Locked = e.bool(disabled), e.bool(locked)
	if !e.own && !nothing(e.texts[password]) {
		l.Disabled = true // enabled, it would lead everybody to its target
		e.Left |= leftPassword
	}
	if !nothing(e.texts[limit]) {
		e.Left |= leftLimit
	}
	if len(e.tags) > 0 {
		l.Tags = e.tags
	}
	if !e.own {
		l.Title, l.Tags = fit(l.Title, link.MaxTitle), fitAll(l.Tags)
		e.otherRules()
	}
}

// guard sets what the link asks for, as our own formats have it.
func (e *entry) guard() {
	g := &e.Link.Guard
	if g.Password = e.texts[hash]; g.Password == "" && e.bool(password) {
		e.fail("The link has a password, and the file lacks its passwordHash. Export it with a key " +
			"that may write.")
	}
	if g.Password != "" && e.texts[password] != "" && !e.bool(password) {
		e.fail("The link has a passwordHash, and password is false. Leave one of the two out.")
	}
	if g.Password != "" && !access.ValidHash(g.Password) {
		e.fail("%s must be the hash of an export: Argon2id of at most 19 MiB and 2 passes.",
			quoted(e.names[hash]))
	}
	g.MaxOpens, g.EndKept = e.whole(opens), e.time(kept)
	if g.MaxOpens == 0 && e.texts[opens]+e.texts[left] != "" {
		e.fail("A link with opensLeft has maxOpens, which is 1 or more.")
	}
	if g.OpensLeft = g.MaxOpens; e.texts[left] != "" {
		g.OpensLeft = e.whole(left)
	}
}

// whole returns a number about openings.
func (e *entry) whole(c column) int {
	n, ok := parseWhole(e.texts[c])
	if e.texts[c] != "" && !ok || n > math.MaxInt32 {
		e.fail("%s is %s; it must be a whole number, 0 or more.", quoted(e.names[c]), quoted(e.texts[c]))
	}
	return int(n)
}

// date returns a date in the past. One that cannot be read costs the date, and not the link. One
// before 1970 is what some programs write for none, such as 0001-01-01.
func (e *entry) date(c column, left Left) time.Time {
	t, ok := parseTime(e.texts[c])
	if !ok && !nothing(e.texts[c]) {
		e.Left |= left
	}
	if !ok || t.Unix() < 0 {
		return time.Time{}
	}
	return t
}

// count returns a number of clicks. One that cannot be read costs the number, and not the link.
func (e *entry) count(c column) int64 {
	n, ok := parseWhole(e.texts[c])
	if !ok && !nothing(e.texts[c]) {
		e.Left |= leftClicks
	}
	return n
}

// time returns when the link ends or starts. If that cannot be read, it is an error, because the
// link would lead somewhere when it must not.
func (e *entry) time(c column) time.Time {
	text := e.texts[c]
	if nothing(text) {
		return time.Time{}
	}
	t, ok := parseTime(text)
	if !ok {
		e.fail("%s is %s; a time is written as 2030-01-31T12:00:00Z or 2030-01-31 12:00:00.",
			quoted(e.names[c]), quoted(text))
	}
	return t
}

// bool returns whether the link is disabled or locked.
func (e *entry) bool(c column) bool {
	is, ok := parseBool(e.texts[c])
	if !ok && !nothing(e.texts[c]) {
		e.fail("%s is %s; it must be true or false.", quoted(e.names[c]), quoted(e.texts[c]))
	}
	return is
}

// aliases returns the aliases of the entry, each once.
func (e *entry) aliases() (aliases []link.Name) {
	seen := map[link.Name]bool{"": true}
	add := func(code string) {
		if a := link.Name(code); !seen[a] {
			seen[a] = true
			aliases = append(aliases, a)
		}
	}
	if e.texts[code] != "" {
		add(e.texts[code])
	} else {
		add(pathOf(e.texts[short]))
	}
	for _, short := range e.custom {
		add(pathOf(short))
	}
	return aliases
}

// pathOf returns the path of a short URL without the slashes at its ends. The URL may lack its
// scheme, and its host: then it is the path. The whole path is the alias; its last segment alone
// would be another alias.
func pathOf(short string) string {
	if !strings.ContainsAny(short, "/.:?#") {
		return short
	}
	if _, after, ok := strings.Cut(short, "://"); ok {
		short = after
	}
	if i := strings.IndexAny(short, "?#"); i >= 0 {
		short = short[:i]
	}
	_, path, _ := strings.Cut(short, "/")
	return strings.Trim(path, "/")
}

// fit returns a text of another program, without control characters and cut to most characters.
func fit(text string, most int) string {
	var runes []rune
	for words := range strings.FieldsFuncSeq(text, unicode.IsControl) {
		if len(runes) > 0 {
			runes = append(runes, ' ')
		}
		for _, r := range words {
			if len(runes) >= most {
				return strings.TrimSpace(string(runes[:most]))
			}
			runes = append(runes, r)
		}
	}
	return strings.TrimSpace(string(runes))
}

// fitAll returns the first tags of another program, as many as a link may have, each once and made
// fit.
func fitAll(tags []string) (all []string) {
	for _, tag := range tags {
		if len(all) == link.MaxTags {
			break
		}
		if tag = fit(tag, link.MaxTag); tag != "" && !slices.Contains(all, tag) {
			all = append(all, tag)
		}
	}
	return all
}

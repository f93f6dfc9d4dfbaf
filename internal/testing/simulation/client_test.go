//go:build unix

package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// key is a credential.
type key struct {
	owner, id, secret string
	groups            []string // of a member
	as                string   // the group for which a member acts
	// revoking is when somebody began to revoke the key, and revoked when that was acknowledged.
	// Both are real times, in Unix nanoseconds.
	revoking, revoked int64
}

var admin = &key{owner: "admin", secret: adminKey}

// acts returns the owner whose links the key makes, claims and lists.
func (k *key) acts() string { return cmp.Or(k.as, k.owner) }

// to adds to what is sent for whom a member acts.
func (k *key) to(send map[string]any) map[string]any {
	if k != nil && k.as != "" {
		send["owner"] = k.as
	}
	return send
}

// use is one use of a key.
type use struct {
	key *key
	event
}

// body has the members of responses.
type body struct {
	Alias, LongURL, ClaimToken, Type, Key, ID string
	Host                                      string
	ExpiresAtUTC, StartsAtUTC, DeletedAtUTC   time.Time
	Owner, Title, GoneURL, NextCursor         *string
	Tags                                      []string
	Rules                                     []struct{ LongURL string }
	Disabled, Shared, Locked                  bool
	MaxOpens, OpensLeft                       int
	Items                                     []body
	At                                        time.Time // of a change in a history
	By, What                                  string
	Before                                    map[string]any
	Results                                   []struct {
		Alias, Result string
		Status        int
		Link, Problem body
	}
}

// problem returns the name of the kind of problem in a response.
func problem(b body) string { return strings.TrimPrefix(b.Type, "/problems/") }

func (b body) view() view {
	v := view{alias: b.Alias, url: b.LongURL, tags: strings.Join(b.Tags, " "), disabled: b.Disabled,
		shared: b.Shared, locked: b.Locked, max: b.MaxOpens, left: b.OpensLeft}
	set(&v.owner, b.Owner)
	set(&v.title, b.Title)
	set(&v.gone, b.GoneURL)
	if len(b.Rules) > 0 {
		v.rule = b.Rules[0].LongURL
	}
	if !b.ExpiresAtUTC.IsZero() {
		v.end = b.ExpiresAtUTC.Unix()
	}
	if !b.StartsAtUTC.IsZero() {
		v.starts = b.StartsAtUTC.Unix()
	}
	if !b.DeletedAtUTC.IsZero() {
		v.deleted = b.DeletedAtUTC.Unix()
	}
	return v
}

// do sends a request with a credential, which may be nil, and fills in the event. What it sends is
// a file as a string, or anything else as JSON. It returns the body of the response.
func (r *round) do(e *event, n *node, k *key, method, path string, send any) body {
	var data []byte
	if file, ok := send.(string); ok {
		data = []byte(file)
	} else if send != nil {
		data, _ = json.Marshal(send)
	}
	e.sent = string(data)
	r.count.requests.Add(1)
	run := n.run.Load()
	e.node, e.run, e.jump, e.from, e.call = n, run, n.jump.Load(), n.clock().Unix(), r.real()
	var got body
	e.status, got = func() (int, body) {
		req, err := http.NewRequest(method, *n.url.Load()+r.spelled(path, n), bytes.NewReader(data))
		if err != nil {
			panic(err)
		}
		if r.domain != "" {
			req.Host = r.domain
		}
		if data != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		if k != nil {
			req.Header.Set("Authorization", "Bearer "+k.secret)
		}
		req.Header.Set("User-Agent", browser) // otherwise it would count as a bot
		if e.match != "" {
			req.Header.Set("If-Match", e.match)
		}
		resp, err := r.client.Do(req)
		if err != nil {
			return 0, body{}
		}
		defer resp.Body.Close()
		var got body
		if strings.Contains(resp.Header.Get("Content-Type"), "json") {
			if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
				return 0, body{} // the process was killed in the middle of its response
			}
		}
		e.etag, e.target = resp.Header.Get("ETag"), resp.Header.Get("Location")
		return resp.StatusCode, got
	}()
	e.ret, e.until, e.latest = r.real(), n.clock().Unix(), r.latest().Unix()
	if n.run.Load() != run { // which of its processes has responded is not known
		e.run = nil
	}
	alias, ok := strings.CutPrefix(path, "/")
	if ok = ok && method == "GET" && !strings.Contains(alias, "/"); e.op == "open" {
		alias, ok = e.alias, true
	}
	if ok {
		run.clicked(r.name(alias), e.status)
	}
	e.problem, e.told = problem(got), got.view()
	if e.ret-e.call > int64(waits) {
		n.mayHaveFailed(stateReads, stateWrites)
	}
	if e.slow() {
		n.mayHaveFailed(append(strings.Split(e.alias, ","), e.told.alias, keyReads)...)
	}
	if !e.known() {
		r.count.unknown.Add(1)
		if e.status != 0 && e.status != 503 {
			r.violation("%v", e)
		}
	}
	if e.status == 401 && k != nil && k.id == "" {
		r.violation("%v: the credential cannot be revoked", e)
	}
	if k != nil && k.id != "" {
		r.mu.Lock()
		r.uses = append(r.uses, use{k, *e})
		r.mu.Unlock()
	}
	return got
}

func (r *round) record(e event) {
	if e.status == 401 || e.op == "shorten" && e.problem == "expires-at-utc" &&
		*e.change.end < e.until+60 {
		return // its key was revoked, or its chosen end has come too close; nothing was done
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.problem == "target-blocked" && e.op != "edit" {
		r.refused = append(r.refused, e) // before anything was read or written
		return
	}
	r.history = append(r.history, e)
	if e.etag != "" {
		r.etags[e.alias] = e.etag
	}
	if a := e.told.alias; a != "" {
		if !slices.Contains(r.aliases, a) {
			r.aliases = append(r.aliases, a)
		}
		if r.owner[a] = e.told.owner; e.op == "shorten" {
			r.owner[a] = e.by
		}
		if e.op == "edit" && e.told.left > 0 {
			r.guarded = append(r.guarded, a)
		}
	}
}

const (
	urls   = 2 // the number of URLs that a round's clients shorten
	chosen = 2 // the number of aliases that they choose
)

func (r *round) url(i int) string {
	return fmt.Sprintf("https://%d.example.com/%s", i, r.prefix)
}
func (r *round) chosen(i int) string         { return fmt.Sprintf("own-%s-%d", r.prefix, i) }
func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// someAlias returns the alias of a link that somebody was told of, or one that many clients choose.
// A recent link is more likely.
func (r *round) someAlias(rng *rand.Rand) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if few := r.aliases[max(0, len(r.aliases)-2):]; r.change && len(few) > 0 {
		return pick(rng, few)
	}
	switch p := rng.IntN(10); {
	case p < 4 || len(r.aliases) == 0:
		return r.chosen(rng.IntN(chosen))
	case p < 8:
		return pick(rng, r.aliases[max(0, len(r.aliases)-8):])
	}
	return pick(rng, r.aliases)
}

// someGuarded returns the alias of a link that could be opened only so often, mostly the last one.
func (r *round) someGuarded(rng *rand.Rand) string {
	r.mu.Lock()
	all := r.guarded
	r.mu.Unlock()
	if len(all) == 0 || rng.IntN(6) == 0 {
		return r.someAlias(rng)
	}
	return all[len(all)-1]
}

// someKeyOf returns a key for a link: any, or mostly that of its owner.
func (r *round) someKeyOf(rng *rand.Rand, alias string) *key {
	r.mu.Lock()
	keys, p := r.keys[r.owner[alias]], rng.IntN(10)
	r.mu.Unlock()
	if !r.change || p < 2 || len(keys) == 0 {
		return r.someKey(rng)
	}
	if p < 7 && !r.team || p < 4 {
		return admin
	}
	return r.oneOf(rng, keys)
}

// oneOf returns a key of an owner: the newest, or that of any member of the team.
func (r *round) oneOf(rng *rand.Rand, keys []*key) *key {
	if keys[0].as != "" {
		return pick(rng, keys)
	}
	return keys[len(keys)-1]
}

// someKey returns an owner's key, which sometimes was revoked, or the admin's key.
func (r *round) someKey(rng *rand.Rand) *key {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner := rng.IntN(len(r.owners) + 1)
	if owner == len(r.owners) {
		return admin
	}
	keys := r.keys[r.owners[owner]]
	if rng.IntN(5) > 0 {
		return r.oneOf(rng, keys)
	}
	return pick(rng, keys)
}

// shortens is the number of acts, of 100, that list or shorten.
const shortens = 30

// act performs one act of a client.
func (r *round) act(rng *rand.Rand) {
	n := pick(rng, r.nodes)
	for n.down.Load() {
		time.Sleep(time.Millisecond) // there may be only one node
		n = pick(rng, r.nodes)
	}
	p := rng.IntN(100)
	// A list drops rows whose create is not a minute old, by the clock of the node that is ahead.
	if p < 3 {
		r.quiet.Lock()
		defer r.quiet.Unlock()
		r.list(n, r.someKey(rng))
		return
	}
	r.quiet.RLock()
	defer r.quiet.RUnlock()
	if r.blocking && r.changeHosts(n, rng) {
		return
	}
	if r.opening {
		switch rng.IntN(10) {
		case 0, 1, 2, 3:
			r.open(n, r.someGuarded(rng))
			return
		case 4:
			r.limit(n, rng)
			return
		}
	}
	switch rng.IntN(24) {
	case 0:
		r.bulk(n, r.someKey(rng), rng)
		return
	case 1, 2:
		r.importFile(n, r.someKey(rng), rng)
		return
	}
	if r.change {
		p = often(p)
	}
	switch {
	case p < 20:
		r.shorten(n, nil, r.someURL(rng), "", r.someEnd(rng, n))
	case p < shortens:
		k := r.someKey(rng)
		end := r.someEnd(rng, n)
		if rng.IntN(2) == 0 {
			end = 0
		}
		r.shorten(n, k, r.someURL(rng), "", end)
	case p < 37:
		var k *key
		if rng.IntN(4) > 0 {
			k = r.someKey(rng)
		}
		r.shorten(n, k, r.someURL(rng), r.chosen(rng.IntN(chosen)), r.someEnd(rng, n))
	case p < 60:
		r.follow(n, r.someAlias(rng))
	case p < 65:
		r.read(n, r.someKey(rng), r.someAlias(rng))
	case p < 68:
		a := r.someAlias(rng)
		r.past(n, r.someKeyOf(rng, a), a, false)
	case p < 80:
		a := r.someAlias(rng)
		r.edit(n, r.someKeyOf(rng, a), a, rng)
	case p < 86:
		k, a := r.someOwn(rng)
		r.delete(n, k, a)
	case p < 92:
		k, a := r.someOwn(rng)
		r.restore(n, k, a)
	case p < 97:
		r.claim(n, r.someKey(rng), rng)
	default:
		r.renewKey(n, rng)
	}
}

// often makes changes of links more likely, and reads of links less likely.
func often(p int) int {
	for _, to := range [][2]int{{7, 3}, {22, 20}, {30, 30}, {34, 37}, {36, 60}, {41, 65}, {70, 68},
		{80, 80}, {91, 86}, {97, 92}} {
		if p < to[0] {
			return to[1]
		}
	}
	return p
}

// someURL returns a URL, mostly the same one where links are changed often.
func (r *round) someURL(rng *rand.Rand) string {
	if r.change && rng.IntN(4) > 0 {
		return r.url(0)
	}
	return r.url(rng.IntN(urls))
}

// someEnd returns an end of a link, mostly little later than the earliest possible one.
func (r *round) someEnd(rng *rand.Rand, n *node) int64 {
	ends := []time.Duration{0, 0, 20 * time.Second, time.Hour}
	if r.change {
		ends = ends[1:]
	}
	return n.clock().Add(63*time.Second + pick(rng, ends)).Unix()
}

// someOwn returns a link, and a key or the link's claim token, if it has one.
func (r *round) someOwn(rng *rand.Rand) (k *key, alias string) {
	a := r.someAlias(rng)
	k = r.someKeyOf(rng, a)
	r.mu.Lock()
	defer r.mu.Unlock()
	if token := r.tokens[a]; token != "" && rng.IntN(2) == 0 {
		k = &key{secret: token}
	}
	return k, a
}

// wish returns the event of a shorten, before it is sent, and what is to be sent.
func (r *round) wish(k *key, longURL, alias string, end int64) (e event, send map[string]any) {
	e = event{op: "shorten", alias: alias, change: change{url: &longURL, end: &end}}
	send = map[string]any{"longUrl": longURL}
	if end != 0 {
		send["expiresAtUtc"] = time.Unix(end, 0).UTC()
	}
	if alias != "" {
		send["alias"] = alias
	}
	if k != nil {
		e.by = k.acts()
	}
	return e, r.in(k.to(send))
}

func (r *round) shorten(n *node, k *key, longURL, alias string, end int64) event {
	e, send := r.wish(k, longURL, alias, end)
	got := r.do(&e, n, k, "POST", "/api/shorten", send)
	if got.ClaimToken != "" {
		r.mu.Lock()
		r.tokens[got.Alias] = got.ClaimToken
		r.mu.Unlock()
	}
	r.record(e)
	return e
}

func (r *round) follow(n *node, alias string) event {
	e := event{op: "follow", alias: alias}
	r.do(&e, n, nil, "GET", "/"+alias, nil)
	r.record(e)
	return e
}

// open opens a link as a program does.
func (r *round) open(n *node, alias string) event {
	e := event{op: "open", alias: alias}
	r.do(&e, n, nil, "POST", "/api/links/"+alias+"/open", map[string]any{})
	r.count.opens.Add(1)
	if e.status == 303 {
		r.count.opened.Add(1)
	}
	r.record(e)
	return e
}

// limit sets how often a link may be opened that leads somewhere, mostly, or ends that.
func (r *round) limit(n *node, rng *rand.Rand) {
	a, k := r.someGuarded(rng), admin
	r.mu.Lock()
	if few := r.aliases[max(0, len(r.aliases)-2):]; len(few) > 0 && rng.IntN(3) == 0 {
		a = pick(rng, few)
	}
	if keys := r.keys[r.owner[a]]; len(keys) > 0 && rng.IntN(2) == 0 {
		k = keys[len(keys)-1]
	}
	r.mu.Unlock()
	r.setMaxOpens(n, k, a, max(0, rng.IntN(6)-1))
}

// setMaxOpens sets how often a link may be opened from now on; 0: no limit.
func (r *round) setMaxOpens(n *node, k *key, alias string, opens int) event {
	e := about("edit", k, alias)
	e.change.max = &opens
	r.do(&e, n, k, "PATCH", "/api/links/"+alias, map[string]any{"maxOpens": numberOrNull(opens)})
	r.record(e)
	return e
}

func numberOrNull(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

// about returns an event of a credential and a link.
func about(op string, k *key, alias string) event {
	return event{op: op, by: k.owner, groups: k.groups, token: k.owner == "", alias: alias}
}

func (r *round) read(n *node, k *key, alias string) event {
	e := about("read", k, alias)
	r.do(&e, n, k, "GET", "/api/links/"+alias, nil)
	r.record(e)
	return e
}

// past reads the history of a link. last says that the link is not changed any more.
func (r *round) past(n *node, k *key, alias string, last bool) event {
	e := about("history", k, alias)
	e.last = last
	for _, c := range r.do(&e, n, k, "GET", "/api/links/"+alias+"/history", nil).Items {
		p := past{at: c.At.Unix(), by: c.By, what: c.What}
		if text, ok := c.Before["deletedAtUtc"].(string); ok {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				r.violation("%v in a history", err)
			}
			p.deleted = at.Unix()
			delete(c.Before, "deletedAtUtc")
		}
		if end, ok := c.Before["expiresAtUtc"]; ok {
			p.end = noEnd
			if text, ok := end.(string); ok {
				at, err := time.Parse(time.RFC3339, text)
				if err != nil {
					r.violation("%v in a history", err)
				}
				p.end = at.Unix()
			}
			delete(c.Before, "expiresAtUtc")
		}
		before, _ := json.Marshal(c.Before)
		p.before = string(before)
		e.past = append(e.past, p)
	}
	r.record(e)
	return e
}

func (r *round) edit(n *node, k *key, alias string, rng *rand.Rand) {
	e, send := about("edit", k, alias), map[string]any{}
	if rng.IntN(4) == 0 {
		e.change.url = new(r.someURL(rng))
		send["longUrl"] = *e.change.url
	}
	if rng.IntN(3) == 0 {
		e.change.end = new(r.someEnd(rng, n))
		send["expiresAtUtc"] = time.Unix(*e.change.end, 0).UTC()
	} else if rng.IntN(6) == 0 {
		e.change.end = new(int64)
		send["expiresAtUtc"] = nil
	}
	switch rng.IntN(10) {
	case 0: // perhaps past, or after the end
		starts := n.clock().Add(time.Duration(rng.IntN(120)-30) * time.Second)
		e.change.starts = new(starts.Unix())
		send["startsAtUtc"] = time.Unix(*e.change.starts, 0).UTC()
	case 1:
		e.change.starts = new(int64)
		send["startsAtUtc"] = nil
	case 2:
		e.change.gone = new(fmt.Sprintf("https://gone.example/%d?{alias}", rng.IntN(3)))
		send["goneUrl"] = *e.change.gone
	case 3:
		e.change.gone = new(string)
		send["goneUrl"] = nil
	case 4:
		e.change.rule = new(fmt.Sprintf("https://ruled.example/%d", rng.IntN(3)))
		send["rules"] = rulesTo(*e.change.rule)
	case 5:
		e.change.rule = new(string)
		send["rules"] = nil
	}
	if r.opening && rng.IntN(6) == 0 {
		e.change.max = new(rng.IntN(4))
		send["maxOpens"] = numberOrNull(*e.change.max)
	}
	if rng.IntN(3) == 0 {
		e.change.disabled = new(rng.IntN(2) == 0)
		send["disabled"] = *e.change.disabled
	}
	if rng.IntN(3) == 0 {
		e.change.title = new(fmt.Sprintf("title %d", rng.IntN(1000)))
		send["title"] = *e.change.title
	}
	if rng.IntN(4) == 0 {
		e.change.tags = new(fmt.Sprintf("tag-%d", rng.IntN(1000)))
		send["tags"] = []string{*e.change.tags}
	}
	if r.change && rng.IntN(4) > 0 || rng.IntN(4) == 0 {
		e.change.owner = new(pick(rng, r.owners))
		switch {
		case len(k.groups) > 0 && rng.IntN(4) > 0: // handed over to the team, or taken back
			e.change.owner = new(pick(rng, []string{k.owner, k.groups[0]}))
		case rng.IntN(4) == 0:
			e.change.owner = &admin.owner
		}
		send["owner"] = *e.change.owner
	}
	if rng.IntN(3) == 0 {
		r.mu.Lock()
		e.match = r.etags[alias]
		r.mu.Unlock()
	}
	r.do(&e, n, k, "PATCH", "/api/links/"+alias, send)
	r.record(e)
}

// rulesTo returns the rules that lead everybody to a URL, as the API has them; "": none.
func rulesTo(longURL string) []any {
	if longURL == "" {
		return []any{}
	}
	return []any{map[string]any{"name": "1", "untilUtc": "2999-01-01T00:00:00Z", "longUrl": longURL}}
}

func (r *round) delete(n *node, k *key, alias string) event {
	e := about("delete", k, alias)
	r.do(&e, n, k, "DELETE", "/api/links/"+alias, nil)
	r.record(e)
	return e
}

func (r *round) restore(n *node, k *key, alias string) event {
	e := about("restore", k, alias)
	r.do(&e, n, k, "POST", "/api/links/"+alias+"/restore", nil)
	r.record(e)
	return e
}

// claim claims two links in one request. Both may be the same.
func (r *round) claim(n *node, k *key, rng *rand.Rand) {
	type claim struct {
		Alias      string `json:"alias"`
		Token      string `json:"claimToken"`
		KeepExpiry bool   `json:"keepExpiry"`
		Domain     string `json:"domain,omitempty"`
	}
	var claims []claim
	var events []event
	for range 2 {
		c := claim{Alias: r.someAlias(rng), Token: "tnc_wrong", KeepExpiry: rng.IntN(2) == 0,
			Domain: r.domain}
		r.mu.Lock()
		if token := r.tokens[c.Alias]; token != "" && rng.IntN(8) > 0 {
			c.Token = token
		}
		r.mu.Unlock()
		claims = append(claims, c)
		e := about("claim", k, c.Alias)
		e.token, e.keep, e.change.owner = c.Token != "tnc_wrong", c.KeepExpiry, new(k.acts())
		events = append(events, e)
	}
	call := event{alias: claims[0].Alias + "," + claims[1].Alias}
	got := r.do(&call, n, k, "POST", "/api/claims", k.to(map[string]any{"claims": claims}))
	for i, e := range events {
		e = e.within(call)
		if len(got.Results) == len(claims) {
			e.problem = got.Results[i].Result
		}
		if e.status == 409 {
			e.status = 0 // one of the two claims has failed, and nobody knows which
		}
		r.record(e)
	}
}

// knows reports whether a response has told of a link.
func (r *round) knows(alias string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.aliases, alias)
}

// list lists the links of an owner. It reveals links that no response told of when they were made.
func (r *round) list(n *node, k *key) (items []body, complete bool) {
	all := event{op: "list", by: k.acts(), call: r.real()}
	first := "/api/links?limit=20&owner=" + url.QueryEscape(k.acts())
	for path := first; ; {
		var e event
		got := r.do(&e, n, k, "GET", path, nil)
		if e.status != 200 {
			return items, false
		}
		for _, item := range got.Items {
			e := e
			e.op, e.by, e.alias, e.told, e.etag = "read", k.acts(), item.Alias, item.view(), ""
			if e.told.owner != k.acts() {
				r.violation("the list of %s has %+v", k.acts(), e.told)
			}
			if r.sim != nil && !r.sim.resting() && !r.knows(item.Alias) {
				continue // its create is still under way, and may take the link back
			}
			r.record(e)
		}
		items = append(items, got.Items...)
		if got.NextCursor == nil {
			for _, item := range items {
				all.listed = append(all.listed, item.Alias)
			}
			all.node, all.status, all.ret, all.latest = n, e.status, e.ret, e.latest
			r.record(all)
			return items, true
		}
		path = first + "&cursor=" + *got.NextCursor
	}
}

// newKey makes a key for an owner.
func (r *round) newKey(n *node, owner string) {
	var e event
	got := r.do(&e, n, admin, "POST", "/api/keys", map[string]any{"name": "chaos", "owner": owner})
	if e.status == 201 {
		r.mu.Lock()
		r.keys[owner] = append(r.keys[owner], &key{owner: owner, id: got.ID, secret: got.Key})
		r.mu.Unlock()
	}
}

// renewKey makes a new key for an owner. It also revokes the previous key, if there is one.
func (r *round) renewKey(n *node, rng *rand.Rand) {
	owner := pick(rng, r.owners)
	if r.keys[owner][0].id == "" {
		owner = r.owners[0] // members sign in
	}
	r.newKey(n, owner)
	r.mu.Lock()
	keys := r.keys[owner]
	r.mu.Unlock()
	if len(keys) < 2 {
		return
	}
	r.revoke(n, pick(rng, []*key{admin, keys[len(keys)-1]}), keys[len(keys)-2])
}

func (r *round) revoke(n *node, by, k *key) int {
	r.mu.Lock()
	if k.revoking == 0 {
		k.revoking = r.real()
	}
	r.mu.Unlock()
	var e event
	r.do(&e, n, by, "DELETE", "/api/keys/"+k.id, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if (e.status == 204 || e.status == 404) && k.revoked == 0 {
		k.revoked = e.ret
	}
	return e.status
}

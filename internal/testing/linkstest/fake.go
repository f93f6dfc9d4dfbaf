// Package linkstest tests stores of links. It has one suite that all stores must pass, and a fake
// that passes it too, for tests of the packages that use a store.
package linkstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"tiney/internal/link"
)

// Clock is a clock that stands still unless a test advances it.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that stands at a whole second near the real time. The time must be near,
// since a storage service has a clock of its own.
func NewClock() *Clock { return &Clock{at: time.Now().UTC().Truncate(time.Second)} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Advance puts the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// The times for which the stores of the suite keep what has ended.
const (
	DeletedKeep   = 7 * 24 * time.Hour  // a deleted link, which can be restored in that time
	TombstoneKeep = 30 * 24 * time.Hour // a tombstone
)

// Fake keeps links in memory, and keeps ended ones for DeletedKeep and TombstoneKeep.
type Fake struct {
	Blocked *Blocked
	AnyCase bool // as in link.Rules

	now    func() time.Time
	random io.Reader

	mu       sync.Mutex
	links    map[link.Name]link.Link
	index    map[string]link.Name    // by owner and long URL
	until    map[link.Name]time.Time // the ends of tombstones
	versions int
	fail     error
	calls    int
	cached   map[link.Name]bool
}

// NewFake makes a fake without links.
func NewFake(now func() time.Time, random io.Reader) *Fake {
	return &Fake{Blocked: &Blocked{now: now, hosts: map[link.Host]time.Time{}}, now: now,
		random: random, links: map[link.Name]link.Link{},
		index: map[string]link.Name{}, until: map[link.Name]time.Time{},
		cached: map[link.Name]bool{}}
}

// Fail makes all calls fail with err, until it is called with nil.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// Calls returns how many calls the store has received.
func (f *Fake) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Put writes a link directly, as another program would.
func (f *Fake) Put(l link.Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(l)
	f.index[indexKey(l)] = l.Name
}

func indexKey(l link.Link) string {
	return string(l.Name.Domain()) + "\n" + l.Owner + "\n" + l.LongURL
}

// named returns the name of the link that a name in some spelling leads to.
func (f *Fake) named(a link.Name) link.Name {
	if _, ok := f.links[a]; !ok && f.AnyCase {
		return a.Lower()
	}
	return a
}

// call begins a call, and returns an error if the fake was told to fail. The caller unlocks mu.
func (f *Fake) call() error {
	f.mu.Lock()
	f.calls++
	return f.fail
}

// put stores a link as a new version.
func (f *Fake) put(l link.Link) link.Link {
	f.versions++
	l.Version = strconv.Itoa(f.versions)
	l.Locked = l.Locked || l.Owner == "" && l.Disabled // see storage
	f.links[l.Name] = l
	return l
}

// cached returns what a cache knows of a link.
func cached(l link.Link) link.Link {
	l.UpdatedAt, l.Title, l.Tags, l.ClaimHash, l.Before, l.Version = time.Time{}, "", nil, "",
		link.Count{}, ""
	l.Locked, l.History = false, nil
	return l
}

// Cache makes Cached return a link as long as the link exists and is live.
func (f *Fake) Cache(a link.Name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cached[a] = true
}

// Cached returns a link that Cache was called with, in that spelling. It does not count as a call,
// and never fails.
func (f *Fake) Cached(_ context.Context, a link.Name, _ bool) (link.Link, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.links[f.named(a)]
	if !ok || !f.cached[a] || l.State(f.now()) != link.StateLive {
		return link.Link{}, false
	}
	return cached(l), true
}

// Get returns a link with only the fields that a cache has.
func (f *Fake) Get(_ context.Context, a link.Name) (link.Link, error) {
	err := f.call()
	defer f.mu.Unlock()
	if err != nil {
		return link.Link{}, err
	}
	l, ok := f.links[f.named(a)]
	if !ok {
		return link.Link{}, link.ErrNotFound
	}
	return cached(l), nil
}

// Read returns a link with all its fields but its history.
func (f *Fake) Read(ctx context.Context, a link.Name) (link.Link, error) {
	l, err := f.History(ctx, a)
	l.History = nil
	return l, err
}

// History returns a link with its history.
func (f *Fake) History(_ context.Context, a link.Name) (link.Link, error) {
	err := f.call()
	defer f.mu.Unlock()
	if err != nil {
		return link.Link{}, err
	}
	l, ok := f.links[f.named(a)]
	if !ok || l.GoneReason != link.StateLive {
		return link.Link{}, link.ErrNotFound
	}
	return l, nil
}

// Create makes a link, or returns the one that its owner has for its URL.
func (f *Fake) Create(_ context.Context, want link.Link, presented string) (link.Link, bool,
	error) {
	err := f.call()
	defer f.mu.Unlock()
	if err != nil {
		return link.Link{}, false, err
	}
	if f.Blocked.Has(context.Background(), want.LongURL) {
		return link.Link{}, false, link.ErrBlocked
	}
	given, leads := f.leads(want)
	if want.Name.Alias() != "" {
		l, taken := f.links[want.Name.Domain().Name(want.Alias())]
		if !taken {
			l, taken = f.links[want.Name]
		}
		switch {
		case !taken:
			return f.put(want), true, nil
		case want.Owner != "" && indexKey(l) == indexKey(want) &&
			l.State(f.now()) == link.StateLive:
			return cached(l), false, nil
		}
		return link.Link{}, false, link.ErrAliasTaken
	}
	switch {
	case leads && given.State(f.now()) == link.StateDisabled:
		return link.Link{}, false, link.ErrDisabled
	case leads:
		if want.Owner == "" && !given.Shared && (presented == "" || presented != given.ClaimHash) {
			given.Shared = true
			f.put(given)
		}
		if want.Owner == "" && given.EndsEarly(want.ExpiresAt, f.now()) {
			given = f.put(given.Extended(want.ExpiresAt, f.now()))
		}
		return cached(given), false, nil
	}
	for range 10 {
		drawn, err := link.NewAlias(f.random, 6, f.AnyCase)
		if err != nil {
			return link.Link{}, false, err
		}
		a := want.Name.Domain().Name(drawn)
		if _, taken := f.links[a]; taken {
			continue
		}
		want.Name = a
		f.index[indexKey(want)] = a
		return f.put(want), true, nil
	}
	return link.Link{}, false, link.ErrAliasesTaken
}

// leads returns the link that the index names for the URL and owner of l, if it is live or disabled.
func (f *Fake) leads(l link.Link) (named link.Link, ok bool) {
	named, ok = f.links[f.index[indexKey(l)]]
	state := named.State(f.now())
	return named, ok && indexKey(named) == indexKey(l) &&
		(state == link.StateLive || state == link.StateDisabled)
}

// Edit applies a change to a link. It calls change without holding the lock, so that another edit
// can happen in between.
func (f *Fake) Edit(ctx context.Context, a link.Name, once bool, change func(link.Link) (link.Link,
	error)) (link.Link, error) {
	for range 20 {
		was, err := f.History(ctx, a)
		if err != nil {
			return link.Link{}, err
		}
		l, err := change(was)
		if err != nil {
			return link.Link{}, err
		}
		if !l.Changed(was) {
			return was, nil
		}
		if l.LongURL != was.LongURL && f.Blocked.Has(context.Background(), l.LongURL) {
			return link.Link{}, link.ErrBlocked
		}
		if l, err := f.replace(was, l); !errors.Is(err, link.ErrConflict) {
			return l, err
		}
		if once {
			break
		}
	}
	return link.Link{}, link.ErrConflict
}

// replace writes a link and its index entry. link.ErrConflict: the link has changed since it was
// read.
func (f *Fake) replace(was, l link.Link) (link.Link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.links[l.Name].Version != was.Version {
		return link.Link{}, link.ErrConflict
	}
	moved := indexKey(l) != indexKey(was)
	restored := l.DeletedAt.IsZero() && !was.DeletedAt.IsZero()
	_, leads := f.leads(l)
	enters := l.Owner != was.Owner || restored
	if moved && f.index[indexKey(was)] == l.Name {
		delete(f.index, indexKey(was))
		enters = true
	}
	if enters && !leads {
		f.index[indexKey(l)] = l.Name
	}
	return f.put(l), nil
}

// EditAll edits several links, one after the other.
func (f *Fake) EditAll(ctx context.Context, aliases []link.Name,
	change func(int, link.Link) (link.Link, error)) ([]error, error) {
	err := f.call()
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(aliases))
	for i, a := range aliases {
		_, errs[i] = f.Edit(ctx, a, false, func(l link.Link) (link.Link, error) {
			return change(i, l)
		})
	}
	return errs, nil
}

// List returns an owner's links, newest first.
func (f *Fake) List(_ context.Context, owner, after string, limit int,
	keep func(link.Link) bool) ([]link.Link, string, error) {
	err := f.call()
	defer f.mu.Unlock()
	if err != nil {
		return nil, "", err
	}
	var positions []string
	at := map[string]link.Link{}
	for _, l := range f.links {
		position := fmt.Sprintf("%010d|%s", 9999999999-l.CreatedAt.Unix(), l.Name)
		if l.Owner == owner && l.GoneReason == link.StateLive && position > after {
			positions = append(positions, position)
			at[position] = l
		}
	}
	slices.Sort(positions)
	var links []link.Link
	for i, position := range positions {
		if l := at[position]; keep(l) {
			links = append(links, l)
		}
		if (len(links) == limit || i+1 == 1000) && i+1 < len(positions) {
			return links, position, nil
		}
	}
	return links, "", nil
}

// All returns links in the order of their aliases.
func (f *Fake) All(_ context.Context, after string, limit int) ([]link.Link, string, int, error) {
	err := f.call()
	defer f.mu.Unlock()
	if _, ok := link.ParseName(after); !ok && after != "" {
		err = link.ErrPosition
	}
	if err != nil {
		return nil, "", 0, err
	}
	var links []link.Link
	for i, a := range slices.Sorted(maps.Keys(f.links)) {
		if string(a) <= after {
			continue
		}
		if l := f.links[a]; l.GoneReason == link.StateLive {
			links = append(links, l)
		}
		if len(links) == limit && i+1 < len(f.links) {
			return links, string(a), 0, nil
		}
	}
	return links, "", 0, nil
}

// Import makes the links that do not exist yet, one after the other.
func (f *Fake) Import(ctx context.Context, links []link.Link) []link.Imported {
	return f.imports(ctx, links, func(l link.Link) link.Link {
		if _, leads := f.leads(l); l.Owner == "" && !leads {
			f.index[indexKey(l)] = l.Name
		}
		return f.put(l)
	})
}

// TryImport is Import without making links. It does not remember the long URLs of the links that it
// would make.
func (f *Fake) TryImport(ctx context.Context, links []link.Link,
	made map[link.Name]uint64) []link.Imported {
	done := f.imports(ctx, links, func(l link.Link) link.Link { return l })
	for i, l := range links {
		if _, again := made[l.Name]; again {
			done[i].Created = false
		}
		made[l.Name] = 0
	}
	return done
}

func (f *Fake) imports(ctx context.Context, links []link.Link,
	make func(link.Link) link.Link) (done []link.Imported) {
	for _, l := range links {
		err := f.call()
		there, ok := f.links[l.Name.Domain().Name(l.Alias())]
		if !ok {
			there, ok = f.links[l.Name]
		}
		switch {
		case err != nil:
			done = append(done, link.Imported{Err: err})
		case ctx.Err() != nil:
			done = append(done, link.Imported{Err: link.ErrUnavailable})
		case f.Blocked.Has(context.Background(), l.LongURL):
			done = append(done, link.Imported{Err: link.ErrBlocked})
		case !ok:
			done = append(done, link.Imported{Link: make(l), Created: true})
		case there.GoneReason != link.StateLive && l.Expired(f.now()):
			done = append(done, link.Imported{Link: there})
		case there.LongURL != l.LongURL, !there.DeletedAt.IsZero() && there.Owner != l.Owner:
			done = append(done, link.Imported{Err: link.ErrAliasTaken})
		case !there.DeletedAt.IsZero() && there.Locked:
			done = append(done, link.Imported{Err: link.ErrLocked})
		case !there.DeletedAt.IsZero():
			done = append(done, link.Imported{Err: link.ErrDeleted})
		default:
			done = append(done, link.Imported{Link: there})
		}
		d := &done[len(done)-1]
		if ok && !errors.Is(d.Err, link.ErrBlocked) && !errors.Is(d.Err, link.ErrUnavailable) {
			d.There = &there
		}
		f.mu.Unlock()
	}
	return done
}

// Reap replaces each link whose time is over with a tombstone. It drops tombstones whose own time
// is over.
func (f *Fake) Reap(context.Context) (link.ReapResult, error) {
	err := f.call()
	defer f.mu.Unlock()
	if err != nil {
		return link.ReapResult{}, err
	}
	done := link.ReapResult{Complete: true}
	for a, l := range f.links {
		end, reason, since := l.ExpiresAt, link.StateExpired, l.ExpiresAt
		switch {
		case l.GoneReason != link.StateLive:
			end = f.until[a]
		case !l.DeletedAt.IsZero():
			end, reason, since = l.DeletedAt.Add(DeletedKeep), link.StateDeleted, l.DeletedAt
		}
		if end.IsZero() || end.After(f.now()) {
			continue
		}
		if l.GoneReason == link.StateLive {
			done.Deleted++
		} else {
			done.Dropped++
		}
		if f.index[indexKey(l)] == a {
			delete(f.index, indexKey(l))
		}
		delete(f.links, a)
		if l.GoneReason == link.StateLive {
			f.put(link.Link{Name: a, GoneReason: reason, GoneAt: since})
			f.until[a] = f.now().Add(TombstoneKeep)
		}
	}
	return done, nil
}

// Ping returns an error if the fake was told to fail.
func (f *Fake) Ping(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail
}

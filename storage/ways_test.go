package storage_test

import (
	"context"
	"crypto/rand"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/internal/testing/testutil"
	"tiney/storage"
)

// links are what callers do with a store of links.
type links interface {
	Create(ctx context.Context, want link.Link, presented string) (l link.Link, created bool,
		err error)
	Get(ctx context.Context, a link.Name) (link.Link, error)
	Read(ctx context.Context, a link.Name) (link.Link, error)
	History(ctx context.Context, a link.Name) (link.Link, error)
	Import(ctx context.Context, links []link.Link) []link.Imported
	Edit(ctx context.Context, a link.Name, once bool, change func(link.Link) (link.Link,
		error)) (link.Link, error)
	EditAll(ctx context.Context, edits []link.Edit) ([]link.EditResult, error)
	List(ctx context.Context, owner, after string, limit int,
		keep func(link.Link) bool) (links []link.Link, next string, err error)
	Reap(ctx context.Context) (link.ReapResult, error)
}

// way is a store without links, as one kind of caller sees it. It leaves tombstones.
type way struct {
	links
	Put     func(link.Link) // writes the row of a link, and replaces an existing one
	Blocked *storage.Blocked
	domain  link.Domain // of all links
}

// name returns the name of a link.
func (s *way) name(a link.Alias) link.Name { return s.domain.Name(a) }

// starter opens a store that draws these aliases, or any if there are none. want is a link that is
// made now and ends after life, or never if that is zero.
type starter func(t *testing.T, aliases ...string) (s *way, clock *testutil.Clock,
	want func(url string, life time.Duration) link.Link)

// settle is longer than any cache in front of a store keeps an entry without asking again.
const settle = 20 * time.Minute

// eachWay tests what holds for all callers: with a cache and without one, if all links are of one
// domain, and if the case of aliases does not matter and callers use capitals.
func eachWay(t *testing.T, test func(t *testing.T, start starter)) {
	for name, w := range map[string]struct {
		cache   *storage.CacheConfig
		domain  link.Domain
		anyCase bool
	}{
		"without a cache": {},
		"with a cache":    {cache: withCache},
		"in a domain":     {cache: withCache, domain: domain},
		"in any case":     {cache: withCache, anyCase: true},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T, aliases ...string) (*way, *testutil.Clock,
				func(string, time.Duration) link.Link) {
				r := newRig(t)
				r.config.TombstoneFor, r.config.AnyCase = teststore.TombstoneKeep, w.anyCase
				if aliases != nil {
					r.config.Random = draws(aliases...)
				}
				s := r.open(w.cache)
				as := links(s)
				if w.anyCase {
					as = shouting{s}
				}
				put := func(l link.Link) { r.Put(r.Links, rawtables.Link(l)) }
				return &way{as, put, s.Blocked, w.domain}, r.clock,
					func(url string, life time.Duration) link.Link {
						l := r.want(url, life)
						l.Name, l.StatusCode = w.domain.Name(""), link.DefaultStatusCode
						if life == 0 {
							l.ExpiresAt = time.Time{}
						}
						return l
					}
			})
		})
	}
}

// create makes a link.
func (s *way) create(t *testing.T, want link.Link) link.Link {
	t.Helper()
	l, created, err := s.Create(t.Context(), want, "")
	if err != nil || !created {
		t.Fatalf("Create: created %t, %v", created, err)
	}
	return l
}

// of creates a link of a URL or finds the existing one, and returns its name.
func (s *way) of(t *testing.T, want link.Link) link.Name {
	t.Helper()
	l, _, err := s.Create(t.Context(), want, "")
	must(t, err)
	return l.Name
}

// edit applies a change that must succeed.
func (s *way) edit(t *testing.T, a link.Name, change func(*link.Link)) link.Link {
	t.Helper()
	l, err := s.Edit(t.Context(), a, false, func(l link.Link) (link.Link, error) {
		change(&l)
		return l, nil
	})
	if err != nil {
		t.Fatalf("editing %s: %v", a, err)
	}
	return l
}

// owned returns a link with an owner.
func owned(l link.Link, owner string) link.Link {
	l.Owner = owner
	return l
}

// chosen returns a link with an alias that its maker has chosen.
func chosen(l link.Link, a link.Alias) link.Link {
	l.Name = l.Name.Domain().Name(a)
	return l
}

// draws returns a source of randomness. It has the given bytes for callers that draw six at a time,
// as for an alias, and random bytes for all others. It fails when the given bytes are used up.
func draws(aliases ...string) io.Reader {
	return drawn{strings.NewReader(strings.Join(aliases, ""))}
}

type drawn struct{ aliases *strings.Reader }

func (d drawn) Read(p []byte) (int, error) {
	if len(p) == 6 {
		return d.aliases.Read(p)
	}
	return rand.Read(p)
}

const domain link.Domain = "go.example"

// shouting is a store whose callers spell each alias that is in lower case in upper case.
type shouting struct{ *storage.Links }

func shout(a link.Name) link.Name {
	if a == a.Lower() {
		return link.Name(strings.ToUpper(string(a)))
	}
	return a
}

func (s shouting) Get(ctx context.Context, a link.Name) (link.Link, error) {
	return s.Links.Get(ctx, shout(a))
}

func (s shouting) Read(ctx context.Context, a link.Name) (link.Link, error) {
	return s.Links.Read(ctx, shout(a))
}

func (s shouting) History(ctx context.Context, a link.Name) (link.Link, error) {
	return s.Links.History(ctx, shout(a))
}

func (s shouting) Edit(ctx context.Context, a link.Name, once bool,
	change func(link.Link) (link.Link, error)) (link.Link, error) {
	return s.Links.Edit(ctx, shout(a), once, change)
}

func (s shouting) EditAll(ctx context.Context, edits []link.Edit) ([]link.EditResult, error) {
	edits = slices.Clone(edits)
	for i := range edits {
		edits[i].Name = shout(edits[i].Name)
	}
	return s.Links.EditAll(ctx, edits)
}

// Package teststore opens the store over tables in memory, for tests of the packages that use it.
package teststore

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
	"tiney/storage"
	"tiney/storage/counts"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

// The times for which a store keeps what has ended.
const (
	DeletedKeep   = 7 * 24 * time.Hour  // a deleted link, which can be restored in that time
	TombstoneKeep = 30 * 24 * time.Hour // a tombstone
)

// Store is a store over tables in memory, whose calls can be counted and made to fail.
type Store struct {
	*storage.Links
	Tables *rawtables.Tables // what is done here neither fails nor counts
	// Beside is another instance on the same tables. Its calls neither fail nor count.
	Beside *storage.Links

	t      testing.TB
	proxy  *faultproxy.Proxy
	config storage.Config // of instances without a cache, whose calls neither fail nor count

	mu                           sync.Mutex
	failed, keysFail, clicksFail error
}

// Open opens a store without links. It has no cache unless change sets one, and its tables exist.
func Open(t testing.TB, clock *testutil.Clock, change ...func(*storage.Config)) *Store {
	t.Helper()
	service := memtable.New(clock.Now)
	direct := service.Table
	s := &Store{Tables: rawtables.On(t, direct, ""), t: t, proxy: faultproxy.InMemory(service)}
	s.Tables.Now, s.Tables.DeletedKeep = clock.Now, DeletedKeep
	config := storage.Config{
		Open: direct, Timeout: table.Timeout, StaleWait: table.Timeout, Tables: s.Tables.Tables,
		AliasLength: 6, DeletedKeep: DeletedKeep, TombstoneFor: TombstoneKeep,
		Reap:   storage.ReapConfig{PageSize: 1000, Pause: time.Millisecond},
		Clicks: counts.Settings{Mode: clicks.ModeFull, KeepDays: s.Tables.KeepDays},
		Now:    clock.Now, Random: rand.Reader, Log: slog.New(slog.DiscardHandler),
		Metrics: new(telemetry.Metrics),
	}
	for _, c := range change {
		c(&config)
	}
	open := func(config storage.Config) *storage.Links {
		links, err := storage.Open(config)
		if err == nil {
			err = errors.Join(links.EnsureTables(t.Context()), links.Blocked.Read(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		return links
	}
	s.config = config
	s.config.Cache = nil
	s.Beside = open(s.config)
	var err error
	if config.Open, err = s.proxy.Open(); err != nil {
		t.Fatal(err)
	}
	s.Links = open(config)
	s.proxy.Reset()
	s.proxy.FailAs(func(c faultproxy.Call) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case c.Target == s.Tables.Keys:
			return s.keysFail
		case s.ofClicks(c) && s.clicksFail != nil:
			return s.clicksFail
		}
		return s.failed
	})
	return s
}

// Put writes a link with all its rows, as another program would.
func (s *Store) Put(l link.Link) {
	s.t.Helper()
	s.Tables.PutLink(l)
}

// Cache reads a link until the store has it in its cache.
func (s *Store) Cache(name link.Name) {
	s.t.Helper()
	testutil.Eventually(s.t, string(name)+" is cached", func() bool {
		_, err := s.Get(s.t.Context(), name)
		_, ok := s.Cached(s.t.Context(), name, false)
		return err == nil && ok
	})
}

// Fail makes all calls except those of API keys fail with err, until it is called with nil.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

// FailKeys makes the calls of API keys fail with err.
func (s *Store) FailKeys(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keysFail = err
}

// FailClicks makes the calls of statistics fail with err.
func (s *Store) FailClicks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clicksFail = err
}

func (s *Store) ofClicks(c faultproxy.Call) bool {
	return c.Operation == "QueryTables" || c.Target == s.Tables.ClickTotals ||
		strings.HasPrefix(c.Target, s.Tables.Clicks)
}

// Click counts a click on a link and saves it, as another process would at the time of the click.
func (s *Store) Click(l link.Link, k clicks.Click) {
	s.count(k.At, func(c *counts.Clicks) { c.Click(l, k) })
}

// Created counts links that were made, as Click does clicks.
func (s *Store) Created(links int) {
	s.count(s.config.Now(), func(c *counts.Clicks) { c.Created(links) })
}

func (s *Store) count(at time.Time, do func(*counts.Clicks)) {
	config := s.config
	config.Now = func() time.Time { return at }
	other, err := storage.Open(config)
	if err == nil {
		do(other.Clicks)
		err = other.Clicks.Flush(context.Background())
	}
	if err != nil {
		s.t.Error(err)
	}
}

// Calls returns how many calls the store has made of storage, except those of API keys.
func (s *Store) Calls() int {
	return len(slices.DeleteFunc(s.proxy.Calls(), func(c faultproxy.Call) bool {
		return c.Target == s.Tables.Keys
	}))
}

// Lookups returns how many times the store has looked up an API key in its table.
func (s *Store) Lookups() int {
	return len(slices.DeleteFunc(s.proxy.Calls(), func(c faultproxy.Call) bool {
		return c.Target != s.Tables.Keys || c.Operation != "GetEntity"
	}))
}

// CreateAtOnce makes the given number of concurrent calls of create, which must make one link. It
// checks that all calls get the same link, and that at most one of them reports making it. If
// storage did not respond to a call in time, as on a busy machine, CreateAtOnce repeats the call as
// its caller would. If there was no such call, exactly one must report making the link.
func CreateAtOnce(t *testing.T, calls int, create func(call int) (link.Link, bool, error)) {
	t.Helper()
	var all sync.WaitGroup
	var created, late atomic.Int64
	var aliases sync.Map
	for call := range calls {
		all.Go(func() {
			l, made, err := create(call)
			for end := time.Now().Add(time.Minute); errors.Is(err, link.ErrUnavailable) &&
				time.Now().Before(end); {
				late.Add(1)
				l, made, err = create(call)
			}
			if err != nil {
				t.Error(err)
				return
			}
			if made {
				created.Add(1)
			}
			aliases.Store(l.Name, true)
		})
	}
	all.Wait()
	var different []any
	aliases.Range(func(a, _ any) bool { different = append(different, a); return true })
	if n := created.Load(); n > 1 || n == 0 && late.Load() == 0 || len(different) != 1 {
		t.Errorf("%d made, aliases %v, want one; %d calls were late", n, different, late.Load())
	}
}

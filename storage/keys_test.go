package storage_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
	"tiney/storage"
)

// newKey draws a key. It counts as used already, so that no day of its last use has to be saved.
func (r *rig) newKey(owner string) access.Key {
	r.t.Helper()
	secret, err := access.NewKey(rand.Reader)
	must(r.t, err)
	return access.Key{Hash: access.Hash(secret), Owner: owner, Name: "a name",
		Last4: secret[len(secret)-4:], CreatedAt: r.clock.Now(),
		LastUsedOn: r.clock.Now().AddDate(0, 0, 2).Format(time.DateOnly)}
}

func (r *rig) addKey(s *storage.Links, owner string) access.Key {
	r.t.Helper()
	key := r.newKey(owner)
	must(r.t, s.Keys.Create(ctx, key))
	return key
}

// keyRow returns the row of a key as the format has it.
func keyRow(k access.Key) rawtables.Entity {
	row := rawtables.Entity{"PartitionKey": "key", "RowKey": k.Hash, "Owner": k.Owner,
		"Name": k.Name, "Last4": k.Last4}
	for name, at := range map[string]time.Time{"CreatedAtUtc": k.CreatedAt,
		"ExpiresAtUtc": k.ExpiresAt} {
		if !at.IsZero() {
			row[name], row[name+"@odata.type"] = at.Format(time.RFC3339), "Edm.DateTime"
		}
	}
	for name, text := range map[string]string{"LastUsedOn": k.LastUsedOn,
		"CreatedBy": k.CreatedBy, "ActsFor": k.ActsFor} {
		if text != "" {
			row[name] = text
		}
	}
	return row
}

// putKeys adds n keys of an owner, and returns the rows.
func (r *rig) putKeys(owner string, n int) (rows []rawtables.Entity) {
	r.t.Helper()
	for range n {
		rows = append(rows, keyRow(r.newKey(owner)))
	}
	r.Make()
	r.PutAll(r.Keys, rows)
	return rows
}

// keysOf returns how many rows of keys an owner has, without those of revoked keys.
func (r *rig) keysOf(owner string) (n int) {
	r.t.Helper()
	for _, row := range r.Rows(r.Keys) {
		if row["Owner"] == owner {
			n++
		}
	}
	return n
}

func (r *rig) wantKeyRows(keys ...access.Key) {
	r.t.Helper()
	var got, want []string
	for _, row := range r.Rows(r.Keys) {
		for name, value := range row { // Azurite writes times with more digits than they had
			if text, ok := value.(string); ok && row[name+"@odata.type"] != nil {
				at, err := time.Parse(time.RFC3339, text)
				should(r.t, err)
				row[name] = at.Format(time.RFC3339)
			}
		}
		got = append(got, fmt.Sprint(row))
	}
	for _, key := range keys {
		want = append(want, fmt.Sprint(keyRow(key)))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantKey looks up a key, and checks the error, nil for none, and how many calls that took.
func (r *rig) wantKey(s *storage.Links, key access.Key, want error, calls int) {
	r.t.Helper()
	before := len(r.proxy.Calls())
	got, err := s.Keys.Key(ctx, key.Hash)
	if !errors.Is(err, want) || err != nil && want == nil || err == nil && got != key {
		r.t.Errorf("got %+v, %v, want %+v, %v", got, err, key, want)
	}
	made := slices.DeleteFunc(r.proxy.Calls()[before:], morePolled)
	if calls >= 0 && len(made) != calls {
		r.t.Errorf("it took %v, want %d calls", made, calls)
	}
}

// wantKeyRowsLater is wantKeyRows after a reaper has dropped the rows of revoked keys.
func (r *rig) wantKeyRowsLater(s *storage.Links, keys ...access.Key) {
	r.t.Helper()
	r.clock.Advance(2 * time.Hour)
	if _, err := s.Reap(ctx); err != nil {
		r.t.Error(err)
	}
	r.wantKeyRows(keys...)
}

// only returns the owners of a call for one owner, or for all owners if owner is "".
func only(owner string) []string {
	if owner == "" {
		return nil
	}
	return []string{owner}
}

func wantListed(t *testing.T, s *storage.Links, owner string, want ...access.Key) {
	t.Helper()
	if got, err := s.Keys.List(ctx, only(owner)); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q has the keys\n%+v, %v, want\n%+v", owner, got, err, want)
	}
}

func TestKeysFromCreateToRevoke(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.open(nil), r.open(nil)
	owners := []string{"ann", "o'brien' or 'x' eq 'x", `login.example:8443|a"b\c/d#e?f`,
		strings.Repeat("𝔘", link.MaxOwner)}
	var keys []access.Key // the newest first
	for i, owner := range owners {
		for _, name := range []string{"laptop", "Büro 東京 🗝 'n' \"m\"", strings.Repeat("é", 100)} {
			key := r.newKey(owner)
			key.Name = name
			if i == 0 {
				key.ExpiresAt, key.LastUsedOn = r.clock.Now().Add(time.Minute), ""
				key.CreatedBy, key.ActsFor = owners[3], owners[3]
			}
			must(t, a.Keys.Create(ctx, key))
			keys = slices.Insert(keys, 0, key)
			r.clock.Advance(time.Second)
		}
	}
	r.wantKeyRows(keys...)
	r.clock.Advance(time.Hour) // an expired key is a key
	for _, key := range keys[:9] {
		r.wantKey(b, key, nil, 1)
	}
	wantListed(t, b, "", keys...)
	for i, owner := range owners {
		wantListed(t, b, owner, keys[9-3*i:12-3*i]...)
	}
	wantListed(t, b, "nobody")
	some := []string{owners[3], "nobody", owners[1]} // the newest key first, whoever has it
	if got, err := b.Keys.List(ctx, some); err != nil ||
		!slices.Equal(got, slices.Concat(keys[:3], keys[6:9])) {
		t.Errorf("of some owners: got %+v, %v", got, err)
	}
	if got, err := b.Keys.List(ctx, []string{}); err != nil || len(got) > 0 {
		t.Errorf("of no owners: got %+v, %v", got, err)
	}

	key := keys[4]
	for id, want := range map[string]error{
		key.ID(): link.ErrForbidden, "0123456789abcdef": access.ErrUnknownKey,
		strings.ToUpper(key.ID()): access.ErrUnknownKey,
		key.ID()[:15]:             access.ErrUnknownKey, key.Hash: access.ErrUnknownKey,
		"": access.ErrUnknownKey, "' or RowKey ge '": access.ErrUnknownKey,
	} {
		for _, others := range [][]string{{"ann"}, {"ann", "nobody"}, {}} {
			if err := a.Keys.Revoke(ctx, id, others); !errors.Is(err, want) {
				t.Errorf("revoking %q by %q: got %v, want %v", id, others, err, want)
			}
		}
	}
	r.wantKeyRows(keys...)
	for i, key := range keys {
		by := []string{"nobody", key.Owner, "somebody"}
		if i%3 == 0 {
			by = nil // an admin
		}
		if err := a.Keys.Revoke(ctx, key.ID(), by); err != nil {
			t.Errorf("revoking %+v: %v", key, err)
		}
		r.wantKey(a, key, access.ErrUnknownKey, 1)
		if err := b.Keys.Revoke(ctx, key.ID(), by); !errors.Is(err, access.ErrUnknownKey) {
			t.Errorf("revoking it again: %v", err)
		}
	}
	wantListed(t, b, "")
	r.wantKeyRowsLater(a)
}

func TestCallsPerOperationOnKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.ChangesEvery = 5 * time.Second
	s := r.open(nil)
	key, unknown := r.newKey("ann"), r.newKey("ann")
	count := func(what string, want int, do func() error) {
		t.Helper()
		before := len(r.proxy.Calls())
		if err := do(); err != nil && !errors.Is(err, access.ErrUnknownKey) &&
			!errors.Is(err, link.ErrForbidden) {
			t.Errorf("%s: %v", what, err)
		}
		made := slices.DeleteFunc(r.proxy.Calls()[before:], morePolled)
		if len(made) != want {
			t.Errorf("%s: got the calls %v, want %d", what, made, want)
		}
	}
	count("create", 3, func() error { return s.Keys.Create(ctx, key) })
	r.wantKey(s, key, nil, 1)
	r.wantKey(s, key, nil, 0)
	r.wantKey(s, unknown, access.ErrUnknownKey, 1)
	r.wantKey(s, unknown, access.ErrUnknownKey, 1)
	r.clock.Advance(16 * time.Second)
	r.wantKey(s, key, nil, 1) // to ask for changes
	r.wantKey(s, key, nil, 0)
	r.clock.Advance(43 * time.Second)
	r.wantKey(s, key, nil, 1)
	r.clock.Advance(time.Second)
	r.wantKey(s, key, nil, 1) // it was read a minute ago
	r.wantKey(s, key, nil, 0)

	list := func(owner string) func() error {
		return func() error { _, err := s.Keys.List(ctx, only(owner)); return err }
	}
	count("list", 1, list("ann"))
	count("list of nobody", 1, list("nobody"))
	count("list of all", 1, list(""))
	count("list of two", 1, func() error {
		_, err := s.Keys.List(ctx, []string{"ann", "nobody"})
		return err
	})
	revoke := func(id, owner string) func() error {
		return func() error {
			return s.Keys.Revoke(ctx, id, only(owner))
		}
	}
	count("revoke what is no id", 0, revoke("nonsense", ""))
	count("revoke another's", 1, revoke(key.ID(), "bob"))
	count("revoke", 3, revoke(key.ID(), "ann"))
	count("revoke again", 1, revoke(key.ID(), "ann"))
	count("revoke again, as an admin", 1, revoke(key.ID(), ""))
	count("revoke one that is unknown", 1, revoke(unknown.ID(), ""))
}

// Owners have a hundred keys that have not ended, however many are made at once.
func TestAnOwnersKeysAreBounded(t *testing.T) {
	r := newRig(t)
	s := r.open(nil)
	add := func(n int, ends time.Time) (made, refused int) {
		t.Helper()
		errs := make([]error, n)
		var all errgroup.Group
		all.SetLimit(16)
		for i := range n {
			all.Go(func() error {
				key := r.newKey("ann")
				key.ExpiresAt = ends
				errs[i] = patiently(func() error { return s.Keys.Create(ctx, key) })
				return nil
			})
		}
		_ = all.Wait()
		for _, err := range errs {
			switch {
			case err == nil:
				made++
			case errors.Is(err, access.ErrTooManyKeys):
				refused++
			default:
				t.Error(err)
			}
		}
		return made, refused
	}
	if made, _ := add(95, time.Time{}); made != 95 {
		t.Fatalf("made %d", made)
	}
	if made, _ := add(4, r.clock.Now().Add(time.Minute)); made != 4 {
		t.Fatalf("made %d that end", made)
	}
	if made, refused := add(16, time.Time{}); made > 1 || made+refused != 16 {
		t.Errorf("at once, where there is room for one: made %d, refused %d", made, refused)
	}
	for { // creates at once may all be refused
		if made, _ := add(1, time.Time{}); made == 0 {
			break
		}
	}
	live, err := s.Keys.List(ctx, []string{"ann"})
	if err != nil || len(live) != access.MaxKeys {
		t.Fatalf("%d keys, %v", len(live), err)
	}
	if n := r.keysOf("ann"); n != access.MaxKeys {
		t.Errorf("%d keys have rows", n)
	}
	r.addKey(s, "bob")
	lasting := slices.IndexFunc(live, func(k access.Key) bool { return k.ExpiresAt.IsZero() })
	must(t, s.Keys.Revoke(ctx, live[lasting].ID(), []string{"ann"}))
	if made, _ := add(1, time.Time{}); made != 1 {
		t.Error("a revoked key counts")
	}
	r.clock.Advance(time.Minute)
	if made, _ := add(4, time.Time{}); made != 4 {
		t.Error("a key that has ended counts")
	}
	if _, refused := add(1, time.Time{}); refused != 1 {
		t.Error("one too many is made")
	}
}

// Another create comes before each call of a create, where there is room for one.
func TestCreatesOfKeysThatCross(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprintf("before call %d", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			here, there := r.open(nil), r.instance()
			r.putKeys("ann", access.MaxKeys-1)
			made := 0
			create := func(s *storage.Links) {
				switch err := s.Keys.Create(ctx, r.newKey("ann")); {
				case err == nil:
					made++
				case !errors.Is(err, access.ErrTooManyKeys):
					t.Error(err)
				}
			}
			r.proxy.Reset()
			r.meet(n, false, func() { create(there) })
			create(here)
			r.proxy.Reset()
			if rows := r.keysOf("ann"); made != 1 || rows != access.MaxKeys {
				t.Errorf("%d keys were made, and there are %d", made, rows)
			}
			r.clock.Advance(2 * time.Hour)
			should(t, reap(ctx, r, here))
			if rows := r.Rows(r.Keys); len(rows) != access.MaxKeys {
				t.Errorf("%d rows are left", len(rows))
			}
		})
	}
}

// Killed after any of its calls, a create leaves an owner no more keys than allowed.
func TestCreatesOfKeysThatDieAtAnyPoint(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{access.MaxKeys - 1, access.MaxKeys} {
		for n := range 4 {
			t.Run(fmt.Sprintf("%d keys, after call %d", keys, n), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				s := r.open(nil)
				r.putKeys("ann", keys)
				r.proxy.Reset()
				r.proxy.Before(kill(n + 1))
				if err := s.Keys.Create(ctx, r.newKey("ann")); err == nil && n < 3 {
					t.Error("no error")
				}
				r.proxy.Reset()
				if n := r.keysOf("ann"); n > access.MaxKeys {
					t.Errorf("there are %d keys", n)
				}
			})
		}
	}
}

// What is not cached is not looked up where that is not allowed.
func TestKeysWithoutALookUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	key := r.addKey(s, "ann")
	try := func(k access.Key, want error) {
		t.Helper()
		before := len(r.proxy.Calls())
		if got, err := s.Keys.Key(access.WithoutLookup(ctx), k.Hash); !errors.Is(err, want) ||
			want == nil && got != k {
			t.Errorf("got %+v, %v, want %v", got, err, want)
		}
		if made := r.proxy.Calls()[before:]; len(made) != 0 {
			t.Errorf("made the calls %v", made)
		}
	}
	try(key, link.ErrUnavailable)
	try(r.newKey("ann"), link.ErrUnavailable)
	r.wantKey(s, key, nil, 1)
	try(key, nil)
	r.clock.Advance(time.Minute)
	try(key, link.ErrUnavailable)
}

// A revoked key is refused by the process that revoked it at once, and by others once they know.
func TestARevokedKeyIsRefusedByOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		every time.Duration
		// the table that fails after the revocation; "" for none, "*" for all
		fails func(r *rig) string
		after []time.Duration // since the revocation
		want  []error
	}{
		"with polls": {5 * time.Second, func(*rig) string { return "" },
			[]time.Duration{15 * time.Second, 16 * time.Second},
			[]error{nil, access.ErrUnknownKey}},
		"without polls": {0, func(*rig) string { return "" },
			[]time.Duration{59 * time.Second, time.Minute}, []error{nil, access.ErrUnknownKey}},
		"polls fail, and the table is asked": {5 * time.Second, func(r *rig) string { return r.State },
			[]time.Duration{15 * time.Second, 16 * time.Second},
			[]error{nil, access.ErrUnknownKey}},
		"nothing can be asked": {5 * time.Second, func(r *rig) string { return "*" },
			[]time.Duration{30 * time.Second, 59 * time.Second, time.Minute},
			[]error{nil, nil, link.ErrUnavailable}},
		"the table cannot be asked": {5 * time.Second, func(r *rig) string { return r.Keys },
			[]time.Duration{15 * time.Second, 16 * time.Second}, []error{nil, link.ErrUnavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.config.ChangesEvery = test.every
			here, there := r.open(nil), r.open(nil)
			key := r.addKey(here, "ann")
			r.wantKey(there, key, nil, -1)
			r.wantKey(here, key, nil, -1)
			must(t, here.Keys.Revoke(ctx, key.ID(), nil))
			r.wantKey(here, key, access.ErrUnknownKey, 1)
			if failing := test.fails(r); failing != "" {
				r.proxy.Before(faultproxy.On("", strings.Trim(failing, "*"), faultproxy.Refuse))
			}
			revoked := r.clock.Now()
			for i, after := range test.after {
				r.clock.Advance(revoked.Add(after).Sub(r.clock.Now()))
				r.wantKey(there, key, test.want[i], -1)
			}
			r.proxy.Reset()
			r.clock.Advance(5 * time.Second)
			r.wantKey(there, key, access.ErrUnknownKey, -1)
		})
	}
}

func TestAKeyThatIsRevokedWhileItIsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	key := r.addKey(s, "ann")
	r.proxy.Reset()
	r.proxy.After(func(c faultproxy.Call) {
		if c.N == 1 { // its response is on the way
			should(t, s.Keys.Revoke(ctx, key.ID(), []string{"ann"}))
		}
	})
	r.wantKey(s, key, nil, -1)
	r.wantKey(s, key, access.ErrUnknownKey, 1)
}

// A process that has not polled for half an hour reads a key while polls fail, after it was
// announced that the key is revoked. Its next poll does not look so far back.
func TestAKeyThatIsReadWhileItIsRevoked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.ChangesEvery = 5 * time.Second
	here, there := r.open(nil), r.open(nil)
	key := r.addKey(here, "ann")
	r.clock.Advance(31 * time.Minute)
	r.proxy.Before(faultproxy.On("QueryEntities", r.State, faultproxy.Refuse))
	r.proxy.After(func(c faultproxy.Call) {
		if c.Target == r.State && c.Operation == "UpdateEntity" {
			r.clock.Advance(2 * time.Second)
			r.wantKey(there, key, nil, -1)
		}
	})
	must(t, here.Keys.Revoke(ctx, key.ID(), nil))
	r.proxy.Reset()
	r.clock.Advance(59500 * time.Millisecond)
	r.wantKey(there, key, access.ErrUnknownKey, -1)
}

// Killed after any of its calls, a create or a revocation leaves a key that is listed and can be
// revoked, or none.
func TestCreatesAndRevocationsOfKeysThatAreKilled(t *testing.T) {
	t.Parallel()
	const calls = 3 // of each
	for n := range calls + 1 {
		for _, by := range []string{"ann", ""} {
			t.Run(fmt.Sprintf("after call %d, by %q", n, by), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				// Nothing arrives that the process does after call n. The next one is another
				// process.
				kill := func(do func(s *storage.Links) error) (*storage.Links, error) {
					s := r.open(nil)
					r.proxy.Before(kill(n + 1))
					err := do(s)
					r.proxy.Reset()
					return r.open(nil), err
				}
				key := r.newKey("ann")
				s, err := kill(func(s *storage.Links) error { return s.Keys.Create(ctx, key) })
				if n == calls != (err == nil) {
					t.Errorf("create: %v", err)
				}
				if n >= 2 { // the create may have an error, and the key was inserted
					r.wantKey(s, key, nil, 1)
					wantListed(t, s, "ann", key)
				} else {
					r.wantKey(s, key, access.ErrUnknownKey, 1)
					wantListed(t, s, "ann")
					r.wantKeyRows()
					key = r.addKey(s, "ann")
				}

				s, err = kill(func(s *storage.Links) error {
					return s.Keys.Revoke(ctx, key.ID(), only(by))
				})
				if n == calls != (err == nil) || err != nil && !errors.Is(err, link.ErrUnavailable) {
					t.Errorf("revoke: %v", err)
				}
				if n == calls {
					r.wantKey(s, key, access.ErrUnknownKey, 1)
					wantListed(t, s, "ann")
				} else {
					r.wantKey(s, key, nil, 1)
					wantListed(t, s, "ann", key)
				}
				r.clock.Advance(time.Hour)
				var want error
				if n == calls {
					want = access.ErrUnknownKey
				}
				if err := s.Keys.Revoke(ctx, key.ID(), only(by)); !errors.Is(err, want) || err != nil &&
					want == nil {
					t.Errorf("revoke again: got %v, want %v", err, want)
				}
				wantListed(t, s, "ann")
				r.wantKey(s, key, access.ErrUnknownKey, 1)
				r.wantKeyRowsLater(s)
			})
		}
	}
}

func TestFaultsAroundKeys(t *testing.T) {
	t.Parallel()
	do := map[string]func(r *rig, s *storage.Links, key access.Key) error{
		"create": func(r *rig, s *storage.Links, key access.Key) error {
			return s.Keys.Create(ctx, r.newKey("bob"))
		},
		"key": func(r *rig, s *storage.Links, key access.Key) error {
			_,
				err := s.Keys.Key(ctx, key.Hash)
			return err
		},
		"revoke": func(r *rig, s *storage.Links, key access.Key) error {
			return s.Keys.Revoke(ctx, key.ID(), []string{"ann"})
		},
		"list": func(r *rig, s *storage.Links, key access.Key) error {
			_,
				err := s.Keys.List(ctx, []string{"ann"})
			return err
		},
		"all": func(r *rig, s *storage.Links, key access.Key) error {
			_,
				err := s.Keys.List(ctx, nil)
			return err
		},
	}
	for operation, calls := range map[string]int{"create": 3, "key": 1, "revoke": 3, "list": 1,
		"all": 1} {
		for name, fault := range map[string]faultproxy.Fault{
			"response lost": faultproxy.DropResponse, "connection closed": faultproxy.Refuse,
			"server busy": faultproxy.ServerBusy,
		} {
			for n := 1; n <= calls; n++ {
				t.Run(fmt.Sprintf("%s, %s at call %d", operation, name, n), func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					s := r.open(nil)
					key := r.addKey(s, "ann")
					r.proxy.Reset()
					r.proxy.Before(faultproxy.Fail(n, fault))
					should(t, do[operation](r, s, key))
					r.proxy.Reset()
					switch operation {
					case "create":
						if rows := r.Rows(r.Keys); len(rows) != 2 {
							t.Errorf("the rows are %v", rows)
						}
					case "revoke":
						r.wantKeyRowsLater(s)
					}
				})
			}
		}
		t.Run(operation+", no storage", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(nil)
			key := r.addKey(s, "ann")
			r.proxy.Before(faultproxy.On("", "", faultproxy.Refuse))
			if err := do[operation](r, s, key); !errors.Is(err, link.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			r.wantKeyRows(key)
		})
	}
}

func TestAKeyThatIsThereIsNotOverwritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	key := r.addKey(s, "ann")
	other := key
	other.Owner = "bob"
	if err := s.Keys.Create(ctx, other); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("another's: %v", err)
	}
	r.wantKey(s, key, nil, 1)
	wantListed(t, s, "bob")
	wantListed(t, s, "ann", key)
}

// A create that was stopped before its key was on its way does not insert it any more.
func TestACreateOfAKeyThatWasStopped(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprintf("after call %d", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(nil)
			key := r.newKey("ann")
			r.proxy.After(func(c faultproxy.Call) {
				if c.N == n {
					r.clock.Advance(time.Hour)
				}
			})
			err := s.Keys.Create(ctx, key)
			if n == 1 {
				if !errors.Is(err, link.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
				r.wantKeyRows()
				return
			}
			should(t, err)
			r.wantKeyRows(key)
		})
	}
}

func TestAnyNumberOfRevocationsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stores := []*storage.Links{r.open(nil), r.open(nil)}
	key, stays := r.addKey(stores[0], "ann"), r.addKey(stores[1], "ann")
	var done atomic.Int64
	var all errgroup.Group
	for i := range 16 {
		all.Go(func() error {
			err := stores[i%2].Keys.Revoke(ctx, key.ID(), []string{"ann"})
			if err == nil {
				done.Add(1)
			} else if !errors.Is(err, access.ErrUnknownKey) {
				return err
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil || done.Load() == 0 {
		t.Errorf("%d have revoked it, %v", done.Load(), err)
	}
	r.wantKeyRowsLater(stores[0], stays)
}

// A key that is revoked, or that its create takes back, stays so, although the first try of its
// insert arrives only afterwards.
func TestAKeyThatArrivesTooLate(t *testing.T) {
	t.Parallel()
	for _, takenBack := range []bool{false, true} {
		t.Run(fmt.Sprintf("taken back: %v", takenBack), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(nil)
			key, others := r.newKey("ann"), 0
			if takenBack {
				others = access.MaxKeys
				r.putKeys("ann", others-1)
			}
			arrive, arrived := make(chan struct{}), make(chan struct{})
			var inserts atomic.Int64
			r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				if c.Operation != "InsertEntity" || c.Target != r.Keys {
					return faultproxy.None
				}
				switch try := inserts.Add(1); {
				case try == 1:
					<-arrive
					defer close(arrived)
					return faultproxy.DropResponse
				case try == 2 && takenBack:
					r.putKeys("ann", 1) // another create was faster
				}
				return faultproxy.None
			})
			err := s.Keys.Create(hasty, key)
			if takenBack && !errors.Is(err, access.ErrTooManyKeys) || !takenBack && err != nil {
				t.Fatal(err)
			}
			if !takenBack {
				should(t, s.Keys.Revoke(ctx, key.ID(), []string{"ann"}))
			}
			close(arrive)
			<-arrived
			r.ended()
			for _, s := range []*storage.Links{s, r.open(nil)} {
				r.wantKey(s, key, access.ErrUnknownKey, 1)
				for _, owner := range []string{"ann", ""} {
					if keys, err := s.Keys.List(ctx, only(owner)); err != nil || len(keys) != others {
						t.Errorf("%q has %d keys, %v", owner, len(keys), err)
					}
				}
			}
			r.WantNoLeak()
			r.clock.Advance(2 * time.Hour)
			should(t, reap(ctx, r, s))
			if rows := r.Rows(r.Keys); len(rows) != others {
				t.Errorf("the rows are %v", rows)
			}
		})
	}
}

func TestACorruptKeyIsNobodys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	key := r.addKey(s, "ann")
	row := keyRow(key)
	row["ExpiresAtUtc"] = "next year"
	r.Put(r.Keys, row)
	if got, err := s.Keys.Key(ctx, key.Hash); err != nil || got != (access.Key{Hash: key.Hash}) {
		t.Errorf("got %+v, %v", got, err)
	}
	wantListed(t, s, "ann")
	wantListed(t, s, "", access.Key{Hash: key.Hash})
	if err := s.Keys.Revoke(ctx, key.ID(), []string{"ann"}); !errors.Is(err, link.ErrForbidden) {
		t.Errorf("by its owner: %v", err)
	}
	should(t, s.Keys.Revoke(ctx, key.ID(), nil))
	wantListed(t, s, "")
	r.wantKeyRowsLater(s)
}

// Rows of other programs stay, wherever they are among the keys. No list shows them, and no
// revocation finds them.
func TestRowsOfOtherProgramsAmongKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	key, other := r.addKey(s, "ann"), r.newKey("ann")
	for partition, row := range map[string]string{"kex": other.Hash, "key": other.ID(),
		"key|" + other.Hash[:2]: other.Hash, "kez": other.Hash} {
		r.Put(r.Keys, rawtables.Entity{"PartitionKey": partition, "RowKey": row, "Owner": "ann"})
	}
	r.Put(r.Keys, rawtables.Entity{"PartitionKey": "key", "RowKey": key.ID(), "Owner": "ann"})
	r.Put(r.Keys, rawtables.Entity{"PartitionKey": "key", "RowKey": "~", "Owner": "ann"})
	r.wantKey(s, other, access.ErrUnknownKey, 1)
	wantListed(t, s, "", key)
	wantListed(t, s, "ann", key)
	if err := s.Keys.Revoke(ctx, other.ID(), nil); !errors.Is(err, access.ErrUnknownKey) {
		t.Errorf("of no key: %v", err)
	}
	should(t, s.Keys.Revoke(ctx, key.ID(), []string{"ann"}))
	wantListed(t, s, "")
	r.clock.Advance(2 * time.Hour)
	should(t, reap(ctx, r, s))
	if rows := r.Rows(r.Keys); len(rows) != 6 {
		t.Errorf("the rows are %v", rows)
	}
}

func TestTheCacheOfKeysIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	const cached, keys = 1000, 1050
	var all []access.Key
	var work errgroup.Group
	work.SetLimit(16)
	for range keys {
		key := r.newKey("ann")
		all = append(all, key)
		work.Go(func() error {
			r.Put(r.Keys, keyRow(key))
			_, err := s.Keys.Key(ctx, key.Hash)
			return err
		})
	}
	must(t, work.Wait())
	// A list has more than one page of rows, too.
	if listed, err := s.Keys.List(ctx, []string{"ann"}); err != nil || len(listed) != keys {
		t.Errorf("%d keys are listed, %v", len(listed), err)
	}
	r.proxy.Reset()
	for _, key := range all {
		if _, err := s.Keys.Key(ctx, key.Hash); err != nil {
			t.Fatal(err)
		}
	}
	// At least what was too much is read again, and each of these reads may push out one that is
	// still to come.
	if n := len(r.proxy.Calls()); n < keys-cached || n > keys/2 {
		t.Errorf("%d of %d keys were read again", n, keys)
	}
}

func TestTheDayOfAKeysLastUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, other := r.open(nil), r.open(nil)
	day := func() string { return r.clock.Now().Format(time.DateOnly) }
	saves := func(want int, on string) {
		t.Helper()
		testutil.Eventually(t, "it was used on "+on, func() bool {
			keys, err := s.Keys.List(ctx, []string{"ann"})
			return err == nil && keys[0].LastUsedOn == on
		})
		n := 0
		for _, c := range r.proxy.Calls() {
			if c.Operation == "UpdateEntity" && c.Target == r.Keys {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d saves, want %d", on, n, want)
		}
	}
	use := func(s *storage.Links, key access.Key) {
		t.Helper()
		if got, err := s.Keys.Key(ctx, key.Hash); err != nil || got.Owner != key.Owner {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	key := r.newKey("ann")
	key.LastUsedOn = ""
	must(t, s.Keys.Create(ctx, key))
	r.proxy.Reset()
	r.clock.Advance(r.clock.Now().Truncate(24 * time.Hour).Add(48*time.Hour - 10*time.Second).Sub(
		r.clock.Now()))
	for range 3 {
		use(s, key)
	}
	saves(1, day())
	use(other, key)
	use(other, key)
	r.clock.Advance(9 * time.Second)
	use(s, key)
	saves(1, day())
	r.clock.Advance(time.Second) // midnight, and it is in the cache
	use(s, key)
	saves(2, day())
	for range 3 {
		r.clock.Advance(time.Hour)
		use(s, key)
		use(other, key)
	}
	saves(2, day())
}

func TestTheDayOfAKeysLastUseThatCannotBeSaved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var warned atomic.Int64
	r.config.Log = slog.New(logged{r.config.Log.Handler(), telemetry.LogKeyUseNotSaved, &warned})
	s := r.open(nil)
	key := r.newKey("ann")
	key.LastUsedOn = ""
	must(t, s.Keys.Create(ctx, key))
	for range 2 {
		r.proxy.Reset()
		arrived := make(chan bool)
		r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if c.Operation == "UpdateEntity" {
				if c.N == 2 {
					<-arrived // no use of the key waits for it
				}
				return faultproxy.Refuse
			}
			return faultproxy.None
		})
		for range 3 { // and only one of them tries
			r.wantKey(s, key, nil, -1)
		}
		close(arrived)
		testutil.Eventually(t, "it has failed", func() bool {
			return len(r.proxy.Calls()) == 1+3 &&
				warned.Load() > 0
		})
		r.clock.Advance(time.Minute)
	}
	if n := warned.Load(); n != 1 {
		t.Errorf("%d warnings", n)
	}
	r.proxy.Reset()
	r.wantKey(s, key, nil, -1)
	testutil.Eventually(t, "it was saved", func() bool {
		return r.Rows(r.Keys)[0]["LastUsedOn"] == r.clock.Now().Format(time.DateOnly)
	})
}

func TestAUseDoesNotBringBackARevokedKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var warned atomic.Int64
	r.config.Log = slog.New(logged{r.config.Log.Handler(), telemetry.LogKeyUseNotSaved, &warned})
	s, other := r.open(nil), r.open(nil)
	key := r.newKey("ann")
	key.LastUsedOn = ""
	must(t, s.Keys.Create(ctx, key))
	saved := make(chan bool, 2) // the revocation and the use
	r.proxy.Before(onNth(1, updateEntity, r.Keys, faultproxy.None, func() {
		should(t, other.Keys.Revoke(ctx, key.ID(), []string{"ann"}))
	}))
	r.proxy.After(func(c faultproxy.Call) {
		if c.Operation == "UpdateEntity" && c.Target == r.Keys {
			saved <- true
		}
	})
	r.wantKey(s, key, nil, -1)
	<-saved
	<-saved
	r.wantKey(r.open(nil), key, access.ErrUnknownKey, -1)
	r.wantKeyRowsLater(s)
	if n := warned.Load(); n != 0 {
		t.Errorf("%d warnings", n)
	}
}

package storage_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/storage"
)

const dayLong = 24 * time.Hour

// expired makes n links that expired age ago, with all their rows, by hand.
func (r *rig) expired(n int, age time.Duration, name string) []link.Link {
	var all []link.Link
	at := r.clock.Now().Add(-age)
	for i := range n {
		l := link.Link{Name: link.Name(fmt.Sprintf("%s%d", name, i)),
			LongURL:   fmt.Sprintf("https://example.com/%s/%d", name, i),
			CreatedAt: at.Add(-time.Hour), ExpiresAt: at}
		r.PutLink(l)
		all = append(all, l)
	}
	return all
}

func TestReapCatchesUpOverManyDays(t *testing.T) {
	for _, pageSize := range []int{1000, 3} {
		t.Run(fmt.Sprintf("pages of %d", pageSize), func(t *testing.T) {
			r := newRig(t)
			r.config.Reap.PageSize = pageSize
			s := r.open(withCache)
			r.expired(7, 10*dayLong, "ten")
			r.expired(5, 9*dayLong, "nine")
			r.expired(4, time.Second, "now")
			r.expired(1, 0, "zero")
			alive := r.create(s, "https://example.com/alive", time.Hour)
			done, err := s.Reap(ctx)
			if want := (link.ReapResult{Deleted: 17, Complete: true}); err != nil || done != want {
				t.Errorf("got %+v, %v, want %+v", done, err, want)
			}
			r.WantRows(1, 1, 1)
			if got, err := s.Get(ctx, alive.Name); err != nil || !storage.Same(got, alive) {
				t.Errorf("the live link: %+v, %v", got, err)
			}
		})
	}
}

func TestReapLeavesAloneWhatIsNotDue(t *testing.T) {
	r := newRig(t)
	r.config.Reap.Buffer = time.Hour
	s := r.open(nil)
	now := r.clock.Now()

	inBuffer := r.expired(1, 59*time.Minute, "buffer")[0]
	extended := r.expired(1, 2*dayLong, "extended")[0]
	extended.ExpiresAt = now.Add(dayLong)
	r.PutLink(extended) // its old expiry row stays where it was
	forever := r.expired(1, 3*dayLong, "forever")[0]
	forever.ExpiresAt = time.Time{}
	r.PutLink(forever)
	reused := r.expired(1, 2*dayLong, "reused")[0]
	newer := link.Link{Name: "newer0", LongURL: reused.LongURL, CreatedAt: now,
		ExpiresAt: now.Add(dayLong)}
	r.PutLink(newer) // takes the index row over
	r.Put(r.Expiry, rawtables.Expiry(link.Link{Name: "orphan", ExpiresAt: now.Add(-dayLong)}))
	early := link.Link{Name: "early0", LongURL: "https://example.com/early",
		ExpiresAt: now.Add(time.Hour)}
	r.PutLink(early)
	wrongKey := rawtables.Expiry(early)
	wrongKey["PartitionKey"] = "20200102" // before its time
	r.Put(r.Expiry, wrongKey)

	done, err := s.Reap(ctx)
	if want := (link.ReapResult{Deleted: 1, Dropped: 3, Complete: true}); err != nil ||
		done != want {
		t.Errorf("got %+v, %v, want %+v", done, err, want)
	}
	for _, l := range []link.Link{inBuffer, extended, forever, newer, early} {
		if got, err := s.Get(ctx, l.Name); err != nil || !storage.Same(got, l) {
			t.Errorf("%s: got %+v, %v", l.Name, got, err)
		}
	}
	if _, err := s.Get(ctx, reused.Name); !errors.Is(err, link.ErrNotFound) {
		t.Errorf("%s: got %v", reused.Name, err)
	}
	for url, alias := range map[string]link.Name{
		newer.LongURL: newer.Name, forever.LongURL: forever.Name,
		extended.LongURL: extended.Name,
	} {
		if l, created, err := s.Create(ctx, r.want(url, time.Hour), ""); err != nil || created ||
			l.Name != alias {
			t.Errorf("%s: got %s, created %t, %v, want its link %s", url, l.Name, created, err,
				alias)
		}
	}
	// in the buffer, newer, early twice, and extended, which is looked at again, as is forever
	r.WantRows(5, 5, 7)
	r.WantNoLeak(storage.ExpiryDamaged)
}

func TestReapGoesOnAfterARowThatFails(t *testing.T) {
	r := newRig(t)
	s := r.open(nil)
	r.expired(3, 2*dayLong, "fine")
	r.expired(1, 10*dayLong, "stuck")
	r.Put(r.Links, rawtables.Entity{"PartitionKey": "br", "RowKey": "broken"})
	at := r.clock.Now().Add(-5 * dayLong)
	r.Put(r.Expiry, rawtables.Expiry(link.Link{Name: "broken", ExpiresAt: at}))
	r.Put(r.Expiry, rawtables.Entity{"PartitionKey": "20200101", "RowKey": "not what it should be"})
	r.proxy.Before(faultproxy.On("DeleteEntity", r.Links, faultproxy.ServerBusy))
	done, err := s.Reap(ctx)
	if want := (link.ReapResult{Failed: 6, Backlog: 10 * dayLong, Complete: true}); err != nil ||
		done != want {
		t.Errorf("links cannot be deleted: got %+v, %v, want %+v", done, err, want)
	}
	r.proxy.Reset()
	done, err = s.Reap(ctx)
	if want := (link.ReapResult{Deleted: 4, Failed: 2, Backlog: 5 * dayLong,
		Complete: true}); err != nil || done != want {
		t.Errorf("two damaged rows: got %+v, %v, want %+v", done, err, want)
	}
}

func TestReapWhereOnePartitionFails(t *testing.T) {
	r := newRig(t)
	s := r.open(nil)
	r.expired(10, dayLong, "aa")
	r.expired(10, dayLong, "bb")
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Target == r.Links && c.Partition == "bb" {
			return faultproxy.ServerBusy
		}
		return faultproxy.None
	})
	done, err := s.Reap(ctx)
	if want := (link.ReapResult{Deleted: 10, Failed: 10, Backlog: dayLong,
		Complete: true}); err != nil || done != want {
		t.Errorf("got %+v, %v, want %+v", done, err, want)
	}
	r.WantRows(10, 10, 10)
	r.proxy.Reset()
	if done, err = s.Reap(ctx); err != nil || done.Deleted != 10 {
		t.Errorf("afterwards: %+v, %v", done, err)
	}
	r.WantRows(0, 0, 0)
}

func TestReapThatIsCutShortIsResumed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Reap.PageSize = 10
	s := r.open(nil)
	r.expired(40, dayLong, "due")
	var gets atomic.Int64
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "GetEntity" && c.Target == r.Links {
			if gets.Add(1) > 25 { // each link of the first page was read twice
				return faultproxy.Freeze
			}
		}
		return faultproxy.None
	})
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	first, err := s.Reap(limited)
	if err != nil || first.Complete || first.Failed != 0 || first.Deleted == 0 ||
		first.Deleted > 15 || first.Backlog != dayLong {
		t.Errorf("got %+v, %v, want a part of it", first, err)
	}
	r.WantNoLeak()
	r.proxy.Reset()
	second, err := r.open(nil).Reap(ctx)
	if err != nil || !second.Complete || first.Deleted+second.Deleted+second.Dropped < 40 ||
		second.Backlog != 0 {
		t.Errorf("first %+v, then %+v, %v", first, second, err)
	}
	r.WantRows(0, 0, 0)
}

func TestReapThatIsStoppedSaysWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	r.expired(5, dayLong, "due")
	lost := errors.New("the lock is lost")
	stopped, stop := context.WithCancelCause(ctx)
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "DeleteEntity" {
			stop(lost)
			return faultproxy.Freeze
		}
		return faultproxy.None
	})
	done, err := s.Reap(stopped)
	if !errors.Is(err, lost) || done.Complete || done.Failed != 0 {
		t.Errorf("got %+v, %v, want %v", done, err, lost)
	}
	r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Refuse })
	if _, err := s.Reap(ctx); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("no storage: got %v", err)
	}
}

func TestReapersAtOnceDoNoHarm(t *testing.T) {
	r := newRig(t)
	reapers := []*storage.Links{r.open(nil), r.open(nil), r.open(nil)}
	r.expired(60, dayLong, "due")
	alive := r.create(reapers[0], "https://example.com/alive", time.Hour)
	var all sync.WaitGroup
	for _, s := range reapers {
		all.Go(func() {
			if done, err := s.Reap(ctx); err != nil || done.Failed != 0 {
				t.Errorf("got %+v, %v", done, err)
			}
		})
	}
	all.Wait()
	r.WantRows(1, 1, 1)
	if _, err := reapers[0].Get(ctx, alive.Name); err != nil {
		t.Error(err)
	}
}

// Between a reaper's read and its delete, the link is given more time, or its URL a new link.
func TestReapDoesNotDeleteWhatChangedSinceItWasRead(t *testing.T) {
	// of the link, and of its index row
	for _, before := range []string{"DeleteEntity", "GetEntity"} {
		t.Run("the link, before "+before, func(t *testing.T) {
			r := newRig(t)
			s := r.open(nil)
			l := r.expired(1, dayLong, "due")[0]
			l.ExpiresAt = r.clock.Now().Add(dayLong)
			table := map[string]string{"DeleteEntity": r.Links, "GetEntity": r.Index}[before]
			r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				if c.Operation == before && c.Target == table {
					r.PutLink(l)
				}
				return faultproxy.None
			})
			done, err := s.Reap(ctx)
			if want := (link.ReapResult{Complete: true}); err != nil || done != want {
				t.Errorf("got %+v, %v, want %+v", done, err, want)
			}
			r.proxy.Reset()
			r.WantRows(1, 1, 2)
			if done, err = s.Reap(ctx); err != nil || done.Dropped != 1 || done.Deleted != 0 {
				t.Errorf("got %+v, %v, want the old expiry row dropped", done, err)
			}
			if got, err := s.Get(ctx, l.Name); err != nil || !storage.Same(got, l) {
				t.Errorf("got %+v, %v", got, err)
			}
			r.WantRows(1, 1, 2)
			r.clock.Advance(10 * time.Minute) // it is looked at again
			if done, err = s.Reap(ctx); err != nil || done.Dropped != 1 || done.Deleted != 0 {
				t.Errorf("again: got %+v, %v", done, err)
			}
			r.WantRows(1, 1, 1)
		})
	}
	t.Run("the index row", func(t *testing.T) {
		r := newRig(t)
		s, other := r.open(nil), r.open(nil)
		old := r.expired(1, dayLong, "due")[0]
		var newer link.Link
		r.proxy.Before(onNth(1, "DeleteEntity", r.Index, faultproxy.None, func() {
			newer = r.create(other, old.LongURL, time.Hour)
		}))
		if done, err := s.Reap(ctx); err != nil || done.Deleted != 1 {
			t.Errorf("got %+v, %v", done, err)
		}
		newer.Shared = true
		if l, created, err := s.Create(ctx, r.want(old.LongURL, time.Hour), ""); err != nil ||
			created || !storage.Same(l, newer) {
			t.Errorf("got %+v, created %t, %v, want %+v", l, created, err, newer)
		}
		r.WantRows(1, 1, 1)
	})
}

// The process's clock jumps an hour ahead, and for the reaper it is as late as it is.
func TestReapGoesByTheClockOfStorage(t *testing.T) {
	r := newRig(t)
	r.config.Reap.StorageClock = true
	s := r.open(nil)
	r.expired(1, time.Minute, "due")
	alive := r.create(s, "https://example.com/alive", 30*time.Minute)
	for _, jump := range []time.Duration{time.Hour, -2 * time.Hour} {
		r.clock.Advance(jump)
		should(t, reap(ctx, r, s))
		if got, err := s.Get(ctx, alive.Name); err != nil || !storage.Same(got, alive) {
			t.Errorf("after a jump of %v: %+v, %v", jump, got, err)
		}
	}
	r.WantRows(1, 1, 1)
	r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Refuse })
	if _, err := s.Reap(ctx); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("no storage: %v", err)
	}
}

func TestReapWithAnswersLost(t *testing.T) {
	t.Parallel()
	// Calls: two listings, four reads, three deletes, a listing of the changes.
	for n := 1; n <= 10; n++ {
		t.Run(fmt.Sprintf("call %d", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(nil)
			r.expired(1, dayLong, "due")
			r.proxy.Before(faultproxy.Fail(n, faultproxy.DropResponse))
			done, err := s.Reap(ctx)
			if want := (link.ReapResult{Deleted: 1, Complete: true}); err != nil || done != want {
				t.Errorf("got %+v, %v, want %+v", done, err, want)
			}
			if got := len(r.proxy.Calls()); got != 11 {
				t.Errorf("%d calls, want 11", got)
			}
			r.WantRows(0, 0, 0)
		})
	}
}

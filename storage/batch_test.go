package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
)

const batch = "SubmitTransaction"

func TestReapDeletesExpiryRowsInBatches(t *testing.T) {
	for pageSize, want := range map[int]struct {
		batches []int
		pages   int
	}{
		1000: {[]int{3, 20, 100}, 2},     // of past days, and of today
		50:   {[]int{20, 24, 29, 50}, 4}, // the first page ends within the last day
	} {
		t.Run(fmt.Sprintf("pages of %d", pageSize), func(t *testing.T) {
			r, e := reported(t)
			r.config.Reap.PageSize = pageSize
			s := r.open(nil)
			const links = 20 + 1 + 103
			r.expired(20, 5*dayLong, "five")
			r.expired(1, 4*dayLong, "four") // a batch of one is none
			r.expired(103, 3*dayLong, "three")
			done, err := s.Reap(ctx)
			if want := (link.ReapResult{Deleted: links, Complete: true}); err != nil ||
				done != want {
				t.Errorf("got %+v, %v, want %+v", done, err, want)
			}
			r.WantRows(0, 0, 0)

			r.sender.Close(time.Minute)
			calls := map[string]int{}
			for _, i := range e.Items("RemoteDependencyData") {
				if d := i.Data.BaseData; !strings.HasPrefix(d.Name, "CreateTable") {
					calls[d.Name]++
				}
			}
			wantCalls := map[string]int{
				// for the blocked hosts too, at the start
				"QueryEntities " + r.Expiry: want.pages, "QueryEntities " + r.State: 2,
				"GetEntity " + r.Links: 2 * links, "GetEntity " + r.Index: links,
				"DeleteEntity " + r.Index: links, "GetEntity " + r.ClickTotals: links,
				"DeleteEntity " + r.Links: links,
				batch + " " + r.Expiry:    len(want.batches), "DeleteEntity " + r.Expiry: 1,
			}
			var batches []int
			for _, c := range r.proxy.Calls() {
				if c.Operation == batch {
					batches = append(batches, c.Rows)
				}
			}
			slices.Sort(batches)
			if batches = slices.Compact(batches); fmt.Sprint(calls,
				batches) != fmt.Sprint(wantCalls, want.batches) {
				t.Errorf("got %v, batches of %v, want %v, %v", calls, batches, wantCalls,
					want.batches)
			}
		})
	}
}

// Whatever becomes of a batch, each of its rows is deleted that still is as it was read, and
// counted as if it had been deleted alone.
func TestReapWhereABatchFails(t *testing.T) {
	const due = 5
	all := link.ReapResult{Deleted: due, Complete: true}
	onExpiryRows := func(r *rig, fault faultproxy.Fault) func(faultproxy.Call) faultproxy.Fault {
		return func(c faultproxy.Call) faultproxy.Fault {
			if c.Target == r.Expiry && c.Operation != "QueryEntities" {
				return fault
			}
			return faultproxy.None
		}
	}
	for name, test := range map[string]struct {
		before func(r *rig, links []link.Link) func(faultproxy.Call) faultproxy.Fault
		want   link.ReapResult
		left   int // expiry rows, which the next run drops
		said   string
	}{
		"a row has changed": {func(r *rig,
			links []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return onNth(1, batch, r.Expiry, faultproxy.None, func() {
				r.Put(r.Expiry, rawtables.Expiry(links[3]))
			})
		}, link.ReapResult{Deleted: due - 1, Complete: true}, 1,
			"412 UpdateConditionNotSatisfied true"},
		"a row is gone": {func(r *rig, links []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return onNth(1, batch, r.Expiry, faultproxy.None, func() {
				r.Drop(r.Expiry, rawtables.Expiry(links[0]))
			})
		}, all, 0, "404 ResourceNotFound true"},
		"a response is lost": {func(r *rig, _ []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return onNth(1, batch, r.Expiry, faultproxy.DropResponse, nil)
		}, all, 0, "unreachable false; 404 ResourceNotFound true 2"},
		"all responses are lost": {func(r *rig,
			_ []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return faultproxy.On(batch, "", faultproxy.DropResponse)
		}, all, 0, "unreachable false; unreachable false 2; unreachable false 3"},
		"a response is empty": {func(r *rig,
			_ []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return faultproxy.On(batch, "", faultproxy.EmptyResponse)
		}, all, 0, "202 false"},
		"batches are refused": {func(r *rig, _ []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return faultproxy.On(batch, "", faultproxy.Refuse)
		}, all, 0, "unreachable false; unreachable false 2; unreachable false 3"},
		"batches freeze": {func(r *rig, _ []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return faultproxy.On(batch, "", faultproxy.Freeze)
		}, all, 0, "timeout false"},
		"busy for batches": {func(r *rig, _ []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return faultproxy.On(batch, "", faultproxy.ServerBusy)
		}, all, 0, "503 ServerBusy false; 503 ServerBusy false 2; 503 ServerBusy false 3"},
		"busy for single rows too": {func(r *rig,
			_ []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return onExpiryRows(r, faultproxy.ServerBusy)
		}, link.ReapResult{Failed: due, Backlog: dayLong, Complete: true}, due,
			"503 ServerBusy false; 503 ServerBusy false 2; 503 ServerBusy false 3"},
		"limiting for single rows too": {func(r *rig,
			_ []link.Link) func(faultproxy.Call) faultproxy.Fault {
			return onExpiryRows(r, faultproxy.TooManyRequests)
		}, link.ReapResult{Failed: due, Backlog: dayLong, Complete: true}, due,
			"429 TooManyRequests false"},
		"a key with a quote": {func(r *rig,
			links []link.Link) func(faultproxy.Call) faultproxy.Fault {
			odd := rawtables.Expiry(links[2])
			r.Drop(r.Expiry, odd)
			odd["RowKey"] = "12'"
			r.Put(r.Expiry, odd)
			return nil
		}, all, 0, "202 true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, e := reported(t)
			s := r.open(nil)
			links := r.expired(due, dayLong, "due")
			r.proxy.Before(test.before(r, links))
			ctx := ctx
			if name == "batches freeze" {
				ctx = faultproxy.WithTries(hasty, policy.RetryOptions{MaxRetries: -1,
					TryTimeout: time.Second})
			}
			done, err := s.Reap(ctx)
			if err != nil || done != test.want {
				t.Errorf("got %+v, %v, want %+v", done, err, test.want)
			}
			r.WantRows(0, 0, test.left)
			r.proxy.Reset()
			done, err = s.Reap(ctx)
			if want := (link.ReapResult{Dropped: int64(test.left), Complete: true}); err != nil ||
				done != want {
				t.Errorf("the next run: got %+v, %v, want %+v", done, err, want)
			}
			r.WantRows(0, 0, 0)

			var said []string
			for _, call := range r.told(e) {
				if of, ok := strings.CutPrefix(call, batch+" ShortUrlsExpiryIndex "); ok {
					said = append(said, of)
				}
			}
			if got := strings.Join(said, "; "); got != test.said {
				t.Errorf("reported %q, want %q", got, test.said)
			}
		})
	}
}

func TestABatchThatIsAppliedIsReported(t *testing.T) {
	r, e := reported(t)
	s := r.open(nil)
	r.expired(2, dayLong, "due")
	should(t, reap(ctx, r, s))
	last := slices.DeleteFunc(r.told(e), func(call string) bool {
		return !strings.HasPrefix(call, batch)
	})
	if want := "[" + batch + " ShortUrlsExpiryIndex 202 true]"; fmt.Sprint(last) != want {
		t.Errorf("reported %v, want %s", last, want)
	}
}

// The run ends when links are deleted and the batch of their expiry rows is not sent yet, or got no
// response.
func TestReapThatIsStoppedAtABatch(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{"before it": faultproxy.Freeze,
		"after it": faultproxy.DropResponse} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(nil)
			r.expired(5, dayLong, "due")
			lost := errors.New("the lock is lost")
			stopped, stop := context.WithCancelCause(ctx)
			r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				if c.Operation != batch {
					return faultproxy.None
				}
				stop(lost)
				return fault
			})
			done, err := s.Reap(stopped)
			if want := (link.ReapResult{Backlog: dayLong}); !errors.Is(err, lost) || done != want {
				t.Errorf("got %+v, %v, want %+v, %v", done, err, want, lost)
			}
			r.proxy.Wait()
			left := 5
			if fault == faultproxy.DropResponse {
				left = 0
			}
			r.WantRows(0, 0, left)
			r.proxy.Reset()
			done, err = s.Reap(ctx)
			if want := (link.ReapResult{Dropped: int64(left), Complete: true}); err != nil ||
				done != want {
				t.Errorf("the next run: got %+v, %v, want %+v", done, err, want)
			}
			r.WantRows(0, 0, 0)
		})
	}
}

// A create that was stopped for too long inserts its link after the reaper has looked for it, and
// finds its expiry row there: a reaper that would still delete it, with a batch that waits for
// other rows, would leak the link.
func TestReapDropsRowsWithoutALinkAtOnce(t *testing.T) {
	r := newRig(t)
	s := r.open(nil)
	r.expired(3, dayLong, "due")
	at := r.clock.Now().Add(-dayLong)
	r.Put(r.Expiry, rawtables.Expiry(link.Link{Name: "orphan", ExpiresAt: at}))
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == batch {
			for _, row := range r.Rows(r.Expiry) {
				if row["AliasRowKey"] == "orphan" {
					t.Error("the row without a link waits for its batch")
				}
			}
		}
		return faultproxy.None
	})
	done, err := s.Reap(ctx)
	if want := (link.ReapResult{Deleted: 3, Dropped: 1, Complete: true}); err != nil ||
		done != want {
		t.Errorf("got %+v, %v, want %+v", done, err, want)
	}
	r.WantRows(0, 0, 0)
}

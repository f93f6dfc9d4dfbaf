package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"tiney/internal/faultproxy"
	"tiney/link"
	"tiney/storage"
)

func openLock(t *testing.T, r *rig, container string) *storage.Lock {
	t.Helper()
	l, err := storage.OpenLock(storage.LockConfig{
		Connection: connect(t, r.proxy.ConnectionString()), Container: container, Blob: "reaper.lock",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLockIsHeldByOne(t *testing.T) {
	r := newRig(t)
	one, two := openLock(t, r, "one-holder"), openLock(t, r, "one-holder")
	var inside atomic.Bool
	work := func(context.Context) error { inside.Store(true); return nil }
	failed := errors.New("the work failed")
	err := one.Do(ctx, func(ctx context.Context) error {
		for _, l := range []*storage.Lock{one, two} {
			if err := l.Do(ctx, work); !errors.Is(err, link.ErrLockHeld) || inside.Load() {
				t.Errorf("while it is held: %v, worked: %t", err, inside.Load())
			}
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v, want the work's error", err)
	}
	if err := two.Do(ctx, work); err != nil || !inside.Load() {
		t.Errorf("afterwards: %v, worked: %t", err, inside.Load())
	}
	r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.ServerBusy })
	if _, err := one.Held(ctx); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("no storage: %v", err)
	}
}

func TestLockMakesWhatIsMissing(t *testing.T) {
	r := newRig(t)
	name := strings.ToLower(r.Links) // of this run of the test alone
	l := openLock(t, r, name)
	if err := l.Ping(ctx); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("before there is a container: %v", err)
	}
	wantHeld := func(want bool) {
		t.Helper()
		if held, err := l.Held(ctx); err != nil || held != want {
			t.Errorf("held: %t, %v, want %t", held, err, want)
		}
	}
	for range 2 {
		wantHeld(false)
		if err := l.Do(ctx, func(context.Context) error { wantHeld(true); return nil }); err != nil {
			t.Error(err)
		}
		if err := l.Ensure(ctx); err != nil {
			t.Error(err)
		}
		if err := l.Ping(ctx); err != nil {
			t.Error(err)
		}
	}
	c, err := container.NewClientFromConnectionString(emulator.ConnectionString(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Do(ctx, func(context.Context) error { return nil }); err != nil {
		t.Errorf("after the container was deleted: %v", err)
	}
}

// TestLockNeedsItsContainerOnly: a role for the container alone may not allow to create one.
func TestLockNeedsItsContainerOnly(t *testing.T) {
	r := newRig(t)
	name := "only-" + strings.ToLower(r.Links)
	c, err := container.NewClientFromConnectionString(emulator.ConnectionString(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
		if call.Operation == "CreateContainer" {
			t.Error("it creates a container that is there")
		}
		return faultproxy.None
	})
	l := openLock(t, r, name)
	for range 2 { // without its blob, and with it
		if err := l.Do(ctx, l.Ensure); err != nil {
			t.Error(err)
		}
		if err := l.Ping(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestMakingALockThatIsHeld(t *testing.T) {
	r := newRig(t)
	l := openLock(t, r, "made-while-held")
	if err := l.Do(ctx, l.Ensure); err != nil {
		t.Error(err)
	}
}

func TestLockThatWasBrokenIsGivenBackQuietly(t *testing.T) {
	r := newRig(t)
	l := openLock(t, r, "broken")
	c, err := container.NewClientFromConnectionString(emulator.ConnectionString(), "broken", nil)
	if err != nil {
		t.Fatal(err)
	}
	var other atomic.Bool
	err = l.Do(ctx, func(context.Context) error {
		b, err := lease.NewBlobClient(c.NewBlockBlobClient("reaper.lock"), nil)
		if err != nil {
			return err
		}
		var now int32
		if _, err := b.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: &now}); err != nil {
			return err
		}
		return openLock(t, r, "broken").Do(ctx, func(context.Context) error { other.Store(true); return nil })
	})
	if err != nil || !other.Load() {
		t.Errorf("got %v, other: %t", err, other.Load())
	}
}

func TestLockWithFaults(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := openLock(t, r, "faults")
	if err := l.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ { // acquire, release
		r.proxy.Reset()
		r.proxy.Before(faultproxy.Fail(n, faultproxy.DropResponse))
		if err := l.Do(ctx, func(context.Context) error { return nil }); err != nil {
			t.Errorf("response %d lost: %v", n, err)
		}
	}
	for name, fault := range map[string]faultproxy.Fault{"closed": faultproxy.Refuse, "frozen": faultproxy.Freeze} {
		r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return fault })
		start := time.Now()
		if err := l.Do(hasty, func(context.Context) error { t.Error("worked without the lock"); return nil }); !errors.Is(err, link.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > storage.Timeout+slack {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

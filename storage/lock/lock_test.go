package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/ingest"
	"tiney/storage/lock"
	"tiney/storage/table"
)

// emulator is the one Azurite of all tests here. Each test has a container of its own in it.
var emulator azurite.Ports

func TestMain(m *testing.M) {
	os.Exit(azurite.ForTests(func(ports azurite.Ports) int {
		emulator = ports
		return m.Run()
	}))
}

// ctx gives a try as much time as its call has: on a busy machine the emulator may stand still for
// longer than a try of the product takes. hasty leaves the tries as the product has them.
var (
	ctx = policy.WithRetryOptions(hasty, policy.RetryOptions{MaxRetries: 2,
		RetryDelay:    50 * time.Millisecond,
		MaxRetryDelay: 200 * time.Millisecond, TryTimeout: time.Minute})
	hasty = context.Background()
)

// slack is what a slow machine may take longer than the clock says.
const slack = 4500 * time.Millisecond

func newProxy(t *testing.T) *faultproxy.Proxy {
	p := faultproxy.Start(emulator)
	t.Cleanup(p.Close)
	return p
}

func openLock(t *testing.T, proxy *faultproxy.Proxy, container string,
	sender *telemetry.Sender) *lock.Lock {
	t.Helper()
	setting := func(string) string { return proxy.ConnectionString() }
	c, err := table.ParseConnection(setting, table.BlobService, "X")
	if err != nil {
		t.Fatal(err)
	}
	l, err := lock.Open(lock.Config{Connection: c, Container: container, Blob: "reaper.lock",
		Sender: sender,
		Log:    slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLockIsHeldByOne(t *testing.T) {
	proxy := newProxy(t)
	one, two := openLock(t, proxy, "one-holder", nil), openLock(t, proxy, "one-holder", nil)
	var inside atomic.Bool
	work := func(context.Context) error { inside.Store(true); return nil }
	failed := errors.New("the work failed")
	err := one.Do(ctx, func(ctx context.Context) error {
		for _, l := range []*lock.Lock{one, two} {
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
	proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.ServerBusy })
	if _, err := one.Held(ctx); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("no storage: %v", err)
	}
}

func TestLockMakesWhatIsMissing(t *testing.T) {
	proxy := newProxy(t)
	const name = "missing"
	l := openLock(t, proxy, name, nil)
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
		if err := l.Do(ctx, func(context.Context) error {
			wantHeld(true)
			return nil
		}); err != nil {
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
	proxy := newProxy(t)
	const name = "only"
	c, err := container.NewClientFromConnectionString(emulator.ConnectionString(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(ctx, nil); err != nil {
		t.Fatal(err)
	}
	proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
		if call.Operation == "CreateContainer" {
			t.Error("it creates a container that is there")
		}
		return faultproxy.None
	})
	l := openLock(t, proxy, name, nil)
	for range 2 { // without its blob, and with it
		if err := l.Do(ctx, l.Ensure); err != nil {
			t.Error(err)
		}
		if err := l.Ping(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestLockThatWasBrokenIsGivenBackQuietly(t *testing.T) {
	proxy := newProxy(t)
	l := openLock(t, proxy, "broken", nil)
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
		return openLock(t, proxy, "broken",
			nil).Do(ctx, func(context.Context) error { other.Store(true); return nil })
	})
	if err != nil || !other.Load() {
		t.Errorf("got %v, other: %t", err, other.Load())
	}
}

func TestLockWithFaults(t *testing.T) {
	t.Parallel()
	proxy := newProxy(t)
	l := openLock(t, proxy, "faults", nil)
	if err := l.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ { // acquire, release
		proxy.Reset()
		proxy.Before(faultproxy.Fail(n, faultproxy.DropResponse))
		if err := l.Do(ctx, func(context.Context) error { return nil }); err != nil {
			t.Errorf("response %d lost: %v", n, err)
		}
	}
	for name, fault := range map[string]faultproxy.Fault{"closed": faultproxy.Refuse,
		"frozen": faultproxy.Freeze} {
		proxy.Before(func(faultproxy.Call) faultproxy.Fault { return fault })
		start := time.Now()
		if err := l.Do(hasty, func(context.Context) error {
			t.Error("worked without the lock")
			return nil
		}); !errors.Is(err, link.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(start); took > table.Timeout+slack {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

func TestCallsOfTheLockAreReported(t *testing.T) {
	t.Parallel()
	e := ingest.Start()
	t.Cleanup(e.Close)
	connection, err := telemetry.ParseConnection(e.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	sender := telemetry.Start(telemetry.Config{Connection: connection,
		Metrics:         new(telemetry.Metrics),
		SamplingPercent: 100, Log: slog.New(slog.DiscardHandler)})
	proxy := newProxy(t)
	one, two := openLock(t, proxy, "reported", sender), openLock(t, proxy, "reported", sender)
	if err := one.Do(ctx, func(context.Context) error {
		if err := two.Do(ctx, nil); err != link.ErrLockHeld {
			t.Errorf("got %v", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := one.Ping(ctx); err != nil {
		t.Error(err)
	}
	sender.Close(time.Minute)
	var got []string
	for _, i := range e.Items("RemoteDependencyData") {
		d := i.Data.BaseData
		got = append(got, strings.Join(strings.Fields(fmt.Sprint(d.Name, " ", d.ResultCode, " ",
			d.Properties["ErrorCode"], " ", d.Success)), " "))
		if d.Type != telemetry.TypeBlob || d.Target != "127.0.0.1" {
			t.Errorf("%+v", d)
		}
	}
	want := []string{
		"AcquireLease 404 ContainerNotFound true", "CreateBlob 404 ContainerNotFound true",
		"CreateContainer 201 true", "CreateBlob 201 true", "AcquireLease 201 true",
		"AcquireLease 409 LeaseAlreadyPresent true", "ReleaseLease 200 true",
		"GetContainer 200 true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("reported\n%q, want\n%q", got, want)
	}
	for _, never := range []string{"AccountKey", "SharedKey", "sig=", "https://"} {
		if strings.Contains(e.Raw(), never) {
			t.Errorf("%s was sent: %s", never, e.Raw())
		}
	}
}

func TestLocal(t *testing.T) {
	l, ctx := new(lock.Local), t.Context()
	none := func(context.Context) error { return nil }
	if held, _ := l.Held(ctx); held {
		t.Error("held by nobody")
	}
	failed := errors.New("no")
	err := l.Do(ctx, func(ctx context.Context) error {
		if held, err := l.Held(ctx); !held || err != nil {
			t.Errorf("held: %t, %v", held, err)
		}
		if err := l.Do(ctx, none); !errors.Is(err, link.ErrLockHeld) {
			t.Errorf("at the same time: %v", err)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	if err := l.Do(ctx, func(context.Context) error { panic("no") }); err == nil {
		t.Error("a panic is no error")
	}
	if err := errors.Join(l.Do(ctx, none), l.Ensure(ctx), l.Ping(ctx)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

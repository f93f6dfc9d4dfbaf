package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

func TestCollectPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 3 << 20: 400, 4 << 20: 300, 8 << 20: 150, 11 << 20: 100, 12 << 20: 100, 1 << 40: 100,
	} {
		if got := collectPercent(live); got != want {
			t.Errorf("%d bytes: %d, want %d", live, got, want)
		}
	}
}

// percentNow is GOGC as it is. To set it and to set it back would lose what somebody else sets in between.
func percentNow() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(int64(sample[0].Value.Uint64())) // -1: off
}

// withPercent sets GOGC for the process, as percent, and for what reads the environment, as env.
func withPercent(t *testing.T, percent int, env string) {
	t.Helper()
	t.Setenv("GOGC", env)
	before := debug.SetGCPercent(percent)
	t.Cleanup(func() { debug.SetGCPercent(before) })
}

func TestKeepHeadroomOfSomebody(t *testing.T) {
	withPercent(t, 70, "70")
	defer keepHeadroom(liveHeap)()
	if got := percentNow(); got != 70 { // keepHeadroom does not wait for a collection to set it
		t.Errorf("somebody's own 70 has become %d", got)
	}
}

// How much is alive is made up here, since other tests leave as much behind as they like.
func TestKeepHeadroom(t *testing.T) {
	withPercent(t, 100, "")
	var alive atomic.Uint64
	stop := keepHeadroom(alive.Load)
	defer stop() // before GOGC is set back
	for _, live := range []uint64{1 << 20, 64 << 20, 8 << 20, 4 << 20} {
		alive.Store(live)
		want := collectPercent(live)
		for end := time.Now().Add(10 * time.Second); percentNow() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("with %d bytes alive: %d, want %d", live, percentNow(), want)
			}
			runtime.GC()
		}
	}
	stop()
	debug.SetGCPercent(80)
	alive.Store(64 << 20)
	for range 10 {
		runtime.GC()
		time.Sleep(time.Millisecond)
		if got := percentNow(); got != 80 {
			t.Fatalf("it was stopped, and 80 has become %d", got)
		}
	}
}

func TestLiveHeap(t *testing.T) {
	const size = 64 << 20
	large := make([]byte, size)
	runtime.GC()
	with := liveHeap()
	runtime.KeepAlive(large)
	if with < size {
		t.Errorf("%d bytes are alive, among them %d", with, size)
	}
	large = nil
	for end := time.Now().Add(10 * time.Second); liveHeap() > with-size/2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are alive, and after %d of them have died, %d", with, size, liveHeap())
		}
		runtime.GC()
	}
}

package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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
	defer keepHeadroom()()
	if got := percentNow(); got != 70 { // keepHeadroom does not wait for a collection to set it
		t.Errorf("somebody's own 70 has become %d", got)
	}
}

func TestKeepHeadroom(t *testing.T) {
	withPercent(t, 100, "")
	stop := keepHeadroom()
	defer stop() // before GOGC is set back
	wait := func(want func(percent int) bool, what string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !want(percentNow()); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d %%", what, percentNow())
			}
			runtime.GC()
		}
	}
	wait(func(p int) bool { return p > 100 }, "a small heap")
	large := make([]byte, 64<<20)
	wait(func(p int) bool { return p == 100 }, "a large heap")
	runtime.KeepAlive(large)
	large = nil
	wait(func(p int) bool { return p > 100 }, "a small heap again")

	stop()
	debug.SetGCPercent(80)
	large = make([]byte, 64<<20)
	for range 10 {
		runtime.GC()
		time.Sleep(time.Millisecond)
		if got := percentNow(); got != 80 {
			t.Fatalf("it was stopped, and 80 has become %d", got)
		}
	}
	runtime.KeepAlive(large)
}

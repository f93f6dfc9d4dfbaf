package main

import (
	"runtime"
	"runtime/debug"
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

func TestKeepHeadroom(t *testing.T) {
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	before := percent()
	defer debug.SetGCPercent(before)

	t.Setenv("GOGC", "70")
	debug.SetGCPercent(70)
	keepHeadroom()
	runtime.GC()
	if got := percent(); got != 70 {
		t.Fatalf("somebody's own %d has become %d", 70, got)
	}

	t.Setenv("GOGC", "")
	keepHeadroom()
	wait := func(want func(percent int) bool, what string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !want(percent()); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d %%", what, percent())
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
}

package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// headroom is how much is allocated between two garbage collections at least, in bytes. Go's own rule is as much as is
	// alive, 4 MB at least; and little is alive here but for the cache, so that a busy process would collect every few
	// hundred requests.
	//
	// It costs memory: a process under load with little in its cache holds up to about 10 MB more than by Go's own rule.
	// One whose cache holds about 10 MB or more is back at that rule, and holds no more than it would anyway. GOGC in the
	// environment switches all of this off, and GOMEMLIMIT bounds the process as ever.
	headroom = 12 << 20
	// mostPercent bounds what headroom does to GOGC.
	mostPercent = 400
)

// keepHeadroom sets GOGC anew after each collection, for as many bytes as are alive, unless somebody has set it. Once
// stop has returned, it is left as it is then.
func keepHeadroom(alive func() uint64) (stop func()) {
	k := &keeper{alive: alive}
	if os.Getenv("GOGC") == "" {
		k.afterCollection()
	}
	return k.stop
}

// keeper sets GOGC after each collection until it is stopped.
type keeper struct {
	alive func() uint64

	mu      sync.Mutex
	percent int // what it has set; zero: nothing yet
	stopped bool
}

// marker is what a collection finds dead, which is how one is noticed. It has a size because a cleanup need not run for
// an object without: all of those may share an address. And it has more than 16 bytes because smaller objects without
// pointers share their memory with others, any of which would keep it alive.
type marker [32]byte

// afterCollection sets GOGC where it is not what it should be, and waits for the next collection, which finds the
// marker that is made here.
func (k *keeper) afterCollection() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return
	}
	if want := collectPercent(k.alive()); want != k.percent {
		k.percent = want
		debug.SetGCPercent(want)
	}
	runtime.AddCleanup(new(marker), (*keeper).afterCollection, k)
}

func (k *keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
}

// collectPercent is GOGC for a heap of so many bytes that are alive.
func collectPercent(live uint64) int {
	percent := headroom * 100 / max(live, 1)
	return int(min(max(percent, 100), mostPercent)) / 10 * 10 // in steps, since to set it stops the process for a moment
}

// liveHeap is what the last collection found alive, in bytes; zero before the first.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

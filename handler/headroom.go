package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// headroom is how much is allocated between two garbage collections at least, in bytes. Go's own rule is as much as is
	// alive, 4 MB at least; and little is alive here but for the cache, so that a busy process would collect every few
	// hundred requests. A cache that is full brings the process to Go's own rule, and so adds nothing to the most that
	// it holds.
	headroom = 12 << 20
	// mostPercent bounds what headroom does to GOGC.
	mostPercent = 400
)

// keepHeadroom sets GOGC anew after each collection, unless somebody has set it.
func keepHeadroom() {
	if os.Getenv("GOGC") == "" {
		afterCollection(0)
	}
}

// afterCollection sets GOGC where it is not what it should be, and waits for the next collection, which finds the
// object that is made here.
func afterCollection(percent int) {
	if want := collectPercent(liveHeap()); want != percent {
		percent = want
		debug.SetGCPercent(percent)
	}
	runtime.AddCleanup(&struct{ _ [32]byte }{}, afterCollection, percent)
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

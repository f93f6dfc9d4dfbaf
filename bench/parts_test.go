package main

import (
	"maps"
	"testing"

	"tiney/link"
)

func TestAliasesDiffer(t *testing.T) {
	seen := map[link.Alias]bool{}
	partitions := map[link.Alias]int{}
	const count = 100_000
	for i := range count {
		a := aliasOf(i)
		if _, ok := link.ParseAlias(string(a)); !ok || len(a) != 6 || seen[a] {
			t.Fatalf("link %d has the alias %q, seen before: %t", i, a, seen[a])
		}
		seen[a] = true
		partitions[a[:2]]++
	}
	for p, n := range partitions {
		if n > 3*count/(62*62) {
			t.Errorf("%d of %d aliases begin with %s", n, count, p)
		}
	}
}

func TestReadingTheBenchmarkOfTheCache(t *testing.T) {
	got, err := cacheGrowthLines(`goos: linux
BenchmarkCacheGrowth/links=1000/MB=10-2         	       1	       446.8 B/link	         0 evicted/get	         2.204 heap-MB	      1000 held	         1.000 hit-ratio	       781.1 ns/get
BenchmarkCacheGrowth/links=1000000/MB=100         	       1	       503.3 B/link	         0.04781 evicted/get	       112.3 heap-MB	    208464 held	         0.8496 hit-ratio	      6164 ns/get
PASS
`)
	if err != nil || len(got) != 2 || got[0].name != "1,000 links, 10 MB" || got[1].name != "1,000,000 links, 100 MB" {
		t.Fatalf("%v, %v", got, err)
	}
	want := values{"B/link": 503.3, "evicted/get": 0.04781, "evicted/1000": 1000 * got[1].values["evicted/get"], "heap-MB": 112.3, "held": 208464, "hit-ratio": 0.8496, "ns/get": 6164}
	if !maps.Equal(got[1].values, want) {
		t.Errorf("got %v", got[1].values)
	}
	for _, said := range []string{"PASS", "BenchmarkCacheGrowth/links=1000/MB=10-2 \t 1 \t 446.8 B/link\n", "BenchmarkCacheGrowth/links=1000/MB=10-2 \t 1 \t x B/link\n"} {
		if got, err := cacheGrowthLines(said); err == nil {
			t.Errorf("%q: got %v", said, got)
		}
	}
}

func TestReadingInitializations(t *testing.T) {
	got := initTimes("init runtime @0.11 ms, 0.13 ms clock, 0 bytes, 0 allocs\n{\"msg\":\"x\"}\ninit tiney/storage @16 ms, 0.009 ms clock, 720 bytes, 14 allocs\n")
	if want := map[string]float64{"runtime": 130, "tiney/storage": 9}; !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestReadingTheLastCounts(t *testing.T) {
	got, err := lastCounts("{\"msg\":\"listening\"}\n{\"msg\":\"stopped\",\"metrics\":{\"cache.hit\":5,\"cache.bytes\":12345678}}\n")
	if want := map[string]float64{"cache.hit": 5, "cache.bytes": 12345678}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, log := range []string{"", "panic: x\n", "{\"msg\":\"stopping\"}\n"} {
		if got, err := lastCounts(log); err == nil {
			t.Errorf("%q: got %v", log, got)
		}
	}
}

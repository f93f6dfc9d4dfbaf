package clicks

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
)

// visitors returns the visitors with the numbers from from to before to, as a process counts them.
func visitors(key *Key, from, to int) *Visitors {
	v := new(Visitors)
	for i := from; i < to; i++ {
		v.add(key.hash(visitor(i)))
	}
	return v
}

// off returns the relative error of an estimate.
func off(v *Visitors, want int) float64 {
	return math.Abs(float64(v.Estimate())-float64(want)) / float64(want)
}

func TestVisitors(t *testing.T) {
	for name, test := range map[string]struct {
		many int
		off  float64 // at most
	}{
		"one":                             {1, 0},
		"as many as are kept one by one":  {fewVisitors, 0},
		"one more":                        {fewVisitors + 1, 0},
		"some":                            {1000, 0.005},
		"many":                            {20_000, 0.02},
		"very many":                       {100_000, 0.02},
		"more than any day brings, maybe": {1_000_000, 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := Key{1, 2, 3}
			if got := off(visitors(&key, 0, test.many), test.many); got > test.off {
				t.Errorf("one process is off by %.2f %%", 100*got)
			}
			// Three processes see half of all visitors each, so that about half of all are seen
			// twice.
			all, part := new(Visitors), test.many/2
			for _, from := range []int{0, test.many / 4, test.many - part} {
				v := visitors(&key, from, from+part)
				read, err := DecodeVisitors(v.Encode())
				if err != nil {
					t.Fatal(err)
				}
				all.Merge(&read)
				all.Merge(v) // merging the same visitors twice makes no difference
			}
			if test.many == 1 {
				all = visitors(&key, 0, 1)
			}
			got := off(all, test.many)
			if got > test.off {
				t.Errorf("three processes are off by %.2f %%", 100*got)
			}
			t.Logf("%d visitors count as %d, off by %.2f %%", test.many, all.Estimate(), 100*got)
			if size := len(all.Encode()); size > 17<<10 {
				t.Errorf("%d bytes", size)
			}
		})
	}
}

// A visitor is an address and an agent, and is recognised on one day only.
func TestVisitorIsKnownAgain(t *testing.T) {
	address, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	key, tomorrow := Key{1}, Key{2}
	is := NewVisitor(address, "an agent")
	if is == (Visitor{}) || NewVisitor(netip.Addr{}, "") == (Visitor{}) {
		t.Error("it would not be counted")
	}
	want := key.hash(is)
	if key.hash(NewVisitor(address, "an agent")) != want ||
		key.hash(NewVisitor(netip.MustParseAddr("::ffff:192.0.2.1"), "an agent")) != want {
		t.Error("it is not known again")
	}
	for name, got := range map[string]uint64{
		"another address": key.hash(NewVisitor(other, "an agent")),
		"another agent":   key.hash(NewVisitor(address, "another agent")),
		"another day":     tomorrow.hash(is),
	} {
		if got == want {
			t.Errorf("%s is the same visitor", name)
		}
	}
}

// The hash is SipHash-2-4: for this input, its authors publish this value.
func TestKeyHash(t *testing.T) {
	var key Key
	v := Visitor{agent: 0x1716151413121110}
	for i := range key {
		key[i], v.address[i] = byte(i), byte(i)
	}
	if got := key.hash(v); got != 0xb8ad50c6f649af94 {
		t.Errorf("got %x", got)
	}
}

// Few visitors who come again and again take little space.
func TestVisitorsComeAgain(t *testing.T) {
	const many = 200
	v := new(Visitors)
	for range 100 {
		v.Merge(visitors(new(Key), 0, many))
		for i := range many {
			v.add(new(Key).hash(visitor(i)))
		}
	}
	if got, size := v.Estimate(), len(v.Encode()); got != many || size > 2000 ||
		v.bytes >= sketchMax {
		t.Errorf("%d visitors in %d bytes, and %d in memory", got, size, v.bytes)
	}
}

// A long list is not kept, because adding to it takes long.
func TestManyVisitorsAreNoList(t *testing.T) {
	v := visitors(new(Key), 0, denseVisitors+fewVisitors+1)
	if size := len(v.Encode()); size < 1<<14 || v.bytes != sketchMax {
		t.Errorf("%d bytes, and %d in memory", size, v.bytes)
	}
}

// Of some visitors only the number is known, and it is added to what others merge to.
func TestCountedVisitors(t *testing.T) {
	for _, many := range []int{0, 1, 500} {
		v := CountedVisitors(5)
		v.Merge(visitors(new(Key), 0, many))
		v.Merge(visitors(new(Key), 0, many))
		v.Merge(new(CountedVisitors(7)))
		alone := visitors(new(Key), 0, many)
		if copied := v.copy(); v.Estimate() != 12+alone.Estimate() ||
			copied.Estimate() != v.Estimate() {
			t.Errorf("12 and %d visitors are %d, and %d copied", many, v.Estimate(),
				copied.Estimate())
		}
	}
	if v := CountedVisitors(5); v.Encode() != nil {
		t.Error("a number of visitors is encoded")
	}
}

func TestDecodeVisitors(t *testing.T) {
	key := new(Key)
	for _, many := range []int{0, 1, fewVisitors, 100, 3000, 20_000} {
		v := visitors(key, 0, many)
		data := v.Encode()
		got, err := DecodeVisitors(data)
		if err != nil || got.Estimate() != v.Estimate() {
			t.Errorf("%d visitors came back as %d, %v", many, got.Estimate(), err)
		}
		for cut := range min(len(data), 30) {
			if cut%8 == 1 && many <= fewVisitors || cut == 0 {
				continue // this is a valid encoding of fewer visitors
			}
			if v, err := DecodeVisitors(data[:cut]); err == nil {
				t.Errorf("%d bytes of %d are %d visitors", cut, len(data), v.Estimate())
			}
		}
	}
	for name, data := range map[string][]byte{
		"of no form":         {0},
		"of an unknown form": {3, 2, 14, 0, 0},
		"more than are kept": append([]byte{formFew}, make([]byte, 8*(fewVisitors+1))...),
		"another precision": append([]byte{formSketch, 2, 4, 0, 0, 0, 0, 0, 16},
			make([]byte, 16)...),
		"registers that lack": {formSketch, 2, 14, 0, 0, 0, 0, 64, 0},
		"a list of many bytes": {formSketch, 2, 14, 0, 1, 0, 0, 0, 0, 1, 255, 255, 255, 0, 0, 0, 0,
			255, 255, 255, 255},
	} {
		if v, err := DecodeVisitors(data); err == nil {
			t.Errorf("%s: %d visitors", name, v.Estimate())
		}
	}
}

// Any content of a row is either refused, or has visitors who can be counted, merged and written.
func FuzzDecodeVisitors(f *testing.F) {
	key := new(Key)
	for _, many := range []int{0, 1, 100, 20_000} {
		f.Add(visitors(key, 0, many).Encode(), 10)
	}
	f.Add([]byte{formSketch, 1, 14, 3, 0, 0, 0, 0, 0}, 0)
	f.Fuzz(func(t *testing.T, data []byte, others int) {
		v, err := DecodeVisitors(data)
		if err != nil {
			return
		}
		alone := v.Estimate()
		if len(v.Encode()) > 17<<10 {
			t.Errorf("%d bytes became %d", len(data), len(v.Encode()))
		}
		again, err := DecodeVisitors(v.Encode())
		if err != nil || again.Estimate() != alone {
			t.Errorf("%d visitors came back as %d, %v", alone, again.Estimate(), err)
		}
		more := visitors(key, 0, max(others, 0)%5000)
		there, back := v.copy(), more.copy()
		there.Merge(more)
		back.Merge(&v)
		if there.Estimate() != back.Estimate() {
			t.Errorf("the order matters: %d or %d", there.Estimate(), back.Estimate())
		}
		if v.Estimate() != alone {
			t.Errorf("it has changed from %d to %d by being merged", alone, v.Estimate())
		}
	})
}

func BenchmarkKeyHash(b *testing.B) {
	key, v := Key{1, 2, 3}, visitor(1)
	b.ReportAllocs()
	for b.Loop() {
		key.hash(v)
	}
}

func BenchmarkVisitors(b *testing.B) {
	for _, many := range []int{fewVisitors, 1000, 20_000} {
		v := visitors(new(Key), 0, many)
		data := v.Encode()
		b.Run(fmt.Sprintf("encode %d", many), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v.Encode()
			}
		})
		b.Run(fmt.Sprintf("decode %d", many), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeVisitors(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAdd measures adding one of so many visitors, with a new Visitors after every 20,000.
func BenchmarkAdd(b *testing.B) {
	for _, many := range []int{fewVisitors, 100, 1000, 20_000} {
		hashes := make([]uint64, many)
		for i := range hashes {
			hashes[i] = new(Key).hash(visitor(i))
		}
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			b.ReportAllocs()
			var v Visitors
			i := 0
			for b.Loop() {
				v.add(hashes[i%many])
				if i++; i%20_000 == 0 {
					v = Visitors{}
				}
			}
		})
	}
}

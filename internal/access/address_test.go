package access_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"tiney/internal/access"
)

const (
	connection = "198.51.100.1:49152"
	peer       = "198.51.100.1"
)

// from returns a request that came by connection, with these lines of X-Forwarded-For.
func from(lines ...string) *http.Request {
	return &http.Request{RemoteAddr: connection, Header: http.Header{"X-Forwarded-For": lines}}
}

func TestAddressOfARequest(t *testing.T) {
	const client = "203.0.113.7"
	long := strings.Repeat(",", 32<<10)
	for name, test := range map[string]struct {
		hops  int
		lines []string
		want  string
	}{
		"no proxy":                       {0, lines{"203.0.113.7"}, peer},
		"one proxy":                      {1, lines{"203.0.113.7"}, client},
		"forged, and one proxy":          {1, lines{"9.9.9.9, 203.0.113.7"}, client},
		"forged in front of two proxies": {2, lines{"9.9.9.9, 203.0.113.7, 192.0.2.3"}, client},
		"forged in a line of its own": {2, lines{"9.9.9.9", "203.0.113.7, 192.0.2.3"},
			client},
		"proxies with a line each": {2, lines{"9.9.9.9", "203.0.113.7", "192.0.2.3"},
			client},
		"a list over lines": {3, lines{"9.9.9.9, 203.0.113.7",
			"192.0.2.3, 192.0.2.4"}, client},
		"ten proxies": {10, lines{"9.9.9.9,203.0.113.7" +
			strings.Repeat(",192.0.2.3", 9)}, client},
		"forged and many": {1, lines{strings.Repeat("9.9.9.9,", 4000) +
			"203.0.113.7"}, client},
		"without spaces": {2, lines{"203.0.113.7,192.0.2.3"}, client},
		"with many": {2, lines{"9.9.9.9 , \t 203.0.113.7\t , 192.0.2.3 "},
			client},
		"no header":                  {1, nil, peer},
		"an empty header":            {1, lines{""}, peer},
		"spaces":                     {1, lines{"  \t "}, peer},
		"fewer entries than proxies": {2, lines{"203.0.113.7"}, peer},
		"fewer entries, over lines":  {3, lines{"203.0.113.7", "192.0.2.3"}, peer},
		"an empty entry counts":      {2, lines{"9.9.9.9, , 192.0.2.3"}, peer},
		"an empty line counts":       {2, lines{"9.9.9.9", "", "192.0.2.3"}, peer},
		"empty at the end":           {1, lines{"9.9.9.9,"}, peer},
		"empty, and not asked for":   {1, lines{"9.9.9.9,, 203.0.113.7"}, client},
		"commas":                     {1, lines{long}, peer},
		"commas, and one proxy":      {1, lines{long, "203.0.113.7"}, client},
		"commas, and ten proxies":    {10, lines{long}, peer},
		"no comma": {2, lines{strings.Repeat("9", 32<<10) +
			", 203.0.113.7"}, peer},
		"unknown":                          {1, lines{"9.9.9.9, unknown"}, peer},
		"an obfuscated identifier":         {1, lines{"9.9.9.9, _hidden"}, peer},
		"an obfuscated port":               {1, lines{"9.9.9.9, 203.0.113.7:_port"}, peer},
		"a name":                           {1, lines{"9.9.9.9, localhost"}, peer},
		"unknown, and not asked for":       {1, lines{"unknown, 203.0.113.7"}, client},
		"unknown proxy, and not asked for": {2, lines{"203.0.113.7, unknown"}, client},
		"with a port":                      {1, lines{"203.0.113.7:4711"}, client},
		"with a port that is none":         {1, lines{"203.0.113.7:65536"}, peer},
		"with no port after the colon":     {1, lines{"203.0.113.7:"}, peer},
		"with a sign before the port":      {1, lines{"203.0.113.7:+80"}, peer},
		"octal":                            {1, lines{"203.0.113.007"}, peer},
		"too short":                        {1, lines{"203.0.113"}, peer},
		"a number":                         {1, lines{"3405803783"}, peer},
		"in quotes":                        {1, lines{`"203.0.113.7"`}, peer},
		"a network":                        {1, lines{"203.0.113.0/24"}, peer},
		"IPv6":                             {1, lines{"2001:db8::7"}, "2001:db8::7"},
		"IPv6 in full": {1, lines{"2001:0DB8:0000:0000:0000:0000:0000:0007"},
			"2001:db8::7"},
		"IPv6 in brackets": {1, lines{"[2001:db8::7]"}, "2001:db8::7"},
		"IPv6 with a port": {1, lines{"9.9.9.9, [2001:db8::7]:4711"},
			"2001:db8::7"},
		"IPv6 with a port that is none": {1, lines{"[2001:db8::7]:x"}, peer},
		"IPv6 and something":            {1, lines{"[2001:db8::7]4711"}, peer},
		"IPv6 in half a bracket":        {1, lines{"[2001:db8::7"}, peer},
		"IPv6 in the other half":        {1, lines{"2001:db8::7]"}, peer},
		"IPv6 in two brackets":          {1, lines{"[[2001:db8::7]]"}, peer},
		"brackets":                      {1, lines{"[]"}, peer},
		"brackets and a port":           {1, lines{"[]:80"}, peer},
		"colons":                        {1, lines{":::"}, peer},
		"a zone":                        {1, lines{"fe80::7%eth0"}, "fe80::7"},
		"a zone in brackets":            {1, lines{"[fe80::7%25eth0]:80"}, "fe80::7"},
		"an empty zone":                 {1, lines{"fe80::7%"}, peer},
		"IPv4 in IPv6":                  {1, lines{"::ffff:203.0.113.7"}, client},
		"IPv4 in IPv6, in hex":          {1, lines{"::ffff:cb00:7107"}, client},
		"IPv4 in IPv6, in brackets":     {1, lines{"[::ffff:203.0.113.7]:80"}, client},
		"IPv4 in IPv6, with a zone":     {1, lines{"::ffff:203.0.113.7%eth0"}, client},
		"the longest": {1,
			lines{"[2001:0db8:0000:0000:0000:0000:255.255.255.255]:65535"}, "2001:db8::ffff:ffff"},
		"a zone that makes it longer": {1, lines{"fe80::7%" + strings.Repeat("x", 100)},
			peer},
		"control characters":                {1, lines{"203.0.113.7\x00"}, peer},
		"spaces that are none in a header":  {1, lines{"\u00a0203.0.113.7"}, peer},
		"a list in Forwarded's form":        {1, lines{"for=203.0.113.7;proto=https"}, peer},
		"another separator":                 {1, lines{"9.9.9.9;203.0.113.7"}, peer},
		"more proxies than may be believed": {-1, lines{"203.0.113.7"}, peer},
	} {
		a := access.Addresses{Header: "X-Forwarded-For", Hops: test.hops}
		if got := a.Of(from(test.lines...)); got != netip.MustParseAddr(test.want) {
			t.Errorf("%s: got %v, want %s", name, got, test.want)
		}
	}
}

func TestAddressOfAConnection(t *testing.T) {
	for remote, want := range map[string]string{
		"198.51.100.1:49152":          "198.51.100.1",
		"[2001:db8::7]:49152":         "2001:db8::7",
		"[fe80::7%eth0]:49152":        "fe80::7",
		"[::ffff:198.51.100.1]:49152": "198.51.100.1",
		"@":                           "invalid IP", // the address of a Unix socket
		"":                            "invalid IP",
	} {
		for hops := range 2 {
			a := access.Addresses{Header: "X-Forwarded-For", Hops: hops}
			if got := a.Of(&http.Request{RemoteAddr: remote}); got.String() != want {
				t.Errorf("%q, with %d proxies: got %v, want %s", remote, hops, got, want)
			}
		}
	}
}

// TestAddressHeader: only the header with this name is read, however clients spell it.
func TestAddressHeader(t *testing.T) {
	r := from("9.9.9.9")
	r.Header.Set("CLIENT-IP", "203.0.113.7:4711")
	for header, want := range map[string]string{"Client-Ip": "203.0.113.7", "X-Client-Ip": peer,
		"X-Forwarded-For": "9.9.9.9"} {
		got := (access.Addresses{Header: header, Hops: 1}).Of(r)
		if got != netip.MustParseAddr(want) {
			t.Errorf("%s: got %v, want %s", header, got, want)
		}
	}
}

// FuzzAddress: whatever a client sends before the line of the proxies or at its start, the address
// is the proxies' entry. If the list is only the client's, the result is an address in canonical
// form, as net/netip parses it, or else the address of the connection.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"9.9.9.9", "9.9.9.9,, ", "[fe80::7%eth0]:80", "::ffff:9.9.9.9",
		"[::1]]:1"} {
		f.Add(seed, uint8(2))
	}
	f.Fuzz(func(t *testing.T, sent string, proxies uint8) {
		hops := 1 + int(proxies%10)
		said := slices.Repeat([]string{"192.0.2.3"}, hops)
		said[0] = "203.0.113.7"
		list, a := strings.Join(said, ", "), access.Addresses{Header: "X-Forwarded-For", Hops: hops}
		for _, lines := range [][]string{{sent, list}, {sent + "," + list},
			append([]string{sent}, said...)} {
			if got := a.Of(from(lines...)); got != netip.MustParseAddr("203.0.113.7") {
				t.Errorf("%q, %d proxies: got %v", lines, hops, got)
			}
		}
		switch got := a.Of(from(sent)); {
		case !got.IsValid() || got.Is4In6() || got.Zone() != "":
			t.Errorf("%q: got %v", sent, got)
		case strings.Count(sent, ",") < hops-1 && got != netip.MustParseAddr(peer):
			t.Errorf("%q has fewer entries than %d: got %v", sent, hops, got)
		}
		if len(sent) > 64 || strings.ContainsAny(sent, ", \t%") {
			return
		}
		own := (access.Addresses{Header: "X-Forwarded-For", Hops: 1}).Of(from(sent))
		if want, err := netip.ParseAddrPort(sent); err == nil && own != want.Addr().Unmap() {
			t.Errorf("%q: got %v", sent, own)
		}
		if want, err := netip.ParseAddr(sent); err == nil && own != want.Unmap() {
			t.Errorf("%q: got %v", sent, own)
		}
	})
}

// Searching a long entry for its comma takes 10 µs, which is less time than receiving the entry
// took.
func BenchmarkAddress(b *testing.B) {
	for _, bench := range []struct {
		name  string
		hops  int
		lines []string
	}{
		{"connection", 0, nil},
		{"without the header", 1, nil},
		{"one entry", 1, []string{"203.0.113.7:4711"}},
		{"two entries", 2, []string{"203.0.113.7, 192.0.2.3"}},
		{"IPv6", 1, []string{"9.9.9.9, [2001:db8::7]:4711"}},
		{"32 KiB of commas", 10, []string{strings.Repeat(",", 32<<10)}},
		{"32 KiB before one proxy", 1, []string{strings.Repeat("9.9.9.9,", 4<<10) + "203.0.113.7"}},
		{"32 KiB in one entry", 2, []string{strings.Repeat("9", 32<<10) + ",203.0.113.7"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			a, r := access.Addresses{Header: "X-Forwarded-For", Hops: bench.hops},
				from(bench.lines...)
			for b.Loop() {
				a.Of(r)
			}
		})
	}
}

func TestAddressAllocatesNothing(t *testing.T) {
	for _, lines := range [][]string{nil, {"203.0.113.7"}, {"203.0.113.7:4711, 192.0.2.3"},
		{strings.Repeat(",", 32<<10), "[2001:db8::7]:4711"}} {
		for hops := range 3 {
			a, r := access.Addresses{Header: "X-Forwarded-For", Hops: hops}, from(lines...)
			if n := testing.AllocsPerRun(100, func() { a.Of(r) }); n != 0 {
				t.Errorf("%d lines, %d proxies: %v allocations", len(lines), hops, n)
			}
		}
	}
}

// Behind the Functions host, the addresses of the host and the platform are not addresses of
// clients.
func TestAddressesThatAreNoClients(t *testing.T) {
	for address, none := range map[string]bool{
		"127.0.0.1": true, "::1": true, "::ffff:127.0.0.1": true, "10.0.0.7": true,
		"172.16.0.1": true, "192.168.0.1": true,
		"169.254.130.1": true, "[fe80::1%eth0]:80": true, "fd00::1": true,
		"203.0.113.7": false, "172.32.0.1": false, "2001:db8::7": false,
	} {
		r := from(address)
		own := access.Addresses{Header: "X-Forwarded-For", Hops: 1}.Of(r)
		if got := (access.Addresses{Header: "X-Forwarded-For", Hops: 1,
			Hosted: true}).Of(r); got.IsValid() == none || !none && got != own {
			t.Errorf("%s: got %v, want %v unless it is nobody's", address, got, own)
		}
		r.Header, r.RemoteAddr = nil, netip.AddrPortFrom(own, 4711).String()
		if got := (access.Addresses{Header: "X-Forwarded-For", Hops: 1,
			Hosted: true}).Of(r); !own.IsValid() || got.IsValid() == none {
			t.Errorf("a connection from %s: got %v", own, got)
		}
	}
}

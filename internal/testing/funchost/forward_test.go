package funchost_test

import (
	"io"
	"net/url"
	"strings"
	"testing"

	"tiney/internal/testing/funchost"
)

// below returns an app with one anonymous function for every method and path below /api.
func below(route string) app {
	return all().with("web/function.json", httpJSON(`,"authLevel":"anonymous","route":"`+route+`"`))
}

func TestTarget(t *testing.T) {
	tests := []struct{ sent, forwarded, proxied string }{
		{"/api/x?", "/api/x", "/api/x"},
		{"/api/x?a=1&a=2", "/api/x?a=1,2", "/api/x?a=1&a=2"},
		{"/api/x?a=1&b=x&A=2", "/api/x?a=1,2&b=x", "/api/x?a=1&b=x&A=2"},
		{"/api/x?flag", "/api/x?flag=", "/api/x?flag"},
		{"/api/x?u=https://e.org/?q=1&&x=a+b%20c",
			"/api/x?u=https%3A%2F%2Fe.org%2F%3Fq%3D1&x=a%20b%20c",
			"/api/x?u=https://e.org/?q=1&&x=a+b%20c"},
		{"/api/x?q=/:?[]@!$()*,;'", "/api/x?q=%2F%3A%3F%5B%5D@!$()*,;%27",
			"/api/x?q=/:?[]@!$()*,;'"},
		{"/api/x?q=\"<>`{|}^\\", "/api/x?q=%22%3C%3E%60%7B%7C%7D%5E%5C",
			"/api/x?q=%22%3C%3E%60%7B%7C%7D%5E%5C"},
		{"/api/x?bad=%zz;x&%C3%A9=%26", "/api/x?bad=%25zz;x&%C3%A9=%26",
			"/api/x?bad=%25zz;x&%C3%A9=%26"},
		{"/API/x/", "/API/x/", "/API/x/"},
		{"/api/x//y//", "/api/x//y//", "/api/x//y//"},
		{"/api/%41%7E%c3%a4", "/api/A~%C3%A4", "/api/A~%C3%A4"},
		{"/api/~!$&'()*+,;=:@", "/api/~!$&'()*+,;=:@", "/api/~!$&'()*+,;=:@"},
		{"/api/[2001:db8::1]", "/api/[2001:db8::1]", "/api/%5B2001:db8::1%5D"},
		{"/api/a%2Fb%2fc", "/api/a%2Fb%2fc", "/api/a%252Fb%252fc"},
		{"/api/a%252Fb", "/api/a%2Fb", "/api/a%252Fb"},
		{"/api/%2525", "/api/%25", "/api/%2525"},
		{"/api/100%25", "/api/100%25", "/api/100%25"},
		{"/api/a%2Bb", "/api/a+b", "/api/a+b"},
		{"/api/a%5Cb", "/api/a/b", "/api/a%5Cb"},
		{"/api/a%20b%20", "/api/a%20b", "/api/a%20b%20"},
		{"/api/a%3Fb=c?d", "/api/a?d=", "/api/a%3Fb=c?d"},
		{"/api/a%23b", "/api/a", "/api/a%23b"},
		{"/api/%22%3C%3E%5E%60%7B%7C%7D", "/api/%22%3C%3E%5E%60%7B%7C%7D",
			"/api/%22%3C%3E%5E%60%7B%7C%7D"},
		{"/x/../api/%2e/%2E%2E/api/y", "/api/y", "/api/y"},
		{"/api/..%2Freaper", "/api/..%2Freaper", "/api/..%252Freaper"},
		{"/api/%255C..", "/api/%5C..", "/api/%255C.."},
		{"/abc/?", "/abc/", "/abc/"},
		{"/abc/%2e%2e/x", "/x", "/x"},
		{"/abc/..%5cx", "/x", "/abc/..%5Cx"},
		{"/abc/a%5C..%5Cb/", "/abc/b/", "/abc/a%5C..%5Cb/"},
		{"/abc/%252e%252e/x", "/x", "/abc/%252e%252e/x"},
		{"/abc/..;/..%2fx", "/abc/..;/..%2fx", "/abc/..;/..%252fx"},
		{"/abc%2Fx/%252F", "/abc%2Fx/%2F", "/abc%252Fx/%252F"},
		{"/abc/x%3Fy?z", "/abc/x?z=", "/abc/x%3Fy?z"},
		{"/abc/x%23y", "/abc/x", "/abc/x%23y"},
		{"/abc/x%20", "/abc/x", "/abc/x%20"},
		{"/abc/%2B%3A%7C%7B%7D", "/abc/+:%7C%7B%7D", "/abc/+:%7C%7B%7D"},
	}
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, below("api/{*path}").with("redirect/function.json",
			httpJSON(`,"authLevel":"anonymous","route":"{alias}"`)).with("with-path/function.json",
			httpJSON(`,"authLevel":"anonymous","route":"{alias}/{*rest}"`)),
			funchost.Options{Proxy: proxy})
		for _, tt := range tests {
			want := map[bool]string{false: tt.forwarded, true: tt.proxied}[proxy]
			if got := arrived(t, h, "GET", tt.sent, nil).URI; got != want {
				t.Errorf("%s arrived as %s, want %s", tt.sent, got, want)
			}
		}
	})
}

// The front end's header has path and query as the client sent them, whatever the host makes of
// them. Without a front end, a client can send any.
func TestFrontEnd(t *testing.T) {
	bothModes(t, func(t *testing.T, proxy bool) {
		const sent = "/x/../t/%65cho?a=1&a=%zz&+"
		for frontEnd, want := range map[bool]string{false: "/forged|/twice", true: sent} {
			h := start(t, all(), funchost.Options{Proxy: proxy, FrontEnd: frontEnd})
			s := arrived(t, h, "GET", sent, nil, "X-WAWS-Unencoded-URL", "/forged",
				"X-WAWS-Unencoded-URL", "/twice")
			if !proxy {
				want = strings.ReplaceAll(want, "|", ", ")
			}
			if got := strings.Join(s.Header["X-Waws-Unencoded-Url"], "|"); got != want {
				t.Errorf("front end %t: %s, want %s", frontEnd, got, want)
			}
			if path, _, _ := strings.Cut(s.URI, "?"); path != "/t/echo" {
				t.Errorf("front end %t: arrived at %s", frontEnd, path)
			}
		}
	})
}

// Behind a forwarding host, only the constraint keeps strangers from the timer.
func TestHostilePaths(t *testing.T) {
	t.Parallel()
	const constrained = `api/{*path:regex(^[\\w./:~+,;=@\\[\\]-]*$)}`
	open := start(t, below("api/{*path}"), funchost.Options{})
	proxied := start(t, below("api/{*path}"), funchost.Options{Proxy: true})
	closed := start(t, below(constrained), funchost.Options{})
	for _, path := range funchost.HostilePaths {
		if s := arrived(t, open, "POST", path, nil); s.Method != "POST" || s.URI != "/reaper" {
			t.Errorf("%s arrived as %s %s", path, s.Method, s.URI)
		}
		if s := arrived(t, proxied, "POST", path, nil); s.URI == "/reaper" {
			t.Errorf("%s arrived as %s through a host that proxies", path, s.URI)
		}
		if a := do(t, "POST", closed.URL()+path, nil); a.StatusCode != 404 {
			t.Errorf("%s passed the constraint: %s", path, a.Status)
		}
	}
	for _, path := range []string{"/api/../reaper", "/api/%2e%2e/reaper", "/reaper"} {
		if a := do(t, "POST", open.URL()+path, nil); a.StatusCode != 404 {
			t.Errorf("%s: status %s, although it leads away from the route before it is matched",
				path, a.Status)
		}
	}
	for _, path := range []string{"/api/links/Abc_1-2", "/api/links/a+",
		"/api/blocked/m%C3%BCnchen.example", "/api/blocked/[2001:db8::1]"} {
		arrived(t, closed, "POST", path, nil)
	}
}

func TestLocation(t *testing.T) {
	tests := []struct{ sent, forwarded string }{
		{"https://example.com/?a=1&a='2'#<x>", "https://example.com/?a=1&a='2'#%3Cx%3E"},
		{"HTTP://EXAMPLE.com", "http://example.com/"},
		{"https://example.com:443?q", "https://example.com/?q"},
		{"http://example.com:443/", "http://example.com:443/"},
		{"http://example.com:80#f", "http://example.com/#f"},
		{"http://e.org/a/../b/./c/%2e%2E/d?x=/../y", "http://e.org/b/d?x=/../y"},
		{"http://e.org/..", "http://e.org/"},
		{"http://e.org//x//", "http://e.org//x//"},
		{"http://e.org/%41%2d%c3%a4%2F?%41#%41", "http://e.org/A-%c3%a4%2F?A#A"},
		{"http://e.org/100%?5%#%z%%41", "http://e.org/100%25?5%25#%25z%25A"},
		{"http://e.org/{}|^\"<>`?{}|^\"<>`",
			"http://e.org/%7B%7D%7C%5E%22%3C%3E%60?%7B%7D%7C%5E%22%3C%3E%60"},
		{`http:\\e.org\a\..\b?\`, "http://e.org/b?%5C"},
		{"http://0x7f.1/", "http://127.0.0.1/"},
		{"http://2130706433/", "http://127.0.0.1/"},
		{"http://0177.0.0.1:8080", "http://127.0.0.1:8080/"},
		{"http://[2001:DB8:0:0::0001]", "http://[2001:db8::1]/"},
		{"/a/../%41?x", "/a/../%41?x"},
		{"../%41", "../%41"},
		{"?%41", "?%41"},
	}
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), funchost.Options{Proxy: proxy})
		for _, tt := range tests {
			want := map[bool]string{false: tt.forwarded, true: tt.sent}[proxy]
			a := do(t, "GET", h.URL()+"/t/redirect?to="+url.QueryEscape(tt.sent), nil)
			if got := a.Header.Get("Location"); a.StatusCode != 302 || got != want {
				t.Errorf("%s: status %s, Location %s, want %s", tt.sent, a.Status, got, want)
			}
		}
	})
}

func TestRequestHeaders(t *testing.T) {
	const (
		host       = "Tiny.example:8443"
		version    = "X-Azure-Functions-Hostversion"
		invocation = "X-Azure-Functions-Invocationid"
	)
	// A bar separates the lines of one name.
	tests := []struct{ name, sent, forwarded, proxied string }{
		{"Accept-Encoding", "br;q=1", "br;q=1", "br;q=1"},
		{"Cookie", "a=1|b=2", "a=1; b=2", "a=1|b=2"},
		{"X-Twice", "1|2", "1, 2", "1|2"},
		{"X-Functions-Key", "k", "k", "k"},
		{"X-Ms-Client-Principal", "p", "p", "p"},
		{"Connection", "X-Hop", "", ""},
		{"X-Hop", "gone", "", ""},
		{"Content-Type", "text/plain", "", "text/plain"}, // there is no body
		{"Content-Language", "en", "", "en"},
		{"X-Forwarded-For", "203.0.113.7", "203.0.113.7", "127.0.0.1"},
		{"X-Forwarded-Host", "forged|twice", "forged, twice", host},
		{"X-Forwarded-Proto", "forged", "forged", "http"},
		{"Forwarded", "host=forged", "host=forged", "host=forged"},
		{"X-Original-Host", "forged", "forged", "forged"},
		{"Disguised-Host", "forged", "forged", "forged"},
		{"User-Agent", "test/1", "test/1 Azure-Functions-Host/4.1037.0.0", "test/1"},
		{version, "0", "0, 4.1037.0.0", "4.1037.0.0"},
		{invocation, "forged", "forged, ID", "ID"},
		{"X-Ms-Invocation-Id", "forged", "forged", "ID"},
	}
	sent := []string{"Host", host}
	for _, tt := range tests {
		for value := range strings.SplitSeq(tt.sent, "|") {
			sent = append(sent, tt.name, value)
		}
	}
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), funchost.Options{Proxy: proxy})
		s := arrived(t, h, "GET", "/t/echo", nil, sent...)
		id := strings.TrimPrefix(s.Header.Get(invocation), "forged, ")
		if !matches(guid, id) {
			t.Errorf("invocation id %q", id)
		}
		for _, tt := range tests {
			want := map[bool]string{false: tt.forwarded, true: tt.proxied}[proxy]
			if got := strings.Join(s.Header[tt.name], "|"); got != strings.Replace(want, "ID", id,
				1) {
				t.Errorf("%s: %q, want %q", tt.name, got, want)
			}
		}
		if want := map[bool]string{false: host, true: strings.TrimPrefix(h.HandlerURL(),
			"http://")}[proxy]; s.Host != want {
			t.Errorf("Host %q, want %q", s.Host, want)
		}
		again := arrived(t, h, "GET", "/t/echo", nil, "Host", host).Header
		if got := again.Get("X-Forwarded-Host"); (got == host) != proxy || !proxy && got != "" {
			t.Errorf("X-Forwarded-Host %q, although the client sent none", got)
		}
		if again.Get(invocation) == id || again["Accept-Encoding"] != nil {
			t.Errorf("second request: %v", again)
		}
	})
}

func TestRequestBody(t *testing.T) {
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), funchost.Options{Proxy: proxy})
		s := arrived(t, h, "POST", "/t/echo", strings.NewReader("hello"), "Content-Type", "text/x",
			"Content-Encoding", "x")
		if s.Body != "hello" || s.Header.Get("Content-Type") != "text/x" || s.ContentLength != 5 ||
			(s.Header["Content-Encoding"] != nil) != proxy {
			t.Errorf("with a length: %+v", s)
		}
		if s = arrived(t, h, "POST", "/t/echo", nil); s.Body != "" || s.ContentLength != 0 {
			t.Errorf("without a body: %+v", s)
		}
		tests := []struct {
			name, path, contentType string
			body                    io.Reader
			forwarded, proxied      int
		}{
			{"chunked", "/t/echo", "text/x", struct{ io.Reader }{strings.NewReader("hello")}, 500,
				200},
			{"unparseable Content-Type", "/t/echo", "text", strings.NewReader("hello"), 500, 200},
			{"two Content-Types", "/t/echo", "text/x, text/y", strings.NewReader("hello"), 500,
				200},
			{"responded to before it is read", "/t/early", "text/x", strings.NewReader("hello"),
				413, 413},
			{"too large for the socket's buffers", "/t/early", "text/x",
				strings.NewReader(strings.Repeat("x", 16<<20)), 500, 0},
		}
		for _, tt := range tests {
			want := map[bool]int{false: tt.forwarded, true: tt.proxied}[proxy]
			if want == 0 {
				continue // a proxying host reports the failed write to this client
			}
			if a := do(t, "POST", h.URL()+tt.path, tt.body, "Content-Type",
				tt.contentType); a.StatusCode != want {
				t.Errorf("%s: status %s, want %d", tt.name, a.Status, want)
			}
		}
	})
}

func TestRequestTheHostRejects(t *testing.T) {
	t.Parallel()
	h := start(t, all(), funchost.Options{})
	for want, tt := range map[int]struct{ query, header string }{
		400: {header: "caf\xe9"},
		414: {query: strings.Repeat("x", 8<<10)},
		431: {header: strings.Repeat("x", 48<<10)},
	} {
		if a := do(t, "GET", h.URL()+"/t/echo?"+tt.query, nil, "X-Name",
			tt.header); a.StatusCode != want {
			t.Errorf("status %s, want %d", a.Status, want)
		}
	}
}

func TestResponse(t *testing.T) {
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), funchost.Options{Proxy: proxy})
		a := do(t, "GET", h.URL()+"/t/headers", nil)
		if a.StatusCode != 418 || a.body != "<html>" || a.Header.Get("X-Tab") != "a\tb" ||
			len(a.Header["Set-Cookie"]) != 2 {
			t.Errorf("status %s, headers %v, body %q", a.Status, a.Header, a.body)
		}
		if a.Header["Content-Type"] != nil || a.Header["Keep-Alive"] != nil ||
			strings.Join(a.Header["Vary"], "|") != map[bool]string{false: "Accept|Origin",
				true: "Accept, Origin"}[proxy] {
			t.Errorf("headers %v", a.Header)
		}
		if a := do(t, "HEAD", h.URL()+"/t/echo", nil); a.StatusCode != 200 ||
			a.ContentLength <= 0 || a.body != "" {
			t.Errorf("HEAD: status %s, length %d, body %q", a.Status, a.ContentLength, a.body)
		}
		for _, path := range []string{"/t/latin", "/t/abort"} {
			if a := do(t, "GET", h.URL()+path, nil); a.StatusCode != 500 || a.body != "" {
				t.Errorf("%s: status %s, body %q", path, a.Status, a.body)
			}
		}
	})
}

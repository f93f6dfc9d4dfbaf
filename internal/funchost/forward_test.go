package funchost_test

import (
	"io"
	"strings"
	"testing"
)

func TestForwardedQuery(t *testing.T) {
	t.Parallel()
	h := start(t, all(), false)
	tests := []struct{ query, want string }{
		{"", ""},
		{"?", ""},
		{"?a=1&a=2", "?a=1,2"},
		{"?a=1&b=x&A=2", "?a=1,2&b=x"},
		{"?flag", "?flag="},
		{"?u=https://e.org/?q=1&&x=a+b%20c", "?u=https:%2F%2Fe.org%2F%3Fq%3D1&x=a%20b%20c"},
		{"?bad=%zz&%C3%A9=%26", "?bad=%25zz&%C3%A9=%26"},
	}
	for _, tt := range tests {
		if got := echo(t, h, "GET", tt.query, nil).URI; got != "/t/echo"+tt.want {
			t.Errorf("query %q arrived as %q, want %q", tt.query, got, "/t/echo"+tt.want)
		}
	}
}

func TestProxiedQuery(t *testing.T) {
	t.Parallel()
	h := start(t, all(), true)
	const query = "?a=1&a=2&bad=%zz;x&flag"
	if got := echo(t, h, "GET", query, nil).URI; got != "/t/echo"+query {
		t.Errorf("query %q arrived as %q", query, got)
	}
}

func TestRequestHeaders(t *testing.T) {
	t.Parallel()
	const (
		version    = "X-Azure-Functions-Hostversion"
		invocation = "X-Azure-Functions-Invocationid"
	)
	sent := []string{
		"Host", "tiny.example", "Accept-Encoding", "br;q=1", "Cookie", "a=1", "Cookie", "b=2", "X-Twice", "1", "X-Twice", "2",
		"X-Forwarded-For", "203.0.113.7", "Traceparent", "00-x", "X-Functions-Key", "k", "X-Ms-Client-Principal", "p",
		"Connection", "X-Hop", "X-Hop", "gone", "Keep-Alive", "gone", "User-Agent", "test/1", "Content-Type", "text/plain", "Content-Language", "en",
		"X-Azure-Functions-InvocationId", "forged", "X-Azure-Functions-HostVersion", "0",
	}
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), proxy)
		s := echo(t, h, "GET", "", nil, sent...)
		line := func(name string) string { return strings.Join(s.Header[name], "|") }
		want := map[string]string{
			"Accept-Encoding": "br;q=1", "Traceparent": "00-x", "X-Functions-Key": "k", "X-Ms-Client-Principal": "p",
			"Connection": "", "X-Hop": "", "Keep-Alive": "",
		}
		wantHost, id := "tiny.example", ""
		if proxy {
			wantHost, id = strings.TrimPrefix(h.HandlerURL(), "http://"), line(invocation)
			want["Cookie"], want["X-Twice"] = "a=1|b=2", "1|2"
			want["X-Forwarded-For"], want["X-Forwarded-Host"], want["X-Forwarded-Proto"] = "127.0.0.1", "tiny.example", "http"
			want["User-Agent"], want["Content-Type"], want["Content-Language"] = "test/1", "text/plain", "en"
			want[version] = "4.1037.0.0"
		} else {
			forged, real, _ := strings.Cut(line(invocation), ", ")
			if forged != "forged" {
				t.Errorf("invocation id %q: the forged one does not stand first", line(invocation))
			}
			id = real
			want["Cookie"], want["X-Twice"] = "a=1; b=2", "1, 2"
			want["X-Forwarded-For"], want["X-Forwarded-Host"] = "203.0.113.7", ""
			want["User-Agent"] = "test/1 Azure-Functions-Host/4.1037.0.0"
			want["Content-Type"], want["Content-Language"] = "", "" // there is no body to go with
			want[version] = "0, 4.1037.0.0"
		}
		for name, value := range want {
			if line(name) != value {
				t.Errorf("%s: %q, want %q", name, line(name), value)
			}
		}
		if s.Host != wantHost {
			t.Errorf("Host %q, want %q", s.Host, wantHost)
		}
		if !guid.MatchString(id) {
			t.Errorf("invocation id %q", id)
		}
		if again := echo(t, h, "GET", "", nil); again.Header.Get(invocation) == id || again.Header["Accept-Encoding"] != nil {
			t.Errorf("second request: %v", again.Header)
		}
	})
}

func TestRequestBody(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), proxy)
		s := echo(t, h, "POST", "", strings.NewReader("hello"), "Content-Type", "text/x")
		if s.Body != "hello" || s.Header.Get("Content-Type") != "text/x" || s.ContentLength != 5 {
			t.Errorf("with a length: %+v", s)
		}
		if s = echo(t, h, "POST", "", nil); s.Body != "" || s.ContentLength != 0 {
			t.Errorf("without a body: %+v", s)
		}
		chunked := struct{ io.Reader }{strings.NewReader("hello")}
		if !proxy {
			if a := do(t, "POST", h.URL()+"/t/echo", chunked); a.StatusCode != 500 {
				t.Errorf("chunked: status %d", a.StatusCode)
			}
			return
		}
		if s = echo(t, h, "POST", "", chunked); s.Body != "hello" || s.ContentLength != -1 {
			t.Errorf("chunked: %+v", s)
		}
	})
}

func TestResponse(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), proxy)
		a := do(t, "GET", h.URL()+"/t/headers", nil)
		if a.StatusCode != 418 || a.body != "<html>" || a.Header.Get("X-Tab") != "a\tb" || len(a.Header["Set-Cookie"]) != 2 {
			t.Errorf("status %s, headers %v, body %q", a.Status, a.Header, a.body)
		}
		if a.Header["Content-Type"] != nil || a.Header["Keep-Alive"] != nil {
			t.Errorf("headers that the child did not send or that are no business of the client: %v", a.Header)
		}
		if a := do(t, "GET", h.URL()+"/t/redirect", nil); a.StatusCode != 302 || a.Header.Get("Location") != "/t/echo?from=redirect" {
			t.Errorf("redirect: status %s, headers %v", a.Status, a.Header)
		}
		if a := do(t, "HEAD", h.URL()+"/t/echo", nil); a.StatusCode != 200 || a.ContentLength <= 0 || a.body != "" {
			t.Errorf("HEAD: status %s, length %d, body %q", a.Status, a.ContentLength, a.body)
		}
		if a := do(t, "GET", h.URL()+"/t/notmodified", nil); a.StatusCode != 304 || a.Header.Get("Etag") != `"1"` {
			t.Errorf("not modified: status %s, headers %v", a.Status, a.Header)
		}
		for _, path := range []string{"/t/latin", "/t/control", "/t/abort"} {
			if a := do(t, "GET", h.URL()+path, nil); a.StatusCode != 500 || a.body != "" {
				t.Errorf("%s: status %s, body %q", path, a.Status, a.body)
			}
		}
	})
}

// A script root without enableForwardingHttpRequest gets its redirects followed.
func TestRedirectWithoutForwarding(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all().with("host.json", strings.Replace(hostJSON, `"enableForwardingHttpRequest":true`, `"enableForwardingHttpRequest":false`, 1)), proxy)
		if a := do(t, "GET", h.URL()+"/t/redirect", nil); a.StatusCode != 200 || !strings.Contains(a.body, "/t/echo?from=redirect") {
			t.Errorf("status %s, body %q", a.Status, a.body)
		}
	})
}

// Which of the two ways a request takes shows in its Host header.
func TestMode(t *testing.T) {
	t.Parallel()
	const setting = "AzureFunctionsJobHost__customHandler__enableProxyingHttpRequest="
	tests := []struct {
		name    string
		newer   bool
		setting string
		proxied bool
	}{
		{"older host", false, setting + "true", false},
		{"newer host", true, setting + "true", true},
		{"newer host, proxying off", true, setting + "false", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := start(t, all(), tt.newer, tt.setting)
			if s := echo(t, h, "GET", "", nil, "Host", "tiny.example"); (s.Host != "tiny.example") != tt.proxied {
				t.Errorf("Host %q", s.Host)
			}
		})
	}
}

// The child's stream ends only when somebody asks it to, and the client asks after it has read the
// first half: only a host that streams gets that far.
func TestProxyStreams(t *testing.T) {
	t.Parallel()
	h := start(t, all(), true)
	for _, path := range []string{"/t/stream", "/t/stream?length=11"} {
		resp, err := client.Get(h.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		first := make([]byte, len("first"))
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
			t.Fatalf("%q, %v", first, err)
		}
		do(t, "POST", h.URL()+"/t/release", nil)
		if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "second" {
			t.Errorf("%q, %v", rest, err)
		}
	}
}

// A response that breaks off half-way shows who buffers: then the client sees none of it.
func TestBrokenResponse(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), proxy)
		resp, err := client.Get(h.URL() + "/t/cut")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if !proxy && (resp.StatusCode != 500 || len(body) > 0 || err != nil) {
			t.Errorf("forwarded: status %s, body %q, %v", resp.Status, body, err)
		}
		if proxy && (resp.StatusCode != 200 || string(body) != "first" || err == nil) {
			t.Errorf("proxied: status %s, body %q, %v", resp.Status, body, err)
		}
	})
}

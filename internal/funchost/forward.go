package funchost

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
)

const (
	headerVersion    = "X-Azure-Functions-HostVersion"
	headerInvocation = "X-Azure-Functions-InvocationId"
	userAgent        = "Azure-Functions-Host/" + hostVersion
)

// serve answers one public request.
func (h *Host) serve(w http.ResponseWriter, r *http.Request) {
	// The key without a value keeps net/http from guessing a type that the child never sent.
	w.Header()["Content-Type"] = nil
	f := h.script.find(r)
	c := h.child.Load()
	switch {
	case f == nil:
		w.WriteHeader(http.StatusNotFound)
	case f.trigger.AuthLevel != "anonymous":
		w.WriteHeader(http.StatusUnauthorized)
	case !c.alive():
		w.WriteHeader(http.StatusInternalServerError)
	case h.proxy:
		h.proxyRequest(w, r, c)
	default:
		if err := h.forward(w, r, c); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
}

// proxyRequest is the newer host's way: a streaming reverse proxy.
//
// Without enableForwardingHttpRequest the double follows redirects here too, although the newest
// host's proxy relays them: an older host needs that setting, and a script root without it should
// fail in either mode.
func (h *Host) proxyRequest(w http.ResponseWriter, r *http.Request, c *child) {
	proxy := httputil.ReverseProxy{
		Transport:     roundTripper(h.client.Do),
		FlushInterval: -1,
		ErrorLog:      discard,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", c.addr
			p.Out.URL.RawQuery = p.In.URL.RawQuery // ReverseProxy drops what Go cannot parse
			p.Out.Host = c.addr
			p.Out.RequestURI = "" // a client's request must not have one
			// The host sets these; what a client sent under their names is gone.
			p.SetXForwarded()
			p.Out.Header.Set(headerVersion, hostVersion)
			p.Out.Header.Set(headerInvocation, newGUID())
		},
		ModifyResponse: func(resp *http.Response) error { return checkHeaders(resp.Header) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusInternalServerError)
		},
	}
	proxy.ServeHTTP(w, r)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// forward is the older host's way: it rebuilds the request and buffers the response. An error means
// that nothing has been written yet.
//
// Without enableForwardingHttpRequest the host sends no such request but a JSON payload. The double
// does not go that far: it forwards all the same, and follows redirects as the host then does.
func (h *Host) forward(w http.ResponseWriter, r *http.Request, c *child) error {
	// The host copies the Transfer-Encoding header but no body without a Content-Length, and its
	// HTTP client refuses that combination.
	if len(r.TransferEncoding) > 0 {
		return errors.New("chunked request")
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+c.addr+r.URL.EscapedPath(), nil)
	if err != nil {
		return err
	}
	out.URL.RawQuery = rebuildQuery(r.URL.RawQuery)
	out.Host = r.Host
	out.Header = forwardedHeaders(r)
	if r.ContentLength > 0 {
		out.Body, out.ContentLength = r.Body, r.ContentLength
	}
	resp, err := h.client.Do(out)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	removeHopByHop(resp.Header)
	if err := checkHeaders(resp.Header); err != nil {
		return err
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	w.Write(body)
	return nil
}

// contentHeaders are those that .NET keeps with the body: the host drops them all when it copies a
// request, and puts back Content-Type and Content-Length if there is a body.
var contentHeaders = []string{
	"Allow", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length",
	"Content-Location", "Content-Md5", "Content-Range", "Content-Type", "Expires", "Last-Modified",
}

// forwardedHeaders copies the client's headers raw and adds the host's own. Several values of one
// header leave the host's HTTP client as one line, so a forged invocation id stands first on the
// line that ends with the real one.
func forwardedHeaders(r *http.Request) http.Header {
	header := r.Header.Clone()
	removeHopByHop(header)
	for _, name := range contentHeaders {
		header.Del(name)
	}
	if t := r.Header.Get("Content-Type"); t != "" && r.ContentLength > 0 {
		header.Set("Content-Type", t)
	}
	header.Add(headerVersion, hostVersion)
	header.Add(headerInvocation, newGUID())
	header.Add("User-Agent", userAgent)
	for name, values := range header {
		separator := ", "
		switch name {
		case "User-Agent":
			separator = " "
		case "Cookie":
			separator = "; "
		}
		header[name] = []string{strings.Join(values, separator)}
	}
	return header
}

// rebuildQuery passes a query through a dictionary: keys that differ in case only are one, and the
// values of one key are joined with commas.
func rebuildQuery(raw string) string {
	var keys, values []string
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		key, value = unescapeQuery(key), unescapeQuery(value)
		if i := slices.IndexFunc(keys, func(k string) bool { return strings.EqualFold(k, key) }); i >= 0 {
			values[i] += "," + value
		} else {
			keys, values = append(keys, key), append(values, value)
		}
	}
	var b strings.Builder
	for i, key := range keys {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(escapeQuery(key) + "=" + escapeQuery(values[i]))
	}
	return b.String()
}

func unescapeQuery(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// escapeQuery leaves alone what .NET's UrlEncoder.Default does.
func escapeQuery(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~!$()*,:;@", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// checkHeaders refuses what the host's web server refuses to write: anything but printable ASCII.
func checkHeaders(header http.Header) error {
	for name, values := range header {
		for _, value := range values {
			if strings.ContainsFunc(value, func(c rune) bool { return (c < ' ' || c > '~') && c != '\t' }) {
				return fmt.Errorf("header %s is not printable ASCII: %q", name, value)
			}
		}
	}
	return nil
}

// removeHopByHop removes what concerns one connection only (RFC 9110, section 7.6.1).
func removeHopByHop(header http.Header) {
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			header.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		header.Del(name)
	}
}

package funchost

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
)

const (
	headerVersion    = "X-Azure-Functions-HostVersion"
	headerInvocation = "X-Azure-Functions-InvocationId"
	headerUnencoded  = "X-WAWS-Unencoded-URL"
	userAgent        = "Azure-Functions-Host/" + hostVersion
)

// serve handles one public request.
func (h *Host) serve(w http.ResponseWriter, r *http.Request) {
	// The key without a value keeps net/http from guessing a type that the child did not send.
	w.Header()["Content-Type"] = nil
	if h.opt.FrontEnd {
		r.Header.Set(headerUnencoded, r.RequestURI)
	}
	path := requestPath(r.URL)
	f := h.script.find(r.Method, path)
	switch {
	case len(r.Method+" "+r.RequestURI+" HTTP/1.1\r\n") > 8<<10:
		w.WriteHeader(http.StatusRequestURITooLong)
	case checkHeaders(r.Header) != nil:
		w.WriteHeader(http.StatusBadRequest)
	case f == nil && path != "/":
		w.WriteHeader(http.StatusNotFound)
	case f == nil && slices.Contains(h.opt.Env, "AzureWebJobsDisableHomepage=true"):
		w.WriteHeader(http.StatusNoContent)
	case f == nil:
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!DOCTYPE html><title>Your Functions 4.0 app is up and running</title>")
	case f.trigger.AuthLevel != "anonymous":
		w.WriteHeader(http.StatusUnauthorized)
	default:
		h.relay(w, r, path)
	}
}

// relay sends a request to the child and its response to the client.
func (h *Host) relay(w http.ResponseWriter, r *http.Request, path string) {
	rewrite, send := rewriteForwarded, h.forward
	if h.opt.Proxy {
		rewrite, send = rewriteProxied, h.send
	}
	proxy := httputil.ReverseProxy{
		Transport:      roundTripper(send),
		FlushInterval:  -1,
		ErrorLog:       discard,
		Rewrite:        func(p *httputil.ProxyRequest) { rewrite(p, path) },
		ModifyResponse: func(resp *http.Response) error { return checkHeaders(resp.Header) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusInternalServerError)
		},
	}
	proxy.ServeHTTP(w, r)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// rewriteProxied rebuilds a request as a newer host does. It replaces a client's values in the
// host's own headers, and in X-Forwarded-For, -Host and -Proto. Forwarded is not among them.
func rewriteProxied(p *httputil.ProxyRequest, path string) {
	p.Out.URL = verbatimURL(escape(path, pathChars), canonical(p.In.URL.RawQuery))
	p.Out.Host = "" // the child's address
	p.SetXForwarded()
	if forwarded, ok := p.In.Header["Forwarded"]; ok { // ReverseProxy has removed it
		p.Out.Header["Forwarded"] = forwarded
	}
	id := newGUID()
	p.Out.Header.Set(headerVersion, hostVersion)
	p.Out.Header.Set(headerInvocation, id)
	p.Out.Header.Set("X-Ms-Invocation-Id", id)
}

// rewriteForwarded rebuilds a request as an older host does. Such a host joins several values of
// one header into one line. So a forged invocation id comes first on the line that ends with the
// real one.
func rewriteForwarded(p *httputil.ProxyRequest, path string) {
	p.Out.URL = verbatimURL(forwardedPath(path), forwardedQuery(p.In.URL.RawQuery))
	header := p.Out.Header
	for name, values := range p.In.Header {
		if strings.Contains(name, "Forwarded") { // ReverseProxy has removed them
			header[name] = values
		}
	}
	header.Add(headerVersion, hostVersion)
	header.Add(headerInvocation, newGUID())
	header.Add("User-Agent", userAgent)
	for name, values := range header {
		separator := cmp.Or(map[string]string{"User-Agent": " ", "Cookie": "; "}[name], ", ")
		header[name] = []string{strings.Join(values, separator)}
		if strings.HasPrefix(name, "Content-") && (name != "Content-Type" || p.Out.Body == nil) {
			delete(header, name)
		}
	}
}

// forward reads the whole request before it sends it, and the whole response before it returns. The
// child does not learn that the client has gone away.
func (h *Host) forward(r *http.Request) (*http.Response, error) {
	// The host copies the Transfer-Encoding header, but copies no body without a Content-Length.
	// Its HTTP client refuses that combination.
	if len(r.TransferEncoding) > 0 {
		return nil, errors.New("chunked request")
	}
	r = r.WithContext(context.WithoutCancel(r.Context()))
	unsent := new(bytes.Reader)
	sending, stop := context.WithCancel(context.Background()) // until net/http closes the body
	defer stop()
	if r.Body == nil {
		stop()
	} else {
		if t := r.Header.Get("Content-Type"); t != "" {
			if mediaType, _, err := mime.ParseMediaType(t); err != nil ||
				!strings.Contains(mediaType, "/") {
				return nil, errors.New("unparseable Content-Type")
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		unsent.Reset(body)
		r.Body = &requestBody{unsent, stop}
	}
	resp, body, err := h.exchange(r)
	if err != nil {
		return nil, err
	}
	<-sending.Done() // this may be after the response
	if unsent.Len() > 0 {
		return nil, errors.New("the child responded and closed the connection before the whole " +
			"request was sent")
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	for name, values := range resp.Header {
		switch name {
		case "Location":
			values[0] = absoluteURI(values[0])
		case "Allow", "Vary": // the host writes one line for each element
			resp.Header[name] = strings.Split(strings.ReplaceAll(strings.Join(values, ","), " ",
				""), ",")
		}
	}
	return resp, nil
}

type requestBody struct {
	io.Reader
	close func()
}

func (b *requestBody) Close() error { b.close(); return nil }

// verbatimURL returns a URL whose path and query net/http sends unchanged. The path must be
// escaped.
func verbatimURL(path, query string) *url.URL {
	decoded, _ := url.PathUnescape(path)
	return &url.URL{Path: decoded, RawPath: path, RawQuery: query}
}

// checkHeaders returns an error for values that are not printable ASCII. The host's web server
// neither accepts nor sends them.
func checkHeaders(header http.Header) error {
	for name, values := range header {
		for _, value := range values {
			if strings.ContainsFunc(value, func(c rune) bool {
				return (c < ' ' || c > '~') && c != '\t'
			}) {
				return fmt.Errorf("header %s is not printable ASCII: %q", name, value)
			}
		}
	}
	return nil
}

package browser

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"tiney/internal/testing/funchost"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

// Both pages work behind the Functions host too, whether it forwards requests or proxies them.
func TestBehindTheHost(t *testing.T) {
	t.Parallel()
	for name, proxies := range map[string]bool{"forwarding": false, "proxying": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The host's address is known only after it has started.
			var host atomic.Pointer[httputil.ReverseProxy]
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				host.Load().ServeHTTP(w, r)
			}))
			t.Cleanup(front.Close)
			provider := oidcprovider.Start(t, oidcprovider.Options{})
			provider.Redirect(t, front.URL+"/manage")
			s, p := newSite(t, front.URL, "OIDC_ISSUER="+provider.Issuer(), "OIDC_CLIENT_ID="+
				oidcprovider.ClientID, "CLICKS_FLUSH_SECONDS=1"), chromium.New(t)
			s.store(t)
			h, err := funchost.Start(context.Background(), funchost.Options{ScriptRoot: app,
				Proxy: proxies, Output: t.Output(), Env: s.settings})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(h.Close)
			to, err := url.Parse(h.URL())
			if err != nil {
				t.Fatal(err)
			}
			host.Store(httputil.NewSingleHostReverseProxy(to))
			testutil.Eventually(t, "it is ready", func() bool {
				status, _ := s.status(t, "/api/ready")
				return status == 200
			})

			p.NoScripts()
			p.Open(s.url)
			p.Fill("#url", "https://example.com/form")
			if status := p.Go(func() { p.Press(kb.Enter) }); status != 201 {
				t.Errorf("the form makes a %d", status)
			}
			p.AllowScripts()
			p.Open(s.url)
			p.wantFocus("url")
			p.Press("https://example.com/mine" + kb.Tab + kb.Tab + "mine" + kb.Enter)
			p.Await("#result", "Your short link")
			p.AwaitTrue(awaitPicture)
			if got := scan(t, p.Shot("#qr")); got != s.url+"/mine" {
				t.Errorf("the QR code says %q", got)
			}
			p.Go(func() { p.Click("#preview") })
			p.Await("main", "leads to")
			s.visit(t, "mine", firefox, "https://news.example/")

			p.Open(s.url + "/manage")
			p.wantFocus("provider-go")
			p.Press(kb.Enter)
			p.AwaitTrue(find("[name=user]") + " !== null")
			p.Fill("[name=user]", "ada")
			p.Press(kb.Enter)
			p.Await("#who", "ada")
			p.Click("#claims-take")
			p.Await("#list-rows", "/mine")
			p.Click("#list-rows .what > a")
			p.Await("#stats-body", "news.example")
			p.edit()
			p.Fill("#title", "Mine")
			p.Press(kb.Enter)
			p.Await("#toast", "Saved")
			p.Click("#link-delete")
			p.Await("#link-state", "Deleted")
			p.Press(kb.Enter)
			p.Await("#link-state", "Live")
			p.GoTo("#/keys", "#key-new", "Make a key")
			p.Fill("#key-name", "mine")
			p.Press(kb.Enter)
			p.Await("#new-key", "it is not shown again")
			key := p.Text("#new-key-text")
			p.Click("#sign-out")
			p.Await("#signin-says", "You are signed out")
			p.Fill("#key", key)
			p.Press(kb.Enter)
			p.Await("#list-rows", "/mine")
			for target, want := range map[string]string{"/nobody": "No such link",
				"/nobody+": "No such link"} {
				if status := p.Open(s.url + target); status != 404 || p.Text("h1") != want {
					t.Errorf("%s: %d %s", target, status, p.Text("h1"))
				}
			}
		})
	}
}

package main

import (
	"context"
	"net/http"
	"testing"
)

// What is compared gives the answers that make it comparable.
func TestPeers(t *testing.T) {
	b := &bench{alias: "abc123", dir: t.TempDir()}
	if err := b.buildBare(t.Context()); err != nil {
		t.Fatal(err)
	}
	peers := map[string]func(context.Context) (*service, error){"net/http": func(ctx context.Context) (*service, error) { return b.startBare(ctx) }}
	if nginx := findNginx(); nginx != "" {
		peers["nginx"] = func(ctx context.Context) (*service, error) { return b.startNginx(ctx, nginx) }
	}
	if len(peers) < 2 {
		t.Log("nginx is not installed, and not tried")
	}
	for name, start := range peers {
		s, err := start(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		defer s.stop()
		answer, err := client.Get(s.url + "/abc123")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		answer.Body.Close()
		if to := answer.Header.Get("Location"); answer.StatusCode != http.StatusFound || to != longURL {
			t.Errorf("%s answers with %d to %q", name, answer.StatusCode, to)
		}
		if name == "net/http" {
			if status, _, err := s.send(http.MethodGet, "/other", ""); status != http.StatusNotFound {
				t.Errorf("%s answers with %d (%v) where there is no link", name, status, err)
			}
		}
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The connection reads answers with and without a body, one after the other, and takes no other status for the one that
// it waits for.
func TestConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/found":
			w.Header().Set("Location", "https://example.com/")
			w.WriteHeader(http.StatusFound)
		case "/api/shorten":
			body, _ := io.ReadAll(r.Body)
			if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || string(body) != `{"longUrl":"https://example.com/new"}` {
				t.Errorf("it sends %s %s %q", r.Method, r.Header.Get("Content-Type"), body)
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "HTTP/1.1 500 in a body\r\n\r\nis no answer")
		default:
			http.Error(w, "no such link", http.StatusNotFound)
		}
	}))
	defer server.Close()
	c := newConnection(server.Listener.Addr().String(), "/found")
	defer c.close()
	get := func(status int) error {
		c.status = status
		return c.get()
	}
	for range 2 {
		if err := get(http.StatusFound); err != nil {
			t.Error(err)
		}
		c.shorten("https://example.com/new")
		if err := get(http.StatusCreated); err != nil {
			t.Error(err)
		}
		c.ask("/other")
		if err := get(http.StatusNotFound); err != nil {
			t.Error(err)
		}
		c.ask("/found")
	}
	c.ask("/other")
	if err := get(http.StatusFound); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a 404 where a 302 should be is %v", err)
	}
}

// Both load generators ask for what the service says, and take for right the status that it says, and no other.
func TestFlatOut(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/there" {
			w.WriteHeader(http.StatusFound)
			return
		}
		http.Error(w, "no such link", http.StatusNotFound)
	}))
	defer server.Close()
	generators := map[string]string{"its own": ""}
	if wrk, err := exec.LookPath("wrk"); err == nil {
		generators["wrk"] = wrk
	}
	for name, wrk := range generators {
		b := &bench{connections: 4, wrk: wrk}
		for _, test := range []struct {
			path   string
			status int
			ok     bool
		}{
			{"/there", http.StatusFound, true}, {"/nobody", http.StatusNotFound, true},
			{"/there", http.StatusNotFound, false}, {"/nobody", http.StatusFound, false},
		} {
			asked.Store(0)
			s := &service{address: server.Listener.Addr().String(), url: server.URL, path: test.path, status: test.status}
			v, err := b.flatOut(context.Background(), s, 200*time.Millisecond)
			switch {
			case (err == nil) != test.ok:
				t.Errorf("%s, %s to be answered with %d: %v", name, test.path, test.status, err)
			case test.ok && (v["requests"] < 1 || v["requests"] > float64(asked.Load()) || v["req/s"] <= 0 || v["p99"] < v["p50"] || v["p50"] <= 0):
				t.Errorf("%s, after %d requests: %v", name, asked.Load(), v)
			}
		}
	}
}

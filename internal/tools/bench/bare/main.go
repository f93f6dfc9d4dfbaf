// Bare is the least that net/http can do for a shortener: it redirects by a map, without expiry and
// counters. The bench compares the service with it.
package main

import (
	"fmt"
	"net/http"
	"os"
	"time"
)

// main redirects GET / and the path in the second argument to the URL in the third. It listens on
// the address in the first. With a fourth argument it has the service's time limits, and its
// responses have the headers of the service's.
func main() {
	if len(os.Args) != 4 && len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: bare ADDRESS PATH URL [alike]")
		os.Exit(2)
	}
	alike := len(os.Args) == 5
	links := map[string]string{"/": os.Args[3], os.Args[2]: os.Args[3]}
	server := &http.Server{Addr: os.Args[1], Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		to, ok := links[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		h := w.Header()
		h.Set("Location", to)
		if alike {
			h.Set("Cache-Control", "no-store")
			h.Set("X-Robots-Tag", "noindex")
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		w.WriteHeader(http.StatusFound)
	})}
	if alike {
		server.ReadHeaderTimeout, server.WriteTimeout = 2*time.Minute, 30*time.Second
		server.IdleTimeout = 2 * time.Minute
	}
	fmt.Fprintln(os.Stderr, "bare:", server.ListenAndServe())
	os.Exit(1)
}

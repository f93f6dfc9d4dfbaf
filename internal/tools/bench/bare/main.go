// Bare is the least that net/http can do for a shortener: it redirects by a map, without expiry,
// counters or time limits. The bench compares the service with it.
package main

import (
	"fmt"
	"net/http"
	"os"
)

// main redirects GET / and the path in the second argument to the URL in the third. It listens on
// the address in the first.
func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: bare ADDRESS PATH URL")
		os.Exit(2)
	}
	links := map[string]string{"/": os.Args[3], os.Args[2]: os.Args[3]}
	err := http.ListenAndServe(os.Args[1],
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to, ok := links[r.URL.Path]
			if !ok {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		}))
	fmt.Fprintln(os.Stderr, "bare:", err)
	os.Exit(1)
}

package funchost_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"testing"
)

// childMode is the environment variable that turns this test binary into a custom handler.
const childMode = "FUNCHOST_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childMode) {
	case "":
		os.Exit(m.Run())
	case "serve":
		serve()
	case "mute":
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, os.Interrupt)
		fmt.Println("up, and silent")
		<-interrupted
	case "exit":
		fmt.Fprintln(os.Stderr, "no storage configured")
		os.Exit(3)
	}
}

// seen is what the child saw of a request, and of its surroundings.
type seen struct {
	Method, URI, Host, Body string
	ContentLength           int64
	Header                  http.Header
	Dir, Port               string
	Env                     []string
}

func see(r *http.Request) seen {
	body, _ := io.ReadAll(r.Body)
	dir, _ := os.Getwd()
	return seen{
		Method: r.Method, URI: r.RequestURI, Host: r.Host, Body: string(body),
		ContentLength: r.ContentLength, Header: r.Header,
		Dir: dir, Port: os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"), Env: os.Environ(),
	}
}

func serve() {
	fmt.Println("to stdout")
	fmt.Fprintln(os.Stderr, "to stderr")
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() {
		<-interrupted
		os.Exit(7)
	}()
	err := http.ListenAndServe("127.0.0.1:"+os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"), handler())
	fmt.Println(err)
	os.Exit(1)
}

func handler() http.Handler {
	reply := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	withHeader := func(value string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Name", value) }
	}
	release := make(chan struct{}) // unbuffered: /t/release waits until a stream is half-way
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/t/echo", func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(see(r)) })
	mux.HandleFunc("/t/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/t/echo?from=redirect", http.StatusFound)
	})
	mux.HandleFunc("/t/headers", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = nil
		h["Set-Cookie"] = []string{"a=1", "b=2"}
		h.Set("X-Tab", "a\tb")
		h.Set("Keep-Alive", "timeout=5")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "<html>")
	})
	mux.HandleFunc("/t/notmodified", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"1"`)
		w.WriteHeader(http.StatusNotModified)
	})
	mux.HandleFunc("/t/latin", withHeader("caf\xe9"))
	mux.HandleFunc("/t/control", withHeader("a\x01b"))
	mux.HandleFunc("/t/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/t/crash", func(http.ResponseWriter, *http.Request) { os.Exit(9) })
	mux.HandleFunc("/t/stream", func(w http.ResponseWriter, r *http.Request) {
		if length := r.FormValue("length"); length != "" {
			w.Header().Set("Content-Length", length)
		}
		io.WriteString(w, "first")
		http.NewResponseController(w).Flush()
		<-release
		io.WriteString(w, "second")
	})
	mux.HandleFunc("/t/cut", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "first")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("/t/release", func(http.ResponseWriter, *http.Request) { release <- struct{}{} })
	mux.HandleFunc("POST /reaper", func(w http.ResponseWriter, r *http.Request) {
		request, _ := json.Marshal(see(r))
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"Outputs": map[string]any{}, "Logs": []string{"swept", "done"}, "ReturnValue": string(request)})
	})
	mux.HandleFunc("POST /empty", reply(200, "application/json", ""))
	mux.HandleFunc("POST /nullish", reply(200, "application/json", "null\n"))
	mux.HandleFunc("POST /array", reply(200, "application/json", "[]"))
	mux.HandleFunc("POST /broken", reply(500, "application/json", `{"Outputs":{},"Logs":["lost"],"ReturnValue":null}`))
	mux.HandleFunc("POST /plain", reply(200, "text/plain; charset=utf-8", `{"Outputs":{},"Logs":[],"ReturnValue":null}`))
	return mux
}

package funchost_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
)

// childMode is the environment variable that turns this test binary into a custom handler.
const childMode = "FUNCHOST_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childMode) {
	case "":
		os.Exit(m.Run())
	case "serve":
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
		serve()
	}
}

func serve() {
	err := http.ListenAndServe("127.0.0.1:"+os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if respond, ok := responses[r.URL.Path]; ok {
				respond(w, r)
			} else {
				echo(w, r)
			}
		}))
	fmt.Println(err)
	os.Exit(1)
}

// seen is what the child saw of a request, and of its own process.
type seen struct {
	Method, URI, Host, Body string
	Header                  http.Header
	ContentLength           int64
	TransferEncoding        []string
	Dir                     string
	Env                     []string
}

// echo responds to HTTP and timer requests alike.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	dir, _ := os.Getwd()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"Logs": []string{"swept", "done"}, "ReturnValue": seen{
		r.Method, r.RequestURI, r.Host, string(body), r.Header, r.ContentLength, r.TransferEncoding,
		dir, os.Environ(),
	}})
}

// responses are the child's other responses, by path.
var responses = map[string]http.HandlerFunc{
	"/t/redirect": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.FormValue("to"))
		w.WriteHeader(http.StatusFound)
	},
	"/t/headers": func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = nil
		h["Set-Cookie"] = []string{"a=1", "b=2"}
		h.Set("X-Tab", "a\tb")
		h.Set("Vary", "Accept, Origin")
		h.Set("Keep-Alive", "timeout=5")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "<html>")
	},
	"/t/early": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	},
	"/t/latin": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Name", "caf\xe9")
	},
	"/t/abort": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
}

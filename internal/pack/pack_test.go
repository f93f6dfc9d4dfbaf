package pack

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// 15 MB is what a cold start on the Consumption plan takes without noticing.
const maxExecutable = 15_000_000

func TestPackages(t *testing.T) {
	for _, test := range []struct {
		target     Target
		executable string
		magic      string
	}{
		{Target{OS: "linux", Arch: "amd64"}, "handler", "\x7fELF"},
		{Target{OS: "windows", Arch: "386"}, "handler.exe", "MZ"},
	} {
		t.Run(test.target.OS+"/"+test.target.Arch, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a", "app.zip")
			if err := Zip("../..", file, test.target); err != nil {
				t.Fatal(err)
			}
			one, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if test.target.OS == "linux" { // once is enough, and takes long enough
				if err := Zip("../..", file, test.target); err != nil {
					t.Fatal(err)
				}
				two, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(one, two) {
					t.Error("the same sources give other bytes")
				}
			}

			archive, err := zip.NewReader(bytes.NewReader(one), int64(len(one)))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range archive.File {
				names = append(names, f.Name)
				want := fs.FileMode(0o644)
				if f.Name == test.executable {
					want = 0o755
				}
				if f.Mode() != want {
					t.Errorf("%s has mode %v, want %v", f.Name, f.Mode(), want)
				}
			}
			want := []string{test.executable, "health/function.json", "home/function.json", "host.json", "ready/function.json",
				"reaper/function.json", "redirect/function.json", "shorten/function.json"}
			slices.Sort(want)
			if !slices.Equal(names, want) {
				t.Errorf("it holds %q, want %q", names, want)
			}

			var host struct {
				CustomHandler struct {
					Description                                            struct{ DefaultExecutablePath string }
					EnableForwardingHTTPRequest, EnableProxyingHTTPRequest bool
				}
			}
			if err := json.Unmarshal(read(t, archive, "host.json"), &host); err != nil {
				t.Fatal(err)
			}
			if h := host.CustomHandler; h.Description.DefaultExecutablePath != test.executable || !h.EnableForwardingHTTPRequest || !h.EnableProxyingHTTPRequest {
				t.Errorf("host.json says %+v", h)
			}
			executable := read(t, archive, test.executable)
			if !strings.HasPrefix(string(executable), test.magic) {
				t.Errorf("the executable begins with %q", executable[:4])
			}
			if len(executable) > maxExecutable {
				t.Errorf("the executable has %d bytes, more than %d", len(executable), maxExecutable)
			}
			t.Logf("executable %d bytes, package %d bytes", len(executable), len(one))
		})
	}
}

func read(t *testing.T, archive *zip.Reader, name string) []byte {
	t.Helper()
	f, err := archive.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestNameExecutable(t *testing.T) {
	got, err := nameExecutable([]byte(`{ "customHandler": { "description": { "defaultExecutablePath": "handler" } }, "x": "handler" }`), "handler.exe")
	if want := `{ "customHandler": { "description": { "defaultExecutablePath": "handler.exe" } }, "x": "handler" }`; err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	for _, wrong := range []string{`{`, `{}`, `{"customHandler":{"description":{"defaultExecutablePath":"handler"}}}`} {
		if got, err := nameExecutable([]byte(wrong), "x"); err == nil {
			t.Errorf("%s became %s", wrong, got)
		}
	}
}

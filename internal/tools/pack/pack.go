// Package pack lays out the function app. `func start`, the tests and Azure all get the same files,
// from one list. It also packs the same executable to run without the Functions host, as the web
// app and as a container image.
package pack

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Target is what an app is built for.
type Target struct {
	OS, Arch string // GOOS and GOARCH
	// WebApp says whether the app is an Azure web app, where IIS starts the executable by
	// web.config. Otherwise it is a function app.
	WebApp bool
	Race   bool // with the race detector, for tests; it needs a C compiler
}

// executable returns the name that the host looks for. The host gives that exact name the run bit
// in a zip, without a "./".
func (t Target) executable() string {
	if t.OS == "windows" {
		return "handler.exe"
	}
	return "handler"
}

// Dir lays the function app out in the folder dir. It makes the folder, but keeps what is there. It
// adds local.settings.json for `func start`, and a .funcignore that keeps it from being published.
func Dir(root, dir string, target Target) error {
	files, err := app(root, target)
	if err != nil {
		return err
	}
	for _, name := range []string{"local.settings.json", ".funcignore"} {
		if files[name], err = os.ReadFile(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return write(dir, files, target)
}

// write writes files into the folder dir. Their names have slashes.
func write(dir string, files map[string][]byte, target Target) error {
	for name, data := range files {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, target.mode(name)); err != nil {
			return err
		}
	}
	return nil
}

// Zip writes the app as a package to deploy. The same commit gives the same bytes on every machine
// with the same Go.
func Zip(root, file string, target Target) error {
	files, err := app(root, target)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		// Zip times begin in 1980. Some tools refuse a file without a time.
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Date(1980, 1, 1,
			0, 0, 0, 0, time.UTC)}
		header.SetMode(target.mode(name))
		to, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := to.Write(files[name]); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

func (t Target) mode(name string) fs.FileMode {
	if name == t.executable() {
		return 0o755
	}
	return 0o644
}

// app returns the files of the app by name, with slashes.
func app(root string, target Target) (map[string][]byte, error) {
	files, err := describe(root, target)
	if err != nil {
		return nil, err
	}
	files[target.executable()], err = build(root, target)
	return files, err
}

// describe returns the files that tell Azure what to run.
func describe(root string, target Target) (map[string][]byte, error) {
	if target.WebApp {
		if target.OS != "windows" {
			return nil, errors.New("a web app that web.config starts is one for windows")
		}
		config, err := os.ReadFile(filepath.Join(root, "infra", "web.config"))
		return map[string][]byte{"web.config": config}, err
	}
	files := map[string][]byte{}
	host, err := os.ReadFile(filepath.Join(root, "host.json"))
	if err != nil {
		return nil, err
	}
	if files["host.json"], err = nameExecutable(host, target.executable()); err != nil {
		return nil, fmt.Errorf("host.json: %w", err)
	}
	functions, err := filepath.Glob(filepath.Join(root, "functions", "*", "function.json"))
	if err != nil || len(functions) == 0 {
		return nil, cmp.Or(err, errors.New("no function.json found under functions"))
	}
	for _, file := range functions {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		// The host looks for these files only in direct children of its root.
		files[path.Join(filepath.Base(filepath.Dir(file)), "function.json")] = data
	}
	return files, nil
}

// nameExecutable puts the name of the executable into host.json. It does not change the rest of the
// file.
func nameExecutable(host []byte, name string) ([]byte, error) {
	var parsed struct {
		CustomHandler struct {
			Description struct{ DefaultExecutablePath string }
		}
	}
	if err := json.Unmarshal(host, &parsed); err != nil {
		return nil, err
	}
	old, err := json.Marshal(parsed.CustomHandler.Description.DefaultExecutablePath)
	if err != nil {
		return nil, err
	}
	key := `"defaultExecutablePath": `
	from := []byte(key + string(old))
	if bytes.Count(host, from) != 1 {
		return nil, fmt.Errorf("expected one line with %s", from)
	}
	return bytes.Replace(host, from, []byte(key+`"`+name+`"`), 1), nil
}

// cold are packages that no cached redirect runs. Their functions are not inlined, which makes the
// executable and its memory at rest 0.7 MB smaller. The arithmetic below RSA, ECDSA and TLS is in
// other packages, and is compiled as usual. The rest of vendor/golang.org/x is not cold: net/http
// calls httpguts for each header of a request.
var cold = []string{"github.com/Azure/...", "github.com/AzureAD/...",
	"golang.org/x/net/...", "golang.org/x/text/...",
	"github.com/modelcontextprotocol/...", "github.com/google/jsonschema-go/...",
	"github.com/segmentio/...", "github.com/yosida95/...",
	"github.com/golang-jwt/...", "github.com/nlnwa/...", "github.com/VictoriaMetrics/...",
	"rsc.io/...", "tiney/handler/...", "tiney/internal/formats", "tiney/internal/pages",
	"compress/gzip", "encoding/asn1", "encoding/csv", "encoding/gob", "encoding/json",
	"encoding/xml", "html", "image/...", "log/slog/...", "math/big", "mime/...", "os/exec",
	"os/user", "regexp/...",
	"crypto/x509", "crypto/tls", "crypto/ecdh", "crypto/ecdsa", "crypto/ed25519", "crypto/rsa",
	"crypto/internal/fips140/ecdsa", "crypto/internal/fips140/rsa",
	"vendor/golang.org/x/crypto/...", "vendor/golang.org/x/text/...",
	"vendor/golang.org/x/net/dns/...", "vendor/golang.org/x/net/idna"}

// build builds the one executable: static, without paths of this machine, and stripped.
func build(root string, target Target) ([]byte, error) {
	dir, err := os.MkdirTemp("", "tiney-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, target.executable())
	// HTTP/2 is not needed: the host and Azure Storage use HTTP/1.1, and all other servers offer
	// both. Without net/http's HTTP/2, the executable and its memory at rest are half a megabyte
	// smaller. Functions begin at multiples of 16 bytes, and not of 32, which saves 0.1 MB more.
	args := []string{"build", "-o", out, "-tags", "nethttpomithttp2", "-trimpath",
		"-buildvcs=false", "-ldflags", "-s -w -funcalign=16 -X main.version=" + version(root)}
	for _, packages := range cold {
		args = append(args, "-gcflags", packages+"=-l")
	}
	cgo := "CGO_ENABLED=0"
	if target.Race {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	cmd := exec.Command("go", append(args, "./handler")...)
	cmd.Dir = root
	// The last four variables may differ in somebody's environment. They change the bytes, or the
	// processors that can run them.
	cmd.Env = append(os.Environ(), cgo, "GOOS="+target.OS, "GOARCH="+target.Arch, "GOFLAGS=",
		"GOEXPERIMENT=", "GOAMD64=v1", "GO386=sse2")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build for %s/%s: %w\n%s", target.OS, target.Arch, err, said)
	}
	return os.ReadFile(out)
}

// version returns a name for the commit that is built. It uses neither tags nor git's own choice of
// a length, since both differ between clones.
func version(root string) string {
	cmd := exec.Command("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty")
	cmd.Dir = root
	said, err := cmd.Output()
	if err != nil {
		return "unknown" // no git here, or not a clone
	}
	return strings.TrimSpace(string(said))
}

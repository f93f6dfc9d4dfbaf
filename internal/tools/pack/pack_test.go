package pack

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"debug/pe"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tiney/internal/link"
)

// maxExecutable is 16.5 MB, which do not noticeably slow a cold start on the Consumption plan: most
// of it is never read, such as what only MCP needs.
const maxExecutable = 16_500_000

// packer is the command of `make package`. The tests run it instead of calling Zip, since
// compression takes ten times as long under the race detector.
var packer string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "tiney-pack-")
		if err == nil {
			defer os.RemoveAll(dir)
			// The suffix .exe is for Windows. It does no harm elsewhere.
			packer = filepath.Join(dir, "pack.exe")
			var output []byte
			if output, err = exec.Command("go", "build", "-o", packer,
				"./cmd").CombinedOutput(); err == nil {
				return m.Run()
			}
			err = fmt.Errorf("%w\n%s", err, output)
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}())
}

// packages are the files that `make package` writes.
var packages = map[string]Target{
	"tiney-linux-amd64.zip":          {OS: "linux", Arch: "amd64"},
	"tiney-windows-386.zip":          {OS: "windows", Arch: "386"},
	"tiney-webapp-windows-386.zip":   {OS: "windows", Arch: "386", WebApp: true},
	"tiney-webapp-windows-amd64.zip": {OS: "windows", Arch: "amd64", WebApp: true},
}

// packed returns one of the packages. Each is made once for all tests.
func packed(t *testing.T, name string) *zip.Reader {
	t.Helper()
	data, ok := zips[name]
	if !ok {
		data = zipped(t, "../../..", packages[name])
		zips[name] = data
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

var zips = map[string][]byte{}

func TestPackages(t *testing.T) {
	for name, target := range packages {
		t.Run(name, func(t *testing.T) {
			executable, want := target.executable(), []string{"handler.exe", "web.config"}
			if !target.WebApp {
				// Each function in a folder beside host.json, where the host looks for it.
				functions, err := fs.Glob(os.DirFS("../../../functions"), "*/function.json")
				if err != nil || len(functions) == 0 {
					t.Fatal("no functions found: ", err)
				}
				want = append(functions, executable, "host.json")
				slices.Sort(want)
			}
			archive := packed(t, name)
			var names []string
			for _, f := range archive.File {
				names = append(names, f.Name)
				mode := fs.FileMode(0o644)
				if f.Name == executable {
					mode = 0o755
				}
				if f.Mode() != mode {
					t.Errorf("%s has mode %v, want %v", f.Name, f.Mode(), mode)
				}
			}
			if !slices.Equal(names, want) {
				t.Errorf("it holds %q, want %q", names, want)
			}
			if !target.WebApp {
				checkHost(t, read(t, archive, "host.json"), executable)
			}
			data := read(t, archive, executable)
			if target.OS == "windows" {
				checkWindows(t, data, target.Arch)
			} else {
				checkLinux(t, data)
			}
			if len(data) > maxExecutable {
				t.Errorf("the executable has %d bytes, more than %d", len(data), maxExecutable)
			}
			t.Logf("executable of %d bytes", len(data))
		})
	}
}

func checkHost(t *testing.T, data []byte, executable string) {
	t.Helper()
	var host struct {
		CustomHandler struct {
			Description                                            struct{ DefaultExecutablePath string }
			EnableForwardingHTTPRequest, EnableProxyingHTTPRequest bool
		}
	}
	if err := json.Unmarshal(data, &host); err != nil {
		t.Fatal(err)
	}
	if h := host.CustomHandler; h.Description.DefaultExecutablePath != executable ||
		!h.EnableForwardingHTTPRequest || !h.EnableProxyingHTTPRequest {
		t.Errorf("host.json says %+v", h)
	}
}

// checkWindows checks that the program has as many bits as the plan starts, and has a console for
// its log.
func checkWindows(t *testing.T, data []byte, arch string) {
	t.Helper()
	f, err := pe.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	machine, subsystem := uint16(pe.IMAGE_FILE_MACHINE_I386), uint16(0)
	if arch == "amd64" {
		machine = pe.IMAGE_FILE_MACHINE_AMD64
	}
	switch h := f.OptionalHeader.(type) {
	case *pe.OptionalHeader32:
		subsystem = h.Subsystem
	case *pe.OptionalHeader64:
		subsystem = h.Subsystem
	}
	if f.Machine != machine || subsystem != pe.IMAGE_SUBSYSTEM_WINDOWS_CUI {
		t.Errorf("machine %#x, header %+v", f.Machine, f.OptionalHeader)
	}
}

// checkLinux checks that the program needs no library, not even the C library.
func checkLinux(t *testing.T, data []byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != elf.EM_X86_64 ||
		slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("machine %v, programs %v", f.Machine, f.Progs)
	}
}

// local.settings.json has a publicly known key. TestPackages shows that no package has the file.
// This test shows that `func azure functionapp publish` leaves it out too.
func TestLocalSettingsStayLocal(t *testing.T) {
	ignored, err := os.ReadFile("../../../.funcignore")
	if err != nil || !slices.Contains(strings.Fields(string(ignored)), "local.settings.json") {
		t.Errorf(".funcignore has %q (%v)", ignored, err)
	}
}

func TestWebAppNeedsWindows(t *testing.T) {
	if err := Zip("../../..", filepath.Join(t.TempDir(), "app.zip"), Target{OS: "linux", Arch: "amd64",
		WebApp: true}); err == nil {
		t.Error("packed for linux")
	}
}

// The two clones are in different folders, one of them has a tag, and their environments differ.
func TestClonesGiveTheSameBytes(t *testing.T) {
	one := filepath.Join(t.TempDir(), "one")
	two := filepath.Join(t.TempDir(), "another", "place")
	run(t, ".", "git", "init", "-q", one)
	sources := map[string]bool{"go.mod": true, "go.sum": true, "host.json": true,
		"infra/web.config": true}
	const ofModule = "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}"
	for _, name := range strings.Fields(run(t, "../../..", "go", "list", "-deps", "-f", ofModule,
		"./handler")) {
		sources[strings.Split(name, "/")[1]] = true // a package, with all its embedded files
	}
	for name := range sources {
		copyTo(t, filepath.Join(one, name), filepath.Join("../../..", name))
	}
	run(t, one, "git", "add", ".")
	run(t, one, "git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-c",
		"commit.gpgsign=false", "commit", "-q", "-m", "x")
	run(t, ".", "git", "clone", "-q", one, two)
	run(t, two, "git", "tag", "v1.2.3")
	hash := run(t, one, "git", "rev-parse", "HEAD")[:12]

	for name, target := range packages {
		if target.WebApp {
			continue // it has the Windows function app's executable and one more file
		}
		t.Run(name, func(t *testing.T) {
			first := zipped(t, one, target)
			t.Setenv("GOFLAGS", "-ldflags=-X=main.version=other -tags=other")
			t.Setenv("GOAMD64", "v3")
			t.Setenv("GO386", "softfloat")
			t.Setenv("TZ", "Pacific/Kiritimati")
			second := zipped(t, two, target)
			if !bytes.Equal(first, second) {
				t.Error("the same commit gives different bytes")
			}
			archive, err := zip.NewReader(bytes.NewReader(first), int64(len(first)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(read(t, archive, target.executable()), []byte(hash)) {
				t.Errorf("it does not name its commit, %s", hash)
			}
		})
	}
}

func zipped(t *testing.T, root string, target Target) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "made", "app.zip")
	run(t, root, packer, "-zip", file, "-os", target.OS, "-arch", target.Arch,
		fmt.Sprintf("-webapp=%t", target.WebApp))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// copyTo copies a file, or a folder with its content.
func copyTo(t *testing.T, to, from string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, output)
	}
	return string(output)
}

// webConfig has the parts of web.config that matter.
type webConfig struct {
	XMLName xml.Name `xml:"configuration"`
	Server  struct {
		Handlers []struct {
			Path         string `xml:"path,attr"`
			Verb         string `xml:"verb,attr"`
			Modules      string `xml:"modules,attr"`
			ResourceType string `xml:"resourceType,attr"`
		} `xml:"handlers>add"`
		Platform struct {
			ProcessPath             string `xml:"processPath,attr"`
			Arguments               string `xml:"arguments,attr"`
			StartupTimeLimit        int    `xml:"startupTimeLimit,attr"`
			StdoutLogEnabled        bool   `xml:"stdoutLogEnabled,attr"`
			StdoutLogFile           string `xml:"stdoutLogFile,attr"`
			ForwardWindowsAuthToken bool   `xml:"forwardWindowsAuthToken,attr"`
		} `xml:"httpPlatform"`
		Errors struct {
			ExistingResponse string `xml:"existingResponse,attr"`
		} `xml:"httpErrors"`
		Headers []struct {
			Name string `xml:"name,attr"`
		} `xml:"httpProtocol>customHeaders>remove"`
		Filtering struct {
			AllowDoubleEscaping bool `xml:"allowDoubleEscaping,attr"`
			Limits              struct {
				MaxURL         int `xml:"maxUrl,attr"`
				MaxQueryString int `xml:"maxQueryString,attr"`
			} `xml:"requestLimits"`
			Extensions struct {
				Clear *struct{} `xml:"clear"`
			} `xml:"fileExtensions"`
			Hidden []struct {
				Segment string `xml:"segment,attr"`
			} `xml:"hiddenSegments>remove"`
		} `xml:"security>requestFiltering"`
	} `xml:"system.webServer"`
}

func TestWebConfig(t *testing.T) {
	data, err := os.ReadFile("../../../infra/web.config")
	if err != nil {
		t.Fatal(err)
	}
	config := parseWebConfig(t, data)
	if h := config.Server.Handlers; len(h) != 1 || h[0].Path != "*" || h[0].Verb != "*" ||
		h[0].Modules != "httpPlatformHandler" || h[0].ResourceType != "Unspecified" {
		t.Errorf("handlers %+v: not everything goes to the handler", h)
	}
	// HOME\LogFiles exists in every App Service. site\wwwroot may be a package that nobody can
	// write to.
	if p := config.Server.Platform; p.ProcessPath != `%HOME%\site\wwwroot\handler.exe` ||
		p.Arguments != "" || p.StartupTimeLimit < 30 ||
		!p.StdoutLogEnabled || p.StdoutLogFile != `%HOME%\LogFiles\tiney` ||
		p.ForwardWindowsAuthToken {
		t.Errorf("httpPlatform %+v", p)
	}
	if got := config.Server.Errors.ExistingResponse; got != "PassThrough" {
		t.Errorf("httpErrors existingResponse %q: IIS puts its own pages in the place of the "+
			"handler's", got)
	}
	if h := config.Server.Headers; len(h) != 1 || h[0].Name != "X-Powered-By" {
		t.Errorf("headers taken away: %+v", h)
	}
	f := config.Server.Filtering
	if !f.AllowDoubleEscaping || f.Limits.MaxURL != 32<<10 || f.Limits.MaxQueryString != 32<<10 ||
		f.Extensions.Clear == nil {
		t.Errorf("requestFiltering %+v", f)
	}
	// IIS hides these by default. It also hides web.config, which is no alias.
	want := []string{"bin", "App_code", "App_GlobalResources", "App_LocalResources",
		"App_WebReferences", "App_Data", "App_Browsers"}
	var shown []string
	for _, hidden := range f.Hidden {
		shown = append(shown, hidden.Segment)
		if _, ok := link.ParseAlias(hidden.Segment); !ok {
			t.Errorf("%s is no alias, and may stay hidden", hidden.Segment)
		}
	}
	if !slices.Equal(shown, want) {
		t.Errorf("IIS hides no longer %q, want %q", shown, want)
	}
}

func parseWebConfig(t *testing.T, data []byte) (config webConfig) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&config); err != nil {
		t.Fatal(err)
	}
	for {
		switch token, err := d.Token(); token := token.(type) {
		case xml.CharData:
			if len(bytes.TrimSpace(token)) > 0 {
				t.Fatalf("after the end: %s", token)
			}
		case nil:
			if err != io.EOF {
				t.Fatal(err)
			}
			return config
		}
	}
}

func read(t *testing.T, archive fs.FS, name string) []byte {
	t.Helper()
	data, err := fs.ReadFile(archive, name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestNameExecutable(t *testing.T) {
	got, err := nameExecutable([]byte(
		`{ "customHandler": { "description": { "defaultExecutablePath": "handler" } }, `+
			`"x": "handler" }`), "handler.exe")
	if want := `{ "customHandler": { "description": ` +
		`{ "defaultExecutablePath": "handler.exe" } }, "x": "handler" }`; err != nil ||
		string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	for _, wrong := range []string{`{`, `{}`,
		`{"customHandler":{"description":{"defaultExecutablePath":"handler"}}}`} {
		if got, err := nameExecutable([]byte(wrong), "x"); err == nil {
			t.Errorf("%s became %s", wrong, got)
		}
	}
}

package pack

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/azurite"
	"tiney/internal/testing/freeport"
	"tiney/internal/testing/funchost"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
)

// Running the packages under Wine is optional, since Wine is large to install and slow to start.
var underWine = flag.Bool("pack.wine", false,
	"also run the packages for Windows, under Wine, which has to be installed")

func TestLinuxPackage(t *testing.T) {
	if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
		t.Skip("it runs on linux/amd64 only, as CI does")
	}
	packed(t, "tiney-linux-amd64.zip") // once for both tests
	for name, proxy := range map[string]bool{"behind a host that forwards": false,
		"behind a host that proxies": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runBehindTheHost(t, "tiney-linux-amd64.zip", funchost.Options{Proxy: proxy},
				"127.0.0.1")
		})
	}
}

// TestWindowsPackages runs each package for Windows: on Windows itself, or under Wine.
func TestWindowsPackages(t *testing.T) {
	var env []string
	launchers := map[string][]string{} // by GOARCH; Windows itself needs none
	if runtime.GOOS != "windows" {
		if !*underWine {
			t.Skip("it runs on Windows, and `make wine` runs it elsewhere")
		}
		var err error
		if env, launchers, err = startWine(t); err != nil {
			t.Skipf("NOT CHECKED: that the packages for Windows run, since Wine does not: %v", err)
		}
	}
	for name, proxy := range map[string]bool{"behind a host that forwards": false,
		"behind a host that proxies": true} {
		t.Run(name, func(t *testing.T) {
			runBehindTheHost(t, "tiney-windows-386.zip", funchost.Options{
				Launcher: launchers["386"], Env: env, Proxy: proxy}, "localhost")
		})
	}
	for _, arch := range []string{"386", "amd64"} {
		t.Run("on its own, "+arch, func(t *testing.T) {
			runUnderIIS(t, "tiney-webapp-windows-"+arch+".zip", launchers[arch], env)
		})
	}
}

// runBehindTheHost uses a package of a function app in every way in which the host does.
func runBehindTheHost(t *testing.T, name string, options funchost.Options, storageHost string) {
	options.ScriptRoot, options.Output = unpacked(t, t.TempDir(), name), t.Output()
	tables, settings := storage(t, storageHost)
	options.Env = append(options.Env, settings...)
	tables.PutLink(expired())
	h, err := funchost.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	use(t, h.URL())
	want(t, http.MethodGet, h.URL()+"/expired", "", http.StatusGone)

	tables.WantRows(3, 3, 2)
	invocation, err := h.FireTimer(t.Context(), "reaper")
	if err != nil || len(invocation.Logs) == 0 {
		t.Errorf("the reaper: %+v, %v", invocation, err)
	}
	tables.WantRows(3, 2, 2) // a tombstone has replaced the expired link
	tables.WantNoLeak()
}

// runUnderIIS uses the package of a web app as IIS would. web.config names the executable, and
// HTTP_PLATFORM_PORT is the port that it listens on.
func runUnderIIS(t *testing.T, name string, launcher, env []string) {
	home := t.TempDir()
	root := unpacked(t, filepath.Join(home, "site", "wwwroot"), name)
	config, err := os.ReadFile(filepath.Join(root, "web.config"))
	if err != nil {
		t.Fatal(err)
	}
	path := parseWebConfig(t, config).Server.Platform.ProcessPath
	path = filepath.FromSlash(strings.ReplaceAll(strings.ReplaceAll(path, "%HOME%", home), `\`,
		"/"))

	tables, settings := storage(t, "localhost")
	tables.PutLink(expired())
	free, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(free)
	output, err := os.Create(filepath.Join(home, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	command := append(slices.Clone(launcher), path)
	cmd := exec.Command(command[0], command[1:]...)
	interruptible(cmd)
	cmd.Env = append(append(env, settings...), "HTTP_PLATFORM_PORT="+port, "PORT=1",
		"WEBSITE_HOSTNAME=tiney.azurewebsites.net")
	// Output goes to a file, since Wine's own processes would hold a pipe open.
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	log := func() string {
		data, err := os.ReadFile(output.Name())
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		if t.Failed() {
			t.Logf("output:\n%s", log())
		}
	})

	base := "http://127.0.0.1:" + port
	testutil.Eventually(t, "it responds", func() bool {
		_, err := testutil.Send(http.MethodGet, base+"/api/health", "")
		return err == nil
	})
	testutil.Eventually(t, "the expired link is reaped, as soon as it runs", func() bool {
		// The index row is the disabled link's, and the expiry row is the tombstone's.
		return len(tables.Rows(tables.Index)) == 1 && len(tables.Rows(tables.Expiry)) == 1
	})
	use(t, base)
	tables.WantRows(3, 2, 2)
	tables.WantNoLeak()

	// On Windows, a console program is stopped by Ctrl-C.
	if err := interrupt(cmd); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-exited:
		if err != nil || !strings.Contains(log(), `"msg":"stopped"`) {
			t.Errorf("after Ctrl-C: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on after Ctrl-C")
	}
}

func expired() link.Link {
	return link.Link{Name: "expired", LongURL: "https://example.com/expired",
		ExpiresAt: time.Now().Add(-time.Minute)}
}

// use shortens a URL and follows links, through the server in front of the package.
func use(t *testing.T, base string) {
	t.Helper()
	testutil.Eventually(t, "it is ready", func() bool {
		got, err := testutil.Send(http.MethodGet, base+"/api/ready", "")
		return err == nil && got.Status == http.StatusOK
	})
	if got := want(t, http.MethodGet, base+"/api/health", "",
		http.StatusOK); !strings.Contains(got.Body, `"version":"`+version("../../..")+`"`) {
		t.Errorf("health: %s", got.Body)
	}
	const longURL = "https://example.com/ü?a=1&a=2"
	created := want(t, http.MethodPost, base+"/api/shorten", `{"longUrl":"`+longURL+
		`","expiresInSeconds":3600}`, http.StatusCreated)
	var made struct {
		Alias, ShortURL, LongURL   string
		CreatedAtUTC, ExpiresAtUTC time.Time
	}
	if err := json.Unmarshal([]byte(created.Body), &made); err != nil {
		t.Fatal(err)
	}
	if age := time.Since(made.CreatedAtUTC); made.LongURL != longURL ||
		made.ShortURL != "https://tiney.to/"+made.Alias ||
		age < -time.Minute || age > time.Minute ||
		made.ExpiresAtUTC.Sub(made.CreatedAtUTC) != time.Hour {
		t.Errorf("made %s", created.Body)
	}
	want(t, http.MethodPost, base+"/api/shorten", `{"longUrl":"`+longURL+`"}`, http.StatusOK)
	if got := want(t, http.MethodGet, base+"/"+made.Alias, "",
		http.StatusFound); got.Header.Get("Location") != "https://example.com/%C3%BC?a=1&a=2" {
		t.Errorf("redirects to %s", got.Header.Get("Location"))
	}
	for target, status := range map[string]int{"/disabled": http.StatusGone,
		"/nobody": http.StatusNotFound, "/a.b": http.StatusNotFound} {
		if got := want(t, http.MethodGet, base+target, "",
			status); got.Header.Get("Content-Type") != "application/problem+json" ||
			!strings.Contains(got.Body, "detail") {
			t.Errorf("%s: %+v", target, got)
		}
	}
	want(t, http.MethodGet, base+"/", "", http.StatusOK)
}

// storage starts an Azurite that has one disabled link. It returns the tables, and the settings for
// a process to use them, with the given name of this machine. The settings have a time zone whose
// date mostly differs from UTC's.
func storage(t *testing.T, host string) (*rawtables.Tables, []string) {
	t.Helper()
	server, err := azurite.StartAnywhere(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	tables := rawtables.Open(t, server.ConnectionString(), "")
	tables.Make()
	tables.PutLink(link.Link{Name: "disabled", LongURL: "https://example.com/disabled",
		Disabled: true})
	return tables, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TZ=Pacific/Kiritimati",
		"BaseUrl=https://tiney.to",
		"AzureWebJobsStorage=" + strings.ReplaceAll(server.ConnectionString(), "127.0.0.1", host),
	}
}

// unpacked unpacks the named package into dir, and returns dir.
func unpacked(t *testing.T, dir, name string) string {
	t.Helper()
	archive := packed(t, name)
	for _, f := range archive.File {
		to := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, read(t, archive, f.Name), f.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// want sends a request and checks the status of its response.
func want(t *testing.T, method, url, body string, status int) testutil.Response {
	t.Helper()
	got, err := testutil.Send(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != status {
		t.Fatalf("%s %s: got %+v, want %d", method, url, got, status)
	}
	return got
}

// startWine makes a disk for Wine in build/wine. It returns the environment of Wine, and its
// commands by GOARCH. An error means that Wine does not work on this machine. Processes in Wine end
// with the test.
func startWine(t *testing.T) (env []string, launchers map[string][]string, err error) {
	t.Helper()
	prefix, err := filepath.Abs("../../../build/wine")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(prefix, 0o755); err != nil {
		t.Fatal(err)
	}
	// The overrides leave out .NET and the browser, which Wine would offer to download.
	env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "WINEPREFIX=" +
		prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml="}
	// The server keeps running, so that Wine does not start anew for each process.
	t.Cleanup(func() { start(t, env, "wineserver", "-k") })
	if err := errors.Join(start(t, env, "wineserver", "-p"),
		start(t, env, "wineboot", "--init")); err != nil {
		return nil, nil, err
	}

	launchers = map[string][]string{"386": {"wine"}, "amd64": {"wine"}}
	// Debian's wine starts a program of 64 bits in another process, which would get no signal.
	if wine64 := "/usr/lib/wine/wine64"; exists(t, wine64) {
		launchers["amd64"] = []string{wine64}
	}
	windows := filepath.Join(prefix, "drive_c", "windows")
	system := map[string]string{"386": filepath.Join(windows, "syswow64"),
		"amd64": filepath.Join(windows, "system32")}
	for arch, linker := range map[string]string{"386": "i686-w64-mingw32-ld",
		"amd64": "x86_64-w64-mingw32-ld"} {
		// Go gets random numbers from a library that Wine lacked before 2023. If it is missing,
		// make one that only forwards the call to the function that Wine has. It has no code, not
		// even an entry point.
		if library := filepath.Join(system[arch], "bcryptprimitives.dll"); !exists(t, library) {
			exports := filepath.Join(t.TempDir(), "bcryptprimitives.def")
			if err := os.WriteFile(exports,
				[]byte("EXPORTS\nProcessPrng = advapi32.SystemFunction036\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := start(t, env, linker, "--dll", "--entry=0", "-o", library,
				exports); err != nil {
				return nil, nil, err
			}
		}
		// A program that does nothing shows whether Wine runs programs of this architecture.
		empty := filepath.Join(t.TempDir(), "empty")
		if err := os.WriteFile(empty+".go", []byte("package main\n\nfunc main() {}\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
		build := append(os.Environ(), "CGO_ENABLED=0", "GOOS=windows", "GOARCH="+arch)
		if err := start(t, build, "go", "build", "-o", empty+".exe", empty+".go"); err != nil {
			t.Fatal(err)
		}
		if err := start(t, env, launchers[arch][0], empty+".exe"); err != nil {
			return nil, nil, err
		}
	}
	return env, launchers, nil
}

// start runs a command to its end. Its output goes to a file, since processes that it leaves
// running would hold a pipe open.
func start(t *testing.T, env []string, name string, args ...string) error {
	t.Helper()
	output, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	// It must also run after the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, output, output
	if err := cmd.Run(); err != nil {
		log, _ := os.ReadFile(output.Name())
		return fmt.Errorf("%s: %w\n%s", fmt.Sprint(name, args), err, log)
	}
	return nil
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

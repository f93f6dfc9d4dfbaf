//go:build unix

package infra_test

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tiney/internal/azurite"
	"tiney/internal/freeport"
)

// reply and call are what internal/stubaz reads and writes.
type reply struct {
	For, Out, Err string
	Exit, Times   int
	Hang, Upload  bool
}

type call struct {
	Args  []string
	Reply int
}

func (c call) String() string { return strings.Join(c.Args, " ") }

// after returns the argument after option.
func (c call) after(option string) string {
	if i := slices.Index(c.Args, option); i >= 0 && i+1 < len(c.Args) {
		return c.Args[i+1]
	}
	return ""
}

// stubAz builds internal/stubaz once, into the folder of all that is built, and returns its path.
var stubAz = sync.OnceValues(func() (string, error) {
	file, err := filepath.Abs("../build/test/stubaz")
	if err != nil {
		return "", err
	}
	if said, err := exec.Command("go", "build", "-o", file, "../internal/stubaz").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, said)
	}
	return file, nil
})

func recorded(dir string) []call {
	data, _ := os.ReadFile(filepath.Join(dir, "calls"))
	var calls []call
	for line := range strings.Lines(string(data)) {
		var c call
		if json.Unmarshal([]byte(line), &c) == nil {
			calls = append(calls, c)
		}
	}
	return calls
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// tools is all that deploy.sh may use, beside az: what Linux and macOS have, git for the version, and what builds.
var tools = []string{"bash", "cat", "curl", "date", "dirname", "git", "grep", "mktemp", "rm", "sed", "sleep", "tr"}

// deployer has a copy of deploy.sh in a tree of its own, with stubs of what takes long and of what is not here.
type deployer struct {
	t       *testing.T
	root    string // the copy of the project
	bin     string // its PATH
	state   string // of the stub az
	version string // of the tree
	site    *site
	replies []reply // before the usual ones
	env     []string
}

const group = "rg-tiney"

func newDeployer(t *testing.T) *deployer {
	t.Helper()
	dir := t.TempDir()
	d := &deployer{t: t, root: filepath.Join(dir, "a project"), bin: filepath.Join(dir, "bin"), state: filepath.Join(dir, "state")}
	for _, folder := range []string{d.root, filepath.Join(d.root, "infra"), d.bin, d.state} {
		d.do(os.Mkdir(folder, 0o755))
	}
	d.do(copyFile("deploy.sh", filepath.Join(d.root, "infra", "deploy.sh")))
	for _, name := range []string{"main.bicep", "parameters.dev.json", "parameters.prod.json"} {
		d.do(os.WriteFile(filepath.Join(d.root, "infra", name), nil, 0o644))
	}
	d.do(os.WriteFile(filepath.Join(d.root, ".gitignore"), []byte("/build/\n"), 0o644))
	for _, args := range [][]string{{"init", "-q"}, {"add", "."},
		{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null",
			"commit", "-qm", "first"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = d.root
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, said)
		}
	}
	d.version = describe(t, d.root)
	for _, name := range tools {
		path, err := exec.LookPath(name)
		d.do(err)
		d.do(os.Symlink(path, filepath.Join(d.bin, name)))
	}
	stub, err := stubAz()
	d.do(err)
	d.tool("az", fmt.Sprintf("STUBAZ='%s' '%s' \"$@\"", d.state, stub)) // no exec: az is a script that starts a process
	d.tool("go", "exit 1")
	d.tool("make", `[ "$1 $3" = "-C package" ] || exit 1
mkdir() { /bin/mkdir "$@"; }
mkdir -p "$2/build"
for name in tiney-windows-386 tiney-webapp-windows-386 tiney-linux-amd64; do
  printf '%s %s' "$name" "`+d.version+`" >"$2/build/$name.zip"
done
echo built >>"`+d.state+`/makes"`)
	d.site = newSite(d)
	return d
}

func (d *deployer) do(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *deployer) tool(name, script string) {
	d.t.Helper()
	d.do(os.WriteFile(filepath.Join(d.bin, name), []byte("#!/usr/bin/env bash\n"+script+"\n"), 0o755))
}

// versionArguments are the arguments of git that internal/pack finds the version with.
func versionArguments(t *testing.T) []string {
	t.Helper()
	found := regexp.MustCompile(`exec\.Command\("git", ("describe".*")\)`).FindStringSubmatch(read(t, "../internal/pack/pack.go"))
	if found == nil {
		t.Fatal("internal/pack does not ask git describe")
	}
	return strings.Split(strings.ReplaceAll(found[1], `"`, ""), ", ")
}

func describe(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("git", versionArguments(t)...)
	cmd.Dir = dir
	said, err := cmd.Output()
	if err != nil {
		return "unknown" // as the build has it
	}
	return strings.TrimSpace(string(said))
}

// What the stub az says about rights: one line for each role of the caller, "actions|exceptions".
const (
	owner       = "*|\n"
	contributor = "*|Microsoft.Authorization/*/Delete,Microsoft.Authorization/*/Write,Microsoft.Authorization/elevateAccess/Action\n"
	rbacAdmin   = "microsoft.authorization/roleassignments/write,Microsoft.Authorization/roleAssignments/delete,*/read|\n"
	reader      = "*/read|\n"
	dataOnly    = "|\n"
)

// outputs is what az prints for the query of deploy.sh.
func (d *deployer) outputs(plan string) string {
	return fmt.Sprintf("site-1\n%s\n%s\n%s\n%s\n", plan, d.site.hostName, d.site.frontDoorName, d.site.base)
}

func usual(d *deployer, plan string) []reply {
	return []reply{
		{For: "version", Out: "2.77.0\n"},
		{For: "account show", Out: "Pay as you go\n00000000-0000-0000-0000-000000000001\n"},
		{For: "bicep version", Out: "Bicep CLI version 0.38.33\n"},
		{For: "group exists", Out: "true\n"},
		{For: "group create"},
		{For: "group show", Out: "tiney-deploy\n"},
		{For: "group delete"},
		{For: "resource list", Out: "Microsoft.Web/sites\tsite-1\n"},
		{For: "rest --method get", Out: dataOnly + owner},
		{For: "deployment group what-if", Out: "Resource changes: 23 to create.\n"},
		{For: "deployment group create", Out: d.outputs(plan)},
		{For: "functionapp deployment source config-zip"},
		{For: "webapp deploy"},
	}
}

// result is how a run ended.
type result struct {
	t              *testing.T
	status         int
	stdout, stderr string
	calls          []call
}

// run runs deploy.sh for the group, with input as what is typed. The plan is the one that the deployment answers with.
func (d *deployer) run(plan, input string, args ...string) *result {
	d.t.Helper()
	return d.runRaw(plan, input, append([]string{"--resource-group", group}, args...)...)
}

func (d *deployer) runRaw(plan, input string, args ...string) *result {
	d.t.Helper()
	data, err := json.Marshal(append(slices.Clone(d.replies), usual(d, plan)...))
	d.do(err)
	d.do(os.WriteFile(filepath.Join(d.state, "replies.json"), data, 0o644))
	os.Remove(filepath.Join(d.state, "calls"))

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(d.root, "infra", "deploy.sh"), args...)
	cmd.Dir = "/"                    // it works from any folder
	cmd.WaitDelay = 20 * time.Second // what it leaves running keeps its output open: that is an error here
	cmd.Env = append([]string{"PATH=" + d.bin, "HOME=" + d.root, "TMPDIR=" + d.t.TempDir(),
		"TINEY_WAIT=60", "TINEY_INTERVAL=0.05", "TINEY_UPLOAD_WAIT=60", "NO_PROXY=*"}, d.env...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	r := &result{d.t, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), recorded(d.state)}
	for _, c := range r.calls {
		if c.Reply < 0 {
			d.t.Errorf("a call of az that nobody expects: %s", c)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(cmd.Env[2][len("TMPDIR="):], "*")); len(left) > 0 {
		d.t.Errorf("it leaves %q behind", left)
	}
	return r
}

// ends checks the exit status, and that it says each of these.
func (r *result) ends(status int, says ...string) *result {
	r.t.Helper()
	wrong := r.status != status
	for _, words := range says {
		if !strings.Contains(r.stderr, words) {
			r.t.Errorf("it does not say %q", words)
			wrong = true
		}
	}
	if wrong {
		r.t.Errorf("it ended with %d, want %d\nstdout:\n%s\nstderr:\n%s\ncalls: %v", r.status, status, r.stdout, r.stderr, r.calls)
	}
	return r
}

// did returns the calls that begin with this.
func (r *result) did(words string) []call {
	var found []call
	for _, c := range r.calls {
		if strings.HasPrefix(c.String(), words) {
			found = append(found, c)
		}
	}
	return found
}

// changes are the beginnings of all calls that change something in Azure.
var changes = []string{"group create", "group delete", "deployment group create", "functionapp", "webapp"}

// changed checks that these calls, and no others that change something, were made, in this order.
func (r *result) changed(want ...string) *result {
	r.t.Helper()
	var got []string
	for _, c := range r.calls {
		for _, beginning := range changes {
			if strings.HasPrefix(c.String(), beginning+" ") {
				words, _, _ := strings.Cut(c.String(), " --")
				got = append(got, words)
			}
		}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("it changed %q, want %q", got, want)
	}
	return r
}

func (d *deployer) made() bool {
	_, err := os.Stat(filepath.Join(d.state, "makes"))
	return err == nil
}

// site stands for what Azure runs: it answers 503 until a package was uploaded, and then as that package's version. Each
// of its fields makes it worse.
type site struct {
	state          string
	base, hostName string
	frontDoorName  string // none where empty

	mu           sync.Mutex
	links        map[string]string
	healthStatus int // what /api/health answers after the upload
	health       string
	refusals     int    // how many calls of shorten, and then of redirect, are answered 503
	shorten      int    // what shorten answers, else 201
	lost         int    // how many answers of shorten get lost, when all is done
	unknown      int    // how many redirects are answered 404
	redirect     int    // what redirects answer, else 302
	to           string // where they lead, else to the long URL
	shortBase    string // what short URLs begin with
}

func newSite(d *deployer) *site {
	s := &site{state: d.state, links: map[string]string{}, hostName: "127.0.0.1:1"} // nobody listens on port 1
	server := httptest.NewServer(s)
	d.t.Cleanup(server.Close)
	s.base, s.shortBase = server.URL, server.URL
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uploaded, err := os.ReadFile(filepath.Join(s.state, "uploaded.zip"))
	switch {
	case err != nil:
		http.Error(w, "no package", http.StatusServiceUnavailable)
	case r.URL.Path == "/api/health":
		if s.healthStatus != 0 || s.health != "" {
			w.WriteHeader(cmp.Or(s.healthStatus, 200))
			io.WriteString(w, s.health)
			return
		}
		_, version, _ := strings.Cut(string(uploaded), " ")
		fmt.Fprintf(w, `{"status":"healthy","timestamp":"2026-11-21T14:00:00Z","version":%q}`, version)
	case r.URL.Path == "/api/shorten" && r.Method == http.MethodPost:
		var asked struct {
			LongURL          string `json:"longUrl"`
			ExpiresInSeconds int
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.ExpiresInSeconds != 60 ||
			r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "not what a shortener takes", http.StatusBadRequest)
			return
		}
		if s.refusals > 0 {
			s.refusals--
			http.Error(w, "no role yet", http.StatusServiceUnavailable)
			return
		}
		alias, status := fmt.Sprintf("aB-_%d", len(s.links)), http.StatusCreated
		for known, to := range s.links {
			if to == asked.LongURL {
				alias, status = known[1:], http.StatusOK
			}
		}
		s.links["/"+alias] = asked.LongURL
		if s.lost > 0 {
			s.lost--
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(cmp.Or(s.shorten, status))
		fmt.Fprintf(w, `{"alias":%q,"shortUrl":%q,"longUrl":%q}`, alias, s.shortBase+"/"+alias, asked.LongURL)
	case s.links[r.URL.Path] != "" && s.unknown > 0:
		s.unknown--
		http.NotFound(w, r)
	case s.links[r.URL.Path] != "":
		w.Header().Set("Location", cmp.Or(s.to, s.links[r.URL.Path]))
		w.WriteHeader(cmp.Or(s.redirect, http.StatusFound))
	default:
		http.NotFound(w, r)
	}
}

func TestDeployEachPlan(t *testing.T) {
	for _, test := range []struct {
		plan, parameters, zip, upload string
	}{
		{"Y1", "parameters.prod.json", "tiney-windows-386", "functionapp deployment source config-zip"},
		{"F1", "parameters.dev.json", "tiney-webapp-windows-386", "webapp deploy"},
		{"FC1", "parameters.prod.json", "tiney-linux-amd64", "functionapp deployment source config-zip"},
	} {
		t.Run(test.plan, func(t *testing.T) {
			t.Parallel()
			d := newDeployer(t)
			// Y1 is what the parameters file says, and comes back from the deployment.
			var args []string
			if test.plan != "Y1" {
				args = []string{"--plan", test.plan}
			}
			r := d.run(test.plan, "y\n", args...).ends(0, "subscription: Pay as you go", "version "+d.version)
			r.changed("deployment group create", test.upload)
			if lines := strings.Split(strings.TrimSpace(r.stdout), "\n"); lines[len(lines)-1] != d.site.base {
				t.Errorf("the last line of stdout is %q, want the URL", lines[len(lines)-1])
			}
			if !strings.Contains(r.stdout, "Resource changes: 23 to create.") {
				t.Error("the what-if is not shown")
			}
			uploaded, err := os.ReadFile(filepath.Join(d.state, "uploaded.zip"))
			if want := test.zip + " " + d.version; err != nil || string(uploaded) != want {
				t.Errorf("uploaded was %q, want %q (%v)", uploaded, want, err)
			}
			var parameters []string
			if test.plan != "Y1" {
				parameters = []string{"--parameters", "plan=" + test.plan}
			}
			template := append([]string{"--resource-group", group, "--template-file", filepath.Join(d.root, "infra/main.bicep"),
				"--parameters", filepath.Join(d.root, "infra", test.parameters)}, parameters...)
			for _, verb := range []string{"what-if", "create"} {
				calls := r.did("deployment group " + verb)
				if len(calls) != 1 || !slices.Equal(calls[0].Args[3:3+len(template)], template) {
					t.Errorf("%s was called as %q, want one with %q", verb, calls, template)
				}
			}
			for _, c := range append(r.did("webapp"), r.did("functionapp")...) {
				if c.after("--resource-group") != group || c.after("--name") != "site-1" {
					t.Errorf("not for the site that was deployed: %s", c)
				}
			}

			// Once more: nothing gets in its way.
			d.run(test.plan, "", append(args, "--yes")...).ends(0).
				changed("deployment group create", test.upload)
		})
	}
}

func TestDeployIntoANewGroup(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	d.replies = []reply{{For: "group exists", Out: "false\n"}}
	r := d.run("Y1", "yes\ny\n").ends(0, "Create the resource group "+group+" in canadacentral?", "Deploy this")
	r.changed("group create", "deployment group create", "functionapp deployment source config-zip")
	if c := r.did("group create")[0]; c.after("--location") != "canadacentral" || c.after("--tags") != "created-by=tiney-deploy" {
		t.Errorf("the group was made by %s", c)
	}
	r = d.run("Y1", "", "--yes", "-l", "westeurope").ends(0)
	if c := r.did("group create")[0]; c.after("--location") != "westeurope" {
		t.Errorf("the group was made by %s", c)
	}
	if c := r.did("deployment group create")[0]; !slices.Contains(c.Args, "location=westeurope") {
		t.Errorf("the location is not passed on: %s", c)
	}

	d.run("Y1", "n\n").ends(4, "nothing was changed").changed()
	d.replies = append([]reply{{For: "rest", Out: contributor}}, d.replies...)
	d.run("Y1", "", "--yes").ends(3, "roleAssignments/write").changed("group create")
	d.replies = append([]reply{{For: "group create", Err: "AuthorizationFailed\n", Exit: 1}}, d.replies...)
	d.run("Y1", "", "--yes").ends(6, "AuthorizationFailed", "was not created").changed("group create")
}

func TestDeploySaysAllThatIsMissingAtOnce(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	d.replies = []reply{
		{For: "version", Out: "2.59.9\n"},
		{For: "account show", Err: "Please run 'az login' to setup account.\n", Exit: 1},
		{For: "bicep version", Err: "Bicep CLI not found.\n", Exit: 1},
	}
	for _, name := range []string{"go", "make", "curl"} {
		d.do(os.Remove(filepath.Join(d.bin, name)))
	}
	d.run("Y1", "", "--yes", "--parameters", "/no/such.json").ends(3, "this one is 2.59.9", "az login", "az bicep install",
		"Go 1.26", "make", "curl", "/no/such.json").changed()

	// A what-if neither builds nor asks the site.
	d.replies = nil
	d.run("Y1", "", "--what-if").ends(0).changed()
	d.run("Y1", "", "--yes").ends(3, "Go 1.26").changed()
	d.run("Y1", "", "--yes", "--package", "/no/such.zip").ends(3, "the package /no/such.zip").changed()

	d.do(os.Remove(filepath.Join(d.bin, "az")))
	d.run("Y1", "", "--yes").ends(3, "az, the Azure CLI", "Go 1.26")
	d.run("Y1", "", "--yes", "--destroy").ends(3, "az, the Azure CLI")
}

func TestDeployWithoutALogin(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	d.replies = []reply{{For: "account show", Err: "Please run 'az login' to setup account.\n", Exit: 1}}
	d.run("Y1", "", "--yes").ends(3, "a login: az login").changed()
	d.run("Y1", "", "--yes", "--destroy").ends(3, "a login: az login").changed()
	if d.made() {
		t.Error("it has built a package all the same")
	}
}

func TestDeployChecksVersionsOfAz(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	for version, ok := range map[string]bool{"2.60.0": true, "3.0.0": true, "2.9.1": false, "1.99.0": false, "": false, "two": false} {
		d.replies = []reply{{For: "version", Out: version + "\n"}}
		if want := map[bool]int{true: 0, false: 3}[ok]; d.run("Y1", "", "--what-if").status != want {
			t.Errorf("version %q: want exit status %d", version, want)
		}
	}
}

func TestDeployChecksRights(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	for _, test := range []struct {
		name, rights string
		missing      []string
	}{
		{"owner", owner, nil},
		{"contributor and administrator of roles", reader + contributor + rbacAdmin, nil},
		{"contributor", contributor, []string{"Microsoft.Authorization/roleAssignments/write"}},
		{"administrator of roles", rbacAdmin, []string{"Microsoft.Resources/deployments/write", "Microsoft.Web/sites/write", "Microsoft.Storage/storageAccounts/write"}},
		{"none", "", []string{"Microsoft.Resources/deployments/write", "Microsoft.Authorization/roleAssignments/write"}},
		{"website contributor", "Microsoft.Web/*,Microsoft.Resources/deployments/*|\n", []string{"Microsoft.Storage", "Microsoft.Authorization"}},
	} {
		d.replies = []reply{{For: "rest --method get", Out: test.rights}}
		r := d.run("Y1", "", "--what-if")
		if test.missing == nil {
			r.ends(0)
		} else {
			r.ends(3, test.missing...).changed()
			if got := strings.Count(r.stderr, "  - "); test.name == "contributor" && got != 1 {
				t.Errorf("%s: it names %d missing rights:\n%s", test.name, got, r.stderr)
			}
		}
		if url := r.did("rest")[0].after("--url"); !strings.HasPrefix(url, "/subscriptions/{subscriptionId}/resourceGroups/"+group+"/") {
			t.Errorf("it asks at %s", url)
		}
	}
	d.replies = []reply{{For: "rest --method get", Err: "Forbidden\n", Exit: 1}}
	d.run("Y1", "", "--yes").ends(3, "Forbidden", "the right to see the permissions").changed()
	d.replies = []reply{{For: "group exists", Err: "Forbidden\n", Exit: 1}}
	d.run("Y1", "", "--yes").ends(3, "Forbidden", "whether the resource group").changed()
}

func TestDeployDeclined(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	for _, input := range []string{"n\n", "\n", "", "yesterday\n"} {
		d.run("Y1", input).ends(4, "nothing was deployed").changed()
	}
	if r := d.run("Y1", "y\n", "--what-if").ends(0).changed(); len(r.did("deployment group what-if")) != 1 {
		t.Error("there was no what-if")
	}
	d.replies = []reply{{For: "group exists", Out: "false\n"}}
	d.run("Y1", "y\n", "--what-if").ends(3, "az group create --name "+group+" --location canadacentral").changed()
}

func TestDeployFails(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	d.replies = []reply{{For: "deployment group what-if", Err: "InvalidTemplate\n", Exit: 1}}
	d.run("Y1", "", "--yes").ends(6, "InvalidTemplate", "nothing was deployed").changed()
	d.replies = []reply{{For: "deployment group create", Err: "RoleAssignmentUpdateNotPermitted\n", Exit: 1}}
	d.run("Y1", "", "--yes").ends(6, "RoleAssignmentUpdateNotPermitted", "az deployment operation group list").
		changed("deployment group create")
	d.replies = []reply{{For: "deployment group create", Out: ""}}
	d.run("Y1", "", "--yes").ends(1, "did not say what it deployed").changed("deployment group create")
	d.run("B1", "", "--yes").ends(1) // the reply above still holds
	d.replies = nil
	d.run("B1", "", "--yes").ends(1, "its plan is B1").changed("deployment group create")

	d.tool("make", "echo no such package >&2; exit 2")
	d.run("Y1", "", "--yes").ends(5, "no such package", "nothing was changed in Azure").changed()
}

func TestDeployUploadFails(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	const zip = "functionapp deployment source config-zip"
	d.replies = []reply{{For: zip, Err: "Status Code: 503\n", Exit: 1, Times: 2}}
	d.run("Y1", "", "--yes").ends(0, "Status Code: 503", "trying again").changed("deployment group create", zip, zip, zip)

	// Until the time is over: a role may take minutes to arrive.
	d.env = []string{"TINEY_UPLOAD_WAIT=6", "TINEY_INTERVAL=0.2"}
	for _, test := range []struct{ plan, upload string }{{"Y1", zip}, {"FC1", zip}, {"F1", "webapp deploy"}} {
		d.replies = []reply{{For: test.upload, Err: "Status Code: 401\n", Exit: 1}}
		began := time.Now()
		r := d.run(test.plan, "", "--yes", "--plan", test.plan).ends(7, "Status Code: 401", "run this again")
		if tries := len(r.did(test.upload)); tries < 2 || time.Since(began) < time.Second {
			t.Errorf("%s: it gave up after %d tries and %v", test.plan, tries, time.Since(began))
		}
	}
}

func TestDeployEndsAnUploadThatHangs(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	const zip = "functionapp deployment source config-zip"
	d.env = []string{"TINEY_UPLOAD_WAIT=8", "TINEY_WAIT=1"}
	d.replies = []reply{{For: zip, Hang: true}}
	d.run("Y1", "", "--yes").ends(7, "no end within the time for it").changed("deployment group create", zip)
	said, err := os.ReadFile(filepath.Join(d.state, "hanging"))
	d.do(err)
	pid, err := strconv.Atoi(string(said))
	d.do(err)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = syscall.Kill(pid, 0); err != nil {
			return
		}
	}
	t.Errorf("the process behind az, %d, goes on", pid)
}

// On Flex Consumption, az looks at the app when it has the package, where it sees nothing with Front Door before it: it
// never ends, or fails. The version that answers tells whether the package is there.
func TestDeployGoesOnWhereAzSeesNothing(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	const zip = "functionapp deployment source config-zip"
	const unhealthy = "Deployment was successful but the app appears to be unhealthy.\n"
	d.env = []string{"TINEY_UPLOAD_WAIT=8", "TINEY_WAIT=1"}
	d.replies = []reply{{For: zip, Hang: true}}
	d.run("FC1", "", "--yes").ends(0, "no end within the time for it", "version "+d.version).changed("deployment group create", zip)
	d.replies = []reply{{For: zip, Err: unhealthy, Exit: 1, Upload: true}}
	d.run("FC1", "", "--yes").ends(0, unhealthy).changed("deployment group create", zip)

	// It need not go on until its time is over.
	d.env = []string{"TINEY_UPLOAD_WAIT=300"} // and the stub hangs for a minute
	d.replies = []reply{{For: zip, Err: "Checking the health of the function app\n", Hang: true}}
	began := time.Now()
	d.run("FC1", "", "--yes").ends(0, "Checking the health").changed("deployment group create", zip)
	if took := time.Since(began); took > 55*time.Second {
		t.Errorf("it took %v", took)
	}

	d.env = []string{"TINEY_UPLOAD_WAIT=8", "TINEY_WAIT=1"}
	d.do(os.Remove(filepath.Join(d.state, "uploaded.zip")))
	d.replies = []reply{{For: zip, Hang: true, Exit: 1}}
	d.run("FC1", "", "--yes").ends(8, "no end within the time for it", "answers 503").changed("deployment group create", zip)
	d.replies = []reply{{For: zip, Err: unhealthy, Exit: 1}} // these words mean nothing on other plans
	d.run("Y1", "", "--yes").ends(7)
}

func TestDeployWaitsForHealth(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	d.env = []string{"TINEY_WAIT=1"}
	for _, test := range []struct {
		status       int
		health, says string
	}{
		{503, "", "/api/health answers 503"},
		{403, "the site is disabled", "/api/health answers 403"},
		{200, "<html>Your app is up and running", "answered by something else"},
		{200, `{"status":"healthy","version":"older"}`, "still runs version older"},
	} {
		d.site.healthStatus, d.site.health = test.status, test.health
		d.run("Y1", "", "--yes").ends(8, test.says, "within 1 seconds", "docs/deployment.md")
	}
	d.site.healthStatus, d.site.health = 0, `{"status": "healthy"}` // no version: nothing to compare
	d.run("Y1", "", "--yes").ends(0)
	d.site.base = "http://127.0.0.1:1"
	d.run("Y1", "", "--yes").ends(8, "https://127.0.0.1:1 does not answer")
}

// A domain of one's own does not lead to the site before its DNS record is there.
func TestDeployAsksTheSiteUnderItsOwnName(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	server := httptest.NewTLSServer(d.site)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	d.do(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o644))
	d.env = []string{"CURL_CA_BUNDLE=" + file}
	d.site.hostName = strings.TrimPrefix(server.URL, "https://")
	d.site.base, d.site.shortBase = "http://127.0.0.1:1", "http://127.0.0.1:1"
	r := d.run("Y1", "", "--yes").ends(0, "http://127.0.0.1:1 does not yet", "DNS")
	if !strings.HasSuffix(r.stdout, "http://127.0.0.1:1\n") {
		t.Errorf("it prints %q", r.stdout)
	}

	// With Front Door the site is locked, and its own name is of no use.
	d.site.frontDoorName, d.site.hostName = d.site.hostName, "127.0.0.1:2"
	d.run("Y1", "", "--yes").ends(0, "answers at "+server.URL)
	d.site.frontDoorName = "127.0.0.1:3"
	d.env = append(d.env, "TINEY_WAIT=1")
	d.run("Y1", "", "--yes").ends(8, "http://127.0.0.1:1 does not", "https://127.0.0.1:3 does not", "https://127.0.0.1:2 does not")
}

func TestDeploySmokeTest(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	d.env = []string{"TINEY_WAIT=1"}
	base := d.site.base
	for _, test := range []struct {
		worse func(*site)
		says  string
	}{
		{func(s *site) { s.shorten = 200 }, "POST /api/shorten answers 200"},
		{func(s *site) { s.shorten = 400 }, "POST /api/shorten answers 400"},
		{func(s *site) { s.refusals = 1e6 }, "POST /api/shorten answers 503"},
		{func(s *site) { s.shortBase = "http://elsewhere.example" }, "does not answer with a link that starts with " + base},
		{func(s *site) { s.redirect = 404 }, "answers 404"},
		{func(s *site) { s.redirect = 503 }, "answers 503"},
		{func(s *site) { s.redirect = 301 }, "answers 301"},
		{func(s *site) { s.to = "https://elsewhere.example/" }, "leads to 'https://elsewhere.example/'"},
		{func(s *site) { s.to = " " }, "leads to ''"},
	} {
		d.site.shorten, d.site.redirect, d.site.refusals, d.site.to, d.site.shortBase = 0, 0, 0, "", base
		test.worse(d.site)
		d.run("Y1", "", "--yes").ends(9, "the site answers, but does not work", test.says)
	}
	// The roles of a new site take a while to arrive.
	d.env = nil
	d.site.shorten, d.site.redirect, d.site.refusals, d.site.to, d.site.shortBase = 0, 0, 3, "", base
	d.run("Y1", "", "--yes").ends(0)
	// A link that was made is known, and gets a 200, whatever became of the first answer.
	d.site.lost = 2
	d.run("Y1", "", "--yes").ends(0)
	d.site.unknown = 3
	d.run("Y1", "", "--yes").ends(0)
	d.site.redirect = 404
	d.run("Y1", "", "--yes").ends(9, "answers 404") // and not only when all time is over, which is a minute here
	d.site.redirect = 0
	if d.site.lost+d.site.unknown+d.site.refusals > 0 {
		t.Errorf("left are %d, %d and %d", d.site.lost, d.site.unknown, d.site.refusals)
	}
}

func TestDeployWithAPackage(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	file := filepath.Join(t.TempDir(), "a package.zip")
	d.do(os.WriteFile(file, []byte("tiney-windows-386 v0"), 0o644))
	r := d.run("Y1", "", "--yes", "--package", file).ends(0, "version v0")
	if c := r.did("functionapp")[0]; c.after("--src") != file {
		t.Errorf("it uploads %s", c)
	}
	d.env = []string{"TINEY_WAIT=1"}
	d.run("Y1", "", "--yes", "--package", file, "--expect", "v1").ends(8, "still runs version v0")
	d.run("Y1", "", "--yes", "--skip-build").ends(7, "run make package").changed("deployment group create")
	if d.made() {
		t.Error("it has built a package all the same")
	}
	d.run("Y1", "", "--yes").ends(0)
	d.do(os.Remove(filepath.Join(d.state, "makes")))
	d.run("Y1", "", "--yes", "--skip-build").ends(0, "version "+d.version)
	if d.made() {
		t.Error("it has built a package all the same")
	}
}

func TestDeployPassesParametersOn(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	file := filepath.Join(t.TempDir(), "mine.json")
	d.do(os.WriteFile(file, nil, 0o644))
	// A value with blanks and stars arrives as it is, and none of them is printed.
	r := d.run("Y1", "", "--yes", "--parameters", file, "--param", "alertEmail=someone@example.com", "--param", "tags={\"a\": \"b * c\"}").ends(0)
	for _, verb := range []string{"what-if", "create"} {
		c := r.did("deployment group " + verb)[0]
		for _, want := range []string{file, "alertEmail=someone@example.com", `tags={"a": "b * c"}`} {
			if i := slices.Index(c.Args, want); i < 1 || c.Args[i-1] != "--parameters" {
				t.Errorf("%s has no --parameters %s: %q", verb, want, c.Args)
			}
		}
	}
	if strings.Contains(r.stdout+r.stderr, "someone@") {
		t.Error("it prints the value of a parameter")
	}
}

func TestDestroy(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	r := d.run("Y1", group+"\n", "--destroy").ends(0, "Microsoft.Web/sites\tsite-1", "Type the name", "Log Analytics workspace, 14 days").
		changed("group delete")
	if query := r.did("group show")[0].after("--query"); query != `tags."created-by"` { // with quotes: it is no identifier
		t.Errorf("it asks for %s", query)
	}
	if c := r.did("group delete")[0]; c.after("--name") != group {
		t.Errorf("it called %s", c)
	}
	d.run("Y1", "", "--destroy", "--yes").ends(0).changed("group delete")
	for _, input := range []string{"", "\n", "y\n", "rg-other\n", strings.ToUpper(group) + "\n"} {
		d.run("Y1", input, "--destroy").ends(4, "nothing was deleted").changed()
	}

	for _, tag := range []string{"", "tiney"} { // somebody else's group
		d.replies = []reply{{For: "group show", Out: tag + "\n"}}
		d.run("Y1", "", "--destroy", "--yes").ends(4, "this script did not make "+group, "type the name").changed()
	}
	d.run("Y1", group+"\n", "--destroy").ends(0, "this script did not make "+group).changed("group delete")

	d.replies = []reply{{For: "group delete", Err: "ScopeLocked\n", Exit: 1}}
	d.run("Y1", "", "--destroy", "--yes").ends(10, "ScopeLocked").changed("group delete")
	for _, what := range []string{"group show", "resource list"} {
		d.replies = []reply{{For: what, Err: "Forbidden\n", Exit: 1}}
		d.run("Y1", "", "--destroy", "--yes").ends(1, "Forbidden").changed()
	}
	d.replies = []reply{{For: "group exists", Out: "false\n"}}
	d.run("Y1", "", "--destroy", "--yes").ends(0, "nothing to delete").changed()
	if d.made() {
		t.Error("it has built a package all the same")
	}
}

func TestDeployUsage(t *testing.T) {
	t.Parallel()
	d := newDeployer(t)
	for _, args := range [][]string{{}, {"--yes"}, {"-g"}, {"-g", "x", "--plan", "B1"}, {"-g", "x", "--param", "novalue"},
		{"-g", "x", "--param"}, {"-g", "x", "--purge"}, {"-g", "x", "stray"}} {
		if r := d.runRaw("Y1", "", args...).ends(2); len(r.calls) > 0 {
			t.Errorf("%q: it calls az", args)
		}
	}
	if r := d.runRaw("Y1", "", "-h").ends(0); !strings.HasPrefix(r.stdout, "usage: infra/deploy.sh -g GROUP") || len(r.calls) > 0 {
		t.Errorf("its help is %q", r.stdout)
	}
}

// The package of this very tree, uploaded by deploy.sh, unpacked and run as it is, on storage as it is.
func TestDeployTheRealThing(t *testing.T) {
	t.Parallel()
	storage, err := azurite.StartAnywhere(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Stop()

	d := newDeployer(t)
	file := filepath.Join(t.TempDir(), "app.zip")
	build := exec.Command("go", "run", "./internal/pack/cmd", "-os", runtime.GOOS, "-arch", runtime.GOARCH, "-zip", file)
	build.Dir = ".."
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	free, err := freeport.Find()
	d.do(err)
	port := strconv.Itoa(free)
	d.site.base = "http://127.0.0.1:" + port

	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- platform(ctx, d.state, t.TempDir(), port, storage.ConnectionString()) }()
	version := describe(t, "..")
	d.run("FC1", "", "--yes", "--package", file, "--expect", version).ends(0, "version "+version+" shortens and redirects")
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// platform does what Azure does with a package: it waits for one, unpacks it and runs the handler in it.
func platform(ctx context.Context, state, dir, port, storage string) error {
	var archive *zip.ReadCloser
	for archive == nil {
		var err error
		if archive, err = zip.OpenReader(filepath.Join(state, "uploaded.zip")); err != nil {
			select {
			case <-ctx.Done():
				return errors.New("nothing was uploaded")
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	defer archive.Close()
	if err := os.CopyFS(dir, archive); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(dir, "handler"), 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "handler"))
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = []string{"PORT=" + port, "BaseUrl=http://127.0.0.1:" + port, "AzureWebJobsStorage=" + storage}
	if said, err := cmd.CombinedOutput(); ctx.Err() == nil {
		return fmt.Errorf("the handler ended: %w\n%s", err, said)
	}
	return nil
}

// deploy.ps1 cannot be run here. What can be seen without is that it is PowerShell, and that it takes the same steps.
func TestDeployPowerShell(t *testing.T) {
	t.Parallel()
	script := read(t, "deploy.ps1")
	cmd := exec.Command("node", "../internal/powershell/parse.mjs")
	cmd.Stdin = strings.NewReader(script)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("deploy.ps1 does not parse, or the parser is not there (`make powershell` installs it): %v\n%s", err, said)
	}
	cmd = exec.Command("node", "../internal/powershell/parse.mjs")
	cmd.Stdin = strings.NewReader(strings.Replace(script, "if ($whatIf) {", "if ($whatIf {", 1))
	if said, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(said), ":") {
		t.Errorf("a script with a mistake in it parses: %s", said)
	}

	bash := read(t, "deploy.sh")
	usage := func(text, from, to string) string {
		t.Helper()
		_, text, ok := strings.Cut(text, from)
		text, _, ok2 := strings.Cut(text, to)
		if !ok || !ok2 {
			t.Fatalf("no usage between %q and %q", from, to)
		}
		text = strings.NewReplacer("deploy.ps1", "deploy.sh", "the last build left", "the last `make package` left").Replace(text)
		return strings.TrimSpace(text)
	}
	if b, p := usage(bash, "<<'USAGE'", "\nUSAGE"), usage(script, "$usage = @'", "'@"); b != p {
		t.Errorf("the usage of deploy.sh is\n%s\nand that of deploy.ps1\n%s", b, p)
	}
	if b, p := azCalls(bash), azCalls(script); !slices.Equal(b, p) {
		t.Errorf("deploy.sh calls az with %q,\nand deploy.ps1 with %q", b, p)
	}
	for _, mistake := range [][2]string{{"'--src-path'", "'--src'"}, {"group delete --name", "group delete --resource-group"}, {" --no-prompt true --name", " --name"},
		{"@('--parameters', \"plan=$plan\")", "@('--parameter', \"plan=$plan\")"}, {"resource list --resource-group", "resource list -resource-group"}} {
		wrong := strings.Replace(script, mistake[0], mistake[1], 1)
		if wrong == script || slices.Equal(azCalls(bash), azCalls(wrong)) {
			t.Errorf("with %s for %s, deploy.ps1 is found to call az as deploy.sh does", mistake[1], mistake[0])
		}
	}
	for _, name := range []string{"tiney-windows-386.zip", "tiney-webapp-windows-386.zip", "tiney-linux-amd64.zip"} {
		if !strings.Contains(bash, name) || !strings.Contains(script, name) {
			t.Errorf("the scripts do not agree on %s", name)
		}
	}

	version := strings.Join(versionArguments(t), " ")
	for name, text := range map[string]string{"deploy.sh": bash, "deploy.ps1": script} {
		if !strings.Contains(strings.ReplaceAll(text, "'", ""), version+" 2>") {
			t.Errorf("%s does not find the version by git %s", name, version)
		}
	}

	// There is no make on Windows: deploy.ps1 has the commands of the Makefile's target.
	_, recipe, _ := strings.Cut(read(t, "../Makefile"), "\npackage:")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	builds := regexp.MustCompile(`go run \./internal/pack/cmd (.*)`).FindAllStringSubmatch(recipe, -1)
	if len(builds) == 0 {
		t.Error("make package builds nothing")
	}
	_, list, _ := strings.Cut(script, "$builds = @(")
	list, _, _ = strings.Cut(list, ")")
	var theirs [][]string
	for _, one := range strings.Split(strings.TrimSpace(list), "\n") {
		theirs = append(theirs, slices.Sorted(slices.Values(strings.Fields(strings.Trim(strings.TrimSpace(one), "'")))))
	}
	for _, build := range builds {
		ours := slices.Sorted(slices.Values(strings.Fields(build[1])))
		if !slices.ContainsFunc(theirs, func(one []string) bool { return slices.Equal(one, ours) }) {
			t.Errorf("make package does %q, and deploy.ps1 has %q", build[0], theirs)
		}
	}
}

// azCalls returns the az commands of a script, each with the names of its options, sorted. --query is not one of them:
// deploy.ps1 has none, as it says.
func azCalls(script string) []string {
	script = strings.ReplaceAll(script, "\\\n", " ")
	option := regexp.MustCompile(`--[a-z-]+`)
	// What both calls of `az deployment group` get stands in a list. A list of PowerShell's has commas, and its own @.
	var template []string
	for _, found := range regexp.MustCompile(`(?m)template \+?= ?@?(\(.*)$|template\+?=(\(.*)$`).FindAllStringSubmatch(script, -1) {
		template = append(template, option.FindAllString(found[1]+found[2], -1)...)
	}
	if len(template) == 0 {
		return nil
	}
	var calls []string
	call := func(command, rest string) {
		rest, _, _ = strings.Cut(rest, " | ")
		rest, _, _ = strings.Cut(rest, " || ")
		options := option.FindAllString(rest, -1)
		if strings.Contains(rest, "@template") || strings.Contains(rest, "template[@]") {
			options = append(options, template...)
		}
		slices.Sort(options)
		options = slices.DeleteFunc(slices.Compact(options), func(name string) bool { return name == "--query" })
		calls = append(calls, strings.Join(append([]string{strings.TrimSpace(command)}, options...), " "))
	}
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || regexp.MustCompile(`^(need|die|say|Die|Say|Add-Missing|")`).MatchString(line) {
			continue
		}
		for _, at := range regexp.MustCompile(`\baz ((?:[a-z][a-z-]* )+?)(?:--?[a-z]|@|"\$|[0-9]*>)`).FindAllStringSubmatchIndex(line, -1) {
			call(line[at[2]:at[3]], line[at[3]:])
		}
		// What PowerShell runs with a time limit is a list.
		if _, list, ok := strings.Cut(line, "Invoke-Limited $Seconds @("); ok {
			command, rest, _ := strings.Cut(list, ", '--")
			call(strings.NewReplacer("'", "", ",", "").Replace(command), "--"+rest)
		}
	}
	slices.Sort(calls)
	return slices.Compact(calls)
}

// An action is code that runs with the rights to deploy: it is named by its commit, which nobody can move.
func TestWorkflowsPinTheirActions(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal("no workflows", err)
	}
	pinned := regexp.MustCompile(`^\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for _, file := range files {
		text := read(t, file)
		uses := regexp.MustCompile(`uses: (.*)`).FindAllStringSubmatch(text, -1)
		if len(uses) == 0 {
			t.Errorf("%s uses nothing", file)
		}
		for _, use := range uses {
			if !pinned.MatchString(use[1]) {
				t.Errorf("%s uses %s", file, use[1])
			}
		}
		if strings.Contains(text, "secrets.") {
			t.Errorf("%s has a secret", file)
		}
		if !strings.Contains(text, "\npermissions:") {
			t.Errorf("%s does not say what its token may do", file)
		}
	}
}

// What deploy.sh asks the deployment for, and what docs/deployment.md sets, has to be there.
func TestDeployKnowsTheTemplate(t *testing.T) {
	template := read(t, "main.bicep")
	names := func(text, pattern string) []string {
		t.Helper()
		var found []string
		for _, one := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found = append(found, one[1])
		}
		if len(found) == 0 {
			t.Fatalf("nothing matches %s", pattern)
		}
		return found
	}
	for _, script := range []string{"deploy.sh", "deploy.ps1"} {
		for _, name := range names(read(t, script), `outputs\.(\w+)\.value`) {
			if !strings.Contains(template, "\noutput "+name+" ") {
				t.Errorf("%s reads %s, which main.bicep does not put out", script, name)
			}
		}
	}
	parameters := names(read(t, "../docs/deployment.md"), `--param (\w+)=`)
	for _, name := range append(parameters, "plan", "location") {
		if !strings.Contains(template, "\nparam "+name+" ") {
			t.Errorf("main.bicep has no parameter %s", name)
		}
	}
}

//go:build unix

package infra_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/testing/azurite"
	"tiney/internal/testing/freeport"
	"tiney/internal/testing/testutil"
)

const (
	group   = "rg-tiney"
	version = "0123456789ab" // the output of git, and the version of the packages that make builds
	upload  = "functionapp deployment source config-zip"
	create  = "deployment group create"

	noKey      = "--yes --param adminKey="
	notWorking = "the site responds but does not work"
)

// Rights as az lists them: one line for each role of the caller, "actions|exceptions".
const (
	contributor = "*|Microsoft.Authorization/*/Delete,Microsoft.Authorization/*/Write," +
		"Microsoft.Authorization/elevateAccess/Action\n"
	rbacAdmin = "microsoft.authorization/roleassignments/write," +
		"Microsoft.Authorization/roleAssignments/delete,*/read|\n"
)

// azScript passes its arguments to azure.serve, and prints the reply: first its stderr, then its
// stdout. Like the real az, it is a script that starts another process.
const azScript = `(
exec 3<>/dev/tcp/127.0.0.1/%s
printf '%%s\0' "$#" "$@" >&3
IFS= read -r -d '' text <&3; printf %%s "$text" >&2
IFS= read -r -d '' text <&3; printf %%s "$text"
IFS= read -r -d '' status <&3; exit "$status"
)
exit $?`

// call is one call of az.
type call struct {
	command string
	args    []string // after the command
}

// after returns the argument after an option.
func (c call) after(option string) string {
	if i := slices.Index(c.args, option); i >= 0 && i+1 < len(c.args) {
		return c.args[i+1]
	}
	return ""
}

// reply is what az does when it is called with a command.
type reply struct {
	to       string // the command that it answers
	out, err string
	exit     int
	times    int  // how many calls it answers; 0: all of them
	upload   bool // the package arrives although exit is not 0
	hang     bool // az does not end by itself
	used     int
}

// azure stands for the servers that az and curl reach. It answers the calls of azScript. It is also
// the site, which answers 503 until a package has arrived, and then as that package's version. The
// fields from healthStatus on make the site behave worse.
type azure struct {
	t  *testing.T
	mu sync.Mutex

	replies  []reply // the first one that fits answers
	calls    []call
	uploaded []byte                      // the package
	start    func(uploaded []byte) error // starts the uploaded package; may be nil
	// killed gets a value when a call that does not end by itself has been killed.
	killed chan struct{}

	base, hostName string
	frontDoorName  string            // its host name
	frontDoor      string            // "": there is no Front Door
	site           string            // "": site-1
	secondSite     string            // "": there is only one site
	image          string            // "": the sites run packages
	nobody         bool              // alerts reach nobody
	domains        string            // between spaces
	links          map[string]string // long URLs by path
	adminKey       string            // the site's setting; "": it has none
	annotation     string            // of the release

	// after is the number of calls of /api/health that the old container answers.
	after        int
	replacement  string // what runs after that
	healthStatus int    // the status of /api/health once there is a package
	health       string
	refusals     int    // the number of calls of shorten that get a 503
	shorten      int    // the status of shorten; 0: 201
	ready        int    // the status of /api/ready; 0: 200
	lost         int    // the number of responses of shorten that get lost
	unknown      int    // the number of redirects that get a 404
	redirect     int    // the status of redirects; 0: 302
	to           string // the target of redirects; "": the long URL
	shortBase    string // the start of short URLs
}

// serve answers one call after the other, since deploy.sh makes no two at once. A call that does
// not end by itself blocks all later ones until its process has been killed.
func (az *azure) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		in := bufio.NewReader(conn)
		next := func() string {
			text, _ := in.ReadString(0)
			return strings.TrimSuffix(text, "\x00")
		}
		var args []string
		for count, _ := strconv.Atoi(next()); len(args) < count; {
			args = append(args, next())
		}
		if r := az.answer(args); r.hang {
			fmt.Fprintf(conn, "%s\x00", r.err)
			next()
			az.killed <- struct{}{}
		} else {
			fmt.Fprintf(conn, "%s\x00%s\x00%d\x00", r.err, r.out, r.exit)
		}
		conn.Close()
	}
}

func (az *azure) answer(args []string) reply {
	az.mu.Lock()
	defer az.mu.Unlock()
	words := slices.IndexFunc(append(args, "-"), func(arg string) bool {
		return strings.HasPrefix(arg, "-")
	})
	c := call{strings.Join(args[:words], " "), args[words:]}
	if c.command == "rest" {
		address, _, _ := strings.Cut(c.after("--url"), "?")
		c.command += " " + path.Base(address)
	}
	if strings.Contains(c.after("--query"), "ADMIN_KEY") {
		c.command += " ADMIN_KEY"
	}
	az.calls = append(az.calls, c)
	switch c.command {
	case create:
		az.adminKey = deployedKey(az.t, c)
	case "rest Annotations":
		az.annotation = read(az.t, strings.TrimPrefix(c.after("--body"), "@"))
	}
	fits := slices.IndexFunc(az.replies, func(r reply) bool {
		return r.to == c.command && (r.times == 0 || r.used < r.times)
	})
	if fits < 0 && strings.HasSuffix(c.command, " ADMIN_KEY") {
		if az.adminKey == "" {
			return reply{}
		}
		return reply{out: "=" + az.adminKey + "\n"}
	}
	if fits < 0 {
		az.t.Errorf("no reply to az %q", args)
		return reply{exit: 99}
	}
	r := &az.replies[fits]
	r.used++
	if file := cmp.Or(c.after("--src"), c.after("--src-path")); file != "" &&
		(r.exit == 0 || r.upload) {
		var err error
		if az.uploaded, err = os.ReadFile(file); err == nil && az.start != nil {
			err = az.start(az.uploaded)
		}
		if err != nil {
			az.t.Error(err)
		}
	}
	return *r
}

// deployedKey returns the admin key that a call of az passes to the template. It must come from a
// file: other users of a machine see arguments.
func deployedKey(t *testing.T, c call) (key string) {
	for _, arg := range c.args {
		if value, ok := strings.CutPrefix(arg, "adminKey="); ok {
			key = value
		}
		if filepath.Base(arg) != "key.json" {
			continue
		}
		var file struct {
			Parameters struct{ AdminKey struct{ Value string } }
		}
		if err := json.Unmarshal([]byte(read(t, arg)), &file); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(filepath.Dir(arg)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("others may read the key: %v, %v", info, err)
		}
		key = file.Parameters.AdminKey.Value
	}
	return key
}

func (az *azure) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	az.mu.Lock()
	defer az.mu.Unlock()
	if az.after--; r.URL.Path == "/api/health" && az.after < 0 && az.replacement != "" {
		az.uploaded = []byte(az.replacement)
	}
	_, running, ok := strings.Cut(string(az.uploaded), " ")
	switch {
	case !ok:
		http.Error(w, "no package", http.StatusServiceUnavailable)
	case r.URL.Path == "/api/health":
		w.WriteHeader(cmp.Or(az.healthStatus, 200))
		io.WriteString(w, cmp.Or(az.health,
			fmt.Sprintf(`{"status":"healthy","timestamp":"2026-11-21T14:00:00Z","version":%q}`,
				running)))
	case r.URL.Path == "/api/shorten" && r.Method == http.MethodPost:
		var asked struct {
			LongURL          string `json:"longUrl"`
			ExpiresInSeconds int
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil ||
			asked.ExpiresInSeconds != 60 ||
			r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "not what a shortener takes", http.StatusBadRequest)
			return
		}
		if az.adminKey != "" && r.Header.Get("Authorization") != "Bearer "+az.adminKey {
			http.Error(w, "not the admin key", http.StatusUnauthorized)
			return
		}
		if az.refusals > 0 {
			az.refusals--
			http.Error(w, "no role yet", http.StatusServiceUnavailable)
			return
		}
		alias, status := fmt.Sprintf("aB-_%d", len(az.links)), http.StatusCreated
		for known, to := range az.links {
			if to == asked.LongURL {
				alias, status = known[1:], http.StatusOK
			}
		}
		az.links["/"+alias] = asked.LongURL
		if az.lost > 0 {
			az.lost--
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(cmp.Or(az.shorten, status))
		if az.shorten == http.StatusUnauthorized {
			return
		}
		fmt.Fprintf(w, `{"alias":%q,"shortUrl":%q,"longUrl":%q}`, alias, az.shortBase+"/"+alias,
			asked.LongURL)
	case r.URL.Path == "/api/ready":
		w.WriteHeader(cmp.Or(az.ready, 200))
	case az.links[r.URL.Path] != "" && az.unknown == 0:
		w.Header().Set("Location", cmp.Or(az.to, az.links[r.URL.Path]))
		w.WriteHeader(cmp.Or(az.redirect, http.StatusFound))
	default:
		az.unknown = max(0, az.unknown-1)
		http.NotFound(w, r)
	}
}

// deployer has a copy of deploy.sh in a project of its own, with stubs of other commands. Make it
// before t.Parallel: a script cannot be run while a process that another test has forked still has
// it open for writing.
type deployer struct {
	t    *testing.T
	root string // the project
	bin  string // the PATH of deploy.sh
	az   *azure
	env  []string
}

func newDeployer(t *testing.T) *deployer {
	t.Helper()
	dir := t.TempDir()
	// Nobody listens on port 1.
	az := &azure{t: t, links: map[string]string{}, killed: make(chan struct{}, 9),
		hostName: "127.0.0.1:1"}
	d := &deployer{t: t, root: filepath.Join(dir, "a project"), bin: filepath.Join(dir, "bin"),
		az: az}
	for _, folder := range []string{filepath.Join(d.root, "infra"), filepath.Join(d.root, "build"),
		d.bin} {
		d.do(os.MkdirAll(folder, 0o755))
	}
	d.do(os.WriteFile(filepath.Join(d.root, "infra", "deploy.sh"), []byte(read(t, "deploy.sh")),
		0o755))
	for _, name := range []string{"main.bicep", "parameters.dev.json", "parameters.prod.json"} {
		d.do(os.WriteFile(filepath.Join(d.root, "infra", name), nil, 0o644))
	}
	// deploy.sh may use only the stubs below and these commands, which Linux and macOS have.
	for _, name := range []string{"bash", "cat", "curl", "date", "dirname", "grep", "mktemp", "rm",
		"sed", "sleep", "tr"} {
		path, err := exec.LookPath(name)
		d.do(err)
		d.do(os.Symlink(path, filepath.Join(d.bin, name)))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	d.do(err)
	t.Cleanup(func() { listener.Close() })
	go d.az.serve(listener)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	d.tool("az", fmt.Sprintf(azScript, port))
	d.tool("go", "exit 1")
	d.tool("git", "echo "+version)
	d.tool("make", `[ "$1 $3" = "-C package" ] || exit 1
for name in tiney-windows-386 tiney-webapp-windows-386 tiney-webapp-windows-amd64 tiney-linux-amd64; do
  printf '%s %s' "$name" `+version+` >"$2/build/$name.zip"
done`)
	server := httptest.NewServer(az)
	t.Cleanup(server.Close)
	az.base, az.shortBase = server.URL, server.URL
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
	bash, err := exec.LookPath("bash")
	d.do(err)
	file := filepath.Join(d.bin, name)
	// The file may be a link to the machine's own tool, which must not change.
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		d.do(err)
	}
	d.do(os.WriteFile(file, []byte("#!"+bash+"\n"+script+"\n"), 0o755))
}

// usual returns the replies of an Azure without problems.
func (d *deployer) usual(plan string) []reply {
	return []reply{
		{to: "version", out: "2.77.0\n"},
		{to: "account show", out: "Pay as you go\n00000000-0000-0000-0000-000000000001\n"},
		{to: "bicep version", out: "Bicep CLI version 0.38.33\n"},
		{to: "group exists", out: "true\n"}, {to: "group create"},
		{to: "group show", out: "tiney-deploy\n"}, {to: "group delete"},
		{to: "resource list", out: "Microsoft.Web/sites\tsite-1\n"},
		{to: "rest permissions", out: "|\n*|\n"}, {to: "rest sites", out: "site-1|" +
			d.az.hostName + "|\n"},
		{to: "webapp config appsettings list", out: d.az.base + "\n"},
		{to: "rest syncfunctiontriggers"},
		{to: "rest functions", out: "site-1/health\nsite-1/reaper\nsite-1/redirect\n"},
		{to: "deployment group what-if", out: "Resource changes: 23 to create.\n"},
		{to: create, out: fmt.Sprintf(
			"%s\n%s\n%s\n%s\n%s\n%s\nsecond.example\n%s\n%s\n%t\n%s\nAB12\n/insights\n",
			cmp.Or(d.az.site, "site-1"), plan, d.az.hostName, d.az.frontDoorName, d.az.base,
			d.az.secondSite, d.az.frontDoor, d.az.image, d.az.nobody, d.az.domains)},
		{to: "rest Annotations"},
		{to: "afd custom-domain list"},
		{to: upload}, {to: "webapp deploy"}, {to: "monitor metrics list", out: d.az.hostName +
			":443\nsecond.example:443\n"},
	}
}

// result is the result of a run.
type result struct {
	t              *testing.T
	status         int
	stdout, stderr string
	calls          []call
	changes        []string // the commands that change something in Azure
}

// run runs deploy.sh with the given standard input. plan is the one that the deployment reports.
func (d *deployer) run(plan string, replies []reply, input string, args ...string) *result {
	d.t.Helper()
	d.az.mu.Lock()
	d.az.replies, d.az.calls = slices.Concat(replies, d.usual(plan)), nil
	d.az.mu.Unlock()
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(d.root, "infra", "deploy.sh"), args...)
	cmd.Dir = "/" // deploy.sh must work from any folder
	// A process that it leaves running keeps its output open. That is an error here.
	cmd.WaitDelay = 20 * time.Second
	temporary := d.t.TempDir()
	cmd.Env = append([]string{"PATH=" + d.bin, "HOME=" + d.root, "TMPDIR=" + temporary,
		"TINEY_WAIT=60", "TINEY_INTERVAL=0.05", "TINEY_UPLOAD_WAIT=60", "NO_PROXY=*"}, d.env...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		d.t.Errorf("it leaves %q behind", left)
	}
	d.az.mu.Lock()
	defer d.az.mu.Unlock()
	r := &result{d.t, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), d.az.calls,
		nil}
	for _, c := range r.calls {
		if slices.Contains([]string{"group create", "group delete", create, upload,
			"webapp deploy"}, c.command) {
			r.changes = append(r.changes, c.command)
		}
	}
	if slices.ContainsFunc(d.az.replies, func(r reply) bool { return r.hang && r.used > 0 }) {
		select {
		case <-d.az.killed: // including the process behind the script
		case <-time.After(30 * time.Second):
			d.t.Error("a call of az goes on")
		}
	}
	return r
}

// ends checks the exit status, and that stderr has all of the texts.
func (r *result) ends(status int, says ...string) *result {
	r.t.Helper()
	missing := slices.DeleteFunc(slices.Clone(says), func(words string) bool {
		return strings.Contains(r.stderr, words)
	})
	if r.status != status || len(missing) > 0 {
		r.t.Errorf("it ended with %d, want %d, and does not say "+
			"%q\nstdout:\n%s\nstderr:\n%s\ncalls: %q", r.status, status, missing, r.stdout,
			r.stderr, r.calls)
	}
	return r
}

// did returns the calls of a command.
func (r *result) did(command string) []call {
	return slices.DeleteFunc(slices.Clone(r.calls), func(c call) bool {
		return c.command != command
	})
}

func TestDeployEachPlan(t *testing.T) {
	for _, test := range []struct {
		plan, args, parameters, zip, upload string
	}{
		// This plan comes from the parameters file.
		{"Y1", "", "parameters.prod.json", "tiney-windows-386", upload},
		{"F1", "--plan F1", "parameters.dev.json", "tiney-webapp-windows-386", "webapp deploy"},
		{"FC1", "--plan FC1", "parameters.prod.json", "tiney-linux-amd64", upload},
		{"B1", "--plan B1", "parameters.prod.json", "tiney-webapp-windows-amd64", "webapp deploy"},
		{"P0v3", "--plan P0v3", "parameters.prod.json", "tiney-webapp-windows-amd64",
			"webapp deploy"},
		{"P1v3", "--plan P1v3", "parameters.prod.json", "tiney-webapp-windows-amd64",
			"webapp deploy"},
	} {
		t.Run(test.plan, func(t *testing.T) {
			d := newDeployer(t)
			t.Parallel()
			args := append(strings.Fields(test.args), "-g", group)
			r := d.run(test.plan, nil, "y\n", args...).ends(0, "subscription: Pay as you go",
				"version "+version)
			if want := []string{create, test.upload}; !slices.Equal(r.changes, want) {
				t.Errorf("it changed %q, want %q", r.changes, want)
			}
			if !strings.HasSuffix(r.stdout, "\n"+d.az.base+"\n") ||
				!strings.Contains(r.stdout, "Resource changes: 23 to create.") {
				t.Errorf("stdout does not show the what-if and, as its last line, the URL:\n%s",
					r.stdout)
			}
			if got, want := string(d.az.uploaded), test.zip+" "+version; got != want {
				t.Errorf("uploaded %q, want %q", got, want)
			}
			want := fmt.Sprintf("--resource-group %s --template-file %[2]s/infra/main.bicep "+
				"--parameters %[2]s/infra/%s ", group, d.root, test.parameters)
			if test.args != "" {
				want += "--parameters plan=" + test.plan + " "
			}
			for _, command := range []string{"deployment group what-if", create} {
				if calls := r.did(command); len(calls) != 1 ||
					!strings.HasPrefix(strings.Join(calls[0].args, " "), want) {
					t.Errorf("%s was called as %q, want one with %q", command, calls, want)
				}
			}
			if c := r.did(test.upload)[0]; c.after("--resource-group") != group ||
				c.after("--name") != "site-1" {
				t.Errorf("not for the site that was deployed: %q", c)
			}
		})
	}
}

// outcomes are the ways in which a run can end, by what happens in it.
var outcomes = []struct {
	name    string
	replies []reply  // they come before the usual ones
	without string   // the tools to remove
	make    string   // a script that replaces make
	env     []string // more variables
	plan    string   // the plan that the deployment reports; "": Y1
	site    func(*azure)
	input   string
	args    string // more arguments beside the group; "": --yes, if there is no input
	status  int
	says    []string
	// changed is the expected changes. nil means everything if the status is 0, and nothing if it
	// is below 7. For other statuses, nil means that the run has at least tried to upload.
	changed []string
}{
	// what is needed
	{name: "all is missing", without: "go make curl", args: "--yes --parameters /no/such.json",
		status:  3,
		replies: []reply{{to: "version", out: "2.59.9\n"}, noLogin, {to: "bicep version", exit: 1}},
		says: []string{"this one is 2.59.9", "az login", "az bicep install", "Go 1.26", "make",
			"curl", "/no/such.json"}},
	{name: "no az", without: "az go", status: 3, says: []string{"az, the Azure CLI", "Go 1.26"}},
	{name: "no login", replies: []reply{noLogin}, status: 3, says: []string{"a login: az login"}},
	{name: "no package", args: "--yes --package /no/such.zip", status: 3,
		says: []string{"the package /no/such.zip"}},
	{name: "a what-if builds nothing", without: "go make curl", args: "--what-if"},
	{name: "az 2.9", replies: []reply{{to: "version", out: "2.9.1\n"}}, args: "--what-if",
		status: 3, says: []string{"this one is 2.9.1"}},
	// rights
	{name: "rights by two roles", replies: []reply{{to: "rest permissions", out: contributor +
		rbacAdmin}}, args: "--what-if"},
	{name: "contributor", replies: []reply{{to: "rest permissions", out: contributor}}, status: 3,
		says: []string{"missing:\n  - Microsoft.Authorization/roleAssignments/write"}},
	{name: "administrator of roles", replies: []reply{{to: "rest permissions", out: rbacAdmin}},
		status: 3,
		says: []string{"Microsoft.Resources/deployments/write", "Microsoft.Web/sites/write",
			"Microsoft.Storage/storageAccounts/write"}},
	{name: "rights cannot be seen", replies: []reply{fails("rest permissions")}, status: 3,
		says: []string{"Forbidden", "the right to see the permissions"}},
	// a new group
	{name: "new group", replies: []reply{noGroup}, input: "yes\ny\n",
		says: []string{"Create the resource group " + group + " in canadacentral?",
			"Deploy this"},
		changed: []string{"group create", create, upload}},
	{name: "new group declined", replies: []reply{noGroup}, input: "n\n", status: 4,
		says: []string{"nothing was changed"}},
	{name: "new group refused", replies: []reply{noGroup, fails("group create")}, status: 6,
		says: []string{"Forbidden", "was not created"}, changed: []string{"group create"}},
	{name: "new group without rights",
		replies: []reply{noGroup, {to: "rest permissions", out: contributor}}, status: 3,
		says: []string{"roleAssignments/write"}, changed: []string{"group create"}},
	{name: "what-if without a group", replies: []reply{noGroup}, args: "--what-if", status: 3,
		says: []string{"az group create --name " + group + " --location canadacentral"}},
	// declined
	{name: "declined", input: "n\n", status: 4, says: []string{"nothing was deployed"}},
	{name: "nobody answers", args: "--plan Y1", status: 4, says: []string{"nothing was deployed"}},
	// build and deployment
	{name: "build fails", make: "echo no such package >&2; exit 2", status: 5,
		says: []string{"no such package", "nothing was changed in Azure"}},
	{name: "what-if fails", replies: []reply{fails("deployment group what-if")},
		says: []string{"Forbidden", "does not say what would change"}},
	{name: "what-if fails, and nobody wants more",
		replies: []reply{fails("deployment group what-if")}, input: "n\n", status: 4,
		says: []string{"Deploy this to"}},
	{name: "what-if alone fails", replies: []reply{fails("deployment group what-if")},
		args: "--what-if", status: 6, says: []string{"Forbidden"}},
	{name: "old Bicep", replies: []reply{{to: "bicep version",
		out: "Bicep CLI version 0.32.4 (b326faa456)\n"}}, status: 3,
		says: []string{"az bicep upgrade"}},
	{name: "sites cannot be seen", replies: []reply{fails("rest sites"),
		{to: "provider show", out: "Registered\n"}}, status: 3,
		says: []string{"nothing was deployed"}},
	{name: "never a site in the subscription", replies: []reply{fails("rest sites"),
		{to: "provider show", out: "NotRegistered\n"}}},
	{name: "deployment fails", replies: []reply{fails(create)}, status: 6,
		says:    []string{"Forbidden", "az deployment operation group list"},
		changed: []string{create}},
	{name: "no outputs", replies: []reply{{to: create}}, status: 1,
		says: []string{"did not say what it deployed"}, changed: []string{create}},
	{name: "unknown plan", plan: "S1", status: 1, says: []string{"its plan is S1"},
		changed: []string{create}},
	// upload
	{name: "upload succeeds in the end",
		replies: []reply{{to: upload, err: "Status Code: 503\n", exit: 1, times: 2}},
		says:    []string{"Status Code: 503", "trying again"}, changed: []string{create, upload,
			upload, upload}},
	{name: "nothing to upload", args: "--yes --skip-build", status: 7,
		says: []string{"run make package"}, changed: []string{create}},
	{name: "upload never succeeds", replies: []reply{fails(upload)}, env: briefly, status: 7,
		says: []string{"Forbidden", "trying again", "run this again"}},
	{name: "upload never succeeds on F1", replies: []reply{fails("webapp deploy")}, plan: "F1",
		env: briefly, status: 7},
	{name: "upload hangs", replies: []reply{{to: upload, hang: true}}, env: briefly, status: 7,
		says: []string{"no end within the time for it"}},
	// On Flex Consumption, az checks the app once it has the package. With Front Door in front, it
	// cannot reach the app: it never ends, or fails. The version that answers tells whether the
	// package has arrived.
	{name: "upload to FC1 hangs", replies: []reply{{to: upload, hang: true}}, plan: "FC1",
		env:  briefly,
		says: []string{"no end within the time for it", "version " + version}},
	{name: "upload to FC1 hangs without a package",
		replies: []reply{{to: upload, hang: true, exit: 1}}, plan: "FC1",
		env: briefly, status: 8, says: []string{"no end within the time for it", "returns 503"}},
	{name: "upload to FC1 waits for its health",
		replies: []reply{{to: upload, err: "Checking the health of the function app\n",
			hang: true}}, plan: "FC1",
		// A run takes at most two minutes.
		env: []string{"TINEY_UPLOAD_WAIT=300"}, says: []string{"Checking the health"}},
	{name: "FC1 seems to be unhealthy", replies: []reply{unhealthy}, plan: "FC1",
		says: []string{"appears to be unhealthy"}},
	{name: "Y1 seems to be unhealthy", replies: []reply{unhealthy}, env: briefly, status: 7},
	// Images may have any version.
	{name: "image", plan: "P0v3", site: func(az *azure) {
		az.image, az.uploaded = "registry.example/tiney:1", []byte("image v1")
	},
		says:    []string{"site-1 runs registry.example/tiney:1", "version v1"},
		changed: []string{create}},
	{name: "image of another version", plan: "P0v3", site: func(az *azure) {
		az.image, az.uploaded = "registry.example/tiney:1", []byte("image v1")
	},
		args: "--yes --expect v2", env: briefly, status: 8,
		says: []string{"still runs version v1"}},
	{name: "an image in place of another", plan: "P0v3", replies: images("0"),
		site: func(az *azure) { image(az); az.after, az.replacement = 3, "image v2" },
		says: []string{"with another version than v1", "version v2"}, changed: []string{create}},
	{name: "an image in place of another, which goes on", plan: "P0v3", replies: images("0"),
		site: image, env: briefly, status: 8,
		says: []string{"still runs version v1"}, changed: []string{create}},
	{name: "the same image again", plan: "P0v3", replies: images("1"), site: image,
		says: []string{"version v1"}, changed: []string{create}},
	{name: "an image in place of one that did not respond", plan: "P0v3",
		replies: slices.Concat([]reply{fails("webapp config appsettings list")}, images("0")),
		site:    image, says: []string{"version v1"}, changed: []string{create}},
	// two regions
	{name: "two regions", site: twoRegions, says: []string{"to site-1", "to site-2",
		"the site of each region"}, changed: []string{create, upload, upload}},
	{name: "two regions on P1v3", plan: "P1v3", site: twoRegions,
		changed: []string{create, "webapp deploy", "webapp deploy"}},
	{name: "two regions, one without a package", replies: []reply{{to: upload, times: 1},
		fails(upload)}, site: twoRegions, env: briefly, status: 7,
		says: []string{"the site site-2 is there"}},
	{name: "two regions, one without a reaper",
		replies: []reply{{to: "rest functions", out: "site-1/reaper\n", times: 1},
			{to: "rest functions"}}, site: twoRegions,
		env: briefly, status: 9, says: []string{"does not know the function reaper of site-2"}},
	{name: "two regions, one that Front Door does not reach",
		replies: []reply{{to: "monitor metrics list", out: "127.0.0.1:1:443\n"}}, site: twoRegions,
		env: briefly, status: 9, says: []string{"Front Door has not found second.example well"}},
	{name: "two regions, whose probes arrive late",
		replies: []reply{{to: "monitor metrics list", times: 2}}, site: twoRegions,
		changed: []string{create, upload, upload}},
	// health
	{name: "503", site: func(az *azure) { az.healthStatus = 503 }, env: briefly, status: 8,
		says: []string{"/api/health returns 503", "within 1 seconds", "docs/deployment.md"}},
	{name: "something else", site: func(az *azure) { az.health = "<html>Your app is up" },
		env: briefly, status: 8, says: []string{"returns something else"}},
	{name: "another version", site: func(az *azure) {
		az.health = `{"status":"healthy","version":"older"}`
	}, env: briefly, status: 8,
		says: []string{"still runs version older"}},
	{name: "no version", site: func(az *azure) { az.health = `{"status": "healthy"}` }},
	{name: "no connection", site: func(az *azure) {
		az.base, az.frontDoorName = "http://127.0.0.1:2", "127.0.0.1:3"
	}, env: briefly, status: 8,
		says: []string{"http://127.0.0.1:2 does not", "https://127.0.0.1:3 does not",
			"https://127.0.0.1:1 does not"}},
	// the reaper
	{name: "no reaper", replies: []reply{{to: "rest functions", out: "site-1/health\n"}},
		env: briefly, status: 9, says: []string{"does not know the function reaper"}},
	{name: "functions cannot be seen", replies: []reply{fails("rest functions")}, env: briefly,
		status: 9, says: []string{"does not know the function reaper"}},
	{name: "functions arrive late", replies: []reply{{to: "rest syncfunctiontriggers", exit: 1,
		times: 2}, {to: "rest functions", out: "site-1/health\n", times: 2}}},
	// shorten and redirect
	{name: "shorten is 200", site: func(az *azure) { az.shorten = 200 }, status: 9,
		says: []string{notWorking, "POST /api/shorten returns 200"}},
	{name: "shorten is 503", site: func(az *azure) { az.refusals = 1e6 }, env: briefly, status: 9,
		says: []string{notWorking, "POST /api/shorten returns 503"}},
	{name: "shorten is for owners, and there is no key", site: func(az *azure) { az.shorten = 401 },
		args: noKey, says: []string{"responds, and so does its storage"},
		changed: []string{create, upload}},
	{name: "shorten is for owners, without storage", site: func(az *azure) {
		az.shorten, az.ready = 401, 503
	}, args: noKey, env: briefly, status: 9,
		says: []string{notWorking, "GET /api/ready returns 503"}},
	{name: "another key", site: func(az *azure) { az.shorten = 401 }, env: briefly, status: 9,
		says: []string{notWorking, "refuses the admin key"}},
	{name: "another base", site: func(az *azure) { az.shortBase = "http://elsewhere.example" },
		status: 9, says: []string{notWorking, "a link that starts with"}},
	{name: "redirect is 404", site: func(az *azure) { az.redirect = 404 }, status: 9,
		says: []string{notWorking, "returns 404"}},
	{name: "redirect is 503", site: func(az *azure) { az.redirect = 503 }, env: briefly, status: 9,
		says: []string{notWorking, "returns 503"}},
	{name: "redirect is 301", site: func(az *azure) { az.redirect = 301 }, status: 9,
		says: []string{notWorking, "returns 301"}},
	{name: "redirect leads elsewhere",
		site: func(az *azure) { az.to = "https://elsewhere.example/" }, status: 9,
		says: []string{notWorking, "leads to 'https://elsewhere.example/'"}},
	{name: "roles arrive late", site: func(az *azure) { az.refusals = 3 }},
	{name: "responses get lost", site: func(az *azure) { az.lost = 2 }},
	{name: "routes arrive late", site: func(az *azure) { az.unknown = 3 }},
	{name: "alerts reach nobody", site: func(az *azure) { az.nobody = true },
		says: []string{"alerts reach nobody: --param alertEmail="}},
	// destroy
	{name: "destroy", input: group + "\n", args: "--destroy",
		says: []string{"Microsoft.Web/sites\tsite-1", "Type the name",
			"Log Analytics workspace, 14 days"},
		changed: []string{"group delete"}},
	{name: "destroy: nobody answers", args: "--destroy", status: 4,
		says: []string{"nothing was deleted"}},
	{name: "destroy another's group", replies: []reply{{to: "group show", out: "tiney\n"}},
		args: "--destroy --yes", status: 4,
		says: []string{"this script did not make " + group, "type the name"}},
	{name: "destroy another's group by its name", replies: []reply{{to: "group show", out: "\n"}},
		input: group + "\n", args: "--destroy",
		says: []string{"this script did not make " + group}, changed: []string{"group delete"}},
	{name: "destroy is refused", replies: []reply{fails("group delete")}, args: "--destroy --yes",
		status: 10, says: []string{"Forbidden"}, changed: []string{"group delete"}},
	{name: "destroy nothing", replies: []reply{noGroup}, args: "--destroy --yes",
		says: []string{"nothing to delete"}},
	// usage
	{name: "option without a value", args: "--plan", status: 2},
	{name: "wrong plan", args: "--plan S1", status: 2},
	{name: "parameter without a value", args: "--param novalue", status: 2},
	{name: "unknown option", args: "--purge", status: 2},
	{name: "stray argument", args: "stray", status: 2}, {name: "no group", args: "-g", status: 2},
}

var (
	briefly   = []string{"TINEY_WAIT=1", "TINEY_INTERVAL=0.3", "TINEY_UPLOAD_WAIT=3"}
	noLogin   = reply{to: "account show", err: "Please run 'az login' to setup account.\n", exit: 1}
	noGroup   = reply{to: "group exists", out: "false\n"}
	unhealthy = reply{to: upload, err: "Deployment was successful but the app appears to be " +
		"unhealthy.\n", exit: 1, upload: true}
)

// image makes a site run an image. images returns the replies of a site that has run an image with
// the given tag.
func image(az *azure) {
	az.site, az.image, az.uploaded = "tiney-p0v3-image-1", "registry.example/tiney:1",
		[]byte("image v1")
}

func images(tag string) []reply {
	return []reply{{to: "rest sites",
		out: "site-1|site-1.example|\ntiney-p0v3-image-1|127.0.0.1:1|\n"},
		{to: "webapp config show", out: "DOCKER|registry.example/tiney:" + tag + "\n"}}
}

func twoRegions(az *azure) { az.secondSite, az.frontDoor = "site-2", "edge-1" }

func fails(command string) reply { return reply{to: command, err: "Forbidden\n", exit: 1} }

func TestDeployOutcomes(t *testing.T) {
	for _, test := range outcomes {
		t.Run(test.name, func(t *testing.T) {
			d := newDeployer(t)
			d.env = test.env
			for name := range strings.FieldsSeq(test.without) {
				d.do(os.Remove(filepath.Join(d.bin, name)))
			}
			if test.make != "" {
				d.tool("make", test.make)
			}
			if test.site != nil {
				test.site(d.az)
			}
			t.Parallel()
			args, changed := test.args, test.changed
			if args == "" && test.input == "" {
				args = "--yes"
			}
			if changed == nil && test.status == 0 && args == "--yes" {
				changed = []string{create, upload}
			}
			r := d.run(cmp.Or(test.plan, "Y1"), test.replies, test.input,
				append([]string{"-g", group}, strings.Fields(args)...)...).
				ends(test.status, test.says...)
			if (changed != nil || test.status < 7 || test.status > 9) &&
				!slices.Equal(r.changes, changed) {
				t.Errorf("it changed %q, want %q", r.changes, changed)
			}
			if test.status == 2 && len(r.calls) > 0 {
				t.Errorf("it calls az: %q", r.calls)
			}
		})
	}
}

// TestDeployTwoRegions checks that both sites get the package, and that only Front Door's probes
// after the upload count.
func TestDeployTwoRegions(t *testing.T) {
	d := newDeployer(t)
	twoRegions(d.az)
	d.tool("date", `case $* in "-u +%Y-%m-%dT%H:%M:%SZ") echo now ;; *) echo 20261122 ;; esac`)
	t.Parallel()
	r := d.run("FC1", nil, "", "-g", group, "--yes").ends(0)
	var names []string
	for _, c := range r.did(upload) {
		names = append(names, c.after("--name"))
	}
	for _, c := range r.did("rest functions") {
		names = append(names, path.Base(path.Dir(c.after("--url"))))
	}
	probes := r.did("monitor metrics list")
	if want := []string{"site-1", "site-2", "site-1", "site-2"}; !slices.Equal(names, want) ||
		len(probes) != 2 ||
		probes[0].after("--resource") != "edge-1" || probes[0].after("--start-time") != "now" {
		t.Errorf("it uploads to and asks for the functions of %q, want %q, and asks for the "+
			"probes by %q", names, want, probes)
	}
}

// TestDeployAdminKey checks that the first deployment makes a key, that later ones keep what the
// site has, that a given key wins, and that none is ever printed or an argument.
func TestDeployAdminKey(t *testing.T) {
	d := newDeployer(t)
	t.Parallel()
	shows := `az webapp config appsettings list --resource-group rg-tiney --name site-1 --query ` +
		`"[?name=='ADMIN_KEY'].value"`
	secret := func(r *result) {
		t.Helper()
		for _, c := range r.calls {
			if d.az.adminKey != "" && strings.Contains(fmt.Sprint(c), d.az.adminKey) {
				t.Errorf("the key is an argument of az %q", c)
			}
		}
		if strings.Contains(r.stdout+r.stderr, d.az.adminKey) {
			t.Error("it prints the key")
		}
	}
	secret(d.run("Y1", []reply{noGroup}, "", "-g", group, "--yes").ends(0,
		"shortens and redirects", "sign in at "+d.az.base+"/manage with the new admin key", shows))
	first := d.az.adminKey
	if !regexp.MustCompile(`^[0-9A-Za-z]{43}$`).MatchString(first) {
		t.Errorf("the first key is %q", first)
	}
	secret(d.run("Y1", nil, "", "-g", group, "--yes").ends(0, "with the admin key, which", shows))
	if d.az.adminKey != first {
		t.Errorf("a later deployment makes the key %q of %q", d.az.adminKey, first)
	}
	// The key of somebody who likes quotes.
	d.az.adminKey = `a-"quoted\"-key-of-32-characters-or-more`
	was := d.az.adminKey
	secret(d.run("Y1", nil, "", "-g", group, "--yes").ends(0, "shortens and redirects"))
	if d.az.adminKey != was {
		t.Errorf("the key %q became %q", was, d.az.adminKey)
	}
	// A deployment that cannot read the key would remove it.
	d.run("Y1", []reply{fails("webapp config appsettings list ADMIN_KEY")}, "", "-g", group,
		"--yes").ends(3, "the admin key of site-1 cannot be read")
	d.run("Y1", nil, "", "-g", group, "--yes", "--param", "adminKey=given").ends(0,
		"with the admin key, which")
	if d.az.adminKey != "given" {
		t.Errorf("a given key becomes %q", d.az.adminKey)
	}
	d.run("Y1", nil, "", "-g", group, "--yes", "--param", "adminKey=").ends(0,
		"there is no admin key")
	file := filepath.Join(d.root, "infra", "own.json")
	d.do(os.WriteFile(file, []byte(`{"parameters":{"adminKey":{"reference":{}}}}`), 0o644))
	r := d.run("Y1", nil, "", "-g", group, "--yes", "--parameters", file).ends(0)
	if d.az.adminKey != "" || strings.Contains(fmt.Sprint(r.did(create)), "key.json") {
		t.Error("the parameters file does not win")
	}
	// Only the site can resolve this one.
	d.az.adminKey = "@Microsoft.KeyVault(SecretUri=https://vault.example/secrets/key)"
	d.run("Y1", []reply{{to: "webapp config appsettings list ADMIN_KEY", out: "=" + d.az.adminKey}},
		"", "-g", group, "--yes", "--parameters", file).ends(0, "there is no admin key")
}

// TestDeployAnnotates checks that the charts of Application Insights show each release, and that a
// deployment does not fail for that.
func TestDeployAnnotates(t *testing.T) {
	d := newDeployer(t)
	t.Parallel()
	r := d.run("Y1", nil, "", "-g", group, "--yes").ends(0)
	var annotation struct{ ID, AnnotationName, EventTime, Category, Properties string }
	if err := json.Unmarshal([]byte(d.az.annotation), &annotation); err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, annotation.EventTime)
	if c := r.did("rest Annotations")[0]; c.after("--method") != "put" || c.after("--url") !=
		"/insights/Annotations?api-version=2015-05-01" || err != nil || time.Since(at).Abs() >
		time.Hour || annotation.AnnotationName != version || annotation.Category != "Deployment" ||
		!guid.MatchString(annotation.ID) || !json.Valid([]byte(annotation.Properties)) {
		t.Errorf("%q sends %+v", c.args, annotation)
	}
	d.run("Y1", []reply{fails("rest Annotations")}, "", "-g", group, "--yes").ends(0,
		"do not show this release", "shortens and redirects")
}

func TestDeployWithPackage(t *testing.T) {
	d := newDeployer(t)
	d.do(os.Remove(filepath.Join(d.bin, "make"))) // nothing may be built
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a package.zip")
	d.do(os.WriteFile(file, []byte("tiney-windows-386 v0"), 0o644))
	r := d.run("Y1", nil, "", "-g", group, "--yes", "--package", file).ends(0, "version v0")
	if c := r.did(upload)[0]; c.after("--src") != file {
		t.Errorf("it uploads %q", c)
	}
	d.do(os.WriteFile(filepath.Join(d.root, "build", "tiney-windows-386.zip"),
		[]byte("built before"), 0o644))
	d.run("Y1", nil, "", "-g", group, "--yes", "--skip-build", "--expect", "before").ends(0,
		"version before")
	// If a package's version is not known, nobody can tell whether the package has arrived.
	d.env = briefly
	d.run("FC1", []reply{{to: upload, hang: true}}, "", "-g", group, "--yes", "--package",
		file).ends(7, "no end within the time for it")
}

func TestDeployArguments(t *testing.T) {
	d := newDeployer(t)
	t.Parallel()
	file := filepath.Join(d.root, "infra", "parameters.dev.json")
	// A value with blanks and stars arrives unchanged, and no value is printed.
	r := d.run("Y1", []reply{noGroup}, "", "-g", group, "--yes", "--location", "westeurope",
		"--parameters", file,
		"--param", "alertEmail=someone@example.com", "--param", `tags={"a": "b * c"}`).ends(0)
	for _, command := range []string{"deployment group what-if", create} {
		c := r.did(command)[0]
		for _, want := range []string{file, "location=westeurope", "alertEmail=someone@example.com",
			`tags={"a": "b * c"}`} {
			if i := slices.Index(c.args, want); i < 1 || c.args[i-1] != "--parameters" {
				t.Errorf("%s has no --parameters %s: %q", command, want, c.args)
			}
		}
	}
	again := d.run("Y1", []reply{{to: "rest sites",
		out: "site-1|s1|go.example.com,b.example.com\nsite-2|s2|\nsite-3|s3|go.example.com\n"}}, "",
		"-g", group, "--yes").ends(0)
	for _, command := range []string{"deployment group what-if", create} {
		want := `domainsWithCertificate=["site-1/go.example.com","site-1/b.example.com",` +
			`"site-3/go.example.com"]`
		if c := again.did(command)[0]; !slices.Contains(c.args, want) {
			t.Errorf("%s has no %s: %q", command, want, c.args)
		}
	}
	if strings.Contains(r.stdout+r.stderr, "someone@") {
		t.Error("it prints the value of a parameter")
	}
	if c := r.did("group create")[0]; c.after("--location") != "westeurope" ||
		c.after("--tags") != "created-by=tiney-deploy" {
		t.Errorf("the group was created by %q", c)
	}

	r = d.run("Y1", nil, "", "-g", group, "--yes", "--destroy").ends(0)
	// The name has quotes, since it is not an identifier.
	if query := r.did("group show")[0].after("--query"); query != `tags."created-by"` {
		t.Errorf("it asks for %s", query)
	}
	if c := r.did("group delete")[0]; c.after("--name") != group {
		t.Errorf("it deletes by %q", c)
	}
	if r := d.run("Y1", nil, "", "--help").ends(0); !strings.HasPrefix(r.stdout,
		"usage: infra/deploy.sh -g GROUP") || len(r.calls) > 0 {
		t.Errorf("its help is %q", r.stdout)
	}
	d.run("Y1", nil, "", "--yes").ends(2, "--resource-group is needed")
}

// A custom domain does not lead to the site before its DNS record exists. The names that Azure gave
// do, with TLS.
func TestDeployBeforeDNSRecord(t *testing.T) {
	d := newDeployer(t)
	t.Parallel()
	server := httptest.NewTLSServer(d.az)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	d.do(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: server.Certificate().Raw}), 0o644))
	d.env = []string{"CURL_CA_BUNDLE=" + file}
	d.az.base, d.az.shortBase = "http://127.0.0.1:1", "http://127.0.0.1:1"
	d.az.frontDoorName = strings.TrimPrefix(server.URL, "https://")
	r := d.run("Y1", nil, "", "-g", group, "--yes").ends(0, "responds at "+server.URL,
		"http://127.0.0.1:1 does not yet", "DNS")
	if !strings.HasSuffix(r.stdout, "http://127.0.0.1:1\n") {
		t.Errorf("it prints %q", r.stdout)
	}
}

// TestDeployDNSRecords checks that it says which DNS records each domain needs, and that it goes on
// where it cannot know.
func TestDeployDNSRecords(t *testing.T) {
	d := newDeployer(t)
	t.Parallel()
	const records = "DNS records of "
	d.az.hostName = "site-1.example"
	r := d.run("Y1", nil, "", "-g", group, "--yes").ends(0, records+
		"DOMAIN: CNAME DOMAIN site-1.example, TXT asuid.DOMAIN AB12\n")
	if n := strings.Count(r.stderr, records); n != 1 {
		t.Errorf("it tells %d times of records, and there is no domain", n)
	}
	d.az.domains = "go.example.com a.example.org"
	r = d.run("FC1", nil, "", "-g", group, "--yes").ends(0, records+
		"go.example.com: CNAME go.example.com site-1.example, TXT asuid.go.example.com AB12\n",
		records+"a.example.org: CNAME a.example.org site-1.example, TXT asuid.a.example.org AB12\n")
	if len(r.did("afd custom-domain list")) > 0 {
		t.Error("it asks a Front Door that is not there")
	}
	d.az.domains = "" // F1 takes none without Front Door
	if r = d.run("F1", nil, "", "-g", group, "--yes").ends(0); strings.Contains(r.stderr, records) {
		t.Errorf("on F1 it says %s", r.stderr)
	}
	d.az.domains, d.az.frontDoor, d.az.frontDoorName = "go.example.com a.example.org", "edge-1",
		"e.azurefd.net"
	r = d.run("F1", []reply{{to: "afd custom-domain list",
		out: "go.example.com\tApproved\tNone\r\na.example.org\tPending\t_t0k3n\r\n"}}, "", "-g", group,
		"--yes").ends(0,
		records+"go.example.com, which is Approved: CNAME go.example.com e.azurefd.net\n",
		records+"a.example.org, which is Pending: CNAME a.example.org e.azurefd.net, "+
			"TXT _dnsauth.a.example.org _t0k3n\n")
	if c := r.did("afd custom-domain list")[0]; c.after("--profile-name") != "edge-1" ||
		c.after("--resource-group") != group {
		t.Errorf("it asks for the domains by %q", c)
	}
	d.run("Y1", []reply{fails("afd custom-domain list")}, "", "-g", group, "--yes").ends(0,
		"the DNS records of the domains are not known")
}

// TestDeployRealPackage runs deploy.sh with the package of this tree. The uploaded package is
// unpacked and run unchanged, on Azurite. The version that deploy.sh expects must be the one that
// the build gives.
func TestDeployRealPackage(t *testing.T) {
	testutil.NotShort(t)
	d := newDeployer(t)
	tree, err := filepath.Abs("..")
	d.do(err)
	d.tool("git", fmt.Sprintf(`shift 2; PATH='%s' git -C '%s' "$@"`, os.Getenv("PATH"), tree))
	d.tool("make", fmt.Sprintf(`cd '%s' && PATH='%s' go run ./internal/tools/pack/cmd -os %s -arch %s `+
		`-zip "$2/build/tiney-linux-amd64.zip"`,
		tree, os.Getenv("PATH"), runtime.GOOS, runtime.GOARCH))
	d.env = append(os.Environ(), "PATH="+d.bin) // Go finds its caches by it
	t.Parallel()
	storage, err := azurite.StartAnywhere(t.Context())
	d.do(err)
	defer storage.Stop()
	free, err := freeport.Find()
	d.do(err)
	port := strconv.Itoa(free)
	d.az.base = "http://127.0.0.1:" + port
	d.az.start = func(data []byte) error {
		dir := t.TempDir()
		archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return err
		}
		if err := errors.Join(os.CopyFS(dir, archive), os.Chmod(filepath.Join(dir, "handler"),
			0o755)); err != nil {
			return err
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "handler"))
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, t.Output(), t.Output()
		cmd.Env = []string{"PORT=" + port, "BaseUrl=" + d.az.base, "AzureWebJobsStorage=" +
			storage.ConnectionString(), "SHORTEN_ACCESS=owners", "ADMIN_KEY=" + d.az.adminKey}
		t.Cleanup(func() { cmd.Wait() })
		return cmd.Start()
	}
	d.run("FC1", nil, "", "-g", group, "--yes").ends(0, "shortens and redirects")
}

// TestDocsCanBePasted pastes the commands in the docs into an interactive shell. Such a shell
// treats lines differently from a script's: bash expands !, and zsh knows no comments and refuses
// patterns without a match. The two options make bash do the same as zsh.
func TestDocsCanBePasted(t *testing.T) {
	d := newDeployer(t)
	t.Parallel()
	log := filepath.Join(d.root, "log")
	for _, name := range []string{"az", "gh", "curl", "make", "git", "openssl", "handler", "docker",
		"azd"} {
		d.tool(name, fmt.Sprintf(`printf '%%s\n' "$0 $*" >>'%s'`, log))
	}
	deploy := fmt.Sprintf(`deploy() { printf '%%s\n' "deploy.sh $*" >>'%s'; }`, log)
	for _, file := range []string{"../docs/deployment.md", operations} {
		for _, block := range matches(t, read(t, file), "(?ms)^ *```sh\n(.*?)^ *```$") {
			d.do(os.WriteFile(log, nil, 0o644))
			block = regexp.MustCompile(`\S*infra/deploy\.sh`).ReplaceAllString(block, "deploy")
			cmd := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-i")
			cmd.Dir, cmd.Env = d.root, []string{"PATH=" + d.bin, "HOME=" + d.root, "PS1="}
			cmd.Stdin = strings.NewReader(deploy +
				"\nshopt -u interactive_comments\nshopt -s failglob\n" + block)
			said, _ := cmd.CombinedOutput()
			if wrong := regexp.MustCompile(
				`.*(not found|no match|syntax error|unexpected|No such file).*`).Find(
				said); wrong != nil {
				t.Errorf("%s: pasting\n%ssays %s", file, block, wrong)
			}
			if ran := read(t, log); ran == "" || strings.Contains(ran, " #") {
				t.Errorf("%s: in zsh, which knows no comments when typing, pasting\n%sruns %s",
					file, block, ran)
			}
		}
	}
}

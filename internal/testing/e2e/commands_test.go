package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
)

// subcommand returns a command that runs the executable with arguments. It has only the settings of
// links.
func (s *site) subcommand(connectionString string, args ...string) (cmd *exec.Cmd, stdout,
	stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.Command(filepath.Join(s.app, "handler"), args...)
	// Somebody with the connection string need not have the other settings. The executable would
	// look for the lock's connection under AzureWebJobsStorage.
	cmd.Env = s.environment("", "TABLE_CONNECTION="+connectionString, "ADMIN_KEY=")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// runs runs a subcommand to its end, with the given text as stdin.
func (s *site) runs(connectionString, stdin string, args ...string) (stdout, stderr string,
	exit int) {
	s.t.Helper()
	cmd, out, errs := s.subcommand(connectionString, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// wantRun runs a subcommand to its end, and checks its exit code and its output. It returns stdout.
func (s *site) wantRun(exit int, stdout, stderr string, args ...string) string {
	s.t.Helper()
	return s.wantRunOn(emulator.ConnectionString(), exit, stdout, stderr, args...)
}

func (s *site) wantRunOn(connectionString string, exit int, stdout, stderr string,
	args ...string) string {
	s.t.Helper()
	out, errs, got := s.runs(connectionString, "", args...)
	if got != exit || !regexp.MustCompile("^(?s:"+stdout+")$").MatchString(out) ||
		!regexp.MustCompile("^(?s:"+stderr+")$").MatchString(errs) {
		s.t.Errorf("%s: exit %d\n%s\n%s", strings.Join(args, " "), got, out, errs)
	}
	return out
}

func TestKeysOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.standalone(emulator.ConnectionString())
	const columns = `ID +ENDS IN +OWNER +NAME +MADE +EXPIRES +LAST USED +ACCESS\n`
	s.wantRun(0, columns, "", "keys", "list")
	key := strings.TrimSpace(s.wantRun(0, `tny_\w{49}\n`, "", "keys", "create", "-name",
		"laptop of Ada", "-owner", "ada", "-expires", "2096-01-31T00:00:00+01:00"))
	ada := caller{t, p.url, key}
	if me := ada.must(200, "GET", "/api/me", ""); me["owner"] != "ada" ||
		me["name"] != "laptop of Ada" {
		t.Errorf("got %v", me)
	}
	list := s.wantRun(0, columns+`[0-9a-f]{16}  `+key[len(key)-4:]+
		` +ada +laptop of Ada +20\S+Z +2096-01-30T23:00:00Z +(never|20\S{8}) +write\n`, "", "keys", "list")
	id := regexp.MustCompile(`(?m)^[0-9a-f]{16}`).FindString(list)
	s.wantRun(0, "", "", "keys", "revoke", id)
	testutil.Eventually(t, "the key is refused", func() bool {
		return ada.send("GET", "/api/me", "").Status == 401
	})
	s.wantRun(1, "", "no key has this id.*\n", "keys", "revoke", id)
	reader := caller{t, p.url, strings.TrimSpace(s.wantRun(0, `tny_\w{49}\n`, "", "keys", "create",
		"-name", "x", "-owner", "ada", "-access", "read"))}
	if got := reader.send("POST", "/api/shorten", `{"longUrl":"https://example.com/"}`); got.Status !=
		403 || reader.must(200, "GET", "/api/me", "")["access"] != "read" {
		t.Errorf("a key that may only read: %+v", got)
	}
	if strings.Contains(p.output.String(), key) {
		t.Error("the key is in the log")
	}
}

func TestCheckOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// With clicks on, there would be a table of today.
	p := s.standalone(emulator.ConnectionString(), "CLICKS=off")
	l := mustShorten(t, p.url, "https://example.com/page")
	lost := link.Link{Name: "lost", LongURL: "https://example.com/lost", CreatedAt: time.Now(),
		ExpiresAt: time.Now().Add(time.Hour).Truncate(time.Second)}
	s.PutLink(lost)
	s.Drop(s.Expiry, rawtables.Expiry(lost))
	s.Put(s.Links, rawtables.Entity{"PartitionKey": "no", "RowKey": "no alias"})
	const read = `\d+ rows of 7 tables were read in \ds\. `
	s.wantRun(0, read+`Found: 0\. Mended: 0\.\nSkipped: 2 rows\. .*\n`, "", "check", "-repair")
	// Nobody waits for two minutes until the rows are old enough to be judged.
	old := s.older(3 * time.Minute)
	later := func(exit int, stdout, stderr string, args ...string) {
		t.Helper()
		s.wantRunOn(old, exit, stdout, stderr, args...)
	}
	const damaged = `link-damaged           E\d+ShortUrls  no / no alias: its RowKey is no alias`
	missing := `link-without-expiry    E\d+ShortUrls  lo / lost: ` +
		`it has no expiry row for its end, ` + lost.ExpiresAt.UTC().Format(time.RFC3339)
	later(1, `(`+damaged+`|`+missing+`|\n)+`+read+`Found: 2\. Mended: 0\.\n`,
		`2 rows are damaged .*-repair.*\n`, "check")
	later(1, `(`+damaged+` \(left: the right value is unknown\)|`+missing+` \(mended\)|\n)+`+read+
		`Found: 2\. Mended: 1\.\n`, `1 of 2 are not mended.*\n`, "check", "-repair")
	s.Drop(s.Links, rawtables.Entity{"PartitionKey": "no", "RowKey": "no alias"})
	later(0, read+`Found: 0\. Mended: 0\.\n`, "", "check", "-repair")
	for _, alias := range []string{l.Alias, "lost"} {
		if got := get(t, p.url+"/"+alias); got.Status != 302 {
			t.Errorf("%s: got %d", alias, got.Status)
		}
	}
	s.DropTable(s.Owners)
	s.wantRun(1, "", "the check is not complete: these tables do not exist: "+s.Owners+`\..*\n`,
		"check")
}

var timestamp = regexp.MustCompile(`"Timestamp":"([^"]+)"`)

// older returns a connection to the tables by which rows were written so much earlier.
func (s *site) older(by time.Duration) (connectionString string) {
	tables := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", emulator.Table)})
			r.Out.Header.Set("Accept-Encoding", "identity")
		},
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			body = timestamp.ReplaceAllFunc(body, func(written []byte) []byte {
				at, err := time.Parse(time.RFC3339, string(timestamp.FindSubmatch(written)[1]))
				if err != nil {
					s.t.Error(err)
				}
				return []byte(`"Timestamp":"` + at.Add(-by).Format(time.RFC3339Nano) + `"`)
			})
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			return err
		}})
	s.t.Cleanup(tables.Close)
	ports := emulator
	ports.Table = tables.Listener.Addr().(*net.TCPAddr).Port
	return ports.ConnectionString()
}

// Links that only one spelling leads to are listed where case does not matter. So are those of a
// domain that has become BaseUrl's. They are no damage.
func TestCheckNamesHiddenLinks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := emulator.ConnectionString()
	if _, stderr, exit := s.runs(direct, "alias,longUrl,domain\n"+
		"Docs,https://example.com/1,\n"+
		"docs,https://example.com/2,\n"+
		"mAIL,https://example.com/3,go.example\n"+
		"plain-1,https://example.com/4,go.example\n", "import", "-format", "csv"); exit != 0 {
		t.Fatal(stderr)
	}
	end := time.Now().Add(time.Hour)
	s.Put(s.Links, rawtables.Link(link.Link{Name: "OLD", GoneReason: link.StateDeleted, GoneAt: end}))
	s.Put(s.Expiry, rawtables.Due("OLD", end))
	const capitals = " was made before ALIAS_CASE was insensitive, and is found in this spelling only."
	const gone = "OLD is the alias of a removed link, from before ALIAS_CASE was insensitive. " +
		"Until it is dropped, this spelling leads to no other link."
	const stranded = "@go.example cannot be reached: its domain is BaseUrl's now. " +
		"docs/moving.md says how to move it."
	for set, want := range map[string][]string{
		"ALIAS_CASE=sensitive":       nil,
		"ALIAS_CASE=insensitive":     {"Docs" + capitals, gone, "mAIL@go.example" + capitals},
		"BaseUrl=http://Go.example/": {"mAIL" + stranded, "plain-1" + stranded},
	} {
		cmd, out, stderr := s.subcommand(direct, "check")
		cmd.Env = append(cmd.Env, set)
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s%s", err, out, stderr)
		}
		var noted []string
		for line := range strings.SplitSeq(out.String(), "\n") {
			if note, is := strings.CutPrefix(line, "No damage: "); is {
				noted = append(noted, note)
			}
		}
		if slices.Sort(noted); !slices.Equal(noted, want) {
			t.Errorf("%s: noted are\n%q, want\n%q", set, noted, want)
		}
	}
	// Those of the domain are moved by export and import.
	export, out, _ := s.subcommand(direct, "export")
	move, moved, stderr := s.subcommand(direct, "import", "-domain", "go.example")
	for _, cmd := range []*exec.Cmd{export, move} {
		cmd.Env = append(cmd.Env, "BaseUrl=http://go.example")
	}
	if err := export.Run(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, `"domain":"go.example"`) {
			move.Stdin = strings.NewReader(line)
			break
		}
	}
	if err := move.Run(); err != nil || !strings.HasPrefix(stderr.String(), "1 links were made") {
		t.Errorf("%v: %s%s", err, moved, stderr)
	}
}

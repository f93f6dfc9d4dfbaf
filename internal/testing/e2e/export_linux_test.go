package e2e

import (
	"bufio"
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"tiney/internal/testing/testutil"
)

// endless is a double of the table service with the given number of links and their click totals.
// It can only be read, and has no other rows. Azurite would take hours to hold as many links.
type endless struct{ links int }

const linksAPartition = 2000

func aliasOf(i int) string {
	p := i / linksAPartition
	return fmt.Sprintf("%c%c%04d", 'a'+p/26, 'a'+p%26, i%linksAPartition)
}

// key matches the last segment of a URL of one row.
var key = regexp.MustCompile(`^(\w+)\(PartitionKey='(\w+)',RowKey='([a-z]{2}\d{4})'\)$`)

var conditions = regexp.MustCompile(`(PartitionKey|RowKey) (eq|ge|gt|le|lt) '([^']*)'`)

func (e endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	table := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if m := key.FindStringSubmatch(table); m != nil && m[1] == "ShortUrlsClickTotals" {
		n, _ := strconv.Atoi(m[3][2:])
		fmt.Fprintf(w, `{"PartitionKey":%q,"RowKey":%q,"Clicks":"%d","Bots":"0",`+
			`"TookMicroseconds":"0","Through":"20260101"}`, m[2], m[3],
			(int(m[3][0]-'a')*26+int(m[3][1]-'a'))*linksAPartition+n)
		return
	}
	if table != "Tables" && !strings.HasSuffix(table, "()") {
		w.Header().Set("x-ms-error-code", "ResourceNotFound")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"odata.error":{"code":"ResourceNotFound",`+
			`"message":{"lang":"en-US","value":"x"}}}`)
		return
	}
	out := bufio.NewWriter(w)
	defer out.Flush()
	fmt.Fprint(out, `{"odata.metadata":"x","value":[`)
	defer fmt.Fprint(out, `]}`)
	if table != "ShortUrls()" {
		return
	}
	filter := conditions.FindAllStringSubmatch(r.URL.Query().Get("$filter"), -1)
	top, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("$top"), "1000"))
	if err != nil || filter == nil {
		panic(r.URL)
	}
	// matches compares a link with the filter. It returns 0 for a match, -1 for a link before the
	// matching ones, and 1 for a link after them.
	matches := func(i int) int {
		key := map[string]string{"PartitionKey": aliasOf(i)[:2], "RowKey": aliasOf(i)}
		for _, c := range filter {
			switch n := strings.Compare(key[c[1]], c[3]); {
			case n < 0 && c[2] != "le" && c[2] != "lt", n == 0 && c[2] == "gt":
				return -1
			case n > 0 && c[2] != "ge" && c[2] != "gt", n == 0 && c[2] == "lt":
				return 1
			}
		}
		return 0
	}
	first := sort.Search(e.links, func(i int) bool { return matches(i) >= 0 })
	for i := first; i < min(e.links, first+top) && matches(i) == 0; i++ {
		if i > first {
			out.WriteByte(',')
		}
		a := aliasOf(i)
		fmt.Fprintf(out, `{"PartitionKey":%q,"RowKey":%q,"LongUrl":`+
			`"https://example.com/a/path/of/some/length?id=%d",`+
			`"CreatedAtUtc":"2026-01-02T03:04:05Z","IsDisabled":false,"Owner":"ann"}`,
			a[:2], a, i)
	}
}

// An export of many links takes no more memory than one of few, and has all of them.
func TestExportOfManyLinks(t *testing.T) {
	testutil.NotShort(t)
	executable := filepath.Join(deploy(t), "handler")
	exported := func(links int) (peak int) {
		tables := httptest.NewServer(endless{links})
		defer tables.Close()
		cmd := exec.Command(executable, "export")
		// With little garbage, links that stay in memory show sooner. The totals of each link take
		// a call, so that many links take long.
		cmd.Env = []string{"GOGC=20", "AzureWebJobsStorage=AccountName=x;AccountKey=eA==;TableEndpoint=" +
			tables.URL + "/x", "BaseUrl=https://tiney.to"}
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for lines := bufio.NewScanner(out); lines.Scan(); n++ {
			if a, line := aliasOf(n), lines.Text(); !strings.HasPrefix(line, `{"alias":"`+a+`",`) ||
				!strings.Contains(line, fmt.Sprintf(`"clicks":%d,`, n)) {
				t.Fatalf("line %d: got %s, want %s", n+1, line, a)
			}
			if n%1000 == 0 {
				peak = max(peak, testutil.Memory(t, cmd.Process.Pid, "VmHWM")>>10)
			}
		}
		if err := cmd.Wait(); err != nil || n != links {
			t.Fatalf("%d of %d links, %v", n, links, err)
		}
		t.Logf("%d links: %d MB at most, %v of the processor", links, peak,
			cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		return peak
	}
	few, many := exported(5_000), exported(50_000)
	// Garbage that is not collected yet takes some, with the race detector tens of MB.
	if many > 2*few {
		t.Errorf("%d MB for 50,000 links, %d for 5,000", many, few)
	}
}

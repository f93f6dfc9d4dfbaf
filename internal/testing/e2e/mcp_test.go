package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/testing/openapi"
	"tiney/internal/testing/testutil"
)

// Clients from elsewhere call every tool, behind the Functions host and without it.
func TestMCPClients(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := emulator.ConnectionString()
	for name, base := range map[string]string{"alone": s.standalone(direct).url,
		"behind a host that forwards": s.hosted(false, direct).URL(),
		"behind a host that proxies":  s.hosted(true, direct).URL()} {
		awaitReady(t, base)
		for client, revision := range map[string]string{"@modelcontextprotocol/sdk": "",
			"@modelcontextprotocol/client": "2026-07-28"} {
			command := exec.CommandContext(t.Context(), "node", "../mcp/client.mjs", client,
				base+"/api/mcp", adminKey)
			command.Stderr = os.Stderr
			out, err := command.Output()
			var got struct {
				Protocol     string
				Capabilities map[string]map[string]any
				Tools        []string
				Results      []struct {
					Tool    string
					IsError bool
					Content []struct{ Text string }
				}
			}
			if err == nil {
				err = json.Unmarshal(out, &got)
			}
			if err != nil || got.Protocol != revision || len(got.Tools) != 8 || got.Capabilities["tools"] == nil ||
				len(got.Capabilities["tools"]) > 0 {
				t.Errorf("%s: %s: %s, %v", name, client, out, err)
				continue
			}
			var results []string
			for _, r := range got.Results {
				var text struct{ Type string }
				_ = json.Unmarshal([]byte(r.Content[0].Text), &text)
				results = append(results, fmt.Sprint(r.Tool, " ", r.IsError, " ", text.Type))
			}
			const want = "shorten false \ngetLink false \neditLink false \n" +
				"editLink true /problems/precondition\nlistLinks false \n" +
				"getLinkStatistics false \ngetTopLinks false \ndeleteLink false \n" +
				"restoreLink false \ngetLink true /problems/not-found"
			if got := strings.Join(results, "\n"); got != want {
				t.Errorf("%s: %s: got %s\n%s", name, client, got, out)
			}
		}
	}
}

// While storage takes connections and never responds, each route and each tool says so in time.
// Those that need no storage respond as ever.
func TestEveryCallWhileStorageHangs(t *testing.T) {
	t.Parallel()
	document, err := openapi.Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	n := newNetwork(t, s.proxy().Ports())
	p := s.standalone(n.connectionString(), "RATE_API=0", "RATE_SHORTEN=0", "RATE_UNKNOWN=0")
	awaitReady(t, p.url)
	type call struct{ name, method, target, body string }
	var calls []call
	bodies := map[string]string{
		"shorten": `{"longUrl":"https://example.com/"}`, "editLink": `{"title":"x"}`,
		"bulkShorten":  `{"links":[{"longUrl":"https://example.com/"}]}`,
		"claimLinks":   `{"claims":[{"alias":"abc","claimToken":"tnc_x"}]}`,
		"importLinks":  `{"longUrl":"https://example.com/","alias":"abc"}`,
		"createApiKey": `{"name":"x","owner":"ann"}`,
		"callMcp":      `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		"submitForm":   "longUrl=example.com",
	}
	samples := strings.NewReplacer("{alias}", "abc", "{rest}", "x", "{name}", "x", "{id}",
		"0123456789abcdef", "{host}", "example.org")
	for path, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			target := samples.Replace(path)
			if o.OperationID == "getClicks" {
				target += "?alias=abc"
			}
			calls = append(calls, call{o.OperationID, method, target, bodies[o.OperationID]})
		}
	}
	for tool, arguments := range map[string]string{"shorten": `"longUrl":"https://example.com/"`,
		"listLinks": "", "getLink": `"alias":"abc"`, "editLink": `"alias":"abc","title":"x"`,
		"deleteLink": `"alias":"abc"`, "restoreLink": `"alias":"abc"`,
		"getLinkStatistics": `"alias":"abc"`, "getTopLinks": ""} {
		calls = append(calls, call{"tool " + tool, "POST", "/api/mcp", `{"jsonrpc":"2.0","id":1,` +
			`"method":"tools/call","params":{"name":"` + tool + `","arguments":{` + arguments + `}}}`})
	}
	n.impaired.Store(int32(frozen))
	time.Sleep(1100 * time.Millisecond) // readiness is known for a second
	idle := []string{"showHome", "showManagePage", "getAsset", "getFavicon", "getRobots", "getQrCode",
		"listDomains", "callMcp", "getCaller", "getHealth", "getOpenApi"}
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() {
			header := []string{"X-Api-Key", adminKey}
			if c.name == "submitForm" {
				header = []string{"Content-Type", "application/x-www-form-urlencoded", "Accept",
					"text/html"}
			} else if c.method == "PATCH" {
				header = append(header, "Content-Type", "application/json")
			}
			begun := time.Now()
			got, err := testutil.Send(c.method, p.url+c.target, c.body, header...)
			took := time.Since(begun)
			silent := got.Body == "" && got.Status != http.StatusNoContent && c.method != "HEAD"
			right := got.Status == 503
			switch {
			case strings.HasPrefix(c.name, "tool "):
				right = got.Status == 200 && strings.Contains(got.Body, `"isError":true`) &&
					strings.Contains(got.Body, "does not respond")
			case slices.Contains(idle, c.name):
				right = got.Status < 500
			case c.name == "bulkShorten", c.name == "importLinks": // not both at once
				right = strings.Contains(got.Body, "storage-unavailable") ||
					strings.Contains(got.Body, "/problems/busy")
			}
			if err != nil || silent || !right || took > 25*time.Second {
				t.Errorf("%s: %d after %v, %v: %.300s", c.name, got.Status, took, err, got.Body)
			}
		})
	}
	all.Wait()
	if len(calls) < 45 {
		t.Errorf("only %d calls", len(calls))
	}
}

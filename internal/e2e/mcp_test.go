package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
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

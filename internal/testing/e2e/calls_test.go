package e2e

import (
	"strings"
	"testing"

	"tiney/internal/testing/openapi"
	"tiney/internal/testing/testutil"
)

// call is a request of an operation in the API's description, or of a tool of assistants.
type call struct{ name, method, target, body string }

// everyCall returns a call of each operation, and of each tool. Their long URLs, titles, tags and
// queries contain the secret.
func everyCall(t *testing.T) (calls []call) {
	t.Helper()
	document, err := openapi.Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	const link = `"longUrl":"https://example.com/` + secret + `","title":"` + secret +
		`","tags":["` + secret + `"]`
	bodies := map[string]string{
		"shorten": `{` + link + `}`, "editLink": `{` + link + `}`,
		"bulkShorten":  `{"links":[{` + link + `}]}`,
		"bulkEdit":     `{"links":[{"alias":"abc",` + link + `}]}`,
		"claimLinks":   `{"claims":[{"alias":"abc","claimToken":"tnc_` + secret + `"}]}`,
		"importLinks":  `{"alias":"abc",` + link + `}`,
		"createApiKey": `{"name":"x","owner":"ann"}`,
		"callMcp":      `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		"submitForm":   "longUrl=example.com/" + secret,
	}
	samples := strings.NewReplacer("{alias}", "abc", "{rest}", secret, "{name}", "x", "{id}",
		"0123456789abcdef", "{host}", "example.org")
	queries := map[string]string{"getClicks": "alias=abc&", "getTopLinks": "window=7d&"}
	for path, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			calls = append(calls, call{o.OperationID, method, samples.Replace(path) + "?" +
				queries[o.OperationID] + "q=" + secret + "&tag=" + secret, bodies[o.OperationID]})
		}
	}
	for tool, arguments := range map[string]string{"shorten": link, "listLinks": `"q":"` + secret +
		`"`, "getLink": `"alias":"abc"`, "editLink": `"alias":"abc",` + link,
		"deleteLink": `"alias":"abc"`, "restoreLink": `"alias":"abc"`,
		"getLinkStatistics": `"alias":"abc"`, "getTopLinks": ""} {
		calls = append(calls, call{"tool " + tool, "POST", "/api/mcp", `{"jsonrpc":"2.0","id":1,` +
			`"method":"tools/call","params":{"name":"` + tool + `","arguments":{` + arguments + `}}}`})
	}
	if len(calls) < 45 {
		t.Errorf("only %d calls", len(calls))
	}
	return calls
}

// send sends a call with a credential.
func (c call) send(base, token string) (testutil.Response, error) {
	var headers []string
	if token != "" {
		headers = []string{"Authorization", "Bearer " + token}
	}
	if c.name == "submitForm" {
		headers = []string{"Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html"}
	} else if c.method == "PATCH" {
		headers = append(headers, "Content-Type", "application/json")
	}
	return testutil.Send(c.method, base+c.target, c.body, headers...)
}

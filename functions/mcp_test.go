package functions_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"tiney/access"
	"tiney/functions"
	"tiney/link"
)

// message sends a message to the MCP endpoint.
func (r *rig) message(who, body string, header ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	return r.as(who, "POST", "/api/mcp", body, append([]string{"Content-Type", "application/json",
		"Accept", "application/json, text/event-stream"}, header...)...)
}

type toolResult struct {
	IsError           bool
	StructuredContent map[string]any
	Content           []struct{ Type, Text string }
}

// calls calls a tool. It returns the result, and its text as JSON.
func (r *rig) calls(who, tool, arguments string) (toolResult, map[string]any) {
	r.t.Helper()
	w := r.message(who, fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call",`+
		`"params":{"name":%q,"arguments":%s}}`, tool, arguments),
		"Mcp-Protocol-Version", "2025-06-18")
	var answer struct {
		ID     int
		Result *toolResult
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 ||
		answer.Result == nil || len(answer.Result.Content) != 1 || answer.ID != 7 {
		r.t.Fatalf("%s %s: got %d %v %s, %v", tool, arguments, w.Code, w.Header(), w.Body, err)
	}
	var text map[string]any
	_ = json.Unmarshal([]byte(answer.Result.Content[0].Text), &text)
	return *answer.Result, text
}

func TestToolsCallTheAPI(t *testing.T) {
	r := newRig(t)
	made, text := r.calls("ann", "shorten",
		`{"longUrl":"https://example.com/a","alias":"docs","tags":["a","b"]}`)
	if made.IsError || made.StructuredContent["alias"] != "docs" ||
		text["shortUrl"] != "https://tiney.to/docs" {
		t.Errorf("shorten: %+v", made)
	}
	got, _ := r.calls("ann", "getLink", `{"alias":"docs"}`)
	etag, _ := got.StructuredContent["etag"].(string)
	if got.IsError || etag == "" || got.StructuredContent["owner"] != "ann" {
		t.Errorf("getLink: %+v", got)
	}
	edited, _ := r.calls("ann", "editLink",
		fmt.Sprintf(`{"alias":"docs","title":"Docs","ifMatch":%q}`, etag))
	if edited.IsError || edited.StructuredContent["title"] != "Docs" ||
		edited.StructuredContent["etag"] == etag {
		t.Errorf("editLink: %+v", edited)
	}
	if again, text := r.calls("ann", "editLink",
		fmt.Sprintf(`{"alias":"docs","title":null,"ifMatch":%q}`, etag)); !again.IsError ||
		text["type"] != "/problems/precondition" || again.StructuredContent != nil {
		t.Errorf("an edit of an older link: %+v", again)
	}
	for arguments, want := range map[string]int{`{}`: 1, `{"q":"docs example"}`: 1,
		`{"tag":["a","B"],"limit":1}`: 1, `{"tag":"c"}`: 0, `{"state":null}`: 1} {
		list, _ := r.calls("ann", "listLinks", arguments)
		if items, _ := list.StructuredContent["items"].([]any); list.IsError || len(items) != want {
			t.Errorf("listLinks %s: %+v", arguments, list)
		}
	}
	for _, tool := range []string{"getLinkStatistics", "getTopLinks"} {
		if got, _ := r.calls("ann", tool, `{"alias":"docs"}`); got.IsError ||
			got.StructuredContent == nil {
			t.Errorf("%s: %+v", tool, got)
		}
	}
	deleted, _ := r.calls("ann", "deleteLink", `{"alias":"docs"}`)
	if deleted.IsError || deleted.Content[0].Text != "Done." || deleted.StructuredContent != nil {
		t.Errorf("deleteLink: %+v", deleted)
	}
	if restored, _ := r.calls("ann", "restoreLink", `{"alias":"docs"}`); restored.IsError ||
		restored.StructuredContent["deletedAtUtc"] != nil {
		t.Errorf("restoreLink: %+v", restored)
	}
}

// What is wrong with a call is the problem that a request would get.
func TestToolsRefuseWhatTheAPIRefuses(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "bobs", LongURL: "https://example.com/", Owner: "bob"})
	r.fake.Put(link.Link{Name: "anns", LongURL: "https://example.com/", Owner: "ann"})
	for call, want := range map[string]string{
		`shorten {"longUrl":"ftp://x"}`:                        "400 long-url",
		`shorten {"longUrl":5}`:                                "400 long-url",
		`shorten {}`:                                           "400 long-url",
		`shorten {"longUrl":"https://e.example/","nope":1}`:    "400 body",
		`shorten {"longUrl":"https://e.example/","owner":"b"}`: "403 forbidden",
		`getLink {"alias":"bobs"}`:                             "404 not-found",
		`getLink {"alias":"unknown"}`:                          "404 not-found",
		`getLink {"alias":"anns/stats"}`:                       "404 not-found",
		`getLink {"alias":"anns?x=y"}`:                         "404 not-found",
		`getLink {"alias":"../keys"}`:                          "404 not-found",
		`getLink {"alias":"anns%2fqr"}`:                        "404 not-found",
		`getLink {"alias":["anns","bobs"]}`:                    "404 not-found",
		`getLink {"alias":{}}`:                                 "404 not-found",
		`getLink {"alias":null}`:                               "404 not-found",
		`getLink {}`:                                           "404 not-found",
		`editLink {"alias":"anns","alias2":"x"}`:               "400 body",
		`editLink {"alias":"anns","ifMatch":"x"}`:              "400 if-match",
		`listLinks {"limit":0}`:                                "400 parameter",
		`listLinks {"limit":[1,2]}`:                            "400 parameter",
		`listLinks {"owner":"bob"}`:                            "403 forbidden",
		`restoreLink {"alias":"anns"}`:                         "409 link-not-deleted",
		`getLinkStatistics {"alias":"anns","interval":"x"}`:    "400 parameter",
	} {
		tool, arguments, _ := strings.Cut(call, " ")
		result, problem := r.calls("ann", tool, arguments)
		kind, _ := problem["type"].(string)
		if got := fmt.Sprintf("%v %s", problem["status"], strings.TrimPrefix(kind,
			"/problems/")); !result.IsError || result.StructuredContent != nil || got != want {
			t.Errorf("%s: got %s, want %s: %+v", call, got, want, result)
		}
	}
	r.fake.Fail(link.ErrUnavailable)
	if _, problem := r.calls("ann", "getLink", `{"alias":"anns"}`); problem["status"] != 503.0 {
		t.Errorf("while storage is down: %v", problem)
	}
}

// What is refused before a message is read is a problem. What is wrong with a message is an error
// of JSON-RPC.
func TestMessagesThatAreRefused(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.Rates = access.Rates{access.LimitAPI: 30} })
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	token, _ := claimToken(t)
	for _, body := range []string{ping, "[]", "", "{", `{"jsonrpc":"2.0","method":"initialize"}`} {
		w := r.message("", body)
		wantProblem(t, w, 401, "credentials-missing", "")
		if w.Header().Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%q: %v", body, w.Header())
		}
	}
	wantProblem(t, r.message("tny_x", ping), 401, "credentials-invalid", "")
	wantProblem(t, r.message(token, ping), 403, "owner-needed", "")
	for _, origin := range []string{"null", "https://evil.example", "https://tiney.to.evil.example",
		"http://tiney.to", "https://tiney.to/", ""} {
		wantProblem(t, r.message("ann", ping, "Origin", origin), 403, "cross-site", "")
	}
	for _, method := range []string{"GET", "DELETE", "PUT"} {
		w := r.as("ann", method, "/api/mcp", "")
		wantProblem(t, w, 405, "method", "")
		if !strings.Contains(w.Header().Get("Allow"), "POST") {
			t.Errorf("%s: %v", method, w.Header())
		}
	}
	if w := r.as("", "OPTIONS", "/api/mcp", ""); w.Code != 204 {
		t.Errorf("OPTIONS: %d", w.Code)
	}
	wantProblem(t, r.message("ann", "["+ping+"]"), 400, "body", "")
	wantProblem(t, r.message("ann", `"x"`), 400, "body", "")
	wantProblem(t, r.message("ann", ping+strings.Repeat(" ", 16<<10)), 413, "body-too-large", "")
	wantProblem(t, r.message("ann", ping, "Accept", "text/html"), 406, "not-acceptable", "")
	wantProblem(t, r.message("ann", ping, "Content-Type", "text/plain"), 415, "media-type", "")
	wantProblem(t, r.message("ann", ping, "Mcp-Protocol-Version", "2024-11-05"), 400,
		"protocol-version", "")
	for body, code := range map[string]float64{
		"{": -32700, `{"id":1}`: -32600, "{}": -32600,
		`{"jsonrpc":"2.0","id":1,"method":"nope"}`:                                    -32601,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nope"}}`:     -32602,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"listKeys"}}`: -32602,
	} {
		w := r.message("bob", body)
		var answer struct{ Error struct{ Code float64 } }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil ||
			answer.Error.Code != code || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %d %v %s", body, w.Code, w.Header(), w.Body)
		}
	}
	// Accepted: without an Origin, with one of the service's own, and with a notification.
	if w := r.message("bob", ping, "Origin", "https://tiney.to"); w.Code != 200 {
		t.Errorf("of our own page: %d %s", w.Code, w.Body)
	}
	if w := r.message("bob", `{"jsonrpc":"2.0","method":"notifications/initialized"}`); w.Code !=
		202 || w.Body.Len() > 0 {
		t.Errorf("a notification: %d %s", w.Code, w.Body)
	}
	// One message costs one call, whatever it calls.
	for i := range 30 {
		if w := r.message("cleo", `{"jsonrpc":"2.0","id":1,"method":"tools/call",`+
			`"params":{"name":"listLinks"}}`); w.Code != 200 {
			t.Fatalf("call %d: %d %s", i, w.Code, w.Body)
		}
	}
	wantProblem(t, r.message("cleo", ping), 429, "rate-limited", "")
	off := newRig(t, func(c *functions.Config) { c.MCP = false })
	wantProblem(t, off.message("ann", ping), 404, "not-found", "")
}

// No answer stays open, in any revision: the test would not end.
func TestMCPRevisions(t *testing.T) {
	r := newRig(t)
	for _, revision := range []string{"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+
			`"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
			revision)
		w := r.message("ann", body)
		if revision < "2026" && (w.Code != 200 || !strings.Contains(w.Body.String(),
			`"protocolVersion":"`+revision+`"`)) || strings.Contains(w.Body.String(),
			"listChanged") {
			t.Errorf("%s: %d %s", revision, w.Code, w.Body)
		}
	}
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}`
	for method, params := range map[string]string{"tools/list": "", "server/discover": "",
		"subscriptions/listen": `,"notifications":{"toolsListChanged":true}`} {
		w := r.message("ann", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`,
			method, meta, params), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method)
		if method != "subscriptions/listen" && w.Code != 200 ||
			strings.Contains(w.Body.String(), "listChanged") {
			t.Errorf("%s: %d %v %s", method, w.Code, w.Header(), w.Body)
		}
		t.Logf("%s: %d %.300s", method, w.Code, w.Body)
	}
}

// The tools are operations of the API's description, with its texts and schemas.
func TestToolsAreOperations(t *testing.T) {
	r := newRig(t)
	w := r.message("ann", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	var answer struct {
		Result struct {
			Tools []struct {
				Name, Title, Description  string
				InputSchema, OutputSchema struct {
					Type       string
					Properties map[string]any
					Required   []string
				}
				Annotations struct {
					ReadOnlyHint    bool
					DestructiveHint *bool
				}
			}
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(w.Body.String(), "$ref") {
		t.Error("a schema refers to something that the client does not have")
	}
	var names []string
	for _, tool := range answer.Result.Tools {
		names = append(names, tool.Name)
		a := tool.Annotations
		kind := map[bool]string{true: "reads"}[a.ReadOnlyHint]
		if a.DestructiveHint != nil {
			kind += map[bool]string{true: "destroys", false: "adds"}[*a.DestructiveHint]
		}
		if want := map[string]string{"shorten": "adds", "restoreLink": "adds", "editLink": "destroys",
			"deleteLink": "destroys"}[tool.Name]; kind != want && kind != "reads"+want {
			t.Errorf("%s %s", tool.Name, kind)
		}
		if tool.InputSchema.Type != "object" || tool.Title == "" || tool.Description == "" ||
			(tool.OutputSchema.Type == "") != (tool.Name == "deleteLink") {
			t.Errorf("%+v", tool)
		}
		_, hasAlias := tool.InputSchema.Properties["alias"]
		_, hasETag := tool.OutputSchema.Properties["etag"]
		_, ifMatch := tool.InputSchema.Properties["ifMatch"]
		if hasAlias == (tool.Name == "listLinks" || tool.Name == "getTopLinks") ||
			tool.Name == "getLink" && !hasETag || tool.Name == "editLink" && !ifMatch ||
			tool.InputSchema.Properties["If-Match"] != nil {
			t.Errorf("%s has %v", tool.Name, tool.InputSchema.Properties)
		}
		if tool.Name == "getLink" && !slices.Contains(tool.InputSchema.Required, "alias") ||
			tool.Name == "shorten" && !slices.Equal(tool.InputSchema.Required, []string{"longUrl"}) {
			t.Errorf("%s requires %v", tool.Name, tool.InputSchema.Required)
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "deleteLink editLink getLink getLinkStatistics "+
		"getTopLinks listLinks restoreLink shorten" {
		t.Errorf("the tools are %s", got)
	}
}

// A key that may only read changes nothing, here and elsewhere.
func TestKeysThatMayOnlyRead(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "anns", LongURL: "https://example.com/", Owner: "ann",
		CreatedAt: r.clock.Now()})
	wantProblem(t, r.as("ann", "POST", "/api/keys", `{"name":"x","access":"admin"}`), 400, "body",
		"access")
	w := r.as("ann", "POST", "/api/keys", `{"name":"reader","access":"read"}`)
	var key struct{ Key, Access string }
	if err := json.Unmarshal(w.Body.Bytes(), &key); err != nil || key.Access != "read" {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	if w := r.as(key.Key, "GET", "/api/me", ""); !strings.Contains(w.Body.String(),
		`"access":"read"`) {
		t.Errorf("it is %s", w.Body)
	}
	if w := r.as(key.Key, "GET", "/api/keys", ""); strings.Count(w.Body.String(),
		`"access":"read"`) != 1 || !strings.Contains(w.Body.String(), `"access":"write"`) {
		t.Errorf("the keys are %s", w.Body)
	}
	for route, who := range apiRoutes {
		method, path, _ := strings.Cut(route, " ")
		w := r.as(key.Key, method, path, "{}")
		if refused := strings.Contains(w.Body.String(), `"type":"/problems/read-only"`); refused !=
			(method != "GET" && who != "public" && path != "/api/mcp") {
			t.Errorf("%s: got %d %s", route, w.Code, w.Body)
		}
	}
	if w := r.as(key.Key, "HEAD", "/api/links/anns", ""); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
	for _, tool := range []string{"getLink", "listLinks", "getLinkStatistics", "getTopLinks"} {
		if got, _ := r.calls(key.Key, tool, `{"alias":"anns"}`); got.IsError {
			t.Errorf("%s: %+v", tool, got)
		}
	}
	for _, tool := range []string{"shorten", "editLink", "deleteLink", "restoreLink"} {
		if got, problem := r.calls(key.Key, tool, `{"alias":"anns"}`); !got.IsError ||
			problem["status"] != 403.0 || problem["type"] != "/problems/read-only" {
			t.Errorf("%s: %+v", tool, got)
		}
	}
}

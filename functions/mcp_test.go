package functions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/testing/teststore"
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
	for tool, arguments := range map[string]string{"getLinkStatistics": `{"alias":"docs"}`,
		"getTopLinks": `{}`} {
		if got, _ := r.calls("ann", tool, arguments); got.IsError || got.StructuredContent == nil {
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

// Some assistants send everything as a string. What can be meant in one way only is read so.
func TestArgumentsAsText(t *testing.T) {
	r := newRig(t)
	for tags, want := range map[string]string{`["a","b"]`: `["a","b"]`, `"[\"a\",\"b\"]"`: `["a","b"]`,
		`"a,b"`: `["a,b"]`, `"a"`: `["a"]`, `"[a"`: `["[a"]`, `"null"`: `[]`, `"[]"`: `[]`,
		`"nulls"`: `["nulls"]`, `" [\"a\"] "`: `["a"]`, `"{}"`: `["{}"]`, `"5"`: `["5"]`, `null`: `[]`} {
		r.calls("ann", "shorten", `{"longUrl":"https://example.com/tags","alias":"tags"}`)
		got, _ := r.calls("ann", "editLink", `{"alias":"tags","tags":`+tags+`}`)
		text, _ := json.Marshal(got.StructuredContent["tags"])
		if got.IsError || string(text) != want {
			t.Errorf("tags %s: %s, want %s: %+v", tags, text, want, got)
		}
		if want == "[]" {
			continue
		}
		found, _ := r.calls("ann", "listLinks", `{"tag":`+tags+`}`)
		if items, _ := found.StructuredContent["items"].([]any); found.IsError || len(items) != 1 {
			t.Errorf("tag %s: %+v", tags, found)
		}
	}
	for change, want := range map[string]string{
		`"forward":"query"`:                    `"forward":["query"]`,
		`"forward":"null"`:                     `"forward":[]`,
		`"forward":"[\"Path\"]"`:               `"forward":["path"]`,
		`"forward":["QUERY","Path"]`:           `"forward":["query","path"]`,
		`"statusCode":"301"`:                   `"statusCode":301`,
		`"statusCode":307.0`:                   `"statusCode":307`,
		`"statusCode":"3.08e2"`:                `"statusCode":308`,
		`"statusCode":"null"`:                  `"statusCode":302`,
		`"disabled":"true"`:                    `"disabled":true`,
		`"disabled":"false"`:                   `"disabled":false`,
		`"title":"[\"a\"]"`:                    `"title":"[\"a\"]"`,
		`"title":"null"`:                       `"title":"null"`,
		`"title":"5"`:                          `"title":"5"`,
		`"expiresInSeconds":"3600"`:            `"expiresAtUtc":"`,
		`"expiresInSeconds":"null"`:            `"expiresAtUtc":null`,
		`"ifMatch":null,"title":"x"`:           `"title":"x"`,
		`"ifMatch":"*","title":"\ud83d\ude00"`: `"title":"😀"`,
	} {
		got, _ := r.calls("ann", "editLink", `{"alias":"tags",`+change+`}`)
		if got.IsError || !strings.Contains(got.Content[0].Text, want) {
			t.Errorf("%s: %+v", change, got)
		}
	}
	for arguments, want := range map[string]int{`{"limit":1.0}`: 1, `{"limit":"1"}`: 1,
		`{"limit":"1.0"}`: 1, `{"limit":1e0}`: 1, `{"limit":null}`: 1, `{"clicks":"true"}`: 1,
		`{"clicks":false}`: 1, `{"q":987}`: 0, `{"tag":987}`: 0, `{"tag":[true]}`: 0, `{"tag":[]}`: 1} {
		got, _ := r.calls("ann", "listLinks", arguments)
		if items, _ := got.StructuredContent["items"].([]any); got.IsError || len(items) != want {
			t.Errorf("%s: %+v", arguments, got)
		}
	}
	if got, _ := r.calls("ann", "shorten",
		`{"longUrl":"https://example.com/5","alias":"5"}`); got.IsError {
		t.Errorf("%+v", got)
	}
	if got, _ := r.calls("ann", "getLink", `{"alias":5}`); got.IsError {
		t.Errorf("an alias as a number: %+v", got)
	}
	many := strings.Repeat(`"a",`, 100)
	if got, problem := r.calls("ann", "listLinks", `{"tag":[`+many+`"a"]}`); !got.IsError ||
		!strings.Contains(fmt.Sprint(problem["detail"]), "at most 100") {
		t.Errorf("101 tags: %+v", got)
	}
}

// What is wrong with a call is the problem that a request would get.
func TestToolsRefuseWhatTheAPIRefuses(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "bobs", LongURL: "https://example.com/", Owner: "bob"})
	r.fake.Put(link.Link{Name: "anns", LongURL: "https://example.com/", Owner: "ann"})
	for call, want := range map[string]string{
		`shorten {"longUrl":"ftp://x"}`:                          "400 long-url",
		`shorten {"longUrl":5}`:                                  "400 long-url",
		`shorten {}`:                                             "400 long-url",
		`shorten {"longUrl":"https://e.example/","nope":1}`:      "400 body",
		`shorten {"longUrl":"https://e.example/","owner":"b"}`:   "403 forbidden",
		`getLink {"alias":"bobs"}`:                               "404 not-found",
		`getLink {"alias":"unknown"}`:                            "404 not-found",
		`getLink {"alias":"anns/stats"}`:                         "404 not-found",
		`getLink {"alias":"anns?x=y"}`:                           "404 not-found",
		`getLink {"alias":"../keys"}`:                            "404 not-found",
		`getLink {"alias":"anns%2fqr"}`:                          "404 not-found",
		`getLink {"alias":["anns","bobs"]}`:                      "400 parameter",
		`getLink {"alias":["anns"]}`:                             "400 parameter",
		`deleteLink {"alias":["anns"]}`:                          "400 parameter",
		`restoreLink {"alias":[]}`:                               "400 parameter",
		`getLinkStatistics {"alias":[["anns"]]}`:                 "400 parameter",
		`editLink {"alias":["anns"],"title":"x"}`:                "400 parameter",
		`editLink {"alias":"anns","ifMatch":["*"]}`:              "400 parameter",
		`shorten {"longUrl":["https://e.example/"]}`:             "400 long-url",
		`shorten {"longUrl":"https://e.example/","alias":["a"]}`: "400 alias",
		`getLink {"alias":{}}`:                                   "400 parameter",
		`getLink {"alias":null}`:                                 "400 parameter",
		`deleteLink {"alias":""}`:                                "400 parameter",
		`getLink {}`:                                             "400 parameter",
		`editLink {"title":"x"}`:                                 "400 parameter",
		`getLink {"Alias":"anns"}`:                               "400 parameter",
		`getLink {"alias":"anns","x":1}`:                         "400 parameter",
		`listLinks {"alias":"anns"}`:                             "400 parameter",
		`getLink []`:                                             "400 body",
		`getLink "{\"alias\":\"anns\"}"`:                         "400 body",
		`editLink {"alias":"anns","domain":[[[1]]]}`:             "400 domain",
		`listLinks {"tag":[["a"]]}`:                              "400 parameter",
		`listLinks {"tag":[null]}`:                               "400 parameter",
		`listLinks {"tag":{"a":"b"}}`:                            "400 parameter",
		`listLinks {"limit":1.5}`:                                "400 parameter",
		`listLinks {"limit":"x"}`:                                "400 parameter",
		`listLinks {"limit":[5]}`:                                "400 parameter",
		`editLink {"alias":"anns","statusCode":"[302]"}`:         "400 status-code",
		`editLink {"alias":"anns","tags":"[[\"a\"]]"}`:           "400 tags",
		`editLink {"alias":"anns","disabled":"yes"}`:             "400 body",
		`editLink {"alias":"anns","expiresInSeconds":"1h"}`:      "400 expires-in-seconds",
		`editLink {"alias":"anns","alias2":"x"}`:                 "400 body",
		`editLink {"alias":"anns","ifMatch":"x"}`:                "400 if-match",
		`listLinks {"limit":0}`:                                  "400 parameter",
		`listLinks {"limit":[1,2]}`:                              "400 parameter",
		`listLinks {"owner":"bob"}`:                              "403 forbidden",
		`restoreLink {"alias":"anns"}`:                           "409 link-not-deleted",
		`getLinkStatistics {"alias":"anns","interval":"x"}`:      "400 parameter",
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
	wantStatus(t, r.as("", "OPTIONS", "/api/mcp", ""), 204, "OPTIONS")
	wantProblem(t, r.message("ann", "["+ping+"]"), 400, "body", "")
	wantProblem(t, r.message("ann", `"x"`), 400, "body", "")
	wantProblem(t, r.message("ann", ping+strings.Repeat(" ", 32<<10)), 413, "body-too-large", "")
	wantProblem(t, r.message("ann", ping, "Accept", "text/html"), 406, "not-acceptable", "")
	wantProblem(t, r.message("ann", ping, "Content-Type", "text/plain"), 415, "media-type", "")
	wantProblem(t, r.message("ann", ping, "Mcp-Protocol-Version", "2024-11-05"), 400,
		"protocol-version", "")
	for body, code := range map[string]float64{
		"{": -32700, `{"id":1}`: -32600, "{}": -32600,
		`{"jsonrpc":"2.0","id":1,"method":"nope"}`:                                    -32601,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nope"}}`:     -32602,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"listKeys"}}`: -32602,
		`{"jsonrpc":"not handled","id":1,"method":"ping"}`:                            -32600,
	} {
		w := r.message("bob", body)
		var answer struct{ Error struct{ Code float64 } }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil ||
			answer.Error.Code != code || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %d %v %s", body, w.Code, w.Header(), w.Body)
		}
	}
	// Accepted: without an Origin, with one of the service's own, and with a notification.
	wantStatus(t, r.message("bob", ping, "Origin", "https://tiney.to"), 200, "of our own page")
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

// An id comes back as it came, and one body has one message. What the library says of a message has
// no type of Go.
func TestMessagesAsTheyAre(t *testing.T) {
	r := newRig(t)
	for id, want := range map[string]string{"1": "1", "1.5": "1.5", "-0": "-0", "1e2": "1e2",
		"12345678901234567890": "12345678901234567890", "1e400": "1e400", `""`: `""`,
		`"\u00e4\n"`: `"\u00e4\n"`, `"` + strings.Repeat("x", 9000) + `"`: "",
		"null": "null", "[1]": "null", "{}": "null", "true": "null"} {
		if want == "" {
			want = id
		}
		for method, member := range map[string]string{"ping": "result", "nope": "error",
			`tools/call","params":{"name":"listLinks"},"x":"`: "result",
			`tools/call","params":{"name":5},"x":"`:           "error"} {
			w := r.message("ann", `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`"}`)
			if want == "null" {
				member = "error"
			}
			if got := w.Body.String(); !strings.HasPrefix(got,
				`{"jsonrpc":"2.0","id":`+want+`,"`+member) || (w.Code == 400) != (want == "null") {
				t.Errorf("id %.40s, %s: %d %.200s", id, method, w.Code, got)
			}
		}
	}
	for _, more := range []string{`{"x":1}`, "[]", "x", `{"jsonrpc":"2.0","id":2}`, ",",
		"\x00"} {
		w := r.message("ann", `{"jsonrpc":"2.0","id":1,"method":"ping"}`+more)
		if w.Code != 400 || !strings.Contains(w.Body.String(), "-32700") {
			t.Errorf("followed by %q: %d %s", more, w.Code, w.Body)
		}
	}
	wantStatus(t, r.message("ann", `{"jsonrpc":"2.0","id":1,"method":"ping"}`+" \r\n\t"), 200,
		"followed by white space")
	for _, body := range []string{`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"a":1,"a":2}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\ud800"}}`} {
		if w := r.message("ann", body); !strings.Contains(w.Body.String(), `"error":{"code":-32`) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	for _, name := range []string{"unmarshaling", "handling 'ping': unmarshaling "} {
		if w := r.message("ann", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+
			name+`"}}`); !strings.Contains(w.Body.String(), "unknown tool") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	wrong := []string{"5", `"x"`, "[]", "{}", "true", "null", "[{}]", `{"a":[5]}`}
	for method, members := range map[string][]string{
		"initialize":           {"protocolVersion", "capabilities", "clientInfo", "_meta"},
		"tools/call":           {"name", "arguments", "_meta", "inputResponses", "requestState"},
		"tools/list":           {"cursor", "_meta"},
		"ping":                 {"_meta"},
		"logging/setLevel":     {"level"},
		"prompts/get":          {"name", "arguments"},
		"resources/read":       {"uri"},
		"completion/complete":  {"ref", "argument", "context"},
		"server/discover":      {"_meta"},
		"subscriptions/listen": {"notifications", "_meta"},
		"nope":                 {"x"},
	} {
		for _, member := range append(members, "") {
			for _, value := range wrong {
				params := `{"` + member + `":` + value + `}`
				if member == "" {
					params = value
				}
				body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
				w := r.message("ann", body)
				if got := w.Body.String(); leaks.MatchString(got) && !strings.Contains(got, `"tools":[`) {
					t.Errorf("%s: %d %s", body, w.Code, w.Body)
				}
			}
		}
	}
	for _, value := range wrong {
		for _, body := range []string{`{"jsonrpc":` + value + `,"id":1,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":` + value + `,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":1,"method":` + value + `}`,
			`{"jsonrpc":"2.0","id":1,"error":` + value + `}`} {
			if w := r.message("ann", body); leaks.MatchString(w.Body.String()) || w.Code >= 500 {
				t.Errorf("%s: %d %s", body, w.Code, w.Body)
			}
		}
	}
}

// leaks matches what only a program in Go says.
var leaks = regexp.MustCompile(`\bGo\b|mcp\.|jsonrpc2|json:|unmarshal|struct`)

// A tool that panics ends no process.
func TestToolsThatPanic(t *testing.T) {
	panics := true
	r := newRig(t, func(c *functions.Config) {
		c.Links = panicking{c.Links.(*teststore.Store), &panics}
	})
	for _, tool := range []string{"getLink", "editLink", "deleteLink", "restoreLink"} {
		got, problem := r.calls("ann", tool, `{"alias":"anns"}`)
		if !got.IsError || problem["type"] != "/problems/internal" ||
			!strings.Contains(r.log.String(), "a fault") {
			t.Errorf("%s: %+v %s", tool, got, r.log)
		}
		r.log.Reset()
	}
	panics = false
	if _, problem := r.calls("ann", "getLink", `{"alias":"anns"}`); problem["status"] != 404.0 {
		t.Errorf("afterwards: %+v", problem)
	}
}

// panicking is a store that panics while it is told to.
type panicking struct {
	*teststore.Store
	panics *bool
}

func (p panicking) Read(ctx context.Context, a link.Name) (link.Link, error) {
	if *p.panics {
		panic("a fault")
	}
	return p.Store.Read(ctx, a)
}

func (p panicking) Edit(context.Context, link.Name, bool,
	func(link.Link) (link.Link, error)) (link.Link, error) {
	panic("a fault")
}

// While storage does not respond at all, a call has a result, which says so, when its time is over.
func TestToolsWhileStorageHangs(t *testing.T) {
	for tool, arguments := range map[string]string{
		"shorten": `{"longUrl":"https://example.com/"}`, "listLinks": `{}`,
		"getLink": `{"alias":"ann1"}`, "editLink": `{"alias":"ann1","title":"x"}`,
		"deleteLink": `{"alias":"ann1"}`, "restoreLink": `{"alias":"ann1"}`,
		"getLinkStatistics": `{"alias":"ann1"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			var fast functions.Callers
			r := newSlowRig(t, time.Hour, func(c *functions.Config) {
				fast = c.Callers.(slowCallers).Callers
				c.Callers = fast
			})
			begun := time.Now()
			got, problem := r.calls("ann", tool, arguments)
			if took := time.Since(begun); !got.IsError || took != 5*time.Second ||
				problem["type"] != "/problems/storage-unavailable" {
				t.Errorf("%s: %+v after %v", tool, got, took)
			}
		})
	}
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

// described is a tool as clients see it.
type described struct {
	Name, Title, Description  string
	InputSchema, OutputSchema struct {
		Type                 string
		Properties           map[string]any
		Required             []string
		AdditionalProperties any
	}
	Annotations struct {
		ReadOnlyHint    bool
		DestructiveHint *bool
	}
}

// toolsOf returns the tools that a client sees.
func toolsOf(r *rig) []described {
	r.t.Helper()
	w := r.message("ann", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	var answer struct{ Result struct{ Tools []described } }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Result.Tools) == 0 {
		r.t.Fatalf("%v, %s", err, w.Body)
	}
	return answer.Result.Tools
}

// The interfaces of models refuse a schema as a whole for a pattern that one of their languages
// does not know, and for lists of types.
func TestSchemasThatModelsRead(t *testing.T) {
	w := newRig(t).message("ann", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	var answer struct{ Result struct{ Tools any } }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	patterns, enums := map[string]bool{}, map[string]bool{}
	var look func(at string, part any)
	look = func(at string, part any) {
		switch part := part.(type) {
		case []any:
			for i, value := range part {
				look(fmt.Sprint(at, "/", i), value)
			}
		case map[string]any:
			if _, ok := part["type"].([]any); ok {
				t.Errorf("%s has a list of types: %v", at, part)
			}
			if pattern, ok := part["pattern"].(string); ok {
				patterns[pattern] = true
			}
			if enum, ok := part["enum"].([]any); ok {
				enums[fmt.Sprint(enum)] = true
			}
			for name, value := range part {
				if strings.HasPrefix(name, "x-") {
					t.Errorf("%s has %s", at, name)
				}
				look(at+"/"+name, value)
			}
		}
	}
	look("", answer.Result.Tools)
	if len(patterns) < 4 || !enums["[301 302 307 308]"] || !enums["[query path]"] ||
		!enums["[live scheduled expired disabled deleted]"] {
		t.Errorf("patterns %v, enums %v", patterns, enums)
	}
	all := slices.Sorted(maps.Keys(patterns))
	for _, pattern := range all {
		if _, err := regexp.Compile(pattern); err != nil {
			t.Errorf("RE2: %v", err)
		}
	}
	for name, command := range map[string][]string{
		"node":    {"-e", `for (const p of process.argv.slice(1)) new RegExp(p), new RegExp(p, "u")`},
		"python3": {"-c", "import re, sys\nfor p in sys.argv[1:]: re.compile(p)"},
	} {
		if _, err := exec.LookPath(name); err != nil {
			continue
		}
		out, err := exec.Command(name, append(command, all...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// The tools are operations of the API's description, with its texts and schemas.
func TestToolsAreOperations(t *testing.T) {
	r := newRig(t)
	w := r.message("ann", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if strings.Contains(w.Body.String(), "$ref") {
		t.Error("a schema refers to something that the client does not have")
	}
	var names []string
	for _, tool := range toolsOf(r) {
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
		if tool.InputSchema.Type != "object" || tool.InputSchema.AdditionalProperties != false ||
			tool.Title == "" || tool.Description == "" ||
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
	w := r.as("ann", "POST", "/api/keys", `{"name":"reader","access":"Read"}`) // as .NET writes it
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
	wantStatus(t, r.as(key.Key, "HEAD", "/api/links/anns", ""), 200, "HEAD")
	for tool, arguments := range map[string]string{"getLink": `{"alias":"anns"}`, "listLinks": `{}`,
		"getLinkStatistics": `{"alias":"anns"}`, "getTopLinks": `{}`} {
		if got, _ := r.calls(key.Key, tool, arguments); got.IsError {
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

package functions

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tiney/internal/telemetry"
)

// tool is an operation of the API that assistants may call, as tools.json has it.
type tool struct {
	mcp.Tool
	Method    string              `json:"method"`
	Arguments map[string]argument `json:"arguments"`
	Body      bool                `json:"body"` // unknown arguments are in the body, which refuses them
}

// argument says what an argument of a tool stands for.
type argument struct {
	In    string   `json:"in"`    // "path", "query", "header" or "body"
	Types []string `json:"types"` // those of its values in JSON
}

// toolFunctions has the function of each tool, by the operationId in openapi.json.
var toolFunctions = map[string]func(*service, *call) (any, error){
	"shorten":           (*service).shorten,
	"listLinks":         (*service).listLinks,
	"getLink":           (*service).readLink,
	"editLink":          (*service).editLink,
	"deleteLink":        (*service).deleteLink,
	"restoreLink":       (*service).restoreLink,
	"getLinkStatistics": (*service).linkStats,
	"getTopLinks":       (*service).topLinks,
}

// toolsFile has the tools as clients see them. TestToolsFile makes it from openapi.json.
//
//go:embed tools.json
var toolsFile string

const mcpPath = "/api/mcp"

// The revisions of the protocol that are served, newest first.
var mcpRevisions = []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"}

// serveMCP handles POST /api/mcp, the Model Context Protocol without sessions: each message has one
// answer, and no answer stays open. What is refused before a message is read is a problem, and what
// is wrong with a message is an error of JSON-RPC.
func (s *service) serveMCP(c *call) (any, error) {
	if err := needOwner(c.who); err != nil {
		return nil, err
	}
	// Browsers send an Origin with every POST, programs send none. The page of another website is
	// refused, even if it has a key.
	if s.foreignOrigin(c.r.Header) {
		return nil, foreignOriginProblem
	}
	if !acceptsJSON(c.r.Header.Values("Accept")) {
		return nil, notAcceptableProblem
	}
	// The library refuses unknown newer revisions by an error that names those that are served.
	v := c.r.Header.Get("Mcp-Protocol-Version")
	if v != "" && v < mcpRevisions[0] && !slices.Contains(mcpRevisions, v) {
		return nil, badRequest("protocol-version", "Unknown revision of the protocol",
			"MCP-Protocol-Version may be "+strings.Join(mcpRevisions, ", ")+".", "")
	}
	body, err := c.readJSON(maxBody)
	if err != nil {
		return nil, err
	}
	switch jsontext.Value(body).Kind() {
	case '[':
		return nil, badRequest("body", "Invalid body",
			"Send one message in a request: batches are not supported.", "")
	case '{':
	default:
		return nil, notObjectProblem
	}
	m, refused := parseMessage(body)
	if refused != nil {
		return refusalOf(m.ID, refused), nil
	}
	tool := &toolCall{call: c}
	if m.Params != nil {
		tool.arguments, m.Params.Arguments = m.Params.Arguments, nil
	}
	// The library changes some ids, so it gets one of our own.
	id, own := m.ID, []byte(strconv.Quote(rand.Text()))
	if kind := id.Kind(); kind == '"' || kind == '0' {
		m.ID = own
	}
	if body, err = json.Marshal(m); err != nil {
		return nil, err
	}
	// The library gives up when its context ends. But a call that has no time left has a result.
	inner := c.r.Clone(context.WithValue(context.WithoutCancel(c.ctx), toolKey{}, tool))
	inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	inner.Header.Set("Accept", "application/json, text/event-stream") // which the library demands
	for _, secret := range []string{"Authorization", "X-Api-Key"} {
		inner.Header.Del(secret)
	}
	response := &recorder{header: http.Header{}, status: http.StatusOK}
	s.tools().ServeHTTP(response, inner)
	contentType, text := response.header.Get("Content-Type"), response.body.Bytes()
	switch {
	case response.status >= 500, len(text) == 0 && response.status == http.StatusOK:
		return nil, fmt.Errorf("mcp: %d %s", response.status, text)
	case response.status >= 400 && !isJSON(contentType, "application/json"):
		refused = rpcError(jsonrpc.CodeInvalidRequest, strings.TrimSpace(string(text)))
		if bytes.HasPrefix(text, []byte("JSON RPC not handled: ")) {
			refused = rpcError(jsonrpc.CodeMethodNotFound, "There is no such method.")
		}
		return refusalOf(id, refused), nil
	case wrongType.Match(text):
		return refusalOf(id, rpcError(jsonrpc.CodeInvalidParams,
			"A member of params has another type than this method takes.")), nil
	}
	return answer{response.status, contentType, bytes.ReplaceAll(text, own, id)}, nil
}

// answer is the answer to a message. An empty one has no type.
type answer struct {
	status      int
	contentType string
	text        []byte
}

func (a answer) respond(w http.ResponseWriter, _ *http.Request) {
	if len(a.text) > 0 {
		setHeaders(w, a.contentType)
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(a.status)
	_, _ = w.Write(a.text)
}

// wrongType matches the library's error if it cannot decode params into a type of Go.
var wrongType = regexp.MustCompile(`(?m)^(?:data: )?\{"jsonrpc":"2.0","id":"\w+",` +
	`"error":\{"code":[-\d]+,"message":"handling '[\w/]+': (?:invalid params: )?unmarshaling `)

// message is a message of JSON-RPC. Members that are not here are left out.
type message struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  *string        `json:"method,omitzero"`
	Params  *params        `json:"params,omitzero"`
}

// params are the parameters of a message. The library never sees the arguments of a tool, because
// it decodes them into values that may take a hundred times their size.
type params struct {
	Arguments jsontext.Value `json:"arguments,omitzero"`
	Others    jsontext.Value `json:",embed"`
}

// maxTokens limits the other parameters, which the library decodes likewise.
const maxTokens = 500

// parseMessage decodes the only message of a body. With an error, the ID is that of the message, or
// nil if it is not known.
func parseMessage(body []byte) (m message, refused *jsonrpc.Error) {
	var is struct {
		ID jsontext.Value `json:"id"`
	}
	if tooDeep(body) {
		return m, rpcError(jsonrpc.CodeInvalidRequest, tooDeepProblem.Detail)
	}
	if err := json.Unmarshal(body, &is, jsontext.AllowDuplicateNames(true)); err != nil {
		return m, rpcError(jsonrpc.CodeParseError, jsonProblem(err).inOneLine())
	}
	switch is.ID.Kind() {
	case '{', '[', 't', 'f':
		return m, rpcError(jsonrpc.CodeInvalidRequest, "id must be a string or a number.")
	}
	err := json.Unmarshal(body, &m)
	m.ID = is.ID
	switch {
	case err != nil:
		refused = rpcError(jsonrpc.CodeInvalidRequest, jsonProblem(err).inOneLine())
	case m.Params != nil && !fewTokens(m.Params.Others):
		refused = rpcError(jsonrpc.CodeInvalidParams, fmt.Sprintf("params may have %d names, "+
			"values and brackets, not counting arguments.", maxTokens))
	}
	return m, refused
}

// fewTokens reports whether a value has at most maxTokens.
func fewTokens(value jsontext.Value) bool {
	d := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true))
	for range maxTokens + 1 {
		if _, err := d.ReadToken(); err != nil {
			return true
		}
	}
	return false
}

func rpcError(code int64, message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: code, Message: message}
}

// refusalOf returns an error as the answer to the message that has the id. Without an id, it is not
// known.
func refusalOf(id jsontext.Value, err *jsonrpc.Error) answer {
	status := http.StatusOK
	if len(id) == 0 || id.Kind() == 'n' {
		id, status = jsontext.Value("null"), http.StatusBadRequest
	}
	text, _ := json.Marshal(err.Message, jsonOptions)
	return answer{status, "application/json", fmt.Appendf(nil,
		`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, err.Code, text)}
}

// acceptsJSON reports whether lines of Accept let a response be JSON. None let it be anything.
func acceptsJSON(accept []string) bool {
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		switch kind, params, _ := mime.ParseMediaType(part); kind {
		case "application/json", "application/*", "*/*":
			if q, err := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64); err == nil && q > 0 {
				return true
			}
		}
	}
	return len(accept) == 0
}

// toolCall is what the library does not pass on to a tool.
type toolCall struct {
	*call     // that has the message
	arguments jsontext.Value
}

// toolKey is the key of the *toolCall in the context of a message.
type toolKey struct{}

// newTools returns a function that returns the library's handler with all tools. It makes them at
// the first call, since parsing their schemas takes milliseconds and few processes need it.
func (s *service) newTools() func() http.Handler {
	return sync.OnceValue(func() http.Handler {
		server := mcp.NewServer(&mcp.Implementation{Name: "tiney", Version: s.Version},
			&mcp.ServerOptions{SupportedProtocolVersions: mcpRevisions,
				// listChanged is not offered: the tools never change while a process runs.
				Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
		var all []tool
		text := describe(toolsFile, s.Rules.Base, s.Version)
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			panic(err) // it is embedded
		}
		for _, t := range all {
			server.AddTool(&t.Tool, func(
				ctx context.Context, _ *mcp.CallToolRequest,
			) (*mcp.CallToolResult, error) {
				return s.use(&t, ctx.Value(toolKey{}).(*toolCall)), nil
			})
		}
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true,
				// Behind the Functions host every address is one of this machine.
				DisableLocalhostProtection: true})
	})
}

// use calls the function of a tool as a request would, without credentials and limits, which the
// message itself had. Arguments are values: none of them can be another path.
func (s *service) use(t *tool, c *toolCall) (result *mcp.CallToolResult) {
	log := s.Log.With("function", "mcp")
	defer func() {
		if p := recover(); p != nil {
			log.Error(telemetry.LogPanic, "panic", p, "stack", string(debug.Stack()))
			result = refusal(internalProblem)
		}
	}()
	r, err := t.request(c.arguments)
	if err == nil && c.who.ReadOnly && t.Method != http.MethodGet {
		err = readOnlyProblem
	}
	var view any
	if err == nil {
		inner := &call{ctx: c.ctx, r: r, who: c.who}
		defer inner.end()
		view, err = toolFunctions[t.Name](s, inner)
	}
	if is, ok := view.(created); ok {
		view = is.view
	}
	switch {
	case err != nil:
		p := s.problemOf(err)
		logProblem(log, p, err)
		return refusal(p)
	case view == nil:
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Done."}}}
	}
	text, _ := json.Marshal(view, jsonOptions)
	return &mcp.CallToolResult{StructuredContent: jsontext.Value(text),
		Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}
}

// refusal returns the result of a call that has a problem.
func refusal(p *problem) *mcp.CallToolResult {
	text, _ := json.Marshal(p, jsonOptions)
	return &mcp.CallToolResult{IsError: true,
		Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}
}

// request returns the request that a call stands for. The arguments are valid JSON. The error is a
// problem.
func (t *tool) request(arguments jsontext.Value) (*http.Request, error) {
	if kind := arguments.Kind(); kind != '{' && kind != 'n' && len(arguments) > 0 {
		return nil, badRequest("body", "Invalid arguments",
			"The arguments must be one JSON object, and not in a string.", "")
	}
	r := &http.Request{Method: t.Method, URL: &url.URL{}, Header: http.Header{}, Body: http.NoBody}
	query, body := url.Values{}, []byte{}
	d := jsontext.NewDecoder(bytes.NewReader(arguments), jsontext.AllowDuplicateNames(true))
	_, _ = d.ReadToken()
	for d.PeekKind() == '"' {
		token, _ := d.ReadToken()
		name := token.String()
		value, _ := d.ReadValue()
		a, known := t.Arguments[name]
		if !known && !t.Body {
			return nil, badRequest("parameter", "Unknown argument",
				"This argument is not known; names are case-sensitive.",
				fieldName(jsontext.Pointer("").AppendToken(name)))
		}
		value = a.read(value)
		if !known || a.In == "body" {
			body = append(body, ',')
			body, _ = jsontext.AppendQuote(body, name)
			body = append(append(body, ':'), value...)
			continue
		}
		texts, err := a.texts(name, value)
		switch {
		case err != nil:
			return nil, err
		case len(texts) == 0:
		case a.In == "path":
			r.SetPathValue(name, texts[0])
		case a.In == "header":
			r.Header["If-Match"] = texts
		default:
			query[name] = texts
		}
	}
	for name, a := range t.Arguments {
		if a.In == "path" && r.PathValue(name) == "" {
			return nil, badRequest("parameter", "Missing argument",
				"This argument is missing: name a link by it.", name)
		}
	}
	r.URL.RawQuery = query.Encode()
	if t.Body {
		body = append(append([]byte{'{'}, bytes.TrimPrefix(body, []byte{','})...), '}')
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// read returns the value of an argument. Some assistants send every value as a string, so a string
// where none may be is read as JSON if that has a type that may be. Where a list may be, any other
// string is its only element.
func (a argument) read(value jsontext.Value) jsontext.Value {
	may := func(name string) bool { return slices.Contains(a.Types, name) }
	if value.Kind() == '"' && len(a.Types) > 0 && !may("string") {
		var text string
		_ = json.Unmarshal(value, &text)
		inner := jsontext.Value(text)
		switch kind := inner.Kind(); {
		case tooDeep(inner), !inner.IsValid():
		case may("array") && kind == '[', may("null") && kind == 'n', may("integer") && kind == '0',
			may("boolean") && (kind == 't' || kind == 'f'):
			value = inner
		}
		if value.Kind() == '"' && may("array") {
			return slices.Concat([]byte{'['}, value, []byte{']'})
		}
	}
	var n integer
	if value.Kind() == '0' && may("integer") && json.Unmarshal(value, &n) == nil {
		return strconv.AppendInt(nil, int64(n), 10) // 1.0 is 1
	}
	return value
}

// maxTexts is how many elements a list in a query may have.
const maxTexts = 100

// texts returns a value as texts of a path, a header or a query: strings as they are, numbers, true
// and false as they are in JSON, and null as none. The error is a problem.
func (a argument) texts(name string, value jsontext.Value) (all []string, err error) {
	wrong := badRequest("parameter", "Invalid argument", "Send one value, and no list.", name)
	isList := value.Kind() == '['
	switch {
	case value.Kind() == 'n':
		return nil, nil
	case slices.Contains(a.Types, "array"):
		wrong.Detail = fmt.Sprintf("Send a list of at most %d strings.", maxTexts)
	case isList:
		return nil, wrong
	}
	d := jsontext.NewDecoder(bytes.NewReader(value))
	if isList {
		_, _ = d.ReadToken()
	}
	for {
		token, err := d.ReadToken()
		switch {
		case err != nil || token.Kind() == ']':
			return all, nil
		case !strings.ContainsRune(`"0tf`, rune(token.Kind())) || len(all) == maxTexts:
			return nil, wrong
		}
		all = append(all, token.String())
	}
}

// recorder keeps a response of the library.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }

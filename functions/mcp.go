package functions

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tiney/access"
)

// tool is an operation of the API that assistants may call.
type tool struct {
	operation   string // its operationId in openapi.json, and its name
	serve       func(*service) callerFunc
	readOnly    bool
	destructive bool // what it replaces or deletes may be lost

	method string
	query  []string // the names of its parameters
	body   bool     // the other arguments are the body
}

var tools = []tool{
	{operation: "shorten", serve: func(s *service) callerFunc { return s.shorten }},
	{operation: "listLinks", serve: func(s *service) callerFunc { return s.listLinks },
		readOnly: true},
	{operation: "getLink", serve: func(s *service) callerFunc { return s.readLink },
		readOnly: true},
	{operation: "editLink", serve: func(s *service) callerFunc { return s.editLink },
		destructive: true},
	{operation: "deleteLink", serve: func(s *service) callerFunc { return s.deleteLink },
		destructive: true},
	{operation: "restoreLink", serve: func(s *service) callerFunc { return s.restoreLink }},
	{operation: "getLinkStatistics", serve: func(s *service) callerFunc { return s.linkStats },
		readOnly: true},
	{operation: "getTopLinks", serve: func(s *service) callerFunc { return s.topLinks },
		readOnly: true},
}

// The revisions of the protocol that are served, newest first.
var mcpRevisions = []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"}

// serveMCP handles POST /api/mcp, the Model Context Protocol without sessions: each message has one
// answer, and no answer stays open. What is refused before a message is read is a problem, and what
// is wrong with a message is an error of JSON-RPC.
func (s *service) serveMCP(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	if err := needOwner(who); err != nil {
		return err
	}
	// Browsers send an Origin with every POST. A web page of somebody else has no business here, even
	// if it knows a key. Programs send none.
	if origins := r.Header.Values("Origin"); len(origins) > 0 &&
		(len(origins) > 1 || !slices.Contains(s.Rules.Origins(), origins[0])) {
		return foreignOriginProblem
	}
	if !acceptsJSON(r.Header.Values("Accept")) {
		return notAcceptableProblem
	}
	// The library refuses unknown newer revisions by an error that names those that are served.
	v := r.Header.Get("Mcp-Protocol-Version")
	if v != "" && v < mcpRevisions[0] && !slices.Contains(mcpRevisions, v) {
		return badRequest("protocol-version", "Unknown revision of the protocol",
			"MCP-Protocol-Version may be "+strings.Join(mcpRevisions, ", ")+".", "")
	}
	body, err := readJSON(w, r, maxBody)
	if err != nil {
		return err
	}
	switch jsontext.Value(body).Kind() {
	case '[':
		return badRequest("body", "Invalid body",
			"Send one message in a request: batches are not supported.", "")
	case '{':
	default:
		return notObjectProblem
	}
	inner := r.Clone(context.WithValue(ctx, callerKey{}, who))
	inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	inner.Header.Set("Accept", "application/json, text/event-stream") // which the library demands
	for _, secret := range []string{"Authorization", "X-Api-Key"} {
		inner.Header.Del(secret)
	}
	response := newRecorder()
	s.tools().ServeHTTP(response, inner)
	contentType := response.Header().Get("Content-Type")
	switch {
	case response.status >= 500:
		return fmt.Errorf("mcp: %d %s", response.status, &response.body)
	case response.status >= 400 && !isJSON(contentType, "application/json"):
		contentType = "application/json"
		response = rejection(body, response.body.String())
	case response.body.Len() == 0:
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(response.status)
		return nil
	}
	setHeaders(w, contentType)
	w.WriteHeader(response.status)
	_, _ = w.Write(response.body.Bytes())
	return nil
}

// rejection returns the error of JSON-RPC for a message that the library has refused in plain text.
func rejection(body []byte, text string) *recorder {
	w := newRecorder()
	var m struct {
		ID jsontext.Value `json:"id"`
	}
	code := -32600 // invalid request
	switch err := json.Unmarshal(body, &m); {
	case err != nil:
		code, m.ID, text = -32700, nil, "This is not valid JSON."
	case strings.Contains(text, "not handled"):
		code, text = -32601, "There is no such method."
	}
	if len(m.ID) == 0 {
		m.ID, w.status = jsontext.Value("null"), http.StatusBadRequest
	}
	message, _ := json.Marshal(strings.TrimSpace(text))
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, m.ID, code, message)
	return w
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

// callerKey is the key of the caller in the context of a tool's call.
type callerKey struct{}

// newTools returns a function that returns the library's handler with all tools. It makes them at
// the first call, since parsing the API's description takes milliseconds and few processes need it.
func (s *service) newTools() func() http.Handler {
	return sync.OnceValue(func() http.Handler {
		server := mcp.NewServer(&mcp.Implementation{Name: "tiney", Version: s.Version},
			&mcp.ServerOptions{SupportedProtocolVersions: mcpRevisions,
				// listChanged is not offered: the tools never change while a process runs.
				Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
		text, _ := s.document()
		document := newDescription(text)
		for _, t := range tools {
			described := document.tool(&t)
			server.AddTool(described, func(ctx context.Context, r *mcp.CallToolRequest) (
				*mcp.CallToolResult, error) {
				return s.call(ctx, t, r.Params.Arguments), nil
			})
		}
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true,
				// Behind the Functions host every address is one of this machine.
				DisableLocalhostProtection: true})
	})
}

// call calls the function of a tool as a request would, without credentials and limits, which the
// message itself had. Arguments are values: none of them can be another path.
func (s *service) call(ctx context.Context, t tool, arguments []byte) *mcp.CallToolResult {
	who, _ := ctx.Value(callerKey{}).(access.Caller)
	w := newRecorder()
	r, err := t.request(ctx, arguments)
	if err == nil && who.ReadOnly && !t.readOnly {
		err = readOnlyProblem
	}
	if err == nil {
		err = t.serve(s)(ctx, w, r, who)
	}
	if err != nil {
		p := problemOf(err)
		if p == notFoundProblem {
			p = s.notFound()
		}
		logProblem(s.Log.With("function", "mcp"), p, err)
		text, _ := json.Marshal(p, jsonOptions)
		return &mcp.CallToolResult{IsError: true,
			Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}
	}
	if w.body.Len() == 0 {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Done."}}}
	}
	text := bytes.TrimSpace(w.body.Bytes())
	if etag := w.Header().Get("ETag"); etag != "" {
		quoted, _ := json.Marshal(etag)
		text = slices.Concat([]byte(`{"etag":`), quoted, []byte(","), text[1:])
	}
	return &mcp.CallToolResult{StructuredContent: jsontext.Value(text),
		Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}
}

// request returns the request that a call stands for. The error is a problem.
func (t *tool) request(ctx context.Context, arguments []byte) (*http.Request, error) {
	given := map[string]jsontext.Value{}
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &given); err != nil {
			return nil, jsonProblem(err)
		}
	}
	r := (&http.Request{Method: t.method, URL: &url.URL{}, Header: http.Header{},
		Body: http.NoBody}).WithContext(ctx)
	take := func(name string) jsontext.Value {
		value := given[name]
		delete(given, name)
		return value
	}
	if t.operation != "shorten" { // whose alias is in the body
		r.SetPathValue("alias", strings.Join(texts(take("alias")), ","))
	}
	for _, etag := range texts(take("ifMatch")) {
		r.Header.Add("If-Match", etag)
	}
	query := url.Values{}
	for _, name := range t.query {
		query[name] = texts(take(name))
	}
	r.URL.RawQuery = query.Encode()
	if t.body {
		body, err := json.Marshal(given)
		if err != nil {
			return nil, notObjectProblem
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}

// texts returns a value as texts of a path, a header or a query: a string as it is, each element of
// an array, nothing for null, and anything else as it is in JSON.
func texts(value jsontext.Value) (all []string) {
	switch value.Kind() {
	case 'n', 0:
	case '"':
		var text string
		_ = json.Unmarshal(value, &text)
		all = append(all, text)
	case '[':
		var elements []jsontext.Value
		_ = json.Unmarshal(value, &elements)
		for _, element := range elements {
			all = append(all, texts(element)...)
		}
	default:
		all = append(all, string(value))
	}
	return all
}

// recorder keeps a response.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder {
	return &recorder{header: http.Header{}, status: http.StatusOK}
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }

// description is the API's description, from which tools get their texts and schemas.
type description struct {
	all        map[string]any
	operations map[string]map[string]any // by operationId
	methods    map[string]string
}

func newDescription(text string) *description {
	d := &description{operations: map[string]map[string]any{}, methods: map[string]string{}}
	if err := json.Unmarshal([]byte(text), &d.all); err != nil {
		panic(err) // it is embedded
	}
	for _, path := range d.all["paths"].(map[string]any) {
		methods := path.(map[string]any)
		common, _ := methods["parameters"].([]any)
		for method, of := range methods {
			if operation, ok := of.(map[string]any); ok {
				id := operation["operationId"].(string)
				own, _ := operation["parameters"].([]any)
				operation["parameters"] = slices.Concat(common, own)
				d.operations[id], d.methods[id] = operation, strings.ToUpper(method)
			}
		}
	}
	return d
}

// tool returns a tool as clients see it, and sets what t lacks. Path, query and body are one flat
// object.
func (d *description) tool(t *tool) *mcp.Tool {
	operation := d.resolved(d.operations[t.operation]).(map[string]any)
	t.method = d.methods[t.operation]
	properties, required := map[string]any{}, []any{}
	for _, p := range operation["parameters"].([]any) {
		parameter := p.(map[string]any)
		name, schema := parameter["name"].(string), map[string]any{}
		for key, value := range parameter["schema"].(map[string]any) {
			schema[key] = value
		}
		schema["description"] = parameter["description"]
		switch parameter["in"] {
		case "query":
			t.query = append(t.query, name)
		case "path":
			required = append(required, name)
		case "header":
			if name != "If-Match" {
				continue
			}
			name = "ifMatch"
			schema["description"] = "The etag of the link as it was read: if it has changed since, " +
				"nothing is done."
		}
		properties[name] = schema
	}
	if body, ok := operation["requestBody"].(map[string]any); ok {
		t.body = true
		schema := schemaOf(body)
		for name, property := range schema["properties"].(map[string]any) {
			properties[name] = property
		}
		more, _ := schema["required"].([]any)
		required = append(required, more...)
	}
	described := &mcp.Tool{Name: t.operation, Title: operation["summary"].(string),
		Description: operation["summary"].(string) + ". " + operation["description"].(string),
		InputSchema: map[string]any{"type": "object", "properties": properties,
			"required": required},
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.readOnly},
	}
	if !t.readOnly {
		described.Annotations.DestructiveHint = &t.destructive
	}
	if ok, is := operation["responses"].(map[string]any)["200"].(map[string]any); is {
		schema := schemaOf(ok)
		if headers, _ := ok["headers"].(map[string]any); headers["ETag"] != nil {
			schema["properties"].(map[string]any)["etag"] = map[string]any{"type": "string",
				"description": "Stands for the link as it is now."}
		}
		described.OutputSchema = schema
	}
	return described
}

// schemaOf returns the schema of the JSON of a request's or response's body.
func schemaOf(body map[string]any) map[string]any {
	for mediaType, content := range body["content"].(map[string]any) {
		if strings.HasSuffix(mediaType, "json") {
			return content.(map[string]any)["schema"].(map[string]any)
		}
	}
	return nil
}

// resolved returns a copy of a part of the description in which every reference is replaced by what
// it refers to.
func (d *description) resolved(part any) any {
	switch part := part.(type) {
	case map[string]any:
		if to, ok := part["$ref"].(string); ok {
			var at any = d.all
			for name := range strings.SplitSeq(strings.TrimPrefix(to, "#/"), "/") {
				at = at.(map[string]any)[name]
			}
			return d.resolved(at)
		}
		all := make(map[string]any, len(part))
		for name, value := range part {
			all[name] = d.resolved(value)
		}
		return all
	case []any:
		all := make([]any, len(part))
		for i, value := range part {
			all[i] = d.resolved(value)
		}
		return all
	}
	return part
}

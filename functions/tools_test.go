package functions_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("functions.update", false, "write tools.json")

// toolNames are the operations of the API that assistants may call, in the order of their list.
var toolNames = []string{"shorten", "listLinks", "getLink", "editLink", "deleteLink",
	"restoreLink", "getLinkStatistics", "getTopLinks"}

// tools.json follows from openapi.json, which documents the tools' texts and schemas.
func TestToolsFile(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d description
	if err := json.Unmarshal(text, &d.all); err != nil {
		t.Fatal(err)
	}
	var tools []any
	for _, name := range toolNames {
		tools = append(tools, d.tool(name))
	}
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(tools); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("tools.json", want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("tools.json"); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("tools.json does not follow from openapi.json: %v. To write it: "+
			"go test ./functions -run ToolsFile -functions.update", err)
	}
}

// description is the API's description.
type description struct{ all map[string]any }

// operation returns an operation by its operationId, and its method.
func (d description) operation(id string) (operation map[string]any, method string) {
	for _, path := range d.all["paths"].(map[string]any) {
		methods := path.(map[string]any)
		common, _ := methods["parameters"].([]any)
		for method, of := range methods {
			if operation, ok := of.(map[string]any); ok && operation["operationId"] == id {
				operation = d.resolved(operation).(map[string]any)
				own, _ := operation["parameters"].([]any)
				operation["parameters"] = slices.Concat(d.resolved(common).([]any), own)
				return operation, strings.ToUpper(method)
			}
		}
	}
	panic("there is no operation " + id)
}

// tool returns a tool. The parameters of its path and query and the members of its body become the
// members of one flat object.
func (d description) tool(name string) map[string]any {
	operation, method := d.operation(name)
	properties, required, arguments := map[string]any{}, []any{}, map[string]any{}
	add := func(name, in string, schema map[string]any) {
		properties[name] = schema
		arguments[name] = map[string]any{"in": in, "types": typesOf(schema)}
	}
	for _, p := range operation["parameters"].([]any) {
		parameter := p.(map[string]any)
		name, in := parameter["name"].(string), parameter["in"].(string)
		schema := parameter["schema"].(map[string]any)
		schema["description"] = parameter["description"]
		switch {
		case in == "path":
			required = append(required, name)
		case name == "If-Match":
			name = "ifMatch"
			schema["description"] = "The etag of the link as it was read: if it has changed since, " +
				"nothing is done."
		case in == "header":
			continue
		}
		add(name, in, schema)
	}
	body, hasBody := operation["requestBody"].(map[string]any)
	if hasBody {
		schema := schemaOf(body)
		for name, property := range schema["properties"].(map[string]any) {
			add(name, "body", property.(map[string]any))
		}
		more, _ := schema["required"].([]any)
		required = append(required, more...)
	}
	annotations := map[string]any{"readOnlyHint": method == "GET"}
	if method != "GET" {
		// What these replace or delete may be lost.
		annotations["destructiveHint"] = method == "PATCH" || method == "DELETE"
	}
	summary := operation["summary"].(string)
	tool := map[string]any{"name": name, "title": summary,
		"description": summary + ". " + operation["description"].(string),
		"inputSchema": forModels(map[string]any{"type": "object", "properties": properties,
			"required": required, "additionalProperties": false}),
		"annotations": annotations,
		"method":      method, "arguments": arguments, "body": hasBody}
	if ok, is := operation["responses"].(map[string]any)["200"].(map[string]any); is {
		schema := schemaOf(ok)
		if headers, _ := ok["headers"].(map[string]any); headers["ETag"] != nil {
			schema["properties"].(map[string]any)["etag"] = map[string]any{"type": "string",
				"description": "Stands for the link as it is now."}
		}
		leaveOut(schema, "rules")
		tool["outputSchema"] = forModels(schema)
	}
	return tool
}

// leaveOut takes the schema of the elements out of a list, wherever that is in a schema. A model
// reads the schemas of all tools before it begins, and that of a request says the same.
func leaveOut(schema map[string]any, list string) {
	for name, value := range schema {
		if of, ok := value.(map[string]any); ok {
			if name == list {
				of["items"] = map[string]any{"type": "object"}
			}
			leaveOut(of, list)
		}
	}
}

// typesOf returns the types that a schema allows.
func typesOf(schema map[string]any) (types []string) {
	if one, ok := schema["type"].(string); ok {
		return []string{one}
	}
	several, _ := schema["type"].([]any)
	for _, one := range several {
		types = append(types, one.(string))
	}
	return types
}

// forModels changes a schema, and what is in it, to the forms that all models read, and returns it.
// A list of types becomes anyOf. x-values, which clients that are generated from the description do
// not know, becomes enum.
func forModels(part any) any {
	switch part := part.(type) {
	case []any:
		for i, value := range part {
			part[i] = forModels(value)
		}
	case map[string]any:
		for name, value := range part {
			part[name] = forModels(value)
		}
		if values, ok := part["x-values"]; ok {
			delete(part, "x-values")
			part["enum"] = values
		}
		types, ok := part["type"].([]any)
		if !ok {
			break
		}
		whole := map[string]any{}
		for _, name := range []string{"description", "default", "examples"} {
			if value, ok := part[name]; ok {
				whole[name] = value
				delete(part, name)
			}
		}
		for i, one := range types {
			is := map[string]any{}
			if one != "null" {
				is = maps.Clone(part)
			}
			is["type"], types[i] = one, is
		}
		whole["anyOf"] = types
		return whole
	}
	return part
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
func (d description) resolved(part any) any {
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

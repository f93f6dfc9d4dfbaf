// Package bicep reads Bicep files for the tests of infra/: their syntax, and what they declare.
//
// The grammar is that of the npm packages that package-lock.json beside this file pins; `make bicep` installs them. It
// knows the language and none of its types: what is declared wrongly, the Bicep compiler alone can tell.
package bicep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// File is a Bicep file.
type File struct {
	Path         string
	Errors       []SyntaxError // none: it is well-formed
	Root         *Node
	Declarations []*Declaration `json:"-"`
}

// SyntaxError is a place where the file is not well-formed.
type SyntaxError struct {
	Line, Column int
	Text         string
}

// Node is a node of the syntax tree, of a type of the grammar's.
type Node struct {
	Type     string
	Field    string // its role in its parent, where that has a name
	Line     int
	Existing bool   // a resource that is declared as existing
	Text     string // where there are no children
	Children []*Node
}

// Declaration is a parameter, variable, resource, module or output.
type Declaration struct {
	Kind       string // "param", "var", "resource", "module", "output"
	Name       string
	Line       int
	Decorators map[string]*Node // the arguments of each, by its name
	Of         string           // a parameter's or output's type, a resource's type and version, a module's path
	Existing   bool
	Value      *Node // a parameter's default (nil: none), everything else's value, with its if or for
}

// Parse reads files.
func Parse(paths ...string) ([]*File, error) {
	script, err := script()
	if err != nil {
		return nil, err
	}
	for _, path := range append([]string{script}, paths...) {
		// Go runs a test again when a file changes that it has looked at, and knows nothing of what node reads.
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("node", append([]string{script}, paths...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("reading Bicep files: %w\n%s", err, stderr.String())
	}
	var files []*File
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		file := new(File)
		if err := decoder.Decode(file); err != nil {
			return nil, err
		}
		file.declare()
		files = append(files, file)
	}
	if len(files) != len(paths) {
		return nil, fmt.Errorf("%d of %d Bicep files were read", len(files), len(paths))
	}
	return files, nil
}

// script finds parse.mjs from any folder of the project.
func script() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside the project: no go.mod in this folder or above it")
		}
		dir = parent
	}
	folder := filepath.Join(dir, "internal", "bicep")
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "tree-sitter-bicep")); err != nil {
		return "", fmt.Errorf("the Bicep grammar is not installed; run `make bicep` first (%w)", err)
	}
	return filepath.Join(folder, "parse.mjs"), nil
}

var kinds = map[string]string{
	"parameter_declaration": "param",
	"variable_declaration":  "var",
	"resource_declaration":  "resource",
	"module_declaration":    "module",
	"output_declaration":    "output",
}

// declare lists what the file declares.
func (f *File) declare() {
	var decorators *Node
	for _, node := range f.Root.Children {
		if node.Type == "decorators" {
			decorators = node
			continue
		}
		if kind := kinds[node.Type]; kind != "" && len(node.Children) > 0 {
			d := &Declaration{Kind: kind, Name: node.Children[0].Text, Line: node.Line, Existing: node.Existing, Decorators: map[string]*Node{}}
			if decorators != nil {
				for _, decorator := range decorators.Children {
					if call := decorator.Child(0); call != nil && call.Type == "call_expression" {
						d.Decorators[call.Child(0).Text] = call.Child(1)
					}
				}
			}
			rest := node.Children[1:]
			if kind != "var" && len(rest) > 0 {
				if rest[0].Type == "type" {
					d.Of = rest[0].Child(0).Text
				} else {
					d.Of = rest[0].String()
				}
				rest = rest[1:]
			}
			if len(rest) > 0 {
				d.Value = rest[0]
			}
			f.Declarations = append(f.Declarations, d)
		}
		decorators = nil
	}
}

// Declared returns the declaration of that kind and name, or nil. Outputs may have the names of parameters.
func (f *File) Declared(kind, name string) *Declaration {
	for _, d := range f.Declarations {
		if d.Kind == kind && d.Name == name {
			return d
		}
	}
	return nil
}

// Body returns the object that a resource or module is declared with, without its condition or loop.
func (d *Declaration) Body() *Node {
	body := d.Value
	for body != nil && body.Type != "object" {
		if len(body.Children) == 0 {
			return nil
		}
		body = body.Children[len(body.Children)-1]
	}
	return body
}

// Child returns a child, or nil where there are fewer. Its receiver may be nil.
func (n *Node) Child(i int) *Node {
	if n == nil || i >= len(n.Children) {
		return nil
	}
	return n.Children[i]
}

// Properties are an object's property nodes: key first, value second.
func (n *Node) Properties() []*Node {
	var properties []*Node
	if n != nil && n.Type == "object" {
		for _, child := range n.Children {
			if child.Type == "object_property" && len(child.Children) == 2 {
				properties = append(properties, child)
			}
		}
	}
	return properties
}

// Key is the name of an object's property.
func (n *Node) Key() string { return n.Children[0].String() }

// Property returns the value of an object's property, or nil.
func (n *Node) Property(name string) *Node {
	for _, property := range n.Properties() {
		if property.Key() == name {
			return property.Children[1]
		}
	}
	return nil
}

// Walk calls visit with the node and everything under it, until visit says no to a node's children.
func (n *Node) Walk(visit func(*Node) bool) {
	if n == nil || !visit(n) {
		return
	}
	for _, child := range n.Children {
		child.Walk(visit)
	}
}

// Literal says whether the node is a string without interpolation, a number, true, false or null.
func (n *Node) Literal() bool {
	switch n.Type {
	case "number", "boolean", "null":
		return true
	case "string":
		for _, child := range n.Children {
			if child.Type == "interpolation" {
				return false
			}
		}
		return true
	}
	return false
}

// String is the text of a literal, without quotes, or of an identifier.
func (n *Node) String() string {
	switch {
	case n == nil:
		return ""
	case n.Type != "string":
		return n.Text
	case len(n.Children) == 0:
		return strings.Trim(n.Text, "'")
	}
	var text strings.Builder
	for _, child := range n.Children {
		switch child.Type {
		case "escape_sequence":
			text.WriteString(strings.TrimPrefix(child.Text, `\`))
		case "interpolation":
			text.WriteString("${}")
		default:
			text.WriteString(child.Text)
		}
	}
	return text.String()
}

// References are the identifiers under the node that name something declared elsewhere: no keys of objects, no names
// of functions, no variables of loops and lambdas.
func (n *Node) References() []*Node {
	var found []*Node
	n.references(map[string]bool{}, &found)
	return found
}

func (n *Node) references(local map[string]bool, found *[]*Node) {
	if n == nil {
		return
	}
	switch n.Type {
	case "identifier":
		if !local[n.Text] {
			*found = append(*found, n)
		}
		return
	case "for_statement", "lambda_expression":
		inner := map[string]bool{}
		for name := range local {
			inner[name] = true
		}
		for i, child := range n.Children {
			if child.Field == "initializer" || n.Type == "lambda_expression" && i < len(n.Children)-1 || child.Type == "for_loop_parameters" {
				child.Walk(func(name *Node) bool { inner[name.Text] = true; return true })
			}
		}
		local = inner
	}
	for i, child := range n.Children {
		switch {
		case n.Type == "object_property" && i == 0 && child.Type == "identifier":
		case n.Type == "call_expression" && child.Field == "function" && child.Type == "identifier":
		default:
			child.references(local, found)
		}
	}
}

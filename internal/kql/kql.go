// Package kql checks queries in the Kusto query language: those of the workbook, the alerts and the
// docs. Nothing that ships imports it.
//
// The parser is Microsoft's own, in the npm package that package-lock.json beside this file pins;
// `make kql` installs it, and check.mjs runs it.
package kql

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Query is one to check. Its name is for the reader.
type Query struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Checked is what was found about a query.
type Checked struct {
	Name string `json:"name"`
	// Problems are what is wrong with it, with line and column: syntax, unknown names, types that
	// do not go together.
	Problems []string `json:"problems"`
	// Uses are the columns of tables that it compares with texts, also by a key of theirs, and the
	// keys that it takes out of customDimensions and customMeasurements, whatever they are called
	// by then.
	Uses []Use `json:"uses"`
	// Columns are those of its result.
	Columns []Column `json:"columns"`
	// OneRow says that it returns one row even if the tables are empty.
	OneRow bool `json:"oneRow"`
}

// Use is one place where a query depends on what a column of a table holds.
type Use struct {
	Table  string `json:"table"`
	Column string `json:"column"`
	Key    string `json:"key"` // in a column of properties, or of JSON
	// Operator and Value say what it is compared with. No operator: the key is taken. "unknown":
	// with something that is not a literal, which is in Value then.
	Operator string `json:"operator"`
	Value    string `json:"value"`
}

// Column is one of a query's result, with its Kusto type.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// Check checks queries against the tables of Application Insights, in the order in which they come.
// root is the project's folder.
func Check(root string, queries []Query) ([]Checked, error) {
	dir := filepath.Join(root, "internal", "kql")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@kusto",
		"language-service-next")); err != nil {
		return nil, fmt.Errorf("the parser of queries is not installed; run `make kql` first (%w)",
			err)
	}
	script := filepath.Join(dir, "check.mjs")
	// and so a result that go test has kept ends with a change of it
	if _, err := os.Stat(script); err != nil {
		return nil, err
	}
	in, err := json.Marshal(queries)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("node", script)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("checking queries: %w\n%s", err, stderr.String())
	}
	var all []Checked
	if err := json.Unmarshal(stdout.Bytes(), &all); err != nil {
		return nil, fmt.Errorf("checking queries: %w", err)
	}
	if len(all) != len(queries) {
		return nil, fmt.Errorf("%d of %d queries were checked", len(all), len(queries))
	}
	return all, nil
}

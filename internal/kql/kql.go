// Package kql checks the Kusto queries of the workbook, the alerts and the docs. Nothing that ships
// imports it.
//
// The parser is Microsoft's own. package-lock.json beside this file pins its npm package, `make
// kql` installs it, and check.mjs runs it.
package kql

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Query is a query to check. Its name is for the reader.
type Query struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Checked is the result of checking a query.
type Checked struct {
	Name string `json:"name"`
	// Problems are its errors, with line and column: in the syntax, unknown names, and types that
	// do not fit together.
	Problems []string `json:"problems"`
	// Uses are the columns of tables, or keys in them, that the query compares with texts. They
	// also are the keys that it takes out of customDimensions and customMeasurements, even if it
	// has renamed these columns.
	Uses []Use `json:"uses"`
	// Columns are the columns of its result.
	Columns []Column `json:"columns"`
	// OneRow says whether it returns one row even if the tables are empty.
	OneRow bool `json:"oneRow"`
}

// Use is one place where a query depends on the content of a table's column.
type Use struct {
	Table  string `json:"table"`
	Column string `json:"column"`
	Key    string `json:"key"` // in a column of properties, or of JSON
	// Operator and Value say what it is compared with. Without an Operator, the key is only read.
	// The Operator "unknown" means a comparison with something that is not a literal; Value has its
	// text.
	Operator string `json:"operator"`
	Value    string `json:"value"`
}

// Column is a column of a query's result, with its Kusto type.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// Check checks queries against the tables of Application Insights, and returns the results in the
// same order. root is the project's folder.
func Check(root string, queries []Query) ([]Checked, error) {
	dir := filepath.Join(root, "internal", "kql")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@kusto",
		"language-service-next")); err != nil {
		return nil, fmt.Errorf("the parser of queries is not installed; run `make kql` first (%w)",
			err)
	}
	script := filepath.Join(dir, "check.mjs")
	// Because of this call, a change of the script invalidates results that go test has cached.
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

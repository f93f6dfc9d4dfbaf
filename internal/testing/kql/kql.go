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
	"time"
)

// Query is a query to check. Its name is for the reader.
type Query struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Evaluate sees only rows of times after Since, in milliseconds since 1970.
	Since int64 `json:"since,omitempty"`
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
func Check(root string, queries []Query) (checked []Checked, err error) {
	err = run(root, "check.mjs", queries, &checked)
	return checked, err
}

// Row is a row of a table, or of a result. Times and durations are milliseconds; times count from
// 1970.
type Row map[string]any

// Evaluate returns the rows that each query selects of tables, at a time. It knows the operators
// and functions that the alerts use, and refuses others. root is the project's folder.
func Evaluate(root string, queries []Query, now time.Time, tables map[string][]Row) (rows [][]Row,
	err error) {
	var results []struct{ Rows []Row }
	err = run(root, "eval.mjs", map[string]any{"queries": queries, "now": now.UnixMilli(),
		"tables": tables}, &results)
	for _, r := range results {
		rows = append(rows, r.Rows)
	}
	return rows, err
}

// run gives a script in this folder JSON, and decodes the JSON that it prints.
func run(root, name string, in, out any) error {
	dir := filepath.Join(root, "internal", "testing", "kql")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@kusto",
		"language-service-next")); err != nil {
		return fmt.Errorf("the parser of queries is not installed; run `make kql` first (%w)", err)
	}
	// Because of these calls, a change of a script invalidates results that go test has cached.
	for _, script := range []string{name, "parser.mjs"} {
		if _, err := os.Stat(filepath.Join(dir, script)); err != nil {
			return err
		}
	}
	given, err := json.Marshal(in)
	if err != nil {
		return err
	}
	cmd := exec.Command("node", filepath.Join(dir, name))
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(given), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), out); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, stdout.String())
	}
	return nil
}

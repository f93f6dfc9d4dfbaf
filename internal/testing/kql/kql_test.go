package kql_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"tiney/internal/testing/kql"
)

var problemTests = []struct{ name, text, want string }{
	{"none", "requests | where timestamp > ago(1h) | summarize percentilesw(duration, itemCount, " +
		"50, 99) by name", ""},
	{"none, in a chart", "requests | summarize sum(itemCount) by bin(timestamp, 5m), name | " +
		"render timechart", ""},
	{"none, with a flag that is a text", "dependencies | where success == false", ""},
	{"syntax", "requests | whre name == 'redirect'", "line 1, column 12: "},
	{"an end that is missing", "requests | where (name == 'redirect'", "Expected: )"},
	{"an equals sign too few", "requests | where name = 'redirect'", "bool"},
	{"table", "AppRequests | count", "'AppRequests'"},
	{"column", "requests\n| where resultcode == '404'", "line 2, column 9: The name 'resultcode'"},
	{"column of another table", "customMetrics | summarize sum(itemCount)", "'itemCount'"},
	{"column that a summarize left behind",
		"requests | summarize n = count() by name | where duration > 5", "'duration'"},
	{"function", "requests | summarize percentilesweighted(duration, itemCount, 50)",
		"'percentilesweighted'"},
	{"arguments", "requests | summarize countif(name == 'redirect', itemCount)", "'countif'"},
	{"text as a number", "requests | where resultCode >= 500", "'>='"},
	{"number as a text", "requests | where duration == 'long'",
		"real duration is compared with string"},
	{"number among texts", "requests | where resultCode in (404, 410)",
		"string resultCode is compared with long"},
	{"sum of texts", "requests | summarize sum(name)", "summable"},
	{"key that is computed", "customEvents | extend key = strcat('R', 'esult') | where " +
		"customDimensions[key] == 'done'", "not a literal"},
	{"no query", "let n = 1;", "no table"},
}

var useTests = []struct {
	name, text string
	want       kql.Use
}{
	{"compared", "customMetrics | where name == 'cache.hit'",
		kql.Use{Table: "customMetrics", Column: "name", Operator: "==", Value: "cache.hit"}},
	{"the other way round", "customMetrics | where 'cache.hit' == name",
		kql.Use{Table: "customMetrics", Column: "name", Operator: "==", Value: "cache.hit"}},
	{"one of several", "customMetrics | summarize sumif(valueSum, name in ('cache.hit', " +
		"'cache.miss'))",
		kql.Use{Table: "customMetrics", Column: "name", Operator: "in", Value: "cache.miss"}},
	{"the start of it", "customMetrics | where name startswith 'cache.'",
		kql.Use{Table: "customMetrics", Column: "name", Operator: "startswith", Value: "cache."}},
	{"under another name", "customEvents | summarize arg_max(timestamp, *) by Event = name | " +
		"where Event =~ 'ReaperRun'",
		kql.Use{Table: "customEvents", Column: "name", Operator: "=~", Value: "ReaperRun"}},
	{"of tables together", "union requests, dependencies | where name == 'redirect'",
		kql.Use{Table: "dependencies", Column: "name", Operator: "==", Value: "redirect"}},
	{"after a join", "requests | join kind=inner dependencies on operation_Id | where name1 == " +
		"'GetEntity ShortUrls'",
		kql.Use{Table: "dependencies", Column: "name", Operator: "==",
			Value: "GetEntity ShortUrls"}},
	{"in a variable", "let event = 'ReaperRun'; customEvents | where name == event",
		kql.Use{Table: "customEvents", Column: "name", Operator: "unknown", Value: "event"}},
	{"key", "customEvents | project todouble(customMeasurements.Deleted)",
		kql.Use{Table: "customEvents", Column: "customMeasurements", Key: "Deleted"}},
	{"key in brackets", "customEvents | project customDimensions['Result']",
		kql.Use{Table: "customEvents", Column: "customDimensions", Key: "Result"}},
	{"key that is compared", "customEvents | extend R = tostring(customDimensions.Result) | " +
		"where R != 'held'",
		kql.Use{Table: "customEvents", Column: "customDimensions", Key: "Result", Operator: "!=",
			Value: "held"}},
	{"in JSON", "traces | extend line = parse_json(message) | extend Level = " +
		"tostring(line.level) | where Level == 'WARN'",
		kql.Use{Table: "traces", Column: "message", Key: "level", Operator: "==", Value: "WARN"}},
}

var oneRowTests = map[string]bool{
	"customEvents | summarize n = count() | extend m = n + 1 | project m": true,
	"let n = 1; customEvents | summarize n = count()":                     true,
	"customEvents | summarize n = count() by name":                        false,
	"customEvents | summarize n = count() | where n > 0":                  false,
	"customEvents | where name == 'ReaperRun'":                            false,
}

const columnsTest = "requests | summarize n = sum(itemCount), share = 0.5 by bin(timestamp, 5m)"

// checked returns the result of checking a query. All queries are checked at once, since starting
// the parser takes seconds.
func checked(t *testing.T, text string) kql.Checked {
	t.Helper()
	all, err := checkAll()
	if err != nil {
		t.Fatal(err)
	}
	return all[text]
}

var checkAll = sync.OnceValues(func() (map[string]kql.Checked, error) {
	queries := []kql.Query{{Name: columnsTest, Text: columnsTest}}
	add := func(text string) { queries = append(queries, kql.Query{Name: text, Text: text}) }
	for _, test := range problemTests {
		add(test.text)
	}
	for _, test := range useTests {
		add(test.text)
	}
	for text := range oneRowTests {
		add(text)
	}
	found, err := kql.Check("../../..", queries)
	all := map[string]kql.Checked{}
	for _, c := range found {
		all[c.Name] = c
	}
	return all, err
})

func TestProblems(t *testing.T) {
	for _, test := range problemTests {
		t.Run(test.name, func(t *testing.T) {
			got := checked(t, test.text).Problems
			if test.want == "" && len(got) > 0 || !strings.Contains(strings.Join(got, "\n"),
				test.want) {
				t.Errorf("problems %q, want %q", got, test.want)
			}
		})
	}
}

func TestUses(t *testing.T) {
	for _, test := range useTests {
		t.Run(test.name, func(t *testing.T) {
			if got := checked(t, test.text); len(got.Problems) > 0 ||
				!slices.Contains(got.Uses, test.want) {
				t.Errorf("problems %q, uses %+v, want %+v", got.Problems, got.Uses, test.want)
			}
		})
	}
}

func TestOneRow(t *testing.T) {
	for text, want := range oneRowTests {
		if got := checked(t, text).OneRow; got != want {
			t.Errorf("%s: one row: %t, want %t", text, got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	want := []kql.Column{{Name: "timestamp", Type: "datetime"}, {Name: "n", Type: "long"},
		{Name: "share", Type: "real"}}
	if got := checked(t, columnsTest).Columns; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCheckWithoutParser(t *testing.T) {
	_, err := kql.Check(t.TempDir(), nil)
	if err == nil || !strings.Contains(err.Error(), "make kql") {
		t.Errorf("got %v, want an error that names `make kql`", err)
	}
}

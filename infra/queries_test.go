// Package infra_test checks what is deployed beside the code: that the queries of the workbook, of the alerts and of
// docs/operations.md are sound, and name only what the code sends.
package infra_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tiney/internal/kql"
	"tiney/telemetry"
)

const operations = "../docs/operations.md"

// item is one part of a workbook.
// https://github.com/microsoft/Application-Insights-Workbooks/blob/master/schema/workbook.json has the format.
type item struct {
	Type    int // 1: text, 3: query, 9: parameters
	Name    string
	Content struct {
		Version                  string
		JSON                     string
		Query                    string
		QueryType                *int
		ResourceType             string
		TimeContextFromParameter string
		Visualization            string
		Title                    string
		Parameters               []struct {
			ID, Name string
			Type     int
		}
	}
}

// alert is one definition as the Bicep module takes it. The names are those of Microsoft.Insights/scheduledQueryRules.
type alert struct {
	Name, DisplayName, Description string
	Severity                       int
	EvaluationFrequency            string
	WindowSize                     string
	OverrideQueryTimeRange         string // "": the window
	Query                          string
	MetricMeasureColumn            string
	TimeAggregation                string
	Operator                       string
	Threshold                      int // Bicep knows no other numbers
	FailingPeriods                 struct{ NumberOfEvaluationPeriods, MinFailingPeriodsToAlert int }
	AutoMitigate                   bool
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func workbook(t *testing.T) []item {
	t.Helper()
	var w struct {
		Version string
		Items   []item
	}
	if err := json.Unmarshal([]byte(read(t, "workbook.json")), &w); err != nil {
		t.Fatal(err)
	}
	if w.Version != "Notebook/1.0" || len(w.Items) == 0 {
		t.Fatalf("version %q with %d items is no workbook", w.Version, len(w.Items))
	}
	return w.Items
}

func alerts(t *testing.T) []alert {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(read(t, "alerts.json")))
	decoder.DisallowUnknownFields()
	var all []alert
	if err := decoder.Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

// parameters are what the workbook puts in place of its parameters, and how the query reads then.
var parameters = strings.NewReplacer(
	"{TimeRange}", "> ago(1d)",
	"{TimeRange:start}", "datetime(2026-01-01)",
	"{TimeRange:end}", "datetime(2026-01-02)",
	"{TimeRange:grain}", "5m",
	"{Request}", "0af7651916cd43dd8448eb211c80319c",
)

var parameter = regexp.MustCompile(`\{(\w+)(:\w+)?\}`)

func workbookQueries(t *testing.T) []kql.Query {
	t.Helper()
	var all []kql.Query
	for _, i := range workbook(t) {
		if i.Type == 3 {
			all = append(all, kql.Query{Name: "workbook: " + i.Name, Text: parameters.Replace(i.Content.Query)})
		}
	}
	return all
}

func alertQueries(t *testing.T) []kql.Query {
	t.Helper()
	var all []kql.Query
	for _, a := range alerts(t) {
		all = append(all, kql.Query{Name: "alert: " + a.Name, Text: a.Query})
	}
	return all
}

var (
	block   = regexp.MustCompile("(?ms)^```kusto\n(.*?)^```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

func docQueries(t *testing.T) []kql.Query {
	t.Helper()
	var all []kql.Query
	text := read(t, operations)
	for _, at := range block.FindAllStringSubmatchIndex(text, -1) {
		line := 1 + strings.Count(text[:at[2]], "\n")
		all = append(all, kql.Query{Name: fmt.Sprintf("%s, the block from line %d", operations, line), Text: text[at[2]:at[3]]})
	}
	if len(all) == 0 {
		t.Fatalf("no kusto block in %s", operations)
	}
	return all
}

func check(t *testing.T, queries []kql.Query) []kql.Checked {
	t.Helper()
	all, err := kql.Check("..", queries)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// deployed are all queries, checked once for all tests: starting the parser takes seconds.
var deployed struct {
	sync.Mutex
	byName map[string]kql.Checked
}

func checked(t *testing.T, queries []kql.Query) []kql.Checked {
	t.Helper()
	deployed.Lock()
	defer deployed.Unlock()
	if deployed.byName == nil {
		all := map[string]kql.Checked{}
		for _, c := range check(t, slices.Concat(workbookQueries(t), alertQueries(t), docQueries(t))) {
			all[c.Name] = c
		}
		deployed.byName = all
	}
	var some []kql.Checked
	for _, q := range queries {
		some = append(some, deployed.byName[q.Name])
	}
	return some
}

func TestQueries(t *testing.T) {
	sent := vocabulary(t)
	for _, c := range checked(t, slices.Concat(workbookQueries(t), alertQueries(t), docQueries(t))) {
		for _, problem := range append(c.Problems, sent.unknown(c.Uses)...) {
			t.Errorf("%s: %s", c.Name, problem)
		}
	}
}

// What is measured and shown nowhere might as well not be measured.
func TestTheWorkbookShowsAllThatIsSent(t *testing.T) {
	shown := map[kql.Use]bool{}
	for _, c := range checked(t, workbookQueries(t)) {
		for _, u := range c.Uses {
			if u.Operator == "==" || u.Operator == "in" || u.Key != "" {
				shown[kql.Use{Table: u.Table, Column: u.Column, Key: u.Key, Value: u.Value}] = true
			}
		}
	}
	for _, m := range new(telemetry.Metrics).Snapshot() {
		if !shown[kql.Use{Table: "customMetrics", Column: "name", Value: m.Name}] {
			t.Errorf("the metric %s is in no query", m.Name)
		}
	}
	for _, e := range telemetry.Events {
		if !shown[kql.Use{Table: "customEvents", Column: "name", Value: e}] {
			t.Errorf("the event %s is in no query", e)
		}
	}
	keys := map[string]bool{}
	for u := range shown {
		keys[u.Column+"."+u.Key] = true
	}
	for _, key := range telemetry.Properties {
		if !keys["customDimensions."+key] {
			t.Errorf("the property %s is in no query", key)
		}
	}
	for _, key := range telemetry.Measurements {
		if !keys["customMeasurements."+key] {
			t.Errorf("the measurement %s is in no query", key)
		}
	}
}

// sent is what the code sends, by the place where a query finds it: the table and column, with the key where it has
// one.
type sent map[string][]string

func vocabulary(t *testing.T) sent {
	t.Helper()
	var metrics, functions []string
	for _, m := range new(telemetry.Metrics).Snapshot() {
		metrics = append(metrics, m.Name)
	}
	folders, err := filepath.Glob("../functions/*/function.json")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no functions (%v)", err)
	}
	for _, f := range folders {
		functions = append(functions, filepath.Base(filepath.Dir(f)))
	}
	statuses := []string{"0"} // of what is no HTTP request
	for status := 100; status < 600; status++ {
		statuses = append(statuses, strconv.Itoa(status))
	}
	return sent{
		"customMetrics name":                     metrics,
		"customEvents name":                      telemetry.Events,
		"customEvents customDimensions.Result":   telemetry.Results,
		"customEvents customDimensions.Complete": {"true", "false"},
		"requests name":                          functions,
		"requests operation_Name":                functions,
		"requests resultCode":                    statuses,
		"dependencies operation_Name":            append(functions, "start"), // of the process
		"dependencies resultCode":                append(statuses, telemetry.ResultCanceled, telemetry.ResultTimeout, telemetry.ResultUnreachable, telemetry.ResultNoToken),
		"dependencies type":                      telemetry.Types,
		"customDimensions":                       telemetry.Properties,
		"customMeasurements":                     telemetry.Measurements,
	}
}

// unknown says in words which uses are of something that is never sent, or that it cannot tell.
func (s sent) unknown(uses []kql.Use) []string {
	var all []string
	for _, u := range uses {
		place := u.Table + " " + u.Column
		if u.Key != "" {
			place += "." + u.Key
		}
		if u.Operator == "" {
			if !slices.Contains(s[u.Column], u.Key) {
				all = append(all, place+" is never sent")
			}
			continue
		}
		values, known := s[place]
		if !known {
			continue // any value may be there
		}
		var match func(value, text string) bool
		switch u.Operator {
		case "==", "!=", "in", "!in":
			match = func(value, text string) bool { return value == text }
		case "startswith", "!startswith":
			match = strings.HasPrefix
		default:
			all = append(all, fmt.Sprintf("%s %s %s cannot be checked: use ==, !=, in, !in or startswith, with a text", place, u.Operator, u.Value))
			continue
		}
		if !slices.ContainsFunc(values, func(value string) bool { return match(value, u.Value) }) {
			all = append(all, fmt.Sprintf("%s is never %q", place, u.Value))
		}
	}
	return all
}

func TestBadQueriesAreRefused(t *testing.T) {
	tests := []struct{ text, want string }{
		// What the parser refuses is tested where it lives; one of each kind shows that it is asked.
		{"requests | whre name == 'redirect'", "operator expected"},
		{"requests | summarize avg(durationMs)", "'durationMs'"},
		{"customMetrics | where name == 'cache.hits'", `customMetrics name is never "cache.hits"`},
		{"customMetrics | where name in ('cache.hit', 'cache.mis')", `is never "cache.mis"`},
		{"customMetrics | summarize sumif(valueSum, name != 'Cache.Hit')", `is never "Cache.Hit"`},
		{"customMetrics | where name startswith 'caches.'", `is never "caches."`},
		{"customMetrics | project Metric = name, value | where Metric == 'redirect.ok'", `is never "redirect.ok"`},
		{"customMetrics | where name has 'cache'", "cannot be checked"},
		{"let metric = 'cache.hits'; customMetrics | where name == metric", "cannot be checked"},
		{"customEvents | where name == 'ReaperRuns'", `customEvents name is never "ReaperRuns"`},
		{"customEvents | where name == 'reaper.deleted'", `customEvents name is never "reaper.deleted"`},
		{"customEvents | where customDimensions.Outcome == 'done'", "customDimensions.Outcome is never sent"},
		{"customEvents | extend d = toint(customMeasurements['deleted'])", "customMeasurements.deleted is never sent"},
		{"customEvents | extend d = toint(customDimensions.Deleted)", "customDimensions.Deleted is never sent"},
		{"customEvents | where customDimensions.Result == 'success'", `customDimensions.Result is never "success"`},
		{"customEvents | extend R = tostring(customDimensions.Result) | where R in ('done', 'skipped')", `is never "skipped"`},
		{"customEvents | where customDimensions.Complete == 'True'", `customDimensions.Complete is never "True"`},
		{"dependencies | where type == 'Azure Table'", `dependencies type is never "Azure Table"`},
		{"dependencies | where resultCode == 'cancelled'", `dependencies resultCode is never "cancelled"`},
		{"requests | where name == 'GET /{alias}'", `requests name is never "GET /{alias}"`},
		{"dependencies | where operation_Name == 'Redirect'", `operation_Name is never "Redirect"`},
		{"union requests, dependencies | where operation_Name == 'reap'", `requests operation_Name is never "reap"`},
	}
	var queries []kql.Query
	for _, test := range tests {
		queries = append(queries, kql.Query{Name: test.text, Text: test.text})
	}
	sent := vocabulary(t)
	for i, c := range check(t, queries) {
		got := strings.Join(append(c.Problems, sent.unknown(c.Uses)...), "\n")
		if !strings.Contains(strings.ToLower(got), strings.ToLower(tests[i].want)) {
			t.Errorf("%s: problems %q, want %q", c.Name, got, tests[i].want)
		}
	}
}

func TestWorkbook(t *testing.T) {
	// The names end up in addresses and pins, and the ids in what a browser remembers.
	unique := map[string]bool{}
	once := func(what, name string) {
		if name == "" || unique[what+name] {
			t.Errorf("%s %q is empty or there twice", what, name)
		}
		unique[what+name] = true
	}
	declared := map[string]int{}
	results := map[string]kql.Checked{}
	for _, c := range checked(t, workbookQueries(t)) {
		results[c.Name] = c
	}
	for _, i := range workbook(t) {
		once("name", i.Name)
		c := i.Content
		switch i.Type {
		case 1:
			if !strings.HasPrefix(c.JSON, "#") {
				t.Errorf("%s: a text without a heading", i.Name)
			}
		case 9:
			for _, p := range c.Parameters {
				once("id", p.ID)
				declared[p.Name] = p.Type
			}
		case 3:
			once("title", c.Title)
			// Without resource ids, a query asks the component under which the workbook was opened or saved.
			if c.QueryType == nil || *c.QueryType != 0 || c.ResourceType != "microsoft.insights/components" || c.Version != "KqlItem/1.0" {
				t.Errorf("%s: is not a query of Application Insights", i.Name)
			}
			if c.TimeContextFromParameter != "TimeRange" || declared["TimeRange"] != 4 {
				t.Errorf("%s: does not follow the time range", i.Name)
			}
			for _, p := range parameter.FindAllStringSubmatch(c.Query, -1) {
				if _, ok := declared[p[1]]; !ok {
					t.Errorf("%s: the parameter %s does not exist, or only further down", i.Name, p[0])
				}
				if parameters.Replace(p[0]) == p[0] {
					t.Errorf("%s: this test has no value for %s", i.Name, p[0])
				}
			}
			columns := results["workbook: "+i.Name].Columns
			kinds := map[string]int{}
			for _, column := range columns {
				switch column.Type {
				case "long", "real":
					kinds["number"]++
				default:
					kinds[column.Type]++
				}
			}
			switch c.Visualization {
			case "linechart", "barchart":
				if kinds["datetime"] != 1 || kinds["number"] == 0 || kinds["string"] > 1 {
					t.Errorf("%s: %v makes no %s over time", i.Name, columns, c.Visualization)
				}
			case "table":
			default:
				t.Errorf("%s: visualization %q", i.Name, c.Visualization)
			}
		default:
			t.Errorf("%s: type %d", i.Name, i.Type)
		}
	}
	for _, id := range []string{"/subscriptions/", "resourceIds", "ResourceIds"} {
		if strings.Contains(read(t, "workbook.json"), id) {
			t.Errorf("there is a resource id (%s): it would be of one subscription only", id)
		}
	}
}

// The values that a rule may have are those that the service takes, which are fewer than what its API documents:
// https://registry.terraform.io/providers/hashicorp/azurerm/latest/docs/resources/monitor_scheduled_query_rules_alert_v2
func TestAlerts(t *testing.T) {
	minutes := map[string]int{"PT5M": 5, "PT10M": 10, "PT15M": 15, "PT30M": 30, "PT45M": 45, "PT1H": 60, "PT2H": 120,
		"PT3H": 180, "PT4H": 240, "PT5H": 300, "PT6H": 360, "P1D": 1440, "P2D": 2880}
	var anchors []string
	for _, h := range heading.FindAllStringSubmatch(read(t, operations), -1) {
		anchors = append(anchors, strings.ReplaceAll(strings.ToLower(h[1]), " ", "-"))
	}
	results := map[string]kql.Checked{}
	for _, c := range checked(t, alertQueries(t)) {
		results[c.Name] = c
	}
	names := map[string]bool{}
	for _, a := range alerts(t) {
		t.Run(a.Name, func(t *testing.T) {
			if names[a.Name] || !regexp.MustCompile(`^[a-z-]+$`).MatchString(a.Name) || a.DisplayName == "" {
				t.Error("needs a name of its own, of lower-case letters and hyphens, and one to show")
			}
			names[a.Name] = true
			_, anchor, _ := strings.Cut(a.Description, "docs/operations.md#")
			if !slices.Contains(anchors, anchor) {
				t.Errorf("its description leads to %q, which is no heading of %s", anchor, operations)
			}
			if a.Severity < 0 || a.Severity > 4 {
				t.Errorf("severity %d", a.Severity)
			}
			frequency, window := minutes[a.EvaluationFrequency], minutes[a.WindowSize]
			if frequency == 0 || frequency > 1440 || window == 0 || frequency > window {
				t.Errorf("is run every %q over %q", a.EvaluationFrequency, a.WindowSize)
			}
			if r := a.OverrideQueryTimeRange; r != "" && minutes[r] < window {
				t.Errorf("looks back for %q, which is no such value, or shorter than %q", r, a.WindowSize)
			}
			if a.FailingPeriods.NumberOfEvaluationPeriods != 1 || a.FailingPeriods.MinFailingPeriodsToAlert != 1 {
				t.Error("more than one period needs a query that returns times")
			}
			if !slices.Contains([]string{"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "Equal"}, a.Operator) {
				t.Errorf("operator %q", a.Operator)
			}
			if !a.AutoMitigate {
				t.Error("does not end by itself")
			}
			// One row, so the kind of aggregation is all the same; but Count would count the row.
			if a.TimeAggregation != "Maximum" {
				t.Errorf("aggregation %q", a.TimeAggregation)
			}
			found := results["alert: "+a.Name]
			if !found.OneRow {
				t.Error("its query may return no row, which raises no alert and ends none")
			}
			measured := false
			for _, c := range found.Columns {
				measured = measured || c.Name == a.MetricMeasureColumn && slices.Contains([]string{"int", "long", "real"}, c.Type)
				if c.Type == "datetime" {
					t.Errorf("its query returns the time %s, by which the service would cut the result into windows", c.Name)
				}
			}
			if !measured {
				t.Errorf("its query returns %v, and no number %s", found.Columns, a.MetricMeasureColumn)
			}
			// A query that looks back further than it is given sees less than it says.
			longest := window
			if a.OverrideQueryTimeRange != "" {
				longest = minutes[a.OverrideQueryTimeRange]
			}
			for _, ago := range regexp.MustCompile(`ago\((\d+)m\)`).FindAllStringSubmatch(a.Query, -1) {
				var n int
				fmt.Sscan(ago[1], &n)
				if n > longest {
					t.Errorf("its query says %s and is given %d minutes", ago[0], longest)
				}
			}
		})
	}
}

// The log lines that the docs explain are in backquotes at the start of a row of a table. They exist, and every warning
// and error is one of them.
func TestTheDocsExplainTheLog(t *testing.T) {
	_, section, found := strings.Cut(read(t, operations), "\n## What the log says\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines := regexp.MustCompile("(?m)^\\| `([^`]*)`").FindAllStringSubmatch(section, -1)
	if !found || len(lines) == 0 {
		t.Fatalf("no log lines in %s", operations)
	}
	var sources strings.Builder
	for _, pattern := range []string{"../handler/*.go", "../functions/*.go", "../storage/*.go", "../telemetry/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files (%v)", pattern, err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				sources.WriteString(read(t, f))
			}
		}
	}
	logged := regexp.MustCompile(`\.(?:Warn|Error)\("([^"]+)"`).FindAllStringSubmatch(sources.String(), -1)
	if len(logged) == 0 {
		t.Fatal("the code logs nothing")
	}
	for _, l := range logged {
		if !strings.Contains(section, "\n| `"+l[1]) {
			t.Errorf("%s does not explain the log line %q", operations, l[1])
		}
	}
	for _, l := range lines {
		// A text that is put together in the code ends in an ellipsis.
		text, open := strings.CutSuffix(l[1], " …")
		want := `"` + text
		if !open {
			want += `"`
		}
		if !strings.Contains(sources.String(), want) {
			t.Errorf("nothing in the code logs %q", l[1])
		}
	}
}

// The docs name the charts of the workbook in italics, in paragraphs that begin with "Charts:", and every chart somewhere.
func TestTheDocsNameTheCharts(t *testing.T) {
	charts := map[string]bool{}
	for _, i := range workbook(t) {
		if i.Type == 3 {
			charts[i.Content.Title] = false
		}
	}
	named := regexp.MustCompile(`\*([^*]+)\*`)
	for _, paragraph := range strings.Split(read(t, operations), "\n\n") {
		if !strings.HasPrefix(paragraph, "Charts: ") {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(strings.ReplaceAll(paragraph, "\n", " "), -1) {
			if _, ok := charts[m[1]]; !ok {
				t.Errorf("%s names a chart that does not exist: %q", operations, m[1])
			}
			charts[m[1]] = true
		}
	}
	for title, explained := range charts {
		if !explained {
			t.Errorf("%s does not name the chart %q", operations, title)
		}
	}
}

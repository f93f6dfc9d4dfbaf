// These tests check that the queries of the workbook, the alerts and the docs are valid, and that
// they name only what the code and the Functions host send.
package infra_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tiney/internal/telemetry"
	"tiney/internal/testing/kql"
)

const operations = "../docs/operations.md"

// workbook is the part of workbook.json that the tests need. The format is described in
// https://github.com/microsoft/Application-Insights-Workbooks/blob/master/schema/workbook.json.
type workbook struct {
	Version string
	Items   []struct {
		Type    int // 1: text, 3: query, 9: parameters
		Name    string
		Content struct {
			Version, Query, ResourceType, TimeContextFromParameter, Visualization, Title string
			JSON                                                                         string
			QueryType                                                                    *int
			CrossComponentResources                                                      []string
			Parameters                                                                   []struct {
				Name string
				Type int
			}
		}
	}
}

// alert is an alert in alerts.json. The names are those of Microsoft.Insights/scheduledQueryRules.
type alert struct {
	Name, DisplayName, Description, Query          string
	EvaluationFrequency, WindowSize                string
	OverrideQueryTimeRange                         string // "": the same as the window
	MetricMeasureColumn, TimeAggregation, Operator string
	Severity, Threshold                            int // Bicep has no other numbers
	FailingPeriods                                 struct {
		NumberOfEvaluationPeriods,
		MinFailingPeriodsToAlert int
	}
	AutoMitigate bool
}

func decode[T any](t *testing.T, file string) (content T) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, file)), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

// values are the values that replace the workbook's parameters.
var values = map[string]string{
	"{TimeRange}": "> ago(1d)", "{TimeRange:start}": "datetime(2026-01-01)",
	"{TimeRange:end}":   "datetime(2026-01-02)",
	"{TimeRange:grain}": "5m", "{Request}": "0af7651916cd43dd8448eb211c80319c",
}

var parameter = regexp.MustCompile(`\{(\w+)(:\w+)?\}`)

// queries returns all queries. Their names say where they are.
func queries(t *testing.T) (all []kql.Query) {
	t.Helper()
	for _, i := range decode[workbook](t, "workbook.json").Items {
		if i.Type == 3 {
			text := parameter.ReplaceAllStringFunc(
				i.Content.Query, func(p string) string { return values[p] })
			all = append(all, kql.Query{Name: "workbook: " + i.Name, Text: text})
		}
	}
	for _, a := range decode[[]alert](t, "alerts.json") {
		all = append(all, kql.Query{Name: "alert: " + a.Name, Text: a.Query})
	}
	for i, text := range matches(t, read(t, "modules/alerts.bicep"), `(?m)^ +query: '(.*)'$`) {
		all = append(all, kql.Query{Name: fmt.Sprintf("modules/alerts.bicep, query %d", i+1),
			Text: text})
	}
	for i, text := range matches(t, read(t, operations), "(?ms)^```kusto\n(.*?)^```$") {
		name := fmt.Sprintf("%s, kusto block %d", operations, i+1)
		all = append(all, kql.Query{Name: name, Text: text})
	}
	return all
}

var (
	checkOnce sync.Once
	results   = map[string]kql.Checked{}
	checkErr  error
)

// checked returns the parser's findings for all queries and badQueries, by name. It starts the
// parser once, which takes seconds.
func checked(t *testing.T) map[string]kql.Checked {
	t.Helper()
	checkOnce.Do(func() {
		all := queries(t)
		for _, bad := range badQueries {
			all = append(all, kql.Query{Name: bad.text, Text: bad.text})
		}
		var found []kql.Checked
		found, checkErr = kql.Check("..", all)
		for _, c := range found {
			results[c.Name] = c
		}
	})
	if checkErr != nil { // in every test, which would otherwise blame the queries
		t.Fatal(checkErr)
	}
	return results
}

func TestQueries(t *testing.T) {
	sent := vocabulary(t)
	for _, q := range queries(t) {
		c := checked(t)[q.Name]
		for _, problem := range append(c.Problems, sent.unknown(c.Uses)...) {
			t.Errorf("%s: %s", q.Name, problem)
		}
	}
}

// TestWorkbookShowsEverythingSent checks that charts show everything sent. Nobody would see the
// rest.
func TestWorkbookShowsEverythingSent(t *testing.T) {
	shown := map[string]bool{}
	for name, c := range checked(t) {
		for _, u := range c.Uses {
			if strings.HasPrefix(name, "workbook: ") && slices.Contains([]string{"", "==", "in"},
				u.Operator) {
				shown[u.Column+"."+u.Key] = true
				shown[u.Table+" "+u.Value] = true
			}
		}
	}
	var want []string
	for _, m := range new(telemetry.Metrics).Snapshot() {
		want = append(want, "customMetrics "+m.Name)
	}
	for prefix, names := range map[string][]string{"customEvents ": telemetry.Events,
		"customDimensions.":   telemetry.Properties,
		"customMeasurements.": telemetry.Measurements} {
		for _, name := range names {
			want = append(want, prefix+name)
		}
	}
	for _, name := range want {
		if !shown[name] {
			t.Errorf("no chart shows %s", name)
		}
	}
}

// sent are the values that arrive, by the place in which a query finds them: table, column and, if
// there is one, key.
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
	statuses := []string{"0"} // the status of other requests than HTTP
	for status := 100; status < 600; status++ {
		statuses = append(statuses, strconv.Itoa(status))
	}
	return sent{
		"customMetrics name":                     metrics,
		"customMetrics customDimensions.Limit":   telemetry.Limits,
		"customEvents name":                      telemetry.Events,
		"customEvents customDimensions.Result":   telemetry.Results,
		"customEvents customDimensions.Complete": {"true", "false"},
		"requests name":                          functions,
		"requests operation_Name":                functions,
		"requests resultCode":                    statuses,
		// Calls outside of functions are the process's own.
		"dependencies operation_Name": append(functions, "start"),
		"dependencies resultCode": append(statuses, telemetry.ResultCanceled,
			telemetry.ResultTimeout, telemetry.ResultUnreachable, telemetry.ResultNoToken),
		"dependencies type":                             telemetry.Types,
		"traces message":                                arrivingTraces(t, functions),
		"AppServiceConsoleLogs ResultDescription":       {`{"time":"`},
		"AppServiceConsoleLogs ResultDescription.level": {"DEBUG", "INFO", "WARN", "ERROR"},
		"AppServiceConsoleLogs ResultDescription.msg":   logMessages(t),
		"traces message.level":                          {"DEBUG", "INFO", "WARN", "ERROR"},
		"traces message.msg":                            logMessages(t),
		"customDimensions":                              telemetry.Properties,
		"customMeasurements":                            telemetry.Measurements,
	}
}

// arrivingTraces returns the beginnings of the lines that host.json lets through: the handler's
// stdout, and what the host itself writes about each invocation.
func arrivingTraces(t *testing.T, functions []string) []string {
	t.Helper()
	host := decode[struct {
		Logging struct{ LogLevel map[string]string }
	}](t, "../host.json")
	// The longest key that a category starts with determines its level.
	arrives := func(category string) bool {
		longest, level := "", "Information"
		for key, of := range host.Logging.LogLevel {
			if strings.HasPrefix(category, key) && len(key) >= len(longest) {
				longest, level = key, of
			}
		}
		return slices.Contains([]string{"Trace", "Debug", "Information"}, level)
	}
	var lines []string
	if arrives("Host.Function.Console") {
		lines = append(lines, `{"time":"`)
	}
	for _, f := range functions {
		if arrives("Function." + f) {
			lines = append(lines, "Executing 'Functions."+f+"' (Reason=", "Executed 'Functions."+f+
				"' (Succeeded")
		}
	}
	if !arrives("Host.Results") {
		t.Error("host.json switches the table requests off")
	}
	return lines
}

// unknown describes uses of values that never arrive, and uses that cannot be checked.
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
		// This is the id of a request, which the reader enters.
		if !known || place == "traces message" && u.Operator == "unknown" {
			continue
		}
		var match func(value, text string) bool
		switch strings.TrimPrefix(u.Operator, "!") {
		case "==", "=", "in":
			match = func(value, text string) bool { return value == text }
		case "startswith":
			match = strings.HasPrefix
		case "has", "contains":
			match = strings.Contains
		default:
			all = append(all, fmt.Sprintf(
				"%s %s %s cannot be checked: use another operator, with a text", place, u.Operator,
				u.Value))
			continue
		}
		if !slices.ContainsFunc(values, func(value string) bool { return match(value, u.Value) }) {
			all = append(all, fmt.Sprintf("%s is never %q", place, u.Value))
		}
	}
	return all
}

// badQueries have one mistake each. The tests of internal/testing/kql cover what the parser
// refuses. One of each kind here shows that the parser is used.
var badQueries = []struct{ text, want string }{
	{"requests | whre name == 'redirect'", "operator expected"},
	{"customMetrics | where name in ('cache.hit', 'cache.mis')",
		`customMetrics name is never "cache.mis"`},
	{"customMetrics | project Metric = name, value | where Metric == 'redirect.ok'",
		`is never "redirect.ok"`},
	{"let metric = 'cache.hits'; customMetrics | where name == metric", "cannot be checked"},
	{"customEvents | where customDimensions.Outcome == 'done'",
		"customDimensions.Outcome is never sent"},
	{"customEvents | extend d = toint(customMeasurements['deleted'])",
		"customMeasurements.deleted is never sent"},
	{"customEvents | extend R = tostring(customDimensions.Result) | where R in ('done', 'skipped')",
		`is never "skipped"`},
	{"union requests, dependencies | where operation_Name == 'reap'",
		`requests operation_Name is never "reap"`},
	{"traces | extend line = parse_json(message) | where line.level == 'WARNING'",
		`message.level is never "WARNING"`},
	{"traces | extend Message = tostring(parse_json(message).msg) | where Message startswith " +
		"'storage cannot'", `message.msg is never "storage cannot"`},
	{"traces | where message startswith \"Executing 'Functions.redirect'\"",
		`never "Executing 'Functions.redirect'"`},
	{"traces | where message has \"Executed 'Functions.shorten'\"",
		`never "Executed 'Functions.shorten'"`},
}

func TestBadQueriesAreRefused(t *testing.T) {
	sent := vocabulary(t)
	for _, bad := range badQueries {
		c := checked(t)[bad.text]
		got := strings.Join(append(c.Problems, sent.unknown(c.Uses)...), "\n")
		if !strings.Contains(strings.ToLower(got), strings.ToLower(bad.want)) {
			t.Errorf("%s: problems %q, want %q", bad.text, got, bad.want)
		}
	}
}

func TestWorkbook(t *testing.T) {
	declared := map[string]int{}
	book := decode[workbook](t, "workbook.json")
	for _, i := range book.Items {
		c := i.Content
		for _, p := range c.Parameters {
			declared[p.Name] = p.Type
		}
		if i.Type != 3 {
			continue
		}
		// A query without resource IDs asks the component under which the workbook was opened or
		// saved. The others ask the workspace, whose ID workbook.bicep inserts.
		asks, want := strings.Join(append(c.CrossComponentResources, c.ResourceType), " "),
			"microsoft.insights/components"
		if strings.Contains(c.Query, "AppServiceConsoleLogs") {
			want = "WORKSPACE_ID microsoft.operationalinsights/workspaces"
		}
		if c.QueryType == nil || *c.QueryType != 0 || c.Version != "KqlItem/1.0" || asks != want {
			t.Errorf("%s asks %q, want %q", i.Name, asks, want)
		}
		if c.TimeContextFromParameter != "TimeRange" || declared["TimeRange"] != 4 {
			t.Errorf("%s does not follow the time range", i.Name)
		}
		for _, p := range parameter.FindAllStringSubmatch(c.Query, -1) {
			if declared[p[1]] == 0 || values[p[0]] == "" {
				t.Errorf("%s: the parameter %s does not exist or is declared further down, or "+
					"this test has no value for it", i.Name, p[0])
			}
		}
		times, numbers, texts := 0, 0, 0
		for _, column := range checked(t)["workbook: "+i.Name].Columns {
			switch column.Type {
			case "datetime":
				times++
			case "long", "real":
				numbers++
			case "string":
				texts++
			}
		}
		if chart := c.Visualization == "linechart" || c.Visualization == "barchart"; !chart &&
			c.Visualization != "table" ||
			chart && (times != 1 || numbers == 0 || texts > 1) {
			t.Errorf("%s: %d times, %d numbers and %d texts make no %s", i.Name, times, numbers,
				texts, c.Visualization)
		}
	}
	if id := regexp.MustCompile(`/subscriptions/|[rR]esourceIds`).FindString(read(t,
		"workbook.json")); id != "" || book.Version != "Notebook/1.0" {
		t.Errorf("version %s; a resource ID would be of one subscription only: %q", book.Version,
			id)
	}
}

// TestAlerts allows only values that the service really accepts. The API's documentation has more
// of them. The real ones are in
// https://registry.terraform.io/providers/hashicorp/azurerm/latest/docs/resources/monitor_scheduled_query_rules_alert_v2
func TestAlerts(t *testing.T) {
	minutes := map[string]int{"PT5M": 5, "PT10M": 10, "PT15M": 15, "PT30M": 30, "PT45M": 45,
		"PT1H": 60, "PT2H": 120,
		"PT3H": 180, "PT4H": 240, "PT5H": 300, "PT6H": 360, "P1D": 1440, "P2D": 2880}
	headings := strings.ReplaceAll(strings.ToLower(strings.Join(matches(t, read(t, operations),
		`(?m)^#+ (.*)$`), "\n")), " ", "-")
	for _, anchor := range matches(t, read(t, "modules/alerts.bicep"), `docs/operations\.md#([\w-]+)'`) {
		if !slices.Contains(strings.Split(headings, "\n"), anchor) {
			t.Errorf("modules/alerts.bicep: %q is no heading of %s", anchor, operations)
		}
	}
	names := map[string]bool{}
	for _, a := range decode[[]alert](t, "alerts.json") {
		check := func(ok bool, format string, arguments ...any) {
			if !ok {
				t.Errorf("%s: "+format, append([]any{a.Name}, arguments...)...)
			}
		}
		check(!names[a.Name] && regexp.MustCompile(`^[a-z-]+$`).MatchString(a.Name) &&
			a.DisplayName != "", "needs a name of its own, and one to show")
		names[a.Name] = true
		_, anchor, ok := strings.Cut(a.Description, "docs/operations.md#")
		check(ok && slices.Contains(strings.Split(headings, "\n"), anchor),
			"%q is no heading of %s", anchor, operations)
		check(a.Severity >= 0 && a.Severity <= 4, "severity %d", a.Severity)
		frequency, window := minutes[a.EvaluationFrequency], minutes[a.WindowSize]
		check(frequency > 0 && frequency <= min(window, 1440), "runs every %q over %q",
			a.EvaluationFrequency, a.WindowSize)
		longest := window
		if a.OverrideQueryTimeRange != "" {
			longest = minutes[a.OverrideQueryTimeRange]
		}
		check(longest >= window, "looks back for %q, which is no value or shorter than %q",
			a.OverrideQueryTimeRange, a.WindowSize)
		for _, ago := range regexp.MustCompile(`ago\((\d+)m\)`).FindAllStringSubmatch(a.Query, -1) {
			n, err := strconv.Atoi(ago[1])
			check(err == nil && n <= longest, "its query says %s and gets %d minutes", ago[0],
				longest)
		}
		check(a.FailingPeriods.NumberOfEvaluationPeriods == 1 &&
			a.FailingPeriods.MinFailingPeriodsToAlert == 1,
			"more than one period needs a query that returns times")
		check(slices.Contains([]string{"GreaterThan", "GreaterThanOrEqual", "LessThan",
			"LessThanOrEqual", "Equal"}, a.Operator), "operator %q", a.Operator)
		check(a.AutoMitigate, "does not end by itself")
		// The result has one row. Count would count that row.
		check(a.TimeAggregation == "Maximum", "aggregation %q", a.TimeAggregation)
		found := checked(t)["alert: "+a.Name]
		check(found.OneRow, "its query may return no row, which raises no alert and ends none")
		measured := false
		for _, c := range found.Columns {
			measured = measured || c.Name == a.MetricMeasureColumn &&
				slices.Contains([]string{"int", "long", "real"}, c.Type)
			check(c.Type != "datetime", "its query returns the time %s, by which the service "+
				"would cut the result into windows", c.Name)
		}
		check(measured, "its query returns %v, and no number %s", found.Columns,
			a.MetricMeasureColumn)
	}
}

// logMessages returns the messages of warnings and errors.
func logMessages(t *testing.T) (all []string) {
	t.Helper()
	const constants = `(?m)^\tLog\w+ = ("[^"]*"(?:\s*\+\s*"[^"]*")*)`
	for _, quoted := range matches(t, read(t, "../internal/telemetry/messages.go"), constants) {
		parts := regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(quoted, -1)
		message := ""
		for _, part := range parts {
			message += part[1]
		}
		all = append(all, message)
	}
	return all
}

// In the docs, the messages are in backquotes at the start of list items.
func TestDocsExplainLogMessages(t *testing.T) {
	_, section, _ := strings.Cut(read(t, operations), "\n## What the log says\n")
	section, _, _ = strings.Cut(section, "\n## ")
	got := slices.Sorted(slices.Values(matches(t, section, "(?m)^- `([^`]*)`")))
	if want := slices.Sorted(slices.Values(logMessages(t))); !slices.Equal(got, want) {
		t.Errorf("%s explains %q, want %q", operations, got, want)
	}
}

// Queries and docs can rely on a message only if it is a constant.
func TestLogMessagesAreConstants(t *testing.T) {
	literal := regexp.MustCompile(`\.(Warn|Error)\("`)
	for _, dir := range []string{"functions", "handler", "internal/access", "internal/link",
		"internal/reaper", "internal/telemetry", "storage"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry,
			err error) error {
			if err == nil && strings.HasSuffix(path, ".go") &&
				!strings.HasSuffix(path, "_test.go") && literal.MatchString(read(t, path)) {
				t.Errorf("%s logs a warning or an error that is no constant of package telemetry",
					path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The docs answer each question of the workbook: the question is a heading, or in italics. Other
// texts in italics are titles of charts, or names in Azure or on the pages.
func TestDocsNameCharts(t *testing.T) {
	docs := read(t, operations)
	prose := regexp.MustCompile("(?s)```.*?```|`[^`]*`|\\*\\*").ReplaceAllString(docs, "")
	named := matches(t, strings.Join(strings.Fields(prose), " "), `\*([^*]+)\*`)
	known := []string{"Edit", "Usage and estimated costs", "Blocked hosts", "The reaper has not run",
		"Cost analysis", "Failures", "Origin", "Origin Health Percentage", "Origin health",
		"Performance", "Resource health", "Response type", "Transactions"}
	for _, a := range decode[[]alert](t, "alerts.json") {
		known = append(known, a.Name)
	}
	known = append(known, matches(t, read(t, "modules/alerts.bicep"), `name: '\$\{\w+\}-([a-z-]+)'`)...)
	for _, i := range decode[workbook](t, "workbook.json").Items {
		switch i.Type {
		case 1:
			for _, question := range matches(t, i.Content.JSON, `(?m)^## (.*)$`) {
				known = append(known, question)
				heading := "\n### " + question + "\n"
				if !strings.Contains(docs, heading) && !slices.Contains(named, question) {
					t.Errorf("%s does not answer %q", operations, question)
				}
			}
		case 3:
			known = append(known, i.Content.Title)
		}
	}
	for _, name := range named {
		if !slices.Contains(known, name) {
			t.Errorf("%s names %q, and the workbook has no such chart", operations, name)
		}
	}
}

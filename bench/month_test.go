package main

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// monthLine is a line of the table of docs/performance.md, for so many redirects a month: an amount, or dollars.
type monthLine struct {
	name    string
	dollars bool
	of      func(redirects float64) float64
}

// What the plan costs by docs/deployment.md, and what is free of it each month; what an execution is billed as at least;
// and how much telemetry the template lets the handler send, and takes a day.
const (
	freeExecutions       = 1_000_000
	perMillionExecutions = 0.20
	freeGBSeconds        = 400_000
	perGBSecond          = 0.000016
	leastMilliseconds    = 100
	leastMB              = 128
	dailyCapGB           = 1
	sentPercent          = 100
)

// monthLines do the arithmetic that stands in docs/performance.md, from the prices and assumptions given there.
func monthLines() []monthLine {
	const (
		days    = 30
		seconds = days * 24 * 3600
		runs    = days * 24 * 4
		perRun  = 6
		perLink = 1 + 3 + 2 + 2 + 0.01 // made and reaped
		leastGB = leastMB / 1024.0
		least   = leastMilliseconds / 1000.0 // of a second
		itemGB  = 1e-6
	)
	made := func(n float64) float64 { return n / 100 }
	executions := func(n float64) float64 { return n + made(n) + runs }
	gbSeconds := func(n float64) float64 { return (n+made(n))*leastGB*least + runs*leastGB*1 }
	calls := func(hits float64) func(float64) float64 {
		return func(n float64) float64 { return n*(1-hits) + made(n)*perLink + runs*perRun }
	}
	ingested := func(host, percent float64) func(float64) float64 {
		const metrics = seconds / 15 * 8
		return func(n float64) float64 {
			return (min(3*executions(n), host) + calls(0.9)(n)*percent/100 + metrics) * itemGB
		}
	}
	price := func(amount func(float64) float64, free, each float64) func(float64) float64 {
		return func(n float64) float64 { return max(0, amount(n)-free) * each }
	}
	sum := func(all ...func(float64) float64) func(float64) float64 {
		return func(n float64) (s float64) {
			for _, f := range all {
				s += f(n)
			}
			return s
		}
	}
	sampled, whole := ingested(20*seconds, 10), ingested(math.Inf(1), 100)
	capped := func(n float64) float64 { return min(ingested(20*seconds, sentPercent)(n), days*dailyCapGB) }
	forExecutions, forGBSeconds := price(executions, freeExecutions, perMillionExecutions/1e6), price(gbSeconds, freeGBSeconds, perGBSecond)
	forCalls, forCapacity := price(calls(0.9), 0, 0.00036/10_000), price(made, 0, 0.045/1e6)
	forCapped, forSampled, forWhole := price(capped, 5, 2.30), price(sampled, 5, 2.30), price(whole, 5, 2.30)
	return []monthLine{
		{"executions", false, executions},
		{"GB-s", false, gbSeconds},
		{"calls to storage, hit ratio 0.5", false, calls(0.5)},
		{"calls to storage, hit ratio 0.9", false, calls(0.9)},
		{"calls to storage, hit ratio 0.99", false, calls(0.99)},
		{"GB ingested, capped (the default)", false, capped},
		{"GB ingested, sampled", false, sampled},
		{"GB ingested, not sampled", false, whole},
		{"for executions", true, forExecutions},
		{"for GB-s", true, forGBSeconds},
		{"for calls, hit ratio 0.5", true, price(calls(0.5), 0, 0.00036/10_000)},
		{"for calls, hit ratio 0.9", true, forCalls},
		{"for calls, hit ratio 0.99", true, price(calls(0.99), 0, 0.00036/10_000)},
		{"for the tables' size", true, forCapacity},
		{"for telemetry, capped (the default)", true, forCapped},
		{"for telemetry, sampled", true, forSampled},
		{"for telemetry, not sampled", true, forWhole},
		{"**sum without telemetry**", true, sum(forExecutions, forGBSeconds, forCalls, forCapacity)},
		{"**sum with telemetry, capped: the default**", true, sum(forExecutions, forGBSeconds, forCalls, forCapacity, forCapped)},
		{"**sum with telemetry, sampled**", true, sum(forExecutions, forGBSeconds, forCalls, forCapacity, forSampled)},
		{"**sum with telemetry, not sampled**", true, sum(forExecutions, forGBSeconds, forCalls, forCapacity, forWhole)},
	}
}

func (l monthLine) String() string {
	write := func(x float64) string {
		switch {
		case l.dollars && x == 0:
			return "$0"
		case l.dollars && x < 0.001:
			return "under $0.001"
		case l.dollars && x < 1:
			return fmt.Sprintf("$%.3f", x)
		case l.dollars:
			return fmt.Sprintf("$%.2f", x)
		case x < 1000:
			return fmt.Sprintf("%.1f", x)
		default:
			return thousands(x)
		}
	}
	return fmt.Sprintf("| %s | %s | %s |\n", l.name, write(l.of(1e6)), write(l.of(100e6)))
}

func TestTheMonthInTheDocumentsAddsUp(t *testing.T) {
	doc, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	want := new(strings.Builder)
	for _, line := range monthLines() {
		want.WriteString(line.String())
	}
	if !strings.Contains(string(doc), want.String()) {
		t.Errorf("docs/performance.md does not hold these lines:\n%s", want)
	}
}

func TestTheMonthHasThePricesOfTheOtherDocuments(t *testing.T) {
	for _, from := range []struct {
		file, form string
		want       []float64
	}{
		// The row has a column for F1, and then that for Y1.
		{"../docs/deployment.md", `\n\| the plan costs \|[^|]*\| per use: ([\d,]+) executions and ([\d,]+) GB-s a month are free; then \$([\d.]+) per million and \$([\d.]+) per GB-s \|`,
			[]float64{freeExecutions, freeGBSeconds, perMillionExecutions, perGBSecond}},
		{"../docs/deployment.md", `an execution\s+is\s+billed\s+as\s+(\d+) ms\s+and\s+(\d+) MB\s+at\s+least`, []float64{leastMilliseconds, leastMB}},
		{"../infra/main.bicep", `\nparam logDailyCapGB int = (\d+)\n`, []float64{dailyCapGB}},
		{"../infra/main.bicep", `\nparam telemetrySamplingPercent int = (\d+)\n`, []float64{sentPercent}},
	} {
		text, err := os.ReadFile(from.file)
		if err != nil {
			t.Fatal(err)
		}
		got := regexp.MustCompile(from.form).FindSubmatch(text)
		if got == nil {
			t.Errorf("%s has nothing like %s", from.file, from.form)
			continue
		}
		for i, want := range from.want {
			if n, err := strconv.ParseFloat(strings.ReplaceAll(string(got[i+1]), ",", ""), 64); err != nil || n != want {
				t.Errorf("%s says %q, and the month is computed with %v", from.file, got[0], want)
			}
		}
	}
}

package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// monthLine is a line of the table of docs/performance.md, for so many redirects a month: an amount, or dollars.
type monthLine struct {
	name    string
	dollars bool
	of      func(redirects float64) float64
}

// monthLines do the arithmetic that stands in docs/performance.md, from the prices and assumptions given there.
func monthLines() []monthLine {
	const (
		days    = 30
		seconds = days * 24 * 3600
		runs    = days * 24 * 4
		perRun  = 6
		perLink = 1 + 3 + 2 + 2 + 0.01 // made and reaped
		leastGB = 0.125
		itemGB  = 1e-6
	)
	made := func(n float64) float64 { return n / 100 }
	executions := func(n float64) float64 { return n + made(n) + runs }
	gbSeconds := func(n float64) float64 { return (n+made(n))*leastGB*0.1 + runs*leastGB*1 }
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
	forExecutions, forGBSeconds := price(executions, 1e6, 0.20/1e6), price(gbSeconds, 400_000, 0.000016)
	forCalls, forCapacity := price(calls(0.9), 0, 0.00036/10_000), price(made, 0, 0.045/1e6)
	forSampled, forWhole := price(sampled, 5, 2.30), price(whole, 5, 2.30)
	return []monthLine{
		{"executions", false, executions},
		{"GB-s", false, gbSeconds},
		{"calls to storage, hit ratio 0.5", false, calls(0.5)},
		{"calls to storage, hit ratio 0.9", false, calls(0.9)},
		{"calls to storage, hit ratio 0.99", false, calls(0.99)},
		{"GB ingested, sampled", false, sampled},
		{"GB ingested, not sampled", false, whole},
		{"for executions", true, forExecutions},
		{"for GB-s", true, forGBSeconds},
		{"for calls, hit ratio 0.5", true, price(calls(0.5), 0, 0.00036/10_000)},
		{"for calls, hit ratio 0.9", true, forCalls},
		{"for calls, hit ratio 0.99", true, price(calls(0.99), 0, 0.00036/10_000)},
		{"for the tables' size", true, forCapacity},
		{"for telemetry, sampled", true, forSampled},
		{"for telemetry, not sampled", true, forWhole},
		{"**sum without telemetry**", true, sum(forExecutions, forGBSeconds, forCalls, forCapacity)},
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

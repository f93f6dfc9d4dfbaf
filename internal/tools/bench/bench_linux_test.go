package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	var r results
	for _, rate := range []float64{70, 100, 90} {
		r.add("ours", values{"req/s": rate, "MB": 12})
	}
	r.add("theirs", values{"req/s": 10})
	for _, test := range []struct {
		columns []column
		want    string
	}{
		{[]column{{head: "rate", value: "req/s"}, {head: "MB", value: "MB", digits: 1}},
			"| | rate | MB |\n| --- | ---: | ---: |\n| ours | 90 | 12.0 |\n| theirs | 10 | |\n"},
		{[]column{{head: "rate", value: "req/s", atLeast: 90, rows: []string{"ours"}},
			{head: "MB", value: "MB", digits: 1, atMost: 11}},
			"| | rate, at least 90 | MB, at most 11 |\n| --- | ---: | ---: |\n" +
				"| ours | 90 (70–100), met | 12.0, **missed** |\n| theirs | 10 | |\n"},
		{[]column{{head: "rate", value: "req/s", atLeast: 91}},
			"| ours | 90 (70–100), **missed** |\n| theirs | 10, **missed** |\n"},
		{[]column{{head: "rate", value: "req/s", atMost: 90}},
			"| ours | 90 (70–100), met |\n| theirs | 10, met |\n"},
	} {
		if got := r.table(test.columns); !strings.HasSuffix(got, test.want) {
			t.Errorf("got\n%s\nwant an end of\n%s", got, test.want)
		}
	}
}

func TestUsersTable(t *testing.T) {
	got := usersTable([]string{"few", "many"}, []values{{"p50": 7}, {"p50": 100}},
		values{"p50": 3, "req/s": 101})
	for _, want := range []string{"| p50 ms | below 100: **missed** | 100.0 (many) | 3.0 |\n",
		"| p95 ms | below 500: met | 0.0 (few) | 0.0 |\n",
		"| requests/s | above 100: met | | 101 |\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwithout\n%s", got, want)
		}
	}
}

// wrkSays is the output of wrk 4.1.0 without its last two lines, which have the rates.
const wrkSays = `Running 1s test @ http://127.0.0.1:7071/abc123
  2 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.70ms    2.84ms  31.30ms   89.50%
    Req/Sec    17.53k     2.17k   22.40k    65.00%
  Latency Distribution
     50%  650.00us
     75%    1.42ms
     90%    4.75ms
     99%    1.32s 
  34941 requests in 1.00s, 4.30MB read
`

func TestReadingWrk(t *testing.T) {
	const rate = "Requests/sec:  34873.40\nTransfer/sec:      4.29MB\n"
	const refused, timeout = "  Non-2xx or 3xx responses: 34941\n",
		"  Socket errors: connect 0, read 0, write 0, timeout 3\n"
	// The values tell whether read accepts the output: if responses should be redirects, and if
	// they should be errors.
	for output, ok := range map[string][2]bool{
		wrkSays + rate:                     {true, false},
		wrkSays + refused + rate:           {false, true},
		wrkSays + timeout + rate:           {false, false},
		wrkSays + timeout + refused + rate: {false, false},
		"unable to connect to 127.0.0.1\n": {false, false},
	} {
		for i, fails := range []bool{false, true} {
			v, err := read(output, fails)
			if (err == nil) != ok[i] {
				t.Errorf("fails is %t: %v", fails, err)
			}
			if err == nil && (v["requests"] != 34941 || v["req/s"] != 34873.4 || v["p50"] != 0.65 ||
				v["p99"] != 1320) {
				t.Errorf("it reads %v from\n%s", v, output)
			}
		}
	}
}

// The processor time of a child counts both while it runs and after it has ended.
func TestProcessorTime(t *testing.T) {
	child := exec.Command("sh", "-c",
		`i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo worked; read line`)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	before := processorTime(os.Getpid())
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	used := processorTime(child.Process.Pid)
	running := processorTime(os.Getpid()) - before
	in.Close()
	_ = child.Wait() // its read has failed
	ended := processorTime(os.Getpid()) - before
	if used < 5*tick || running < used || ended < used {
		t.Errorf("the child has used %v, and with this process %v, and %v when it had ended", used,
			running, ended)
	}
}

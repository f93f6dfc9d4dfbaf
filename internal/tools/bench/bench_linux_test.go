package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
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
			"| | rate | MB |\n|---|---:|---:|\n| ours | 90 | 12.0 |\n| theirs | 10 | |\n"},
		{[]column{{head: "rate", value: "req/s", atLeast: 90, rows: []string{"ours"}},
			{head: "MB", value: "MB", digits: 1, atMost: 11}},
			"| | rate, at least 90 | MB, at most 11 |\n|---|---:|---:|\n" +
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

func TestBenchmarkTable(t *testing.T) {
	got := benchmarkTable("pkg: tiney/storage\n" +
		"BenchmarkDays/rolled_up-2  \t      1\t        32.00 calls\t       156.6 ms\nPASS\n")
	if !strings.HasSuffix(got, "|---|\n| Days/rolled up | 32.00 calls, 156.6 ms |\n") {
		t.Error(got)
	}
}

// The processor time of a group is that of all its processes.
func TestProcessorTime(t *testing.T) {
	group := exec.Command("sh", "-c", `(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done
		echo worked; sleep 60) & read line`)
	group.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := group.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := group.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = syscall.Kill(-group.Process.Pid, syscall.SIGKILL)
		_ = group.Wait()
	}()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	used := processorTime(group.Process.Pid)
	if used < 50*time.Millisecond {
		t.Errorf("the group has used %v", used)
	}
}

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What a process of a process uses counts, while it runs and when it has ended.
func TestProcessorTime(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("what a process has used is only known on Linux")
	}
	// The shell in the shell works, says so, and waits; then it ends, and the outer one waits.
	cmd := exec.Command("sh", "-c", `sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo worked; read line'; echo ended; read line`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	before := processorTime(os.Getpid())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	said := make([]byte, 16)
	for _, word := range []string{"worked", "ended"} {
		n, err := out.Read(said)
		if err != nil || strings.TrimSpace(string(said[:n])) != word {
			t.Fatalf("it says %q (%v), not %q", said[:n], err, word)
		}
		used, ours := processorTime(cmd.Process.Pid), processorTime(os.Getpid())-before
		if used < 5*tick || ours < used {
			t.Errorf("when it has %s, it has used %v, and with this process %v", word, used, ours)
		}
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	if none := processorTime(-1); none != 0 {
		t.Errorf("a process that does not exist has used %v", none)
	}
}

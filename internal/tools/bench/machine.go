package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine describes the machine that the figures come from.
func machine() string {
	model := "unknown processor"
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok &&
			strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d cores of %s, %s/%s, %s", runtime.NumCPU(), model, runtime.GOOS,
		runtime.GOARCH, runtime.Version())
}

// tick is the unit of processor time in /proc on all common platforms.
const tick = 10 * time.Millisecond

// stat returns the fields of /proc/PROCESS/stat from the third one, the state, on. It returns none
// if there is no such process.
func stat(process string) []string {
	data, _ := os.ReadFile(filepath.Join("/proc", process, "stat"))
	s := string(data)
	// The second field is a name, which may hold any characters.
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

func ticks(fields ...string) time.Duration {
	var sum int64
	for _, f := range fields {
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += n
	}
	return time.Duration(sum) * tick
}

// memory returns the resident memory of a process and its peak, both in MB.
func memory(pid int) (now, most float64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			kB, _ := strconv.ParseFloat(fields[1], 64)
			switch fields[0] {
			case "VmRSS:":
				now = kB / 1024
			case "VmHWM:":
				most = kB / 1024
			}
		}
	}
	return now, most, nil
}

// otherTime returns how long the processors have worked for other processes than this one and its
// descendants. That work is noise in the measurement.
func otherTime() time.Duration {
	data, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(data), "\n")
	f := strings.Fields(line)
	if len(f) < 9 {
		return 0
	}
	// The fields of idle time and of waiting for a disk are left out.
	return ticks(f[1], f[2], f[3], f[6], f[7], f[8]) - processorTime(os.Getpid())
}

// processorTime returns the processor time that a process and its descendants have used. The fields
// of a parent include the children that have ended.
func processorTime(pid int) (sum time.Duration) {
	parents, used := map[string]string{}, map[string]time.Duration{}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		if s := stat(filepath.Base(dir)); len(s) >= 15 {
			parents[filepath.Base(dir)], used[filepath.Base(dir)] = s[1], ticks(s[11:15]...)
		}
	}
	root := strconv.Itoa(pid)
	for process, time := range used {
		for ; process != ""; process = parents[process] {
			if process == root {
				sum += time
				break
			}
		}
	}
	return sum
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine says what it is measured on.
func machine() string {
	model := "unknown processor"
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d cores of %s, %s/%s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// measuredOn says when, and on what.
func measuredOn() string { return time.Now().UTC().Format(time.DateOnly) + ": " + machine() }

// tick is what /proc counts processor time in, on every Linux that matters.
const tick = 10 * time.Millisecond

// stat returns the fields of a process in /proc, from its state, which is the third, on. None: there is no such process.
func stat(process string) []string {
	data, _ := os.ReadFile(filepath.Join("/proc", process, "stat"))
	s := string(data)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:]) // the second is a name, and may hold anything
}

func ticks(fields ...string) time.Duration {
	var sum int64
	for _, f := range fields {
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += n
	}
	return time.Duration(sum) * tick
}

// memory is what a process holds in memory, and the most that it ever held, in MB.
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

// meter measures how much of the processors others use meanwhile: all that is not ours is noise.
type meter struct {
	since     time.Time
	all, ours time.Duration
}

func newMeter() meter { return meter{time.Now(), allTime(), ourTime()} }

// others is their share of all processors, in percent.
func (m meter) others() float64 {
	all, ours := allTime()-m.all, ourTime()-m.ours
	return max(0, float64(all-ours)/float64(time.Since(m.since))/float64(runtime.NumCPU())*100)
}

// allTime is what the machine was busy.
func allTime() time.Duration {
	data, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(data), "\n")
	f := strings.Fields(line)
	if len(f) < 9 {
		return 0
	}
	return ticks(f[1], f[2], f[3], f[6], f[7], f[8]) // not: idle, waiting for a disk
}

// ourTime is what this process and all that it has started have used.
func ourTime() time.Duration { return processorTime(os.Getpid()) }

// processorTime is what a process and all that descend from it have used, with those that have ended: what these used, their
// parents have in fields of their own.
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

// patience is how long quiet still waits, all in all.
var patience time.Duration

// quiet waits until others leave the machine alone, while there is patience.
func quiet(ctx context.Context) {
	for ctx.Err() == nil {
		m := newMeter()
		time.Sleep(time.Second)
		if m.others() < tooLoud/2 || patience <= 0 {
			return
		}
		patience -= time.Second
	}
}

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

// field returns the value of the first line of a file that begins with name. Spaces, or a colon and
// spaces, stand before the value.
func field(file, name string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.Trim(value, ": \t\n")
		}
	}
	return ""
}

// machine describes the machine that the figures come from.
func machine() string {
	return fmt.Sprintf("%d cores of %s, %s/%s, %s", runtime.NumCPU(),
		field("/proc/cpuinfo", "model name"), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// memory returns the resident memory of a process in MB: name is VmRSS for now, RssAnon for that
// without pages of files, VmHWM for the peak.
func (s *server) memory(name string) float64 {
	status := fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid)
	kB, _ := strconv.ParseFloat(strings.TrimSuffix(field(status, name), " kB"), 64)
	return kB / 1024
}

// ticks adds up processor times of /proc, which are in hundredths of a second on all common
// platforms.
func ticks(fields ...string) time.Duration {
	var sum int64
	for _, f := range fields {
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// otherTime returns how long the processors have worked for other processes than this one and its
// descendants that have ended. That work is noise in the measurement.
func otherTime() time.Duration {
	f := strings.Fields(field("/proc/stat", "cpu "))
	if len(f) < 8 {
		return 0
	}
	// The fields of idle time and of waiting for a disk are left out.
	// User and system time of this process, then those of its descendants.
	own := statOf("/proc/self/stat")[11:15]
	return ticks(f[0], f[1], f[2], f[5], f[6], f[7]) - ticks(own...)
}

// statOf returns the fields of a stat file of /proc from the third on, the state. The second one is
// a name, which may hold any characters.
func statOf(file string) []string {
	data, _ := os.ReadFile(file)
	s := string(data)
	if f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:]); len(f) > 14 {
		return f
	}
	return make([]string, 15) // the process has ended
}

// processorTime returns the processor time that the processes of a group have used: nginx has
// several.
func processorTime(group int) (sum time.Duration) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		if f := statOf(file); f[2] == strconv.Itoa(group) {
			sum += ticks(f[11], f[12])
		}
	}
	return sum
}

package main

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
)

const (
	// keptLogFiles is how many files with the logs of earlier starts are kept.
	keptLogFiles = 9
	// maxLogFile is how large the file of this start gets, in bytes.
	maxLogFile = 10 << 20
)

// bounded returns where the log goes. Behind IIS, stdout is a file of this start alone, as
// web.config says, and nothing else removes or shortens these files: they would fill the disk,
// which has 1 GB on the Free plan. So bounded removes those of earlier starts but for the last
// ones, and the file of this start begins anew when it is full.
func bounded(getenv func(string) string, stdout *os.File) io.Writer {
	home := getenv("HOME")
	if getenv("HTTP_PLATFORM_PORT") == "" || home == "" {
		return stdout
	}
	type file struct {
		path    string
		written int64
	}
	own, _ := stdout.Stat()
	var earlier []file
	paths, _ := filepath.Glob(filepath.Join(home, "LogFiles", "tiney_*.log"))
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && !os.SameFile(info, own) {
			earlier = append(earlier, file{path, info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(earlier, func(a, b file) int { return cmp.Compare(b.written, a.written) })
	for _, f := range earlier[min(keptLogFiles, len(earlier)):] {
		_ = os.Remove(f.path) // one that another instance writes to stays: Windows removes no open file
	}
	return &logFile{File: stdout}
}

// logFile is a file that begins anew when it is full. Its user makes no two calls at once.
type logFile struct {
	*os.File
	size int64
}

func (f *logFile) Write(line []byte) (int, error) {
	if f.size += int64(len(line)); f.size > maxLogFile {
		f.size = int64(len(line))
		if f.Truncate(0) == nil {
			_, _ = f.Seek(0, io.SeekStart)
		}
	}
	return f.File.Write(line)
}

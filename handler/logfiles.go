package main

import (
	"io"
	"os"
	"path/filepath"
	"sort"
)

const (
	keptLogFiles = 9        // of earlier starts
	maxLogFile   = 10 << 20 // bytes
)

// bounded returns the writer of the log. Behind IIS, web.config directs stdout to a new file at
// each start. Nothing else removes or shortens these files, and they would fill the 1 GB of the
// Free plan. So bounded removes the files of earlier starts except the last few, and the writer
// truncates the file of this start when it is full.
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
	// A sort that is compiled for files would make the executable 8 KB larger.
	sort.Slice(earlier, func(i, j int) bool { return earlier[i].written > earlier[j].written })
	for _, f := range earlier[min(keptLogFiles, len(earlier)):] {
		_ = os.Remove(f.path) // fails if another instance has it open, on Windows
	}
	return &logFile{File: stdout}
}

// logFile is a file that is truncated when it is full. It is not safe for concurrent use.
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

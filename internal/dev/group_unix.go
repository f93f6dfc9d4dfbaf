//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's Ctrl-C from the service, so that it is told once, by interrupt,
// along with what it has started itself.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func interrupt(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }

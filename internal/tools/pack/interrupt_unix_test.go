//go:build unix

package pack

import (
	"os"
	"os/exec"
)

func interruptible(*exec.Cmd) {}

// interrupt sends what Wine turns into Ctrl-C.
func interrupt(cmd *exec.Cmd) error { return cmd.Process.Signal(os.Interrupt) }

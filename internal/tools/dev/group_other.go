//go:build !unix

package main

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func interrupt(cmd *exec.Cmd) {
	if cmd.Process.Signal(os.Interrupt) != nil {
		_ = cmd.Process.Kill()
	}
}

package pack

import (
	"os/exec"
	"syscall"
)

// interruptible puts a process into a group of its own, whose number is the process's.
func interruptible(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// interrupt sends Ctrl-Break. A group of its own gets no Ctrl-C, and Go takes one for the other.
func interrupt(cmd *exec.Cmd) error {
	send := syscall.NewLazyDLL("kernel32.dll").NewProc("GenerateConsoleCtrlEvent")
	if sent, _, err := send.Call(syscall.CTRL_BREAK_EVENT, uintptr(cmd.Process.Pid)); sent == 0 {
		return err
	}
	return nil
}

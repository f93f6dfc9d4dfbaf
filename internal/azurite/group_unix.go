//go:build unix

package azurite

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps a Ctrl-C in the terminal from reaching Azurite before the service that still
// writes to it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

//go:build unix

package azurite

import (
	"os/exec"
	"syscall"
)

// OwnGroup makes a command run in its own process group. So a Ctrl-C in the terminal does not end
// Azurite before the service, which still writes to it.
func OwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

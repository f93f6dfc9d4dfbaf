//go:build unix

package azurite

import (
	"os/exec"
	"syscall"
)

// ownGroup puts Azurite into its own process group. So a Ctrl-C in the terminal does not end
// Azurite before the service, which still writes to it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

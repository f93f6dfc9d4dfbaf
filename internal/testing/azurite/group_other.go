//go:build !unix

package azurite

import "os/exec"

// OwnGroup does nothing here.
func OwnGroup(*exec.Cmd) {}

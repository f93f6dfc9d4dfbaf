//go:build !unix

package azurite

import "os/exec"

func ownGroup(*exec.Cmd) {}

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The linker leaves out methods that nothing calls, unless some code calls methods by name, as
// templates do.
func TestExecutableHasNoTemplates(t *testing.T) {
	list, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(list))
	if !slices.Contains(packages, "net/http") || slices.Contains(packages, "text/template") {
		t.Errorf("text/template makes the executable a third larger; the packages are %v", packages)
	}
}

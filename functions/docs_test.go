package functions

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/api.md and openapi.json have exactly the kinds of problems that the code has.
func TestProblemsAreDocumented(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	made := regexp.MustCompile(`(?:newProblem\([\w.]+, |badRequest\()"([a-z-]+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range made.FindAllStringSubmatch(string(source), -1) {
			kinds[m[1]] = true
		}
	}
	for _, is := range fieldKinds {
		kinds[is.kind] = true
	}
	docs, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	documented, described := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`"/problems/([a-z-]+)"[,\n]`).FindAllStringSubmatch(
		openAPIDocument, -1) {
		described[m[1]] = true
	}
	for _, m := range regexp.MustCompile("`/problems/([a-z-]+)`").FindAllStringSubmatch(
		string(docs), -1) {
		documented[m[1]] = true
	}
	if len(kinds) < 20 {
		t.Fatalf("found only %v in the code", kinds)
	}
	for kind := range kinds {
		if !documented[kind] {
			t.Errorf("docs/api.md lacks /problems/%s", kind)
		}
		if !described[kind] {
			t.Errorf("openapi.json lacks /problems/%s", kind)
		}
	}
	for kind := range documented {
		if !kinds[kind] {
			t.Errorf("docs/api.md has /problems/%s, which does not exist", kind)
		}
	}
	for kind := range described {
		if !kinds[kind] {
			t.Errorf("openapi.json has /problems/%s, which does not exist", kind)
		}
	}
}

package infra_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tiney/handler/app"
)

// What compose.yaml and the image set is right, and no key of this repository signs anybody in.
func TestComposeSettings(t *testing.T) {
	compose := read(t, "../compose.yaml")
	env := map[string]string{}
	for _, set := range regexp.MustCompile(`(\w+)=(\S+)`).FindAllStringSubmatch(
		matches(t, read(t, "Dockerfile"), `ENV (.*)`)[0], -1) {
		env[set[1]] = set[2]
	}
	block := matches(t, compose, `(?s)\n    environment:\n(.*?)\n  \w`)[0]
	block = regexp.MustCompile(`\\\n *`).ReplaceAllString(block, "")
	for _, set := range regexp.MustCompile(`(?m)^ {6}(\w+): "?([^"#\n]*)`).FindAllStringSubmatch(block,
		-1) {
		env[set[1]] = strings.ReplaceAll(set[2], "${PORT:-7071}", "7071")
	}
	if key, ok := env["ADMIN_KEY"]; !ok || key != "" {
		t.Errorf("the settings are %q", env)
	}
	s, err := app.ReadSettings(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Functions.Rules.Base.String(); got != "http://localhost:7071" ||
		!strings.Contains(compose, `"127.0.0.1:${PORT:-7071}:`+env["PORT"]+`"`) {
		t.Errorf("the service at %s listens on %s", got, s.Address)
	}
	// Go's memory limit is below the container's, and leaves the cache its place.
	var of, limit, byDefault int
	fmt.Sscanf(matches(t, compose, `mem_limit: (\S+)`)[0], "%dm", &of)
	fmt.Sscanf(env["GOMEMLIMIT"], "%dMiB", &limit)
	fmt.Sscanf(matches(t, read(t, "Dockerfile"), `GOMEMLIMIT=(\S+)`)[0], "%dMiB", &byDefault)
	if byDefault == 0 || limit <= byDefault || of <= limit || limit*5 < of*4 ||
		!strings.Contains(read(t, "../docs/deployment.md"), fmt.Sprintf("`GOMEMLIMIT=%dMiB`", byDefault)) {
		t.Errorf("Go is limited to %d of %d MB, and to %d in the image alone", limit, of, byDefault)
	}
	for _, line := range []string{"cap_drop: [ALL]", `security_opt: ["no-new-privileges:true"]`} {
		if strings.Count(compose, "\n    "+line+"\n") != strings.Count(compose, "\n    image: ") {
			t.Errorf("not every container has %s", line)
		}
	}
	tested := matches(t, read(t, "../internal/testing/azurite/package.json"), `"azurite": "(.*)"`)
	if got := matches(t, compose, `image: \S+/azurite:(\S+)`); !slices.Equal(got, tested) {
		t.Errorf("compose.yaml has Azurite %s, and %s is tested", got, tested)
	}
}

// TestReleasePushesTheImage runs the release's step with stubs of go and gh.
func TestReleasePushesTheImage(t *testing.T) {
	pushes := step(t, read(t, "../.github/workflows/release.yml"),
		`^      - name: Push the image .*\n(?:        .*\n)*?`)
	const image = "ghcr.io/owner/tiney"
	push := "auth login ghcr.io -u ann --password-stdin\npush --index build/image " + image +
		":v1.2.3\n"
	for latest, want := range map[string]string{
		"echo v1.2.3":                     push + "tag " + image + ":v1.2.3 latest\n",
		"echo v2.0.0":                     push,
		"echo '{\"status\":404}'; exit 1": push,
	} {
		dir := t.TempDir()
		for name, script := range map[string]string{"gh": latest,
			"go": `printf '#!/bin/sh\necho "$@" >>%s\n' ` + dir + "/said >$GOBIN/crane; chmod +x " +
				"$GOBIN/crane"} {
			stub(t, dir, name, script)
		}
		out, err := asGitHub(t, pushes, dir, "RUNNER_TEMP="+dir, "GITHUB_REPOSITORY=Owner/Tiney",
			"GITHUB_ACTOR=ann", "GH_TOKEN=secret", "TAG=v1.2.3").CombinedOutput()
		if got := read(t, filepath.Join(dir, "said")); err != nil || got != want {
			t.Errorf("%s: %v, %s\ngot %q, want %q", latest, err, out, got, want)
		}
	}
	// The same version writes the image.
	version := matches(t, read(t, "../go.mod"), `(?m)^\tgithub.com/google/go-containerregistry (\S+)`)[0]
	for _, file := range []string{"../.github/workflows/release.yml", "../Makefile",
		"../docs/deployment.md"} {
		if got := matches(t, read(t, file), `cmd/crane@(\S+)`)[0]; got != version {
			t.Errorf("%s has crane %s, want %s", file, got, version)
		}
	}
}

// TestReleaseIsImmutable runs the release's step with a stub of gh. A template that names files
// which somebody can change must not get to the button.
func TestReleaseIsImmutable(t *testing.T) {
	text := read(t, "../.github/workflows/release.yml")
	publish, branch := strings.Index(text, "- name: Publish the release"),
		strings.Index(text, "git push -f origin azuredeploy")
	if publish < 0 || branch < publish || strings.Contains(text, "continue-on-error") {
		t.Error("the branch does not wait for the release")
	}
	publishes := strings.ReplaceAll(step(t, text[publish:], "^"),
		"${{ contains(github.ref_name, '-') }}", "false")
	const create = "release create v1.2.3 --verify-tag --generate-notes --prerelease=false " +
		"build/azuredeploy.json build/tiney-a.zip\n"
	// The digests of files that contain their names.
	const isNew, zip = "case $* in *view*) exit 1 ;; esac; ", "sha256:ZIP  tiney-a.zip"
	const there = "immutable: true\nsha256:JSON  azuredeploy.json\n"
	for name, test := range map[string]struct {
		gh      string // what it does first
		is      string // what it says of the release
		creates bool
		good    bool
	}{
		"new":               {isNew, there + zip, true, true},
		"the second try":    {"", there + zip, false, true},
		"it can be changed": {isNew, strings.Replace(there, "true", "false", 1) + zip, true, false},
		"an older GitHub":   {isNew, strings.Replace(there, "true", "null", 1) + zip, true, false},
		"a file was exchanged": {"", there + strings.Replace(zip, "ZIP", strings.Repeat("0", 64), 1),
			false, false},
		"a file is missing": {"", there, false, false},
		"a file more":       {"", there + zip + "\nsha256:ZIP  x.zip", false, false},
		"a draft was left":  {"case $* in api*) exit 1 ;; esac; ", there + zip, false, false},
		"an upload failed":  {"case $* in *view* | *create*) exit 1 ;; esac; ", there + zip, true, false},
	} {
		dir := t.TempDir()
		is := test.is
		for name, mark := range map[string]string{"azuredeploy.json": "JSON", "tiney-a.zip": "ZIP"} {
			is = strings.ReplaceAll(is, mark, fmt.Sprintf("%x", sha256.Sum256([]byte(name))))
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "build"), 0o755),
				os.WriteFile(filepath.Join(dir, "build", name), []byte(name), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		stub(t, dir, "gh", fmt.Sprintf("echo \"$*\" >>%s/said\n%s\n"+
			"case $* in api*) echo '%s' ;; esac", dir, test.gh, is))
		cmd := asGitHub(t, publishes, dir, "GITHUB_REPOSITORY=owner/tiney", "GH_TOKEN=secret",
			"TAG=v1.2.3")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if said := read(t, filepath.Join(dir, "said")); (err == nil) != test.good ||
			strings.Contains(said, create) != test.creates {
			t.Errorf("%s: %v, %s\nit ran %s", name, err, out, said)
		}
	}
}

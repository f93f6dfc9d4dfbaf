package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestReadme runs the commands in the README. Each line that the README shows of a response must be
// a line of the real response.
func TestReadme(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("NOT CHECKED: curl is not installed")
	}
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.t.Chdir(t.TempDir()) // for the files that commands write
	const developmentKey = "not-secret-and-for-development-only"
	base := s.standalone(emulator.ConnectionString(), "BaseUrl=http://localhost:7071", "ADMIN_KEY="+
		developmentKey).url
	awaitReady(t, base)
	// real maps what the README shows to the real values.
	real := map[string]string{"localhost:7071": strings.TrimPrefix(base, "http://")}
	expand := func(text string) string {
		for shown, is := range real {
			text = strings.ReplaceAll(text, shown, is)
		}
		return text
	}
	key := ""
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(
		string(text), -1) {
		for _, shown := range strings.Split(block[1], "$ ")[1:] {
			shown = strings.ReplaceAll(shown, "\\\n", "")
			command, response, _ := strings.Cut(shown, "\n")
			if strings.HasPrefix(command, "KEY=") {
				continue // the user sets the variable
			}
			curl := exec.Command("sh", "-c", strings.Replace(expand(command), "curl ", "curl -sS ",
				1))
			curl.Env = append(os.Environ(), "KEY="+key)
			output, err := curl.CombinedOutput()
			got := strings.ReplaceAll(string(output), "\r", "")
			if err != nil {
				t.Errorf("%s: %v\n%s", command, err, got)
			}
			if made := regexp.MustCompile(`tny_\w+`).FindString(got); made != "" {
				key = made
			}
			if alias := regexp.MustCompile(`"alias":"(\w{6})"`).FindStringSubmatch(
				got); alias != nil {
				real["8k3e3D"] = alias[1]
			}
			for line := range strings.SplitSeq(strings.TrimSpace(response), "\n") {
				if line = strings.ReplaceAll(line, "8k3e3D",
					real["8k3e3D"]); !shows(line).MatchString(got) {
					t.Errorf("%s\nshows the line\n%s\nwhich is not in\n%s", command, line, got)
				}
			}
		}
	}
	if key == "" || real["8k3e3D"] == "" {
		t.Error("the README makes no key or no link any more")
	}
}

// shows returns a pattern for a line of the README. Times and ids may differ, and … matches
// anything.
func shows(line string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(line)
	pattern = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|[0-9a-f]{16}`).ReplaceAllString(
		pattern, `[\w:-]+`)
	return regexp.MustCompile(`(?m)^` + strings.ReplaceAll(pattern, "…", ".*") + `$`)
}

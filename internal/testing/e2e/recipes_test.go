package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestRecipes sends what docs/recipes.md says that programs send. What only those programs can run
// must at least name the same address, header and members.
func TestRecipes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	block := func(language string) string {
		t.Helper()
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("there is no block of %s", language)
		}
		return found[1]
	}
	s := newSite(t)
	const admin = "an-admin-key-of-32-characters-or-more"
	base := s.standalone(emulator.ConnectionString(), "BaseUrl=http://localhost:7071",
		"SHORTEN_ACCESS=owners", "ADMIN_KEY="+admin).url
	awaitReady(t, base)
	made := request(t, "POST", base+"/api/keys", `{"name":"recipes","owner":"me"}`, "Authorization",
		"Bearer "+admin, "Content-Type", "application/json")
	var key struct{ Key string }
	if err := json.Unmarshal([]byte(made.Body), &key); err != nil || key.Key == "" {
		t.Fatalf("no key: %s", made.Body)
	}
	real := strings.NewReplacer("https://go.example.com", base, "go.example.com",
		strings.TrimPrefix(base, "http://"), "tny_…", key.Key)
	short := func(what, response string) {
		t.Helper()
		var link struct {
			ShortURL, LongURL string
			ExpiresAtUtc      *string
		}
		if err := json.Unmarshal([]byte(response), &link); err != nil || link.ExpiresAtUtc != nil ||
			link.LongURL != "https://example.com/page" || link.ShortURL == "" {
			t.Errorf("%s: %v, %s", what, err, response)
		}
	}

	asked, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(
		real.Replace(block("http")), "\n", "\r\n"))))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(real.Replace(block("http")), "\n\n")
	body = strings.TrimSpace(body)
	var headers []string
	for name, values := range asked.Header {
		headers = append(headers, name, values[0])
	}
	short("the request", request(t, asked.Method, base+asked.URL.Path, body, headers...).Body)

	out, err := exec.Command("sh", "-c", real.Replace(block("sh"))).CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	short("curl", string(out))

	var sharex struct {
		RequestMethod, RequestURL, Body, Data, URL string
		Headers                                    map[string]string
	}
	if err := json.Unmarshal([]byte(block("json")), &sharex); err != nil {
		t.Fatal(err)
	}
	if sharex.Body != "JSON" || sharex.URL != "{json:shortUrl}" {
		t.Errorf("ShareX sends and reads %+v", sharex)
	}
	headers = []string{"Content-Type", "application/json"} // what it sends with JSON
	for name, value := range sharex.Headers {
		headers = append(headers, name, real.Replace(value))
	}
	short("ShareX", request(t, sharex.RequestMethod, real.Replace(sharex.RequestURL),
		strings.ReplaceAll(sharex.Data, "{input}", "https://example.com/page"), headers...).Body)

	_, shortcuts, _ := strings.Cut(text, "## iOS")
	shortcuts, _, _ = strings.Cut(shortcuts, "##")
	for what, steps := range map[string]string{"Shortcuts": shortcuts,
		"PowerToys Run": block("powershell")} {
		for _, part := range []string{"https://go.example.com" + asked.URL.Path, "X-Api-Key", "longUrl",
			"shortUrl"} {
			if !strings.Contains(steps, part) {
				t.Errorf("%s has no %s", what, part)
			}
		}
	}
}

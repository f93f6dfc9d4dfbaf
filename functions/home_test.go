package functions

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// What people paste around a URL goes, and a scheme is added. internal/testing/browser tries the
// same on the page's script.
func TestPastedURLs(t *testing.T) {
	data, err := os.ReadFile("testdata/pasted.json")
	var pasted map[string]string
	if err == nil {
		err = json.Unmarshal(data, &pasted)
	}
	if err != nil || len(pasted) < 90 {
		t.Fatalf("%d, %v", len(pasted), err)
	}
	for text, want := range pasted {
		if got := completed(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	hostile := strings.Repeat("(", 4000) + strings.Repeat(".", 4000)
	if got := completed(hostile); got != "https://"+hostile[8:] { // each takes as long as the rest
		t.Errorf("%d characters are left", len(got))
	}
	for _, text := range []string{"", " ", "“”", "(", "\"", "\u200b", "<>"} {
		if got := completed(text); got != "" {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

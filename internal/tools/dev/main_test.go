package main

import (
	"slices"
	"strings"
	"testing"

	"tiney/handler/app"
)

// TestWelcome: newcomers read the key that signs them in, and nobody reads a key of their own.
func TestWelcome(t *testing.T) {
	t.Chdir("../../..")
	const known, own = "not-secret-and-for-development-only", "a-key-of-my-own-that-is-a-secret"
	for given, key := range map[string]string{"": known, own: own} {
		t.Setenv("ADMIN_KEY", given)
		env, shown, err := developmentSettings()
		text := app.Welcome("http://localhost:8080", shown)
		if err != nil || !slices.Contains(env, "ADMIN_KEY="+key) ||
			strings.Contains(text, "\n  "+known+"\n") != (given == "") ||
			strings.Contains(text, "set as ADMIN_KEY") != (given != "") ||
			strings.Contains(text, own) || strings.Contains(text, "$") ||
			!strings.Contains(text, "http://localhost:8080/manage") {
			t.Errorf("with %q: %v: %s", given, err, text)
		}
	}
}

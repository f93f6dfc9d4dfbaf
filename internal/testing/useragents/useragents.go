// Package useragents has real User-Agents of bots and of people's browsers. Nothing that ships
// imports it.
//
// They come from two npm packages. package-lock.json beside this file pins them, and `make
// useragents` installs them. They are read from there, so that this repository has no copy.
package useragents

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Person is what the browser of a person sends.
type Person struct {
	UserAgent string
	Device    string `json:"deviceCategory"` // desktop, mobile or tablet, as its collectors say
}

// People returns the 952 distinct User-Agents in npm's user-agents. root is the project's folder.
func People(root string) ([]Person, error) {
	// Frequent User-Agents appear many times, with different screens, but always with the same
	// device.
	var visits []Person
	if err := read(root, "user-agents/dist/user-agents.json", &visits); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(visits, func(p Person) bool {
		known := seen[p.UserAgent]
		seen[p.UserAgent] = true
		return known
	}), nil
}

// Bots returns the 2,118 samples of npm's crawler-user-agents. root is the project's folder.
func Bots(root string) ([]string, error) {
	var crawlers []struct{ Instances []string }
	if err := read(root, "crawler-user-agents/crawler-user-agents.json", &crawlers); err != nil {
		return nil, err
	}
	var all []string
	for _, c := range crawlers {
		all = append(all, c.Instances...)
	}
	return all, nil
}

func read(root, file string, into any) error {
	data, err := os.ReadFile(filepath.Join(root, "internal", "testing", "useragents", "node_modules",
		filepath.FromSlash(file)))
	if err != nil {
		return fmt.Errorf("user agents are not installed; run `make useragents` first (%w)", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}

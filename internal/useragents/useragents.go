// Package useragents has User-Agents as they are sent, by bots and by people's browsers. Nothing
// that ships imports it.
//
// They are in two npm packages that package-lock.json beside this file pins; `make useragents`
// installs them. They are read from there, so that none of it is in this repository.
package useragents

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Person is what a browser sends that a person sits at.
type Person struct {
	UserAgent string
	Device    string `json:"deviceCategory"` // desktop, mobile or tablet, by those who collected it
}

// People returns the 952 different ones of npm's user-agents. root is the project's folder.
func People(root string) ([]Person, error) {
	// A frequent one is there many times, with other screens; all of them have the same device.
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
	data, err := os.ReadFile(filepath.Join(root, "internal", "useragents", "node_modules",
		filepath.FromSlash(file)))
	if err != nil {
		return fmt.Errorf("user agents are not installed; run `make useragents` first (%w)", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}

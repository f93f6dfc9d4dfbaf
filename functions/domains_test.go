package functions_test

import (
	"testing"

	"tiney/functions"
	"tiney/link"
)

// withDomains gives the service the domains go.example and go.example:8080, besides tiney.to.
func withDomains(c *functions.Config) {
	c.Rules.Domains = map[link.Domain]link.Base{}
	for _, url := range []string{"https://go.example", "http://go.example:8080"} {
		base, err := link.ParseBase(url)
		if err != nil {
			panic(err)
		}
		c.Rules.Domains[base.Domain()] = base
	}
}

func TestX(t *testing.T) {}

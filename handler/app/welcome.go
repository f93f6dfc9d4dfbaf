package app

import "fmt"

// Welcome says what to do with a service that runs at base, to people who try it out. They sign in
// with adminKey, or if it is empty, with one of their own.
func Welcome(base, adminKey string) string {
	signIn := "This key signs you in there, and makes others:\n\n  " + adminKey
	if adminKey == "" {
		signIn = "The key that you have set as ADMIN_KEY signs you in there, and makes others."
	}
	return fmt.Sprintf(`
tiney is at %[1]s — open it, or try:

  curl %[1]s/api/shorten -H 'Content-Type: application/json' -d '{"longUrl":"https://example.com/a/long/path"}'

Links of your own, with their clicks, are at %[1]s/manage. %[2]s

Ctrl-C ends it.

`, base, signIn)
}

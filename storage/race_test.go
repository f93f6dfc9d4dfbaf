//go:build race

package storage_test

// The race detector makes the meetings slow, and sees no more in them than in other tests: make
// check has them meet without it.
func init() { meetings, parallel = nil, "8" }

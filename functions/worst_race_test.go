//go:build race && unix

package functions_test

// The race detector makes everything slow.
func init() { slowness = 10 }

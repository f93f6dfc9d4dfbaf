//go:build race && unix

package functions_test

func init() { raced = true }

//go:build race

package functions_test

func init() { raced = true }

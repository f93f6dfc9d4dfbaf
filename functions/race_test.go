//go:build race

package functions_test

func init() { slack = 4 } // the race detector takes time, and empties pools of buffers

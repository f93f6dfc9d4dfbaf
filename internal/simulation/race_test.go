//go:build race

package simulation

func init() { *operations = 5_000 } // the race detector makes them slow

//go:build race

package simulation

func init() { *operations = 5_000 } // operations are slow under the race detector

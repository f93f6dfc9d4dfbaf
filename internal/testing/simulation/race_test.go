//go:build race

package simulation

func init() { *operations = 2_000 } // operations are slow under the race detector

package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestOrphaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		parent := func() int {
			if time.Since(start) < time.Minute {
				return 7
			}
			return 1
		}
		if !orphaned(t.Context(), 7, parent) || time.Since(start) > time.Minute+2*parentInterval {
			t.Errorf("found out after %v", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if orphaned(ctx, 7, func() int { return 7 }) {
			t.Error("the parent was there all the time")
		}
	})
}

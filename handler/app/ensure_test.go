package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsMissingIsMadeInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var tries []time.Duration
		ensureWithRetry(t.Context(), slog.New(slog.DiscardHandler),
			"test", func(context.Context) error {
				if tries = append(tries, time.Since(start)); len(tries) == 8 {
					return nil
				}
				return errors.New("not yet")
			})
		if want := 1 + 2 + 4 + 8 + 16 + 30 + 30; tries[7] != time.Duration(want)*time.Second {
			t.Errorf("tried at %v", tries)
		}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		ensureWithRetry(ctx, slog.New(slog.DiscardHandler),
			"test", func(context.Context) error { return errors.New("never") })
	})
}

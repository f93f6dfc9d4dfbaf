package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsMissingIsMadeInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var tries []time.Duration
		make(oneAtATime, 1).ensure(t.Context(), slog.New(slog.DiscardHandler),
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
		make(oneAtATime, 1).ensure(ctx, slog.New(slog.DiscardHandler),
			"test", func(context.Context) error { return errors.New("never") })
	})
}

func TestOneTryAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tries, trying := make(oneAtATime, 1), 0
		var ready atomic.Bool
		try := func(err error) func(context.Context) error {
			return func(try context.Context) error {
				if trying++; trying > 1 {
					t.Error("two try at the same time")
				}
				time.Sleep(3 * time.Second)
				trying--
				return errors.Join(err, try.Err())
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			tries.ensure(ctx, slog.New(slog.DiscardHandler), "a", try(errors.New("never")))
		})
		all.Go(func() {
			tries.ensure(ctx, slog.New(slog.DiscardHandler), "b", try(nil))
			ready.Store(true)
		})
		time.Sleep(time.Minute)
		if !ready.Load() {
			t.Error("one that always fails keeps another from its try")
		}
		cancel()
		all.Wait()
	})
}

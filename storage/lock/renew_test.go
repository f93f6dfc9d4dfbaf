package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestLeaseIsRenewedWhileTheWorkLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewals int
		err := whileRenewed(t.Context(), func(context.Context) error { renewals++; return nil }, func(ctx context.Context) error {
			time.Sleep(4*time.Minute + time.Second)
			return ctx.Err()
		})
		if err != nil || renewals != 12 {
			t.Errorf("%d renewals in four minutes, %v, want one every 20 s", renewals, err)
		}
	})
}

func TestWorkEndsWhenTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("taken over")
		start := time.Now()
		var renewals int
		err := whileRenewed(t.Context(), func(context.Context) error {
			if renewals++; renewals == 3 {
				return gone
			}
			return nil
		}, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, gone) || renewals != 3 {
			t.Errorf("%d renewals, %v", renewals, err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("ended after %v, want at the third renewal", took)
		}
	})
}

func TestWorkEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := whileRenewed(ctx, func(context.Context) error { return nil }, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

package linkstest_test

import (
	"io"
	"testing"
	"time"

	"tiney/internal/testing/linkstest"
)

func TestFakeConforms(t *testing.T) {
	linkstest.Conform(t, func(_ *testing.T, now func() time.Time,
		random io.Reader) linkstest.Subject {
		f := linkstest.NewFake(now, random)
		return linkstest.Subject{Store: f, Put: f.Put, Blocked: f.Blocked}
	})
}

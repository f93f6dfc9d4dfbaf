package link

import (
	"errors"
	"testing"
	"time"
)

// An imported link that is used up has ended. It keeps the end that it kept before, however far
// ahead the clock of the other service was.
func TestImportOfAUsedUpLink(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for _, test := range []struct{ end, kept, wantEnd, wantKept time.Time }{
		{in(-time.Hour), in(time.Hour), in(-time.Hour), in(time.Hour)},
		{in(10 * time.Second), in(time.Hour), now, in(time.Hour)},
		{in(time.Hour), time.Time{}, now, in(time.Hour)},
		{time.Time{}, time.Time{}, now, time.Time{}},
	} {
		l := Link{ExpiresAt: test.end}
		if err := l.importGuard(Guard{MaxOpens: 1, EndKept: test.kept}, now); err != nil ||
			!l.ExpiresAt.Equal(test.wantEnd) || !l.EndKept.Equal(test.wantKept) {
			t.Errorf("%+v: got %+v, %v", test, l, err)
		}
	}
}

func TestOpeningsOfALink(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 500, time.UTC)
	for _, end := range []time.Time{{}, now.Add(time.Hour).Truncate(time.Second)} {
		l := Link{Name: "one", LongURL: "https://example.com/", ExpiresAt: end, Owner: "a"}
		edit := func(p Patch) error {
			edited, err := Rules{}.Edit(l, p, Actor{By: "a", Own: true}, now)
			if err == nil {
				l = edited
			}
			return err
		}
		if err := edit(Patch{MaxOpens: new(int64(2))}); err != nil || l.OpensLeft != 2 {
			t.Fatalf("%+v, %v", l, err)
		}
		if l = l.Opened(now); l.OpensLeft != 1 || l.UsedUp() || !l.ExpiresAt.Equal(end) {
			t.Errorf("opened once: %+v", l)
		}
		l = l.Opened(now)
		if !l.UsedUp() || !l.EndKept.Equal(end) || !l.ExpiresAt.Equal(now.Truncate(time.Second)) {
			t.Errorf("used up: %+v", l)
		}
		// The clock of who asks may be behind.
		if state := l.State(now.Add(-time.Minute)); state != StateExpired {
			t.Errorf("used up, it is %s", state)
		}
		later := now.Add(2 * time.Hour).Truncate(time.Second)
		var invalid *InvalidError
		for _, end := range []End{{}, {At: &later}} {
			if err := edit(Patch{End: &end}); !errors.As(err, &invalid) ||
				invalid.Field != FieldMaxOpens {
				t.Errorf("another end: %v", err)
			}
		}
		used := l
		for _, n := range []int64{0, 3} {
			l = used
			if err := edit(Patch{MaxOpens: &n}); err != nil || l.OpensLeft != int(n) ||
				!l.ExpiresAt.Equal(end) || !l.EndKept.IsZero() {
				t.Errorf("opened again: %+v, %v", l, err)
			}
			l = used
			if err := edit(Patch{MaxOpens: &n, End: &End{At: &later}}); err != nil ||
				!l.ExpiresAt.Equal(later) || !l.EndKept.IsZero() {
				t.Errorf("opened again with another end: %+v, %v", l, err)
			}
		}
	}
}

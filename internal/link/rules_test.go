package link_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
)

// second is the whole second of now.
var second = now.Truncate(time.Second)

func seconds(n int64) link.End { return link.End{Seconds: &n} }

func at(t time.Time) link.End { return link.End{At: &t} }

// wantInvalid checks that an error is about a field and says what to do.
func wantInvalid(t *testing.T, err error, field link.Field) {
	t.Helper()
	var invalid *link.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field || !strings.HasSuffix(invalid.Detail,
		".") ||
		!strings.HasPrefix(err.Error(), string(field)+": ") {
		t.Errorf("got %v, want it to be about the %v", err, field)
	}
}

func TestLifetimes(t *testing.T) {
	r := rules(t, "https://tiney.to")
	const day, never = 24 * time.Hour, time.Duration(-1)
	for name, test := range map[string]struct {
		owner string
		end   link.End
		want  time.Duration // 0: refused
		field link.Field
		says  string
	}{
		"none asked for": {"", link.End{}, 30 * day, "", ""},
		"shortest":       {"", seconds(60), time.Minute, "", ""},
		"too short":      {"", seconds(59), 0, link.FieldLifetime, "from 60 to 7776000"},
		"zero":           {"", seconds(0), 0, link.FieldLifetime, "from 60 to 7776000"},
		"negative":       {"", seconds(-60), 0, link.FieldLifetime, "from 60 to 7776000"},
		"longest":        {"", seconds(90 * 86400), 90 * day, "", ""},
		"too long":       {"", seconds(90*86400 + 1), 0, link.FieldLifetime, "from 60 to 7776000"},
		"overflow":       {"", seconds(1 << 62), 0, link.FieldLifetime, "from 60 to 7776000"},

		"earliest end": {"", at(second.Add(time.Minute)), time.Minute, "", ""},
		"end in a part of second": {"", at(second.Add(time.Minute + 999*time.Millisecond)),
			time.Minute, "", ""},
		"end in another time zone": {"", at(second.Add(time.Hour).In(time.FixedZone("", -12*3600))),
			time.Hour, "", ""},
		"end too early": {"", at(second.Add(time.Minute - 1)), 0, link.FieldExpiresAt,
			"at least 60 seconds"},
		"end in the past": {"", at(time.Time{}), 0, link.FieldExpiresAt,
			"at least 60 seconds"},
		"latest end": {"", at(second.Add(90 * day)), 90 * day, "", ""},
		"end too late": {"", at(second.Add(90*day + time.Second)), 0,
			link.FieldExpiresAt, "at most 7776000 seconds"},

		"an owner's, none asked for": {"o", link.End{}, never, "", ""},
		"an owner's, longest": {"o", seconds(3_153_600_000), 3_153_600_000 * time.Second,
			"", ""},
		"an owner's, too long": {"o", seconds(3_153_600_001), 0, link.FieldLifetime,
			"from 60 to 3153600000"},
		"an owner's, too short": {"o", seconds(59), 0, link.FieldLifetime,
			"from 60 to 3153600000"},
		"an owner's, latest end": {"o", at(second.Add(3_153_600_000*time.Second + 1)),
			3_153_600_000 * time.Second, "", ""},
		"an owner's, end too late": {"o", at(second.Add(3_153_600_001 * time.Second)), 0,
			link.FieldExpiresAt, "at most 3153600000 seconds"},
		"an owner's, end too early": {"o", at(second.Add(59 * time.Second)), 0,
			link.FieldExpiresAt, "at least 60 seconds"},
		"an owner's, end in year 10000": {"o",
			at(time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600))), 0,
			link.FieldExpiresAt, "at most 3153600000 seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := r.New(link.Wish{LongURL: "https://example.com", Owner: test.owner,
				End: test.end}, now.In(time.FixedZone("", 3600)))
			if test.want == 0 {
				if wantInvalid(t, err, test.field); err != nil && !strings.Contains(err.Error(),
					test.says) {
					t.Errorf("%v does not say %q", err, test.says)
				}
				return
			}
			want := second.Add(test.want)
			if test.want == never {
				want = time.Time{}
			}
			if err != nil || l.CreatedAt != second || l.ExpiresAt != want {
				t.Errorf("from %v to %v, want %v from %v: %v", l.CreatedAt, l.ExpiresAt, want,
					second, err)
			}
		})
	}
	r.MaxTTL = time.Hour
	if l, err := r.New(link.Wish{LongURL: "https://example.com"}, now); err != nil ||
		l.ExpiresAt.Sub(l.CreatedAt) != time.Hour {
		t.Errorf("the default lifetime exceeds the ceiling: %v, %v", l, err)
	}
}

func TestNew(t *testing.T) {
	const url = "https://example.com/"
	r := rules(t, "https://tiney.to")
	want := link.Link{Name: "Mine_-9", LongURL: url, Owner: "o", CreatedAt: second,
		StatusCode: 308, Title: "A title", Tags: []string{"b", "a"}}
	got, err := r.New(link.Wish{LongURL: url, Owner: "o", Alias: new("Mine_-9"),
		StatusCode: new(int64(308)), Title: "A title", Tags: []string{"b", "a", "b"}}, now)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := r.New(link.Wish{LongURL: url}, now); err != nil || got.Name != "" ||
		got.StatusCode != 302 || got.Tags != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	many := make([]string, 21)
	for i := range many {
		many[i] = strings.Repeat("x", i+1)
	}
	for name, test := range map[string]struct {
		wish  link.Wish
		field link.Field
		ok    bool
	}{
		"longest alias": {link.Wish{Alias: new(strings.Repeat("x", 100))}, "", true},
		"alias too long": {link.Wish{Alias: new(strings.Repeat("x", 101))}, link.FieldAlias,
			false},
		"empty alias":            {link.Wish{Alias: new("")}, link.FieldAlias, false},
		"alias of a path":        {link.Wish{Alias: new("a/b")}, link.FieldAlias, false},
		"reserved alias":         {link.Wish{Alias: new("API")}, link.FieldAlias, false},
		"permanent":              {link.Wish{StatusCode: new(int64(301))}, "", true},
		"temporary, same method": {link.Wish{StatusCode: new(int64(307))}, "", true},
		"other redirect": {link.Wish{StatusCode: new(int64(303))}, link.FieldStatusCode,
			false},
		"zero status code": {link.Wish{StatusCode: new(int64(0))}, link.FieldStatusCode,
			false},
		"status code in 64 bits": {link.Wish{StatusCode: new(int64(302 + 1<<32))},
			link.FieldStatusCode, false},
		"longest title": {link.Wish{Title: strings.Repeat("東", 200)}, "", true},
		"title too long": {link.Wish{Title: strings.Repeat("x", 201)}, link.FieldTitle,
			false},
		"title of two lines":      {link.Wish{Title: "a\nb"}, link.FieldTitle, false},
		"title with a C1 control": {link.Wish{Title: "a\u0085"}, link.FieldTitle, false},
		"title not UTF-8":         {link.Wish{Title: "\xff"}, link.FieldTitle, false},
		"as many tags as can be":  {link.Wish{Tags: many[:20]}, "", true},
		"too many tags":           {link.Wish{Tags: many}, link.FieldTags, false},
		"longest tag":             {link.Wish{Tags: []string{strings.Repeat("é", 50)}}, "", true},
		"tag too long": {link.Wish{Tags: []string{"a", strings.Repeat("x", 51)}},
			link.FieldTags, false},
		"empty tag": {link.Wish{Tags: []string{""}}, link.FieldTags, false},
		"gone URL": {link.Wish{GoneURL: new("HTTP://ü.example/{alias}?{domain}")}, "",
			true},
		"no gone URL":              {link.Wish{GoneURL: new(string)}, "", true},
		"gone URL is the long URL": {link.Wish{GoneURL: new(url)}, link.FieldGoneURL, false},
		"gone URL of another scheme": {link.Wish{Owner: "o", GoneURL: new("mailto:a@a.example")},
			link.FieldGoneURL, false},
		"gone URL here": {link.Wish{GoneURL: new("https://tiney.to/x")}, link.FieldGoneURL, false},
		"gone URL with another place": {link.Wish{GoneURL: new("https://a.example/{x}")},
			link.FieldGoneURL, false},
		"gone URL whose host is a place": {link.Wish{GoneURL: new("https://{alias}.example/")},
			link.FieldGoneURL, false},
		"gone URL too long": {link.Wish{GoneURL: new(url + strings.Repeat("x", 4077))},
			link.FieldGoneURL, false},
		"longest gone URL": {link.Wish{GoneURL: new(url + strings.Repeat("x", 4076))}, "", true},
		"no start":         {link.Wish{StartsAt: new(time.Time)}, "", true},
		"a past start":     {link.Wish{StartsAt: new(time.Unix(0, 0))}, "", true},
		"latest start": {link.Wish{StartsAt: new(second.Add(time.Hour - 1)),
			End: at(second.Add(time.Hour))}, "", true},
		"start at the end": {link.Wish{StartsAt: new(second.Add(time.Hour)),
			End: at(second.Add(time.Hour))}, link.FieldStartsAt, false},
		"start before 1970": {link.Wish{StartsAt: new(time.Unix(-1, 0))}, link.FieldStartsAt,
			false},
		"start in the year 10000": {link.Wish{StartsAt: new(time.Date(9999, 12, 31, 23, 0, 0, 0,
			time.FixedZone("", -3600)))}, link.FieldStartsAt, false},
		"tag with a tab": {link.Wish{Tags: []string{"a\tb"}}, link.FieldTags, false},
	} {
		t.Run(name, func(t *testing.T) {
			test.wish.LongURL = url
			_, err := r.New(test.wish, now)
			if test.ok {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			wantInvalid(t, err, test.field)
		})
	}
}

func TestState(t *testing.T) {
	past, future := now.Add(-time.Hour), now.Add(time.Hour)
	for name, test := range map[string]struct {
		l    link.Link
		want link.State
	}{
		"without end":    {link.Link{}, link.StateLive},
		"before its end": {link.Link{ExpiresAt: now.Add(1)}, link.StateLive},
		"at its end":     {link.Link{ExpiresAt: now}, link.StateExpired},
		"disabled": {link.Link{Disabled: true, ExpiresAt: future},
			link.StateDisabled},
		"disabled, then expired": {link.Link{Disabled: true, ExpiresAt: past}, link.StateExpired},
		"deleted":                {link.Link{DeletedAt: past, Disabled: true}, link.StateDeleted},
		"before its start":       {link.Link{StartsAt: now.Add(1)}, link.StateScheduled},
		"at its start":           {link.Link{StartsAt: now}, link.StateLive},
		"disabled before its start": {link.Link{StartsAt: future, Disabled: true},
			link.StateDisabled},
		"expired before its start": {link.Link{StartsAt: future, ExpiresAt: past},
			link.StateExpired},
		"deleted before its start": {link.Link{StartsAt: future, DeletedAt: past},
			link.StateDeleted},
		"deleted, then expired": {link.Link{DeletedAt: past, ExpiresAt: past}, link.StateDeleted},
		"tombstone of an expired": {link.Link{GoneReason: link.StateExpired, GoneAt: past},
			link.StateExpired},
		"tombstone of a deleted": {link.Link{GoneReason: link.StateDeleted, GoneAt: past},
			link.StateDeleted},
	} {
		if got := test.l.State(now); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestEdit(t *testing.T) {
	r := rules(t, "https://tiney.to")
	was := link.Link{Name: "abc", LongURL: "https://example.com/", Owner: "o",
		CreatedAt: second.Add(-time.Hour), ExpiresAt: second.Add(time.Hour),
		StatusCode: 302, Title: "old", Tags: []string{"a"}, ClaimHash: "h", Version: "1"}
	expired, forever, disabled, deleted := was, was, was, was
	expired.ExpiresAt = second
	forever.ExpiresAt = time.Time{}
	disabled.Disabled = true
	deleted.DeletedAt = second
	starts, broken := was, was
	starts.StartsAt = second.Add(30*time.Minute + time.Millisecond) // by another program
	broken.StartsAt = was.ExpiresAt.Add(1)
	sends, same := was, was
	sends.GoneURL, same.GoneURL = "https://example.com/3", link.Fallback(was.LongURL)
	shared := func(l link.Link) link.Link { l.Shared = true; return l }
	for name, test := range map[string]struct {
		was     link.Link
		patch   link.Patch
		admin   bool
		want    func(*link.Link) // nil: nothing changes
		err     error
		invalid *link.Field
	}{
		"nothing": {was: was},
		"all as it is": {was: was, patch: link.Patch{LongURL: &was.LongURL,
			End: new(at(was.ExpiresAt)), StatusCode: new(int64(302)), Disabled: new(false),
			Title: new("old"), Tags: new([]string{"a", "a"})}},
		"a default as it is": {was: link.Link{LongURL: was.LongURL},
			patch: link.Patch{End: &link.End{}, Tags: new([]string{})}},
		"an end as it is shown": {was: link.Link{LongURL: was.LongURL,
			ExpiresAt: second.Add(30*time.Second + time.Second/2)},
			patch: link.Patch{End: new(at(second.Add(30 * time.Second)))}},
		"another URL": {was: was, patch: link.Patch{LongURL: new("https://example.com/2")},
			want: func(l *link.Link) { l.LongURL = "https://example.com/2" }},
		"a bad URL": {was: was, patch: link.Patch{LongURL: new("https://tiney.to/x")},
			invalid: new(link.FieldLongURL)},
		"an empty URL": {was: was, patch: link.Patch{LongURL: new("")},
			invalid: new(link.FieldLongURL)},
		"later": {was: was, patch: link.Patch{End: new(seconds(7200))},
			want: func(l *link.Link) { l.ExpiresAt = second.Add(2 * time.Hour) }},
		"earlier": {was: was, patch: link.Patch{End: new(seconds(60))},
			want: func(l *link.Link) { l.ExpiresAt = second.Add(time.Minute) }},
		"beyond the ceiling": {was: was, patch: link.Patch{End: new(at(second.AddDate(50, 0, 0)))},
			want: func(l *link.Link) { l.ExpiresAt = second.AddDate(50, 0, 0) }},
		"too late": {was: was, patch: link.Patch{End: new(at(second.AddDate(101, 0, 0)))},
			invalid: new(link.FieldExpiresAt)},
		"too short": {was: was, patch: link.Patch{End: new(seconds(59))},
			invalid: new(link.FieldLifetime)},
		"in the past": {was: was, patch: link.Patch{End: new(at(second))},
			invalid: new(link.FieldExpiresAt)},
		"never": {was: was, patch: link.Patch{End: &link.End{}},
			want: func(l *link.Link) { l.ExpiresAt = time.Time{} }},
		"an end for once": {was: forever, patch: link.Patch{End: new(seconds(60))},
			want: func(l *link.Link) { l.ExpiresAt = second.Add(time.Minute) }},
		"an expired one": {was: expired, patch: link.Patch{End: new(seconds(60))},
			want: func(l *link.Link) { l.ExpiresAt = second.Add(time.Minute) }},
		"an expired one, not": {was: expired, patch: link.Patch{End: new(at(expired.ExpiresAt)),
			Title: new("new")}, want: func(l *link.Link) { l.Title = "new" }},
		"status code": {was: was, patch: link.Patch{StatusCode: new(int64(301))},
			want: func(l *link.Link) { l.StatusCode = 301 }},
		"a bad status code": {was: was, patch: link.Patch{StatusCode: new(int64(200))},
			invalid: new(link.FieldStatusCode)},
		"disable": {was: was, patch: link.Patch{Disabled: new(true)},
			want: func(l *link.Link) { l.Disabled = true }},
		"enable": {was: disabled, patch: link.Patch{Disabled: new(false)},
			want: func(l *link.Link) { l.Disabled = false }},
		"no title": {was: was, patch: link.Patch{Title: new("")},
			want: func(l *link.Link) { l.Title = "" }},
		"a bad title": {was: was, patch: link.Patch{Title: new("\x00"),
			Tags: new([]string{"fine"})}, invalid: new(link.FieldTitle)},
		"no tags": {was: was, patch: link.Patch{Tags: new([]string{})},
			want: func(l *link.Link) { l.Tags = nil }},
		"tags": {was: was, patch: link.Patch{Tags: new([]string{"b", "a", "b"})},
			want: func(l *link.Link) { l.Tags = []string{"b", "a"} }},
		"bad tags": {was: was, patch: link.Patch{Tags: new([]string{""})},
			invalid: new(link.FieldTags)},
		"a start": {was: was, patch: link.Patch{StartsAt: new(second.Add(time.Minute + 1))},
			want: func(l *link.Link) { l.StartsAt = second.Add(time.Minute) }},
		"another start": {was: starts, patch: link.Patch{StartsAt: new(second)},
			want: func(l *link.Link) { l.StartsAt = second }},
		"a start as it is shown": {was: starts,
			patch: link.Patch{StartsAt: new(starts.StartsAt.Truncate(time.Second))}},
		"no start": {was: starts, patch: link.Patch{StartsAt: new(time.Time)},
			want: func(l *link.Link) { l.StartsAt = time.Time{} }},
		"a start after the end": {was: was, patch: link.Patch{StartsAt: &was.ExpiresAt},
			invalid: new(link.FieldStartsAt)},
		"an end before the start": {was: starts, patch: link.Patch{End: new(seconds(60))},
			invalid: new(link.FieldStartsAt)},
		"a later start and end": {was: starts, patch: link.Patch{End: new(seconds(7200)),
			StartsAt: &was.ExpiresAt}, want: func(l *link.Link) {
			l.StartsAt, l.ExpiresAt = was.ExpiresAt, second.Add(2*time.Hour)
		}},
		"a later end": {was: starts, patch: link.Patch{End: new(seconds(7200))},
			want: func(l *link.Link) { l.ExpiresAt = second.Add(2 * time.Hour) }},
		"what another program has broken": {was: broken, patch: link.Patch{Title: new("new")},
			want: func(l *link.Link) { l.Title = "new" }},
		"a gone URL": {was: was, patch: link.Patch{GoneURL: new("https://example.com/2")},
			want: func(l *link.Link) { l.GoneURL = "https://example.com/2" }},
		"a gone URL as it is": {was: sends,
			patch: link.Patch{GoneURL: new("https://example.com/3")}},
		"no gone URL": {was: sends, patch: link.Patch{GoneURL: new(string)},
			want: func(l *link.Link) { l.GoneURL = "" }},
		"a bad gone URL": {was: was, patch: link.Patch{GoneURL: new("https://tiney.to/")},
			invalid: new(link.FieldGoneURL)},
		"a gone URL as the long URL": {was: was, patch: link.Patch{GoneURL: &was.LongURL},
			invalid: new(link.FieldGoneURL)},
		"a long URL as the gone URL": {was: sends,
			patch:   link.Patch{LongURL: new("https://example.com/3")},
			invalid: new(link.FieldGoneURL)},
		"both of them": {was: sends, patch: link.Patch{LongURL: new("https://example.com/3"),
			GoneURL: &was.LongURL}, want: func(l *link.Link) {
			l.LongURL, l.GoneURL = "https://example.com/3", link.Fallback(was.LongURL)
		}},
		"what leads nowhere else after its end": {was: same, patch: link.Patch{Title: new("new")},
			want: func(l *link.Link) { l.Title = "new" }},
		"a deleted one": {was: deleted, patch: link.Patch{Title: new("new")},
			err: link.ErrDeleted},
		"a tombstone": {was: link.Link{GoneReason: link.StateDeleted}, patch: link.Patch{},
			err: link.ErrDeleted},

		"shared, another URL": {was: shared(was),
			patch: link.Patch{LongURL: new("https://example.com/2")}, err: link.ErrShared},
		"shared, a bad URL": {was: shared(was), patch: link.Patch{LongURL: new("x")},
			invalid: new(link.FieldLongURL)},
		"shared, earlier": {was: shared(was),
			patch: link.Patch{End: new(seconds(60))}, err: link.ErrShared},
		"shared, an end for once": {was: shared(forever),
			patch: link.Patch{End: new(seconds(7200))}, err: link.ErrShared},
		"shared, later": {was: shared(was),
			patch: link.Patch{End: new(seconds(7200))},
			want:  func(l *link.Link) { l.ExpiresAt = second.Add(2 * time.Hour) }},
		"shared, never": {was: shared(was), patch: link.Patch{End: &link.End{}},
			want: func(l *link.Link) { l.ExpiresAt = time.Time{} }},
		"shared, disable": {was: shared(was), patch: link.Patch{Disabled: new(true)},
			err: link.ErrShared},
		"shared, as disabled as it is": {was: shared(was),
			patch: link.Patch{Disabled: new(false)}},
		"shared, a start": {was: shared(was), patch: link.Patch{StartsAt: new(second)},
			err: link.ErrShared},
		"shared, a gone URL": {was: shared(was),
			patch: link.Patch{GoneURL: new("https://example.com/3")}, err: link.ErrShared},
		"shared, no gone URL by an admin": {was: shared(sends), admin: true,
			patch: link.Patch{GoneURL: new(string)}, want: func(l *link.Link) { l.GoneURL = "" }},
		"shared, no start": {was: shared(starts), patch: link.Patch{StartsAt: new(time.Time)},
			err: link.ErrShared},
		"shared, a start by an admin": {was: shared(was), patch: link.Patch{StartsAt: &second},
			admin: true, want: func(l *link.Link) { l.StartsAt = second }},
		"shared, title": {was: shared(was), patch: link.Patch{Title: new("new"),
			StatusCode: new(int64(307))}, want: func(l *link.Link) {
			l.Title, l.StatusCode = "new",
				307
		}},
		"shared, disabled by an admin": {was: shared(was), patch: link.Patch{Disabled: new(true)},
			admin: true, want: func(l *link.Link) { l.Disabled, l.Locked = true, true }},
		"shared, redirected by an admin": {was: shared(was),
			patch: link.Patch{LongURL: new("https://example.com/2")}, admin: true,
			want: func(l *link.Link) { l.LongURL = "https://example.com/2" }},
	} {
		t.Run(name, func(t *testing.T) {
			before := test.was
			before.Tags = slices.Clone(before.Tags)
			got, err := r.Edit(test.was, test.patch,
				link.Actor{Admin: test.admin, Own: !test.admin}, now)
			switch {
			case test.invalid != nil:
				wantInvalid(t, err, *test.invalid)
				return
			case test.err != nil:
				if !errors.Is(err, test.err) {
					t.Errorf("got %v, want %v", err, test.err)
				}
				return
			}
			want := test.was
			if test.want != nil {
				test.want(&want)
				want.UpdatedAt = second
			}
			got.History = nil // TestHistory
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
			if got.Changed(test.was) != (test.want != nil) {
				t.Errorf("Changed is %t", got.Changed(test.was))
			}
			if !reflect.DeepEqual(test.was, before) {
				t.Errorf("the link that was given is now %+v", test.was)
			}
		})
	}
}

func TestDeletedAndRestored(t *testing.T) {
	const keep = time.Hour
	live := link.Link{Name: "abc", LongURL: "https://example.com/",
		CreatedAt: second.Add(-time.Hour)}
	deleted, err := live.Deleted(link.Actor{Own: true}, now)
	if want := (link.Link{Name: "abc", LongURL: live.LongURL, CreatedAt: live.CreatedAt,
		DeletedAt: second, UpdatedAt: second, History: deleted.History}); err != nil || !reflect.DeepEqual(deleted, want) {
		t.Fatalf("got %+v, %v, want %+v", deleted, err, want)
	}
	if again, err := deleted.Deleted(link.Actor{Own: true}, now.Add(time.Minute)); err != nil ||
		again.Changed(deleted) || again.UpdatedAt != second {
		t.Errorf("deleted again: %+v, %v", again, err)
	}

	shared := live
	shared.Shared = true
	if _, err := shared.Deleted(link.Actor{Own: true}, now); !errors.Is(err, link.ErrShared) {
		t.Errorf("a shared one: got %v", err)
	}
	if l, err := shared.Deleted(link.Actor{Admin: true}, now); err != nil || l.State(now) != link.StateDeleted {
		t.Errorf("a shared one, by an admin: got %+v, %v", l, err)
	}

	for name, test := range map[string]struct {
		l     link.Link
		after time.Duration
		ok    bool
	}{
		"at once":       {deleted, 0, true},
		"in time":       {deleted, keep - time.Second, true},
		"too late":      {deleted, keep, false},
		"a live one":    {live, 0, false},
		"a tombstone":   {link.Link{GoneReason: link.StateDeleted, GoneAt: second}, 0, false},
		"its own is up": {link.Link{DeletedAt: second, ExpiresAt: second}, time.Minute, true},
	} {
		at := second.Add(test.after)
		got, err := test.l.Restored(link.Actor{Own: true}, keep, at)
		if test.ok != (err == nil) || err != nil && !errors.Is(err, link.ErrNotDeleted) {
			t.Errorf("%s: got %v", name, err)
		}
		want := test.l
		want.DeletedAt, want.UpdatedAt, want.History = time.Time{}, at, got.History
		if test.ok && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestClaimed(t *testing.T) {
	l := link.Link{Name: "abc", LongURL: "https://example.com/", ExpiresAt: second.Add(time.Hour),
		Shared: true, ClaimHash: "h"}
	want := l
	want.Owner, want.ClaimHash, want.UpdatedAt = "o", "", second
	got := l.Claimed(link.Actor{By: "o"}, "o", true, now)
	if want.History = got.History; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want.ExpiresAt = time.Time{}
	got = l.Claimed(link.Actor{By: "o"}, "o", false, now)
	if want.History = got.History; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// FuzzRules checks that a link either keeps the rules or is refused, whatever a caller asks for,
// and that a shared link stays as it was given.
func FuzzRules(f *testing.F) {
	f.Add("https://example.com/", "o", "mine", int64(3600), int64(0), int64(302), "title", "tag",
		byte(0b1111))
	f.Add("https://example.com/", "", "", int64(0), int64(4_000_000_000), int64(308), "", "",
		byte(0b10010))
	r := rules(f, "https://tiney.to")
	keeps := func(t *testing.T, l link.Link) {
		t.Helper()
		if l.LongURL == "" || l.Name.Alias().Reserved() || !link.ValidStatusCode(l.StatusCode) ||
			len(l.Tags) > link.MaxTags || len([]rune(l.Title)) > link.MaxTitle ||
			slices.Contains(l.Tags, "") ||
			l.ExpiresAt.After(second.Add(link.MaxOwnedSeconds*time.Second)) ||
			l.ExpiresAt.Nanosecond() != 0 {
			t.Fatalf("breaks a rule: %+v", l)
		}
		if _, ok := link.ParseAlias(string(l.Name)); !ok && l.Name != "" {
			t.Fatalf("%q is no alias", l.Name)
		}
		if l.Owner == "" && (l.ExpiresAt.IsZero() || l.ExpiresAt.After(second.Add(r.MaxTTL))) {
			t.Fatalf("nobody's link lives too long: %+v", l)
		}
	}
	f.Fuzz(func(t *testing.T, url, owner, alias string, ttl, unix, code int64, title, tag string,
		given byte) {
		// Each bit of given says whether something is asked for. Anything else keeps its default.
		w := link.Wish{LongURL: url, Owner: owner, Title: title}
		var p link.Patch
		if given&1 != 0 {
			w.Alias, p.LongURL = &alias, &url
		}
		switch {
		case given&2 != 0:
			w.End = seconds(ttl)
			p.End = &w.End
		case given&4 != 0:
			w.End = at(time.Unix(unix%(1<<40), 0))
			p.End = &w.End
		case given&8 != 0:
			p.End = &link.End{}
		}
		if given&16 != 0 {
			w.StatusCode, p.StatusCode = &code, &code
		}
		if given&32 != 0 {
			w.Tags, p.Tags = []string{tag, title, tag}, &[]string{tag, title, tag}
		}
		if given&64 != 0 {
			p.Title, p.Disabled = &title, new(len(title)%2 == 0)
		}
		var invalid *link.InvalidError
		l, err := r.New(w, now)
		switch {
		case err == nil:
			keeps(t, l)
		case !errors.As(err, &invalid) || invalid.Detail == "":
			t.Fatalf("New: %v", err)
		}
		was := link.Link{LongURL: "https://example.com/", Owner: "o", StatusCode: 302,
			ClaimHash: "h", ExpiresAt: second.Add(time.Hour), Shared: given&128 != 0}
		edited, err := r.Edit(was, p, link.Actor{Own: true}, now)
		switch {
		case err == nil:
			keeps(t, edited)
			if was.Shared && (edited.LongURL != was.LongURL ||
				edited.State(second.Add(time.Hour-1)) != link.StateLive) {
				t.Fatalf("shared, and now %+v", edited)
			}
			if edited.Changed(was) == edited.UpdatedAt.IsZero() {
				t.Fatalf("UpdatedAt does not tell whether it changed: %+v", edited)
			}
		case errors.Is(err, link.ErrShared) && was.Shared:
		case !errors.As(err, &invalid) || invalid.Detail == "":
			t.Fatalf("Edit: %v", err)
		}
		if err != nil {
			return
		}
		// A link that is deleted and restored is as it was before. A claim removes only its end and
		// its token.
		deleted, err := edited.Deleted(link.Actor{Admin: true, Own: true}, now)
		if err != nil || deleted.State(now) != link.StateDeleted {
			t.Fatalf("deleted: %+v, %v", deleted, err)
		}
		restored, err := deleted.Restored(link.Actor{Own: true}, time.Hour, now)
		if err != nil || restored.Changed(edited) {
			t.Fatalf("restored: %+v, %v, and it was %+v", restored, err, edited)
		}
		claimed := edited.Claimed(link.Actor{By: owner}, owner, given&1 != 0, now)
		if claimed.Owner != owner || claimed.ClaimHash != "" || claimed.Shared != edited.Shared ||
			claimed.LongURL != edited.LongURL ||
			!claimed.ExpiresAt.IsZero() && (given&1 == 0 || claimed.ExpiresAt != edited.ExpiresAt) {
			t.Fatalf("claimed: %+v, and it was %+v", claimed, edited)
		}
	})
}

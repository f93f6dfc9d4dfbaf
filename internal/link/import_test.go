package link_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
)

func TestImport(t *testing.T) {
	base, err := link.ParseBase("https://tiney.to")
	if err != nil {
		t.Fatal(err)
	}
	rules := link.Rules{Base: base, DefaultTTL: time.Hour, MaxTTL: time.Hour}
	now := time.Date(2026, 5, 4, 3, 2, 1, 9, time.UTC)
	whole := now.Truncate(time.Second)
	at := func(year int) time.Time {
		return time.Date(year, 1, 1, 0, 0, 0, 5, time.FixedZone("", 3600))
	}
	made := func(change func(l *link.Link)) link.Link {
		l := link.Link{Name: "one", LongURL: "https://example.com/", CreatedAt: whole,
			StatusCode: 302}
		change(&l)
		return l
	}
	for name, test := range map[string]struct {
		was  func(l *link.Link)
		want func(l *link.Link)
	}{
		"nothing but a target": {func(*link.Link) {}, func(*link.Link) {}},
		"all members": {func(l *link.Link) {
			l.Owner, l.Title, l.Tags, l.StatusCode, l.Disabled = "idp.example|"+
				strings.Repeat("s", 255), "ü", []string{"b", "a", "b"}, 308, true
			l.CreatedAt, l.UpdatedAt, l.ExpiresAt = at(2001), at(2002), at(2999)
			l.StartsAt, l.GoneURL = at(2998), "https://example.org/{alias}"
			l.Before = link.Count{Clicks: 1 << 53, Bots: 1, LastAt: at(2003)}
		}, func(l *link.Link) {
			l.Owner, l.Title, l.Tags, l.StatusCode, l.Disabled = "idp.example|"+
				strings.Repeat("s", 255), "ü", []string{"b", "a"}, 308, true
			l.CreatedAt, l.UpdatedAt, l.ExpiresAt = time.Date(2000, 12, 31, 23, 0, 0, 0, time.UTC),
				time.Date(2001, 12, 31, 23, 0, 0, 0, time.UTC), time.Date(2998, 12, 31, 23, 0, 0, 0,
					time.UTC)
			l.StartsAt = time.Date(2997, 12, 31, 23, 0, 0, 0, time.UTC)
			l.GoneURL = "https://example.org/{alias}"
			l.Before = link.Count{Clicks: 1 << 53, Bots: 1, LastAt: time.Date(2002, 12, 31, 23, 0, 0,
				0, time.UTC)}
		}},
		"ended long ago": {func(l *link.Link) {
			l.ExpiresAt = at(1999)
		}, func(l *link.Link) { l.ExpiresAt = time.Date(1998, 12, 31, 23, 0, 0, 0, time.UTC) }},
		"dates in the future": {func(l *link.Link) {
			l.CreatedAt, l.UpdatedAt,
				l.Before.LastAt = at(2030), at(2030), at(2030)
		}, func(l *link.Link) { l.UpdatedAt, l.Before.LastAt = whole, whole }},
		"what others only know": {func(l *link.Link) {
			l.Shared, l.ClaimHash, l.DeletedAt, l.Version, l.CountedFrom = true, "hash", at(2000),
				"v", at(2000)
		}, func(*link.Link) {}},
		"longer than any": {func(l *link.Link) {
			l.Name = link.Name(strings.Repeat("a", 100))
		}, func(l *link.Link) { l.Name = link.Name(strings.Repeat("a", 100)) }},
	} {
		was := link.Link{Name: "one", LongURL: "https://example.com/"}
		test.was(&was)
		if got, err := rules.Import(was, "", now); err != nil ||
			!reflect.DeepEqual(got, made(test.want)) {
			t.Errorf("%s: got %+v, %v\nwant %+v", name, got, err, made(test.want))
		}
	}
	for name, test := range map[string]struct {
		was   func(l *link.Link)
		field link.Field
	}{
		"no alias": {func(l *link.Link) { l.Name = "" }, link.FieldAlias},
		"a long alias": {func(l *link.Link) {
			l.Name = link.Name(strings.Repeat("a", 101))
		}, link.FieldAlias},
		"an alias with a dot": {func(l *link.Link) { l.Name = "a.b" }, link.FieldAlias},
		"a reserved alias":    {func(l *link.Link) { l.Name = "Admin" }, link.FieldAlias},
		"no target":           {func(l *link.Link) { l.LongURL = "" }, link.FieldLongURL},
		"a script": {func(l *link.Link) { l.LongURL = "javascript:alert(1)" },
			link.FieldLongURL},
		"this service": {func(l *link.Link) { l.LongURL = "https://TINEY.to./x" },
			link.FieldLongURL},
		"created too early": {func(l *link.Link) { l.CreatedAt = at(1969) },
			link.FieldCreatedAt},
		"updated too early": {func(l *link.Link) { l.UpdatedAt = at(1600) },
			link.FieldUpdatedAt},
		"clicked too early": {func(l *link.Link) { l.Before.LastAt = at(1600) },
			link.FieldClicks},
		"ended too early": {func(l *link.Link) { l.ExpiresAt = at(1600) },
			link.FieldExpiresAt},
		"ends too late": {func(l *link.Link) { l.ExpiresAt = at(10001) },
			link.FieldExpiresAt},
		"sends people here": {func(l *link.Link) { l.GoneURL = "https://tiney.to/" },
			link.FieldGoneURL},
		"sends people to its target": {func(l *link.Link) { l.GoneURL = "https://example.com/" },
			link.FieldGoneURL},
		"starts at its end": {func(l *link.Link) { l.StartsAt, l.ExpiresAt = at(2030), at(2030) },
			link.FieldStartsAt},
		"starts too late":     {func(l *link.Link) { l.StartsAt = at(10001) }, link.FieldStartsAt},
		"another status code": {func(l *link.Link) { l.StatusCode = 303 }, link.FieldStatusCode},
		"a long title": {func(l *link.Link) { l.Title = strings.Repeat("x", 201) },
			link.FieldTitle},
		"an empty tag": {func(l *link.Link) { l.Tags = []string{""} }, link.FieldTags},
		"a long owner": {func(l *link.Link) { l.Owner = strings.Repeat("ü", 401) },
			link.FieldOwner},
		"an owner with spaces": {func(l *link.Link) { l.Owner = "a\nb" }, link.FieldOwner},
		"an invalid owner":     {func(l *link.Link) { l.Owner = "\xff" }, link.FieldOwner},
		"an invisible owner":   {func(l *link.Link) { l.Owner = "a\u200b" }, link.FieldOwner},
		"negative clicks":      {func(l *link.Link) { l.Before.Clicks = -1 }, link.FieldClicks},
		"too many bots":        {func(l *link.Link) { l.Before.Bots = 1<<53 + 1 }, link.FieldClicks},
	} {
		was := link.Link{Name: "one", LongURL: "https://example.com/"}
		test.was(&was)
		var invalid *link.InvalidError
		if _, err := rules.Import(was, "", now); !errors.As(err, &invalid) ||
			invalid.Field != test.field || invalid.Detail == "" {
			t.Errorf("%s: got %v, want field %v", name, err, test.field)
		}
	}
}

package transfer_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tiney/internal/linkstest"
	"tiney/link"
	"tiney/transfer"
)

// resultsOf imports a file, and returns the result of each record, such as "2 one created".
func resultsOf(t *testing.T, im *transfer.Import, f transfer.Format,
	file string) (results []string) {
	t.Helper()
	for _, r := range im.Add(t.Context(), read(t, f, file), day) {
		what := "there"
		var damaged transfer.RecordError
		var invalid *link.InvalidError
		switch {
		case errors.As(r.Err, &damaged):
			what = "damaged"
		case errors.As(r.Err, &invalid):
			what = fmt.Sprintf("invalid %d", invalid.Field)
		case r.Err != nil:
			what = r.Err.Error()
		case r.Created:
			what = "created"
		}
		results = append(results, fmt.Sprintf("%d %s %s", r.Line, r.Alias, what))
	}
	return results
}

func TestImport(t *testing.T) {
	store := linkstest.NewFake(linkstest.NewClock().Now, rand.Reader)
	const file = "alias,longUrl,clicks\n" +
		"one,https://example.com/1,7\n" +
		"one,https://example.com/1,\n" +
		"one,https://example.com/2,\n" +
		"cut,https://exa\n" +
		"a.b,https://example.com/,\n" +
		"two,javascript:alert(1),\n" +
		",https://example.com/,\n"
	invalid := []string{"5  damaged", fmt.Sprintf("6  invalid %d", link.FieldAlias),
		fmt.Sprintf("7 two invalid %d", link.FieldLongURL), fmt.Sprintf("8  invalid %d",
			link.FieldAlias)}
	want := func(what string, im *transfer.Import, first, second, third string) {
		t.Helper()
		want := append([]string{"2 one " + first, "3 one " + second, "4 one " + third}, invalid...)
		if got := resultsOf(t, im, transfer.CSV, file); !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
	dry := &transfer.Import{Links: store, DryRun: true}
	want("dry run", dry, "created", "there", "there") // the fake does not compare the long URLs
	want("dry run of more", dry, "there", "there", "there")
	if _, err := store.Read(t.Context(), "one"); !errors.Is(err, link.ErrNotFound) {
		t.Errorf("a dry run made a link: %v", err)
	}
	im := &transfer.Import{Links: store, Owner: "ann"}
	want("import", im, "created", "there", "the alias is taken")
	want("import again", im, "there", "there", "the alias is taken")
	l, err := store.Read(t.Context(), "one")
	if err != nil || l.Owner != "ann" || !l.CreatedAt.Equal(day) || l.Before.Clicks != 7 {
		t.Errorf("got %+v, %v", l, err)
	}
	store.Fail(link.ErrUnavailable)
	want("import without the store", im, link.ErrUnavailable.Error(), link.ErrUnavailable.Error(),
		link.ErrUnavailable.Error())
}

func TestImportKeepsOwners(t *testing.T) {
	store := linkstest.NewFake(linkstest.NewClock().Now, rand.Reader)
	for keep, owners := range map[bool][2]string{false: {"ann", "ann"}, true: {"bob", ""}} {
		im := &transfer.Import{Links: store, Owner: "ann", KeepOwners: keep}
		resultsOf(t, im, transfer.CSV, fmt.Sprintf("alias,longUrl,owner\n"+
			"bob-%t,https://example.com/,bob\nnone-%[1]t,https://example.com/,\n", keep))
		for i, name := range []string{"bob", "none"} {
			alias := link.Name(fmt.Sprintf("%s-%t", name, keep))
			if l, err := store.Read(t.Context(), alias); err != nil || l.Owner != owners[i] {
				t.Errorf("%s: owner %q, %v, want %q", alias, l.Owner, err, owners[i])
			}
		}
	}
}

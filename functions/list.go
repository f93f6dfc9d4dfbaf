package functions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
)

const wrongCursor = "cursor must be the nextCursor of a list with the same " +
	"owner, domain, q, tag and state. Leave it out to start again."

// wantLive asks for live links, as the parameter state.
const wantLive = "live"

// maxSearched is how many of an owner's links are searched for tags, or put in another order.
const maxSearched = 1000

// The orders of a list, besides those by clicks within a window.
const (
	orderNewest = "newest"
	orderOldest = "oldest"
	orderEnds   = "ends"
	orderClicks = "clicks" // of all time
)

// totalsTime is how long a list waits for the totals of its links. After that, it comes without
// them.
const totalsTime = 3 * time.Second

// filter says which links a list has.
type filter struct {
	owner, q, state string
	words           []string // of q, folded and each once, unless that is a short URL
	tags            []string
	domain          *link.Domain // nil: all
	export          string       // sets its cursors apart from those of lists
}

// listLinks handles GET /api/links.
func (s *service) listLinks(c *call) (any, error) {
	query := parametersOf(c.r)
	f := filter{owner: query.owner(c.who), domain: s.domainFilter(&query)}
	s.search(&query, &f)
	if query.Has("state") {
		f.state = query.oneOf("state", wantLive,
			string(link.StateScheduled), string(link.StateExpired), string(link.StateDisabled),
			string(link.StateDeleted))
	}
	limit := query.integer("limit", 50, 1, 100)
	order := query.oneOf("order", slices.Concat(
		[]string{orderNewest, orderOldest, orderEnds, orderClicks}, windows)...)
	withClicks := query.oneOf("clicks", "false", "true") == "true"
	cursor := query.text("cursor")
	after, ok := f.position(cursor)
	switch {
	case order != orderNewest && cursor != "":
		query.wrong("cursor", "cursor goes with the order newest only: the other orders have the "+
			"first links and no further page.")
	case !ok:
		query.wrong("cursor", wrongCursor)
	}
	if err := query.err(); err != nil {
		return nil, err
	}
	most := limit
	if order != orderNewest {
		most = maxSearched
	}
	var (
		found    []link.Link
		next     string
		searched int
		err      error
	)
	if a, ok := s.Rules.NameOf(f.q); ok {
		found, err = s.listAlias(c.ctx, a, f, false)
		searched = len(found)
	} else {
		keep := f.keep(s.Now())
		found, next, err = s.Links.List(c.ctx, f.owner, after, most, func(l link.Link) bool {
			searched++
			return keep(l)
		})
	}
	if errors.Is(err, link.ErrPosition) { // the client made up the cursor
		query.wrong("cursor", wrongCursor)
		return nil, query.problem
	}
	if err != nil {
		return nil, err
	}
	page := struct {
		Items    []any   `json:"items"`
		Next     *string `json:"nextCursor"`
		Searched int     `json:"searched"`
		Complete *bool   `json:"complete,omitzero"` // nil in the order newest
	}{Searched: searched}
	switch {
	case order != orderNewest:
		page.Complete = new(next == "")
	case next != "":
		page.Next = new(f.cursor(next))
	}
	links, totals, err := s.inOrder(c.ctx, found, order, limit)
	if err != nil {
		return nil, err
	}
	inWindow := slices.Contains(windows, order)
	withClicks = !inWindow && (withClicks || order == orderClicks)
	if withClicks && totals == nil {
		ctx, cancel := context.WithTimeout(c.ctx, totalsTime)
		totals, err = s.Clicks.Totals(ctx, links)
		cancel()
		if err != nil && !errors.Is(err, link.ErrUnavailable) {
			return nil, err
		}
	}
	page.Items = make([]any, len(links))
	for i, l := range links {
		v := s.viewLink(l)
		switch {
		case inWindow:
			page.Items[i] = clicked{v, totals[i].Clicks}
			continue
		case withClicks && err != nil:
			v.clicksView = new(clicksView)
		case withClicks:
			v.clicksView = viewTotal(totals[i])
		}
		page.Items[i] = v
	}
	return page, nil
}

// inOrder returns the first links in an order, and if that is by clicks, what they have had in the
// time that it goes by. Links that are equal stay newest first.
func (s *service) inOrder(ctx context.Context, found []link.Link, order string, limit int) (
	links []link.Link, totals []clicks.Total, err error) {
	of := map[link.Name]clicks.Total{}
	compare := func(a, b link.Link) int {
		return cmp.Compare(of[b.Name].Clicks, of[a.Name].Clicks)
	}
	switch order {
	case orderNewest:
		return found, nil, nil
	case orderOldest:
		compare = func(a, b link.Link) int { return a.CreatedAt.Compare(b.CreatedAt) }
	case orderEnds:
		compare = func(a, b link.Link) int { return compareEnds(a.ExpiresAt, b.ExpiresAt) }
	case orderClicks:
		totals, err = s.Clicks.Totals(ctx, found)
	default:
		totals, err = s.Clicks.InWindow(ctx, found, clicks.Window(order))
	}
	if err != nil {
		return nil, nil, err
	}
	for i, total := range totals {
		of[found[i].Name] = total
	}
	slices.SortStableFunc(found, compare)
	found = found[:min(limit, len(found))]
	totals = totals[:min(len(totals), len(found))]
	for i := range totals {
		totals[i] = of[found[i].Name]
	}
	return found, totals, nil
}

// compareEnds compares the ends of links. Never, which is zero, is the last.
func compareEnds(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		a, b = b, a
	}
	return a.Compare(b)
}

// listAlias returns the link with this name, or none if f excludes it. all: it may be any owner's.
func (s *service) listAlias(
	ctx context.Context, a link.Name, f filter, all bool,
) ([]link.Link, error) {
	l, err := s.Links.Read(ctx, a)
	switch {
	case errors.Is(err, link.ErrNotFound), errors.Is(err, link.ErrDamaged):
		return nil, nil
	case err != nil:
		return nil, err
	case !all && l.Owner != f.owner || !f.keep(s.Now())(l):
		return nil, nil
	}
	return []link.Link{l}, nil
}

// keep returns a function that reports whether a link is in the list: each of the words is in its
// alias, title, a tag or a URL to which it leads, and it has all tags, both in any case. Without a
// state, the list has all links except deleted ones.
func (f filter) keep(now time.Time) func(link.Link) bool {
	var tags []string
	for _, tag := range f.tags {
		tags = append(tags, fold(tag))
	}
	return func(l link.Link) bool {
		switch state := l.State(now); {
		case f.state == "" && state == link.StateDeleted,
			f.state == wantLive && state != link.StateLive,
			f.state != "" && f.state != wantLive && f.state != string(state),
			f.domain != nil && l.Name.Domain() != *f.domain:
			return false
		}
		if len(f.words)+len(tags) == 0 {
			return true
		}
		texts := make([]string, 0, len(l.Tags)+len(l.Rules)+3)
		for _, tag := range l.Tags {
			texts = append(texts, fold(tag))
		}
		if !all(tags, func(tag string) bool { return slices.Contains(texts, tag) }) {
			return false
		}
		texts = append(texts, fold(string(l.Alias())), fold(l.Title))
		for _, longURL := range l.Targets() {
			texts = append(texts, fold(longURL))
		}
		return all(f.words, func(word string) bool {
			return slices.ContainsFunc(texts, func(text string) bool {
				return strings.Contains(text, word)
			})
		})
	}
}

func all(texts []string, is func(string) bool) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !is(text) })
}

// fold maps letters that differ only in case to the same letter. It maps to upper case first,
// because some letters have two lower-case forms, such as the Greek sigma.
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }

// cursor encodes a position in a list for the client. The checksum is no secret. It serves to
// refuse a cursor that is used with other filters by mistake, which would leave out links.
func (f filter) cursor(position string) string {
	return base64.RawURLEncoding.EncodeToString(append(f.checksum(position), position...))
}

// position decodes a cursor. It returns "" if there is no cursor, and false if the cursor is
// invalid or belongs to other filters.
func (f filter) position(cursor string) (position string, ok bool) {
	if cursor == "" {
		return "", true
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(data) <= checksumBytes {
		return "", false
	}
	position = string(data[checksumBytes:])
	return position, string(f.checksum(position)) == string(data[:checksumBytes])
}

const checksumBytes = 8

func (f filter) checksum(position string) []byte {
	fields := append([]string{f.export, f.owner, f.q, f.state, position}, f.tags...)
	if f.domain != nil {
		fields = append(fields, "domain", string(*f.domain))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", fields))
	return sum[:checksumBytes]
}

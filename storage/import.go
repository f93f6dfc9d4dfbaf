package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"tiney/internal/link"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

// importConcurrency is how many links are imported at the same time: enough to hide the latency of
// a storage call. The links of one announcement are begun within the time of three others, and so
// within half of that for which processes look back.
const importConcurrency = 32

// Import makes links with their own aliases and dates, and returns what became of each. Of several
// with one alias the first comes first. A link that is there and leads to the same long URL stays
// as it is, and so does the tombstone of one whose end is past. One that has ended, or is about to,
// is reaped a minute later.
//
// What it made is durable. What Before says is part of the link, so that nothing loses it or counts
// it twice. It is safe to repeat after any error, and after a kill at any point: what is done
// stays, and the rest is done. When ctx has ended, it begins no other link; those that are begun
// take at most Timeout. Errors of a link: link.ErrBlocked, link.ErrAliasTaken, link.ErrDeleted,
// link.ErrLocked, link.ErrUnavailable.
func (s *Links) Import(ctx context.Context, links []link.Link) []link.Imported {
	done := make([]link.Imported, len(links))
	// Names whose first link is undecided. A later link must not take its place.
	undecided := map[link.Name]error{}
	for _, round := range rounds(links) {
		var all errgroup.Group
		all.SetLimit(importConcurrency)
		for batch := range slices.Chunk(round, table.MaxBatch) {
			announced := s.announceImport(ctx, links, batch)
			for _, i := range batch {
				failed := cmp.Or(undecided[links[i].Name], announced)
				all.Go(func() error {
					done[i] = s.importOne(ctx, links[i], failed)
					return nil
				})
			}
		}
		_ = all.Wait()
		for _, i := range round {
			if err := done[i].Err; errors.Is(err, link.ErrUnavailable) {
				undecided[links[i].Name] = err
			}
		}
	}
	return done
}

// rounds splits links, by their indices, so that an alias that comes again is in a later round.
func rounds(links []link.Link) (rounds [][]int) {
	seen := map[link.Name]int{}
	for i, l := range links {
		n := seen[l.Name]
		seen[l.Name]++
		if n == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], i)
	}
	return rounds
}

// announceImport announces links, which some process may have cached as not found.
func (s *Links) announceImport(ctx context.Context, links []link.Link, batch []int) error {
	if ctx.Err() != nil {
		return stoppedImport(ctx)
	}
	// what is begun has its full time
	_, ctx, cancel := s.config.startWrite(context.WithoutCancel(ctx))
	defer cancel()
	var names []string
	for _, i := range batch {
		names = append(names, string(links[i].Name))
	}
	return concurrent.Safely(func() error { return s.changes.announce(ctx, names...) })
}

func stoppedImport(ctx context.Context) error {
	return fmt.Errorf("the import: %w in time: %w", link.ErrUnavailable, context.Cause(ctx))
}

// importOne imports a link that was announced, unless something before it has failed.
func (s *Links) importOne(ctx context.Context, l link.Link, err error) (done link.Imported) {
	if err == nil && ctx.Err() != nil {
		err = stoppedImport(ctx)
	}
	if err == nil {
		err = concurrent.Safely(func() (err error) {
			until, ctx, cancel := s.config.startWrite(context.WithoutCancel(ctx))
			defer cancel()
			if err := s.Blocked.permit(ctx, link.Link{}, l); err != nil {
				return err
			}
			c := &creation{s: s, until: until, want: l, notBefore: s.soon(link.MinTTL)}
			done.Link, done.Created, err = c.importLink(ctx)
			return err
		})
	}
	if err != nil {
		return link.Imported{Err: err}
	}
	return done
}

// importLink makes the wanted link, or finds it.
func (c *creation) importLink(ctx context.Context) (l link.Link, created bool, err error) {
	there, err := c.insertChosen(ctx)
	if created = err == nil; !created {
		if !errors.Is(err, table.ErrExists) {
			return link.Link{}, false, err
		}
		if err := checkExisting(c.want, there, c.s.config.Now()); err != nil {
			return link.Link{}, false, err
		}
	}
	// A crash here leaves a link that the index lacks: the next import of it makes up for that, or
	// its URL gets another one.
	if c.want.Owner == "" && there.Owner == "" && there.GoneReason == link.StateLive &&
		!there.Guarded() && !there.Expired(c.s.config.Now()) {
		if err := c.until.inTime(); err != nil {
			return link.Link{}, false, err
		}
		if err := c.s.claimGuarded(ctx, there.Link); err != nil {
			return link.Link{}, false, err
		}
	}
	return there.Link, created, nil
}

// checkExisting returns nil if the existing row is the link being imported. The tombstone of a link
// whose end is past counts as that link: so a file can be imported again when some of its links
// have been reaped.
func checkExisting(want link.Link, there linkRow, now time.Time) error {
	switch {
	case there.GoneReason != link.StateLive && want.Expired(now):
		return nil
	case there.LongURL != want.LongURL, // a tombstone has none
		// only its owner may know of it, or where it leads
		(!there.DeletedAt.IsZero() || there.Guarded()) && there.Owner != want.Owner:
		return link.ErrAliasTaken
	case !there.DeletedAt.IsZero() && there.Locked:
		return link.ErrLocked
	case !there.DeletedAt.IsZero():
		return link.ErrDeleted
	}
	return nil
}

// TryImport returns what Import would, and what is there, and only reads. What earlier calls and
// this one would have made is in made: by alias, a hash of the long URL.
func (s *Links) TryImport(ctx context.Context, links []link.Link,
	made map[link.Name]uint64) []link.Imported {
	there, errs := make([]linkRow, len(links)), make([]error, len(links))
	var all errgroup.Group
	all.SetLimit(importConcurrency)
	for i, l := range links {
		all.Go(func() error {
			if errs[i] = ctx.Err(); errs[i] != nil {
				errs[i] = stoppedImport(ctx)
				return nil
			}
			errs[i] = concurrent.Safely(func() (err error) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Timeout)
				defer cancel()
				if err := s.Blocked.permit(ctx, link.Link{}, l); err != nil {
					return err
				}
				if there[i], err = s.spelled(ctx, l); errors.Is(err, link.ErrNotFound) {
					there[i], err = s.links.get(ctx, l.Name)
				}
				return err
			})
			return nil
		})
	}
	_ = all.Wait()
	done := make([]link.Imported, len(links))
	for i, l := range links {
		url, again := made[l.Name]
		switch err := errs[i]; {
		case err == nil:
			done[i].There = &there[i].Link
			if done[i].Err = checkExisting(l, there[i], s.config.Now()); done[i].Err == nil {
				done[i].Link = there[i].Link
			}
		case !decided(err):
			done[i].Err = err
		case errors.Is(err, link.ErrDamaged):
			done[i].Err, done[i].There = link.ErrAliasTaken, new(link.Link)
		case again && url != xxhash.Sum64String(l.LongURL):
			done[i].Err = link.ErrAliasTaken
		default:
			done[i] = link.Imported{Link: l, Created: !again}
			made[l.Name] = xxhash.Sum64String(l.LongURL)
		}
	}
	return done
}

package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

const (
	ownedLinks = 1000
	pageSize   = 50 // links, the default
	pages      = 100
)

// list measures how long an owner waits for a page of their links. One client requests one page
// after another.
func (b *bench) list(ctx context.Context) (string, error) {
	links := makeLinks(ownedLinks, func(n int) time.Time {
		return time.Now().AddDate(1, 0, 0).Add(time.Duration(n) * time.Minute)
	})
	for i := range links {
		links[i].Owner = "admin" // the owner that the admin key stands for
	}
	t, err := b.newTables(ctx, links, false)
	if err != nil {
		return "", err
	}
	calls, err := b.calls(ctx, t, http.MethodGet, "/api/links", "", 1)
	if err != nil {
		return "", err
	}
	var waits results
	for range b.rounds {
		t, err := b.newTables(ctx, links, false)
		if err != nil {
			return "", err
		}
		v, err := b.listOnce(ctx, t)
		if err != nil {
			return "", err
		}
		v["calls"] = calls
		waits.add(fmt.Sprintf("%d of %d links", pageSize, ownedLinks), v)
	}
	return fmt.Sprintf("Rounds: %d, of %d pages.\n\n", b.rounds, pages) + waits.table([]column{
		{head: "p50 ms", value: "p50", digits: 1, atMost: 60},
		{head: "p99 ms", value: "p99", digits: 1},
		{head: "storage calls each", value: "calls"},
	}), nil
}

func (b *bench) listOnce(ctx context.Context, t *tables) (values, error) {
	s, err := b.startReady(ctx, b.service(t, true), "/api/ready")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	took, err := s.ask("/api/links", pages)
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	return values{"p50": milliseconds(took[pages/2]), "p99": milliseconds(took[pages*99/100])}, nil
}

package storage

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"tiney/clicks"
	"tiney/link"
	"tiney/storage/table"
	"tiney/telemetry"
)

// All returns links of all owners in the order of the table, from up to limit rows of it, which is
// 1 to 1,000, tombstones left out. It begins after a position, "" for the start, and returns the
// position of the last row that it looked at, or "" if there are no more. Damaged is how many rows
// are no links and no tombstones; they are logged and left out. Errors: link.ErrPosition if after
// cannot be a position, link.ErrUnavailable.
func (s *Links) All(ctx context.Context, after string, limit int) (links []link.Link, next string,
	damaged int, err error) {
	ranges := []table.Range{{From: "-"}} // the first of the characters that an alias may have
	if after != "" {
		a, ok := link.ParseAlias(after)
		if !ok {
			return nil, "", 0, link.ErrPosition
		}
		// One after the other: the service would read all of the table for the two with "or"
		// between them.
		ranges = []table.Range{{Partition: linkPartition(a), After: string(a)},
			{After: linkPartition(a)}}
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	looked := 0
	page := func(rows [][]byte) error {
		for _, data := range rows {
			if looked == limit {
				break
			}
			var e struct{ PartitionKey, RowKey string }
			_ = json.Unmarshal(data, &e)
			a, ok := link.ParseAlias(e.RowKey)
			if !ok || linkPartition(a) != e.PartitionKey {
				continue // another program's row, which no alias leads to
			}
			looked++
			next = e.RowKey
			r, err := decodeLink(data, a, "")
			switch {
			case err != nil:
				damaged++
				s.config.Log.Error(telemetry.LogLinkCorrupt, "error", err)
			case r.GoneReason == link.StateLive:
				links = append(links, r.Link)
			}
		}
		if looked == limit {
			return errEnough
		}
		return nil
	}
	for _, r := range ranges {
		err = s.links.rows.list(ctx, table.Query{Range: r, PageSize: limit - looked}, page)
		if errors.Is(err, errEnough) {
			return links, next, damaged, nil
		}
		if err != nil {
			return nil, "", 0, err
		}
	}
	return links, "", damaged, nil
}

// TotalsOfAll returns what Totals does, of links that All has returned together, and reads the
// totals that are rolled up by a few queries instead of one by one. Error: link.ErrUnavailable.
func (c *Clicks) TotalsOfAll(ctx context.Context, links []link.Link) ([]clicks.Total, error) {
	if len(links) == 0 {
		return nil, nil
	}
	return c.totalsOf(ctx, links, func(ctx context.Context) (totalsReader, error) {
		rows := map[link.Alias]totalsEntity{}
		for _, r := range between(links[0].Alias, links[len(links)-1].Alias) {
			err := c.totals.list(ctx, table.Query{Range: r}, func(page [][]byte) error {
				for _, data := range page {
					// A row that is damaged counts as none.
					if e, err := decodeTotals(data); err == nil {
						rows[link.Alias(e.RowKey)] = e
					}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		return func(_ context.Context, l link.Link) (clicks.Total, clicks.Day, error) {
			e := rows[l.Alias]
			t, through := e.rolledUp(l)
			return t, through, nil
		}, nil
	})
}

// between returns the ranges of the rows of the aliases from one to another in the order of the
// table, both included.
func between(first, last link.Alias) []table.Range {
	// sorts before all that an alias may have, so no alias is between last and last+end
	const end = "!"
	from, to := linkPartition(first), linkPartition(last)
	if from == to {
		return []table.Range{{Partition: from, From: string(first), Before: string(last) + end}}
	}
	return []table.Range{
		{Partition: from, From: string(first)},
		{After: from, Before: to},
		{Partition: to, Before: string(last) + end},
	}
}

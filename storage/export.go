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

// All returns links of all owners in the order of the table. It looks at up to limit rows, 1 to
// 1,000, and leaves out tombstones. It begins after a position, "" for the start. It returns the
// position of the last row that it looked at, or "" if there are no more rows. Damaged is the
// number of rows that are neither a link nor a tombstone; All logs them and leaves them out.
// Errors: link.ErrPosition if after cannot be a position, link.ErrUnavailable.
func (s *Links) All(ctx context.Context, after string, limit int) (links []link.Link, next string,
	damaged int, err error) {
	ranges := []table.Range{{From: "-"}} // the first of the characters that an alias may have
	if after != "" {
		a, ok := link.ParseAlias(after)
		if !ok {
			return nil, "", 0, link.ErrPosition
		}
		// The two ranges are read one after the other: for one query with "or" between them, the
		// service would read the whole table.
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
				continue // a row of another program, to which no alias leads
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

// TotalsOfAll returns what Totals returns, for links that one call of All has returned. It reads
// the totals that are rolled up by a few queries instead of one by one. Error: link.ErrUnavailable.
func (c *Clicks) TotalsOfAll(ctx context.Context, links []link.Link) ([]clicks.Total, error) {
	if len(links) == 0 {
		return nil, nil
	}
	return c.totalsOf(ctx, links, func(ctx context.Context) (totalsReader, error) {
		rows := map[link.Alias]totalsEntity{}
		for _, r := range between(links[0].Alias, links[len(links)-1].Alias) {
			err := c.totals.list(ctx, table.Query{Range: r}, func(page [][]byte) error {
				for _, data := range page {
					// A damaged row counts as none.
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

// between returns the ranges of the rows of the aliases from first to last, both included, in the
// order of the table.
func between(first, last link.Alias) []table.Range {
	// end sorts before every character of an alias, so no alias is between last and last+end
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

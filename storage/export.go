package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/go-json-experiment/json"

	"tiney/clicks"
	"tiney/link"
	"tiney/telemetry"
)

// All returns links of all owners in the order of the table, from up to limit rows of it, which is 1 to 1,000, tombstones left
// out. It begins after a position, "" for the start, and returns the position of the last row that it looked at, or "" if there
// are no more. Damaged is how many rows are no links and no tombstones; they are logged and left out.
// Errors: link.ErrPosition if after cannot be a position, link.ErrUnavailable.
func (s *Links) All(ctx context.Context, after string, limit int) (links []link.Link, next string, damaged int, err error) {
	filters := []string{"PartitionKey ge '-'"} // the first of the characters that an alias may have
	if after != "" {
		a, ok := link.ParseAlias(after)
		if !ok {
			return nil, "", 0, link.ErrPosition
		}
		// One after the other: the service would read all of the table for the two with "or" between them.
		filters = []string{fmt.Sprintf("PartitionKey eq '%s' and RowKey gt '%s'", linkPartition(a), a), fmt.Sprintf("PartitionKey gt '%s'", linkPartition(a))}
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	looked := 0
	page := func(entities [][]byte) error {
		for _, data := range entities {
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
	for _, filter := range filters {
		options := aztables.ListEntitiesOptions{Filter: &filter, Top: to.Ptr(int32(limit - looked)), Format: to.Ptr(aztables.MetadataFormatNone)}
		err = s.links.query(ctx, options, page)
		if errors.Is(err, errEnough) {
			return links, next, damaged, nil
		}
		if err != nil {
			return nil, "", 0, exported(err)
		}
	}
	return links, "", damaged, nil
}

// TotalsOfAll returns what Totals does, of links that All has returned together, and reads the totals that are rolled up by a
// few queries instead of one by one. Error: link.ErrUnavailable.
func (c *Clicks) TotalsOfAll(ctx context.Context, links []link.Link) ([]clicks.Total, error) {
	if len(links) == 0 {
		return nil, nil
	}
	return c.totalsOf(ctx, links, func(ctx context.Context) (totalsReader, error) {
		rows := map[link.Alias]totalsEntity{}
		for _, filter := range between(links[0].Alias, links[len(links)-1].Alias) {
			err := c.totals.scan(ctx, filter, "", func(entities [][]byte) error {
				for _, data := range entities {
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

// between returns filters that match the rows of the aliases from one to another in the order of the table, both included.
func between(first, last link.Alias) []string {
	from, to := linkPartition(first), linkPartition(last)
	if from == to {
		return []string{fmt.Sprintf("PartitionKey eq '%s' and RowKey ge '%s' and RowKey le '%s'", from, first, last)}
	}
	return []string{
		fmt.Sprintf("PartitionKey eq '%s' and RowKey ge '%s'", from, first),
		fmt.Sprintf("PartitionKey gt '%s' and PartitionKey lt '%s'", from, to),
		fmt.Sprintf("PartitionKey eq '%s' and RowKey le '%s'", to, last),
	}
}

package storage

import (
	"context"

	"github.com/go-json-experiment/json"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/table"
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
		a, ok := link.ParseName(after)
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
			a, ok := link.ParseName(e.RowKey)
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
			return table.ErrEnough
		}
		return nil
	}
	for _, r := range ranges {
		err = s.links.rows.List(ctx, table.Query{Range: r, PageSize: limit - looked,
			Properties: linkProperties()}, page)
		if err != nil {
			return nil, "", 0, err
		}
		if looked == limit {
			return links, next, damaged, nil
		}
	}
	return links, "", damaged, nil
}

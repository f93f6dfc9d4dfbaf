package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"golang.org/x/sync/errgroup"

	"tiney/internal/rawtables"
	"tiney/link"
)

// tables are one set of tables, which links are put into as they are, past the service.
type tables struct {
	links, index, expiry *aztables.Client
	settings             []string // what tells the service to take these
}

// openTables makes the tables whose names begin with prefix.
func openTables(ctx context.Context, connectionString, prefix string) (*tables, error) {
	all, err := aztables.NewServiceClientFromConnectionString(connectionString, &aztables.ClientOptions{ClientOptions: policy.ClientOptions{Transport: client}})
	if err != nil {
		return nil, err
	}
	t := &tables{settings: []string{"AzureWebJobsStorage=" + connectionString}}
	for _, table := range []struct {
		client        **aztables.Client
		name, setting string
	}{{&t.links, "ShortUrls", "SHORTURL_TABLE_NAME"}, {&t.index, "UrlIndex", "URLINDEX_TABLE_NAME"}, {&t.expiry, "ShortUrlsExpiryIndex", "EXPIRYINDEX_TABLE_NAME"}} {
		if _, err := all.CreateTable(ctx, prefix+table.name, nil); err != nil {
			return nil, err
		}
		*table.client = all.NewClient(prefix + table.name)
		t.settings = append(t.settings, table.setting+"="+prefix+table.name)
	}
	return t, nil
}

// rowsOf are the rows of a link by the tables that they are in.
func (t *tables) rowsOf(l link.Link) map[*aztables.Client]rawtables.Entity {
	return map[*aztables.Client]rawtables.Entity{t.links: rawtables.Link(l), t.index: rawtables.Index(l), t.expiry: rawtables.Expiry(l)}
}

// putLinks puts count links into some of the tables, which must not have them yet: row by row, as a batch is a matter of
// one partition.
func (t *tables) putLinks(ctx context.Context, count int, life time.Duration, into ...*aztables.Client) error {
	created := time.Now().UTC().Truncate(time.Second)
	writes, writing := errgroup.WithContext(ctx)
	writes.SetLimit(16)
	for i := 0; i < count && writing.Err() == nil; i++ {
		writes.Go(func() error {
			rows := t.rowsOf(link.Link{Alias: aliasOf(i), LongURL: longURLOf(i), CreatedAt: created, ExpiresAt: created.Add(life)})
			for _, table := range into {
				data, err := json.Marshal(rows[table])
				if err != nil {
					return err
				}
				if _, err := table.AddEntity(writing, data, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return errors.Join(writes.Wait(), ctx.Err())
}

// drop deletes the rows of a link that the service has made.
func (t *tables) drop(ctx context.Context, l link.Link) error {
	for table, row := range t.rowsOf(l) {
		if _, err := table.DeleteEntity(ctx, row["PartitionKey"].(string), row["RowKey"].(string), nil); err != nil {
			var answer *azcore.ResponseError
			if errors.As(err, &answer) {
				return fmt.Errorf("deleting a row: %d %s", answer.StatusCode, answer.ErrorCode)
			}
			return err
		}
	}
	return nil
}

// aliasOf returns one of the aliases that links are put under: each i has one of its own, and they are spread over the
// partitions as those are that the service draws. Up to 2^27 of them, that is.
func aliasOf(i int) link.Alias {
	const (
		digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
		all    = 62 * 62 * 62 * 62 * 62 * 62
		step   = 35_104_310_177 // has no divisor in common with 62, so that it comes by each of them once
	)
	n := uint64(i) % all * step % all
	var a [6]byte
	for k := range a {
		a[k] = digits[n%uint64(len(digits))]
		n /= uint64(len(digits))
	}
	return link.Alias(a[:])
}

// longURLOf returns the long URL of that link, which is as long as many are.
func longURLOf(i int) string {
	return fmt.Sprintf("https://www.example.com/a/path/of/some/length/page.html?id=%08d&utm_source=mail", i)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"golang.org/x/sync/errgroup"

	"tiney/internal/rawtables"
	"tiney/link"
)

// tables are three tables that no other run meets. Links are put into them as they are, past the service.
type tables struct {
	connection           string
	service              *aztables.ServiceClient
	links, index, expiry string
}

var tablesMade atomic.Int64

func newTables(ctx context.Context, connection string) (*tables, error) {
	service, err := openTables(connection)
	if err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("Bench%d", tablesMade.Add(1))
	t := &tables{connection: connection, service: service, links: prefix + "Links", index: prefix + "Index", expiry: prefix + "Expiry"}
	for _, name := range t.names() {
		if _, err := service.CreateTable(ctx, name, nil); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *tables) names() []string { return []string{t.links, t.index, t.expiry} }

// settings tell the service to take these tables.
func (t *tables) settings() []string {
	return []string{"TABLE_CONNECTION=" + t.connection,
		"SHORTURL_TABLE_NAME=" + t.links, "URLINDEX_TABLE_NAME=" + t.index, "EXPIRYINDEX_TABLE_NAME=" + t.expiry}
}

// drop deletes the tables, so that those of the runs before do not slow Azurite down.
func (t *tables) drop(ctx context.Context) error {
	for _, name := range t.names() {
		if _, err := t.service.DeleteTable(ctx, name, nil); err != nil {
			return err
		}
	}
	return nil
}

// role is what a table is for, whatever its name.
func (t *tables) role(name string) string {
	return map[string]string{t.links: "links", t.index: "index", t.expiry: "expiry"}[name]
}

// empty says which table still has rows.
func (t *tables) empty(ctx context.Context) error {
	for _, name := range t.names() {
		page, err := t.service.NewClient(name).NewListEntitiesPager(nil).NextPage(ctx)
		if err != nil {
			return err
		}
		if left := len(page.Entities); left > 0 {
			return fmt.Errorf("%d rows and more are left in the table of %s", left, t.role(name))
		}
	}
	return nil
}

// rows are the rows of a link by the tables that they are in.
func (t *tables) rows(l link.Link) map[string]rawtables.Entity {
	return map[string]rawtables.Entity{t.links: rawtables.Link(l), t.index: rawtables.Index(l), t.expiry: rawtables.Expiry(l)}
}

// insert adds a row by a call.
func (t *tables) insert(ctx context.Context) func(table string, entity []byte) error {
	return func(table string, entity []byte) error {
		_, err := t.service.NewClient(table).AddEntity(ctx, entity, nil)
		return err
	}
}

// put puts count links into some of the tables, which must not have them yet: row by row, as a batch is a matter of one
// partition.
func (t *tables) put(count int, of func(n int) link.Link, insert func(table string, entity []byte) error, into ...string) error {
	var writes errgroup.Group
	writes.SetLimit(32)
	for n := range count {
		writes.Go(func() error {
			rows := t.rows(of(n))
			for _, table := range into {
				data, err := json.Marshal(rows[table])
				if err != nil {
					return err
				}
				if err := insert(table, data); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return writes.Wait()
}

// remove deletes the rows of a link that the service has made.
func (t *tables) remove(ctx context.Context, l link.Link) error {
	for table, row := range t.rows(l) {
		if _, err := t.service.NewClient(table).DeleteEntity(ctx, row["PartitionKey"].(string), row["RowKey"].(string), nil); err != nil {
			var answer *azcore.ResponseError
			if errors.As(err, &answer) {
				return fmt.Errorf("deleting a row: %d %s", answer.StatusCode, answer.ErrorCode)
			}
			return err
		}
	}
	return nil
}

// aliasOf returns the alias of the nth link: each n, up to a million and more, has one of its own. They are spread over
// the partitions as those are that the service draws. Azurite looks for a row by going through all of its partition, so
// that links of one beginning would make it slower with each of them.
func aliasOf(n int) link.Alias {
	const (
		digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
		all    = 62 * 62 * 62 * 62 * 62 * 62
		step   = 35_104_310_177 // has no divisor in common with 62, so that it comes by each of them once
	)
	left := uint64(n) % all * step % all
	var a [6]byte
	for k := range a {
		a[k] = digits[left%uint64(len(digits))]
		left /= uint64(len(digits))
	}
	return link.Alias(a[:])
}

// alive is the nth of the links that are followed.
func alive(n int) link.Link {
	created := time.Now().UTC().Truncate(time.Second)
	return link.Link{
		Alias: aliasOf(n), LongURL: fmt.Sprintf("https://www.example.com/a/path/of/some/length/page.html?id=%08d&utm_source=mail", n),
		CreatedAt: created, ExpiresAt: created.AddDate(0, 0, 30),
	}
}

// due is the nth of the links that a reaper finds that was down for a while: a thousand for each day.
func due(n int, now time.Time) link.Link {
	day := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -1-n/1000)
	expires := day.Add(time.Duration(n%1000) * 86 * time.Second)
	return link.Link{
		Alias: aliasOf(n), LongURL: fmt.Sprintf("https://example.com/a/long/path?with=a&query=%d", n),
		CreatedAt: expires.AddDate(0, 0, -30), ExpiresAt: expires,
	}
}

// seed writes the rows of count links that are due.
func (t *tables) seed(count int, insert func(table string, entity []byte) error) error {
	now := time.Now()
	return t.put(count, func(n int) link.Link { return due(n, now) }, insert, t.names()...)
}

// startOn starts the service, or the raw side in its place, on some tables. Nothing is in its cache.
func (b *bench) startOn(ctx context.Context, raw bool, t *tables, more ...string) (*service, error) {
	side := *b
	side.alias = "" // it is in other tables
	more = append(more, t.settings()...)
	if raw {
		var err error
		if side.executable, err = os.Executable(); err != nil {
			return nil, err
		}
		more = append(more, rawVariable+"=yes")
	}
	return side.start(ctx, true, more...)
}

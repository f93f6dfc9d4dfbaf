package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"golang.org/x/sync/errgroup"

	"tiney/internal/link"
	"tiney/internal/testing/rawtables"
)

// tables are tables that no other run uses, in the order of their settings.
type tables [8]string

var tableSettings = tables{"SHORTURL_TABLE_NAME", "URLINDEX_TABLE_NAME", "EXPIRYINDEX_TABLE_NAME",
	"OWNERS_TABLE_NAME", "KEYS_TABLE_NAME", "STATE_TABLE_NAME", "CLICKS_TABLE_NAME",
	"CLICK_TOTALS_TABLE_NAME"}

// newTables creates tables and inserts the rows of links. If onlyLinks is true, it fills only the
// first table, the only one that a redirect reads.
func (b *bench) newTables(ctx context.Context, links []link.Link, onlyLinks bool) (*tables, error) {
	service, err := aztables.NewServiceClientFromConnectionString(b.storage.ConnectionString(),
		&aztables.ClientOptions{ClientOptions: policy.ClientOptions{Transport: client}})
	if err != nil {
		return nil, err
	}
	b.tables++
	prefix := fmt.Sprintf("Bench%d", b.tables)
	t := &tables{prefix + "Links", prefix + "Index", prefix + "Expiry", prefix + "Owners",
		prefix + "Keys", prefix + "State", prefix + "Clicks", prefix + "ClickTotals"}
	rows := []func(link.Link) rawtables.Entity{rawtables.Link, rawtables.Index, rawtables.Expiry,
		rawtables.Owner}
	for i, name := range t {
		table := service.NewClient(name)
		if _, err := table.CreateTable(ctx, nil); err != nil {
			return nil, err
		}
		if i >= len(rows) || onlyLinks && i > 0 {
			continue
		}
		partitions := map[string][]aztables.TransactionAction{}
		for _, l := range links {
			if name == t[3] && l.Owner == "" {
				continue
			}
			row := rows[i](l)
			data, err := json.Marshal(row)
			if err != nil {
				return nil, err
			}
			partition := row["PartitionKey"].(string)
			partitions[partition] = append(partitions[partition],
				aztables.TransactionAction{ActionType: aztables.TransactionTypeAdd, Entity: data})
		}
		var inserts errgroup.Group
		inserts.SetLimit(4)
		for _, actions := range partitions {
			for batch := range slices.Chunk(actions, 100) {
				inserts.Go(func() error {
					_, err := table.SubmitTransaction(ctx, batch, nil)
					return err
				})
			}
		}
		if err := inserts.Wait(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// makeLinks returns links with random aliases, like those that the service draws, since Azurite
// searches a whole partition for a row.
func makeLinks(count int, expires func(n int) time.Time) []link.Link {
	const characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	random := rand.New(rand.NewPCG(1, 2))
	links := make([]link.Link, count)
	for n := range links {
		alias := make([]byte, 6)
		for i := range alias {
			alias[i] = characters[random.IntN(len(characters))]
		}
		at := expires(n).UTC().Truncate(time.Second)
		links[n] = link.Link{Name: link.Name(alias), LongURL: longURL(n),
			CreatedAt: at.AddDate(0, 0, -30), ExpiresAt: at}
	}
	return links
}

// longURL is the nth of many URLs, of 80 characters each.
func longURL(n int) string {
	return fmt.Sprintf("https://www.example.com/a/path/of/some/length/page.html?id=%08d"+
		"&utm_source=mail", n)
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/internal/link"
	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/storage/table"
)

// putLinks makes the table that a redirect reads, with links that end in 30 days, and returns their
// paths. The aliases are random, like those that the service draws, since Azurite searches a whole
// partition for a row.
func (b *bench) putLinks(ctx context.Context, count int) ([]string, error) {
	open, err := azurite.Tables(b.storage.ConnectionString())
	if err != nil {
		return nil, err
	}
	links := open("ShortUrls")
	ctx = faultproxy.Patient(ctx) // Azurite may be slow
	if err := links.Create(ctx); err != nil {
		return nil, err
	}
	const characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	random := rand.New(rand.NewPCG(1, 2))
	paths := make([]string, count)
	partitions := map[any][]table.Write{}
	for n := range paths {
		alias := make([]byte, 6)
		for i := range alias {
			alias[i] = characters[random.IntN(len(characters))]
		}
		paths[n] = "/" + string(alias)
		row := rawtables.Link(link.Link{Name: link.Name(alias), LongURL: longURL(n),
			CreatedAt: time.Now(), ExpiresAt: time.Now().AddDate(0, 0, 30)})
		data, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		partition := row["PartitionKey"]
		partitions[partition] = append(partitions[partition], table.Write{Kind: table.Insert,
			Row: data})
	}
	var inserts errgroup.Group
	inserts.SetLimit(4)
	for _, writes := range partitions {
		for batch := range slices.Chunk(writes, table.MaxBatch) {
			inserts.Go(func() error {
				_, err := links.Batch(ctx, batch)
				return err
			})
		}
	}
	return paths, inserts.Wait()
}

// longURL is the nth of many URLs, of 80 characters each.
func longURL(n int) string {
	return fmt.Sprintf("https://www.example.com/a/path/of/some/length/page.html?id=%08d"+
		"&utm_source=mail", n)
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"golang.org/x/sync/errgroup"

	"tiney/internal/formats"
	"tiney/internal/link"
	"tiney/internal/testing/rawtables"
)

const (
	imported     = 10_000 // links; with -full ten times as many
	importAtOnce = 32     // as the service
)

// imports measures how fast the subcommand imports a file, compared with the same calls made by the
// SDK alone.
func (b *bench) imports(ctx context.Context) (string, error) {
	count := imported
	if b.full {
		count *= 10
	}
	// A third of the links have no owner. A quarter expire, on many different days.
	links := makeLinks(count, func(n int) time.Time { return time.Now().AddDate(0, 0, 1+n%300) })
	var file bytes.Buffer
	base, err := link.ParseBase("https://tiney.to")
	if err != nil {
		return "", err
	}
	out := formats.NewWriter(&file, formats.NDJSON, link.Rules{Base: base})
	for n := range links {
		l := &links[n]
		l.CreatedAt = l.CreatedAt.AddDate(-2, 0, 0)
		if n%3 > 0 {
			l.Owner = fmt.Sprintf("owner-%d", n%100)
		}
		if n%4 > 0 {
			l.ExpiresAt = time.Time{}
		}
		if err := out.Write(formats.Record{Link: *l}); err != nil {
			return "", err
		}
	}
	path := filepath.Join(b.dir, "links.ndjson")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		return "", err
	}
	var rates results
	for range b.rounds {
		var raw float64
		for _, row := range []struct {
			name string
			do   func(context.Context, *tables) (values, error)
		}{
			{"the SDK alone", func(ctx context.Context, t *tables) (values, error) {
				return values{}, b.rawImport(ctx, t, links)
			}},
			{"handler import", func(ctx context.Context, t *tables) (values, error) {
				return b.importFile(ctx, t, path)
			}},
		} {
			t, err := b.newTables(ctx, nil, false)
			if err != nil {
				return "", err
			}
			start := time.Now()
			v, err := row.do(ctx, t)
			if err != nil {
				return "", fmt.Errorf("%s: %w", row.name, err)
			}
			v["links/s"] = float64(count) / time.Since(start).Seconds()
			if raw == 0 {
				raw = v["links/s"]
			} else {
				v["of raw"] = v["links/s"] / raw
			}
			rates.add(row.name, v)
		}
	}
	return fmt.Sprintf("Rounds: %d, of %d links, %d at a time.\n\n",
		b.rounds, count, importAtOnce) + rates.table([]column{
		{head: "links/s", value: "links/s"},
		{head: "of the SDK's", value: "of raw", digits: 2, atLeast: 0.9,
			rows: []string{"handler import"}},
		{head: "MB at most", value: "most", digits: 1},
	}), nil
}

// importFile imports a file with a fresh process.
func (b *bench) importFile(ctx context.Context, t *tables, path string) (values, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.CommandContext(ctx, b.executable, "import")
	cmd.Env = b.service(t, false)("").Env
	cmd.Stdin, cmd.Stderr = file, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	v := values{}
	for {
		select {
		case err := <-ended:
			return v, err
		case <-time.After(20 * time.Millisecond):
			if _, most, err := memory(cmd.Process.Pid); err == nil {
				v["most"] = most
			}
		}
	}
}

// rawImport makes the storage calls of an import with the SDK alone.
func (b *bench) rawImport(ctx context.Context, t *tables, links []link.Link) error {
	service, err := aztables.NewServiceClientFromConnectionString(b.storage.ConnectionString(),
		&aztables.ClientOptions{ClientOptions: policy.ClientOptions{Transport: client}})
	if err != nil {
		return err
	}
	var table [len(t)]*aztables.Client
	for i, name := range t {
		table[i] = service.NewClient(name)
	}
	add := func(to *aztables.Client, row rawtables.Entity) error {
		data, err := json.Marshal(row)
		if err == nil {
			_, err = to.AddEntity(ctx, data, nil)
		}
		return err
	}
	var all errgroup.Group
	all.SetLimit(importAtOnce)
	for batch := range slices.Chunk(links, 100) {
		var names []string
		for _, l := range batch {
			names = append(names, string(l.Name))
		}
		told, err := json.Marshal(map[string]string{"PartitionKey": "change|202601020304",
			"RowKey": "05|several|" + names[0], "Names": strings.Join(names, "\n")})
		if err != nil {
			return err
		}
		if _, err := table[5].UpsertEntity(ctx, told, nil); err != nil {
			return err
		}
		for _, l := range batch {
			all.Go(func() error {
				if !l.ExpiresAt.IsZero() {
					if err := add(table[2], rawtables.Expiry(l)); err != nil {
						return err
					}
				}
				if l.Owner != "" {
					if err := add(table[3], rawtables.Owner(l)); err != nil {
						return err
					}
				}
				row := rawtables.Link(l)
				if err := add(table[0], row); err != nil || l.Owner != "" {
					return err
				}
				if err := add(table[1], rawtables.Index(l)); err != nil {
					return err
				}
				_, err := table[0].GetEntity(ctx, row["PartitionKey"].(string),
					row["RowKey"].(string), nil)
				return err
			})
		}
	}
	return all.Wait()
}

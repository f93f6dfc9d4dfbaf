package storage_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"golang.org/x/sync/errgroup"

	"tiney/internal/rawtables"
	"tiney/link"
	"tiney/storage"
)

// BenchmarkReap reaps 1,000 expired links, and beside that makes the same calls by the SDK alone: nothing is parsed that
// the next call does not need, nothing counted, no failure minded. The two take turns at being first; each has tables of
// its own. Most of what it takes is Azurite's time, on the same cores: "ratio" is what it is for.
//
//	go test -run '^$' -bench Reap -benchtime 7x ./storage
func BenchmarkReap(b *testing.B) {
	const links = 1000
	sides := []struct {
		name string
		*rig
		reap func(r *rig) error
	}{
		{"reap", newRig(b), func(r *rig) error {
			r.config.Connection = connect(b, emulator.ConnectionString()) // without the proxy
			s, err := storage.Open(r.config)
			if err != nil {
				return err
			}
			done, err := s.Reap(ctx)
			if want := (link.Reaped{Deleted: links, Complete: true}); err == nil && done != want {
				b.Errorf("got %+v, want %+v", done, want)
			}
			return err
		}},
		{"raw", newRig(b), rawReap},
	}
	speeds := map[string][]float64{}
	for _, side := range sides {
		side.Make()
	}
	for b.Loop() {
		for _, side := range sides {
			side.PutMany(links, side.clock.Now().Add(-dayLong))
			start := time.Now()
			if err := side.reap(side.rig); err != nil {
				b.Fatal(err)
			}
			speeds[side.name] = append(speeds[side.name], links/time.Since(start).Seconds())
			side.WantRows(0, 0, 0)
		}
		slices.Reverse(sides)
	}
	median := func(all []float64) float64 {
		b.Logf("%.2f", all)
		slices.Sort(all)
		return all[len(all)/2]
	}
	var ratios []float64
	for i, speed := range speeds["reap"] {
		ratios = append(ratios, speed/speeds["raw"][i])
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(speeds["reap"]), "reap-rows/s")
	b.ReportMetric(median(speeds["raw"]), "raw-rows/s")
	b.ReportMetric(0, "ns/op")
}

var rawClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: storage.ReapConcurrency}}

// rawReap makes the calls of a reap in which every row is due and nothing fails.
func rawReap(r *rig) error {
	service, err := aztables.NewServiceClientFromConnectionString(emulator.ConnectionString(),
		&aztables.ClientOptions{ClientOptions: policy.ClientOptions{Transport: rawClient}})
	if err != nil {
		return err
	}
	links, index, expiry := service.NewClient(r.Links), service.NewClient(r.Index), service.NewClient(r.Expiry)
	type row struct {
		ETag         azcore.ETag `json:"odata.etag"`
		PartitionKey string
		RowKey       string

		AliasPartitionKey, AliasRowKey, LongURL string
	}
	list := func(filter string) error {
		pager := expiry.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter, Top: to.Ptr(int32(1000)), Format: to.Ptr(aztables.MetadataFormatFull)})
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return err
			}
			var rows errgroup.Group
			rows.SetLimit(storage.ReapConcurrency)
			for batch := range slices.Chunk(page.Entities, 100) {
				var deletes []aztables.TransactionAction
				var mu sync.Mutex
				for _, data := range batch {
					rows.Go(func() error {
						var e, l row
						if err := json.Unmarshal(data, &e); err != nil {
							return err
						}
						got, err := links.GetEntity(ctx, e.AliasPartitionKey, e.AliasRowKey, nil)
						if err != nil {
							return err
						}
						if err := json.Unmarshal(got.Value, &l); err != nil {
							return err
						}
						indexKey := rawtables.Index(link.Link{LongURL: l.LongURL})
						partition, key := indexKey["PartitionKey"].(string), indexKey["RowKey"].(string)
						gotIndex, err := index.GetEntity(ctx, partition, key, nil)
						if err != nil {
							return err
						}
						if _, err := index.DeleteEntity(ctx, partition, key, &aztables.DeleteEntityOptions{IfMatch: &gotIndex.ETag}); err != nil {
							return err
						}
						if _, err := links.DeleteEntity(ctx, e.AliasPartitionKey, e.AliasRowKey, &aztables.DeleteEntityOptions{IfMatch: &got.ETag}); err != nil {
							return err
						}
						mu.Lock()
						deletes = append(deletes, aztables.TransactionAction{ActionType: aztables.TransactionTypeDelete, Entity: data, IfMatch: &e.ETag})
						last := len(deletes) == len(batch)
						mu.Unlock()
						if last {
							_, err = expiry.SubmitTransaction(ctx, deletes, nil)
						}
						return err
					})
				}
			}
			if err := rows.Wait(); err != nil {
				return err
			}
		}
		return nil
	}
	today := r.clock.Now().Format("20060102")
	if err := list("PartitionKey lt '" + today + "'"); err != nil {
		return err
	}
	return list("PartitionKey eq '" + today + "'")
}

package storage_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"tiney/internal/azurite"
	"tiney/internal/faultproxy"
	"tiney/internal/linkstest"
	"tiney/link"
	"tiney/storage"
	"tiney/telemetry"
)

// emulator is the one Azurite of all tests here. Each test has tables of its own in it.
var emulator azurite.Ports

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if emulator, err = azurite.FreePorts(); err == nil {
			var s *azurite.Server
			if s, err = azurite.Start(context.Background(), emulator, "", io.Discard); err == nil {
				defer s.Stop()
				return m.Run()
			}
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}())
}

var ctx = context.Background()

// rig is one set of tables, and the ways to it.
type rig struct {
	t       *testing.T
	proxy   *faultproxy.Proxy
	clock   *linkstest.Clock
	metrics *telemetry.Metrics
	config  storage.Config
	service *aztables.ServiceClient // around the proxy
}

var rigs atomic.Int64

// newRig makes a rig. Its stores reach storage through a proxy of their own.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, proxy: faultproxy.Start(emulator), clock: linkstest.NewClock(), metrics: new(telemetry.Metrics)}
	t.Cleanup(r.proxy.Close)
	prefix := fmt.Sprintf("T%d", rigs.Add(1))
	r.config = storage.Config{
		Connection: connect(t, r.proxy.ConnectionString()),
		LinkTable:  prefix + "ShortUrls", IndexTable: prefix + "UrlIndex", ExpiryTable: prefix + "ShortUrlsExpiryIndex",
		AliasLength: 6,
		ReapLimit:   time.Minute, ReapPageSize: 1000,
		Now: r.clock.Now, Random: rand.Reader, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: r.metrics,
	}
	var err error
	if r.service, err = aztables.NewServiceClientFromConnectionString(emulator.ConnectionString(), nil); err != nil {
		t.Fatal(err)
	}
	return r
}

func connect(t *testing.T, connectionString string) storage.Connection {
	t.Helper()
	c, err := storage.ParseConnection(func(string) string { return connectionString }, "X")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var withCache = &storage.CacheConfig{Bytes: 10 << 20, Fresh: 15 * time.Minute, Negative: time.Minute, Stale: time.Hour}

// open opens a store on the rig's tables; they exist. Every open is another instance, as far as the tables can tell.
func (r *rig) open(cache *storage.CacheConfig) *storage.Links {
	r.t.Helper()
	config := r.config
	config.Cache = cache
	s, err := storage.Open(config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	if err := s.Make(ctx); err != nil {
		r.t.Fatal(err)
	}
	r.proxy.Reset()
	return s
}

// want is a link to be made, that lives for life from the clock's now on.
func (r *rig) want(url string, life time.Duration) link.Link {
	return link.Link{LongURL: url, CreatedAt: r.clock.Now(), ExpiresAt: r.clock.Now().Add(life)}
}

func (r *rig) create(s *storage.Links, url string, life time.Duration) link.Link {
	r.t.Helper()
	l, created, err := s.Create(ctx, r.want(url, life))
	if err != nil || !created {
		r.t.Fatalf("Create: created %t, %v", created, err)
	}
	return l
}

type entity map[string]any

// rows returns all rows of a table.
func (r *rig) rows(table string) []entity {
	r.t.Helper()
	var all []entity
	pager := r.service.NewClient(table).NewListEntitiesPager(nil)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, data := range page.Entities {
			var e entity
			if err := json.Unmarshal(data, &e); err != nil {
				r.t.Fatal(err)
			}
			all = append(all, e)
		}
	}
	return all
}

// put writes a row as another program would, around the proxy, in the place of what is there.
func (r *rig) put(table string, e entity) {
	r.t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.service.NewClient(table).UpsertEntity(ctx, data, &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) drop(table, partition, row string) {
	r.t.Helper()
	if _, err := r.service.NewClient(table).DeleteEntity(ctx, partition, row, nil); err != nil {
		r.t.Fatal(err)
	}
}

// linkEntity, indexEntity and expiryEntity are rows as docs and other programs have them, written out here anew.
func linkEntity(partition string, l link.Link) entity {
	e := entity{"PartitionKey": partition, "RowKey": string(l.Alias), "LongUrl": l.LongURL, "IsDisabled": l.Disabled}
	e.time("CreatedAtUtc", l.CreatedAt)
	e.time("ExpiresAtUtc", l.ExpiresAt)
	return e
}

func expiryEntity(partition, row, aliasPartition string, l link.Link) entity {
	e := entity{"PartitionKey": partition, "RowKey": row, "AliasPartitionKey": aliasPartition, "AliasRowKey": string(l.Alias)}
	e.time("ExpiresAtUtc", l.ExpiresAt)
	return e
}

func (e entity) time(name string, t time.Time) {
	if !t.IsZero() {
		e[name], e[name+"@odata.type"] = t.UTC().Format(time.RFC3339), "Edm.DateTime"
	}
}

// wantRows checks how many rows each table has.
func (r *rig) wantRows(links, index, expiry int) {
	r.t.Helper()
	l, i, e := r.rows(r.config.LinkTable), r.rows(r.config.IndexTable), r.rows(r.config.ExpiryTable)
	if len(l) != links || len(i) != index || len(e) != expiry {
		r.t.Errorf("%d links, %d index rows, %d expiry rows; want %d, %d, %d\n%v\n%v\n%v", len(l), len(i), len(e), links, index, expiry, l, i, e)
	}
}

// wantNoLeak checks that every link with an expiry has its expiry row, and every index row its link.
func (r *rig) wantNoLeak() {
	r.t.Helper()
	due, links := map[string]bool{}, map[string]bool{}
	for _, e := range r.rows(r.config.ExpiryTable) {
		due[fmt.Sprint(e["AliasRowKey"], e["ExpiresAtUtc"])] = true
	}
	for _, e := range r.rows(r.config.LinkTable) {
		links[e["RowKey"].(string)] = true
		if e["ExpiresAtUtc"] != nil && !due[fmt.Sprint(e["RowKey"], e["ExpiresAtUtc"])] {
			r.t.Errorf("link %v has no expiry row", e)
		}
	}
	for _, e := range r.rows(r.config.IndexTable) {
		if !links[e["Alias"].(string)] {
			r.t.Errorf("index row %v names no link", e)
		}
	}
}

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

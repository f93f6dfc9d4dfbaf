package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"golang.org/x/sync/errgroup"

	"tiney/storage"
)

// rawVariable in the environment makes the bench the raw side, instead of measuring.
const rawVariable = "TINEY_BENCH_RAW"

// raw is what the service is compared with: a process that takes the same requests, and makes the same calls to storage
// by the SDK alone. Nothing is checked, cached or counted, no failure is minded, and nothing is parsed that the next call
// does not need.
type raw struct{ links, index, expiry *aztables.Client }

// rawRow is a row of any of the three tables.
type rawRow struct {
	ETag                                  azcore.ETag `json:"odata.etag,omitempty"`
	PartitionKey, RowKey                  string
	Alias, AliasPartitionKey, AliasRowKey string `json:",omitempty"`
	LongURL                               string `json:"LongUrl,omitempty"`
	CreatedAtUtc, ExpiresAtUtc            string `json:",omitempty"`
	CreatedAtType                         string `json:"CreatedAtUtc@odata.type,omitempty"`
	ExpiresAtType                         string `json:"ExpiresAtUtc@odata.type,omitempty"`
	IsDisabled                            *bool  `json:",omitempty"`
}

func openTables(connection string) (*aztables.ServiceClient, error) {
	return aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: rawClient},
	})
}

// rawClient keeps as many connections as the service does.
var rawClient = &http.Client{Transport: &http.Transport{MaxConnsPerHost: 256, MaxIdleConnsPerHost: 256}}

// serveRaw is the process of the raw side.
func serveRaw() error {
	routes, err := rawSide(os.Getenv)
	if err != nil {
		return err
	}
	return http.ListenAndServe("127.0.0.1:"+os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"), routes)
}

// rawSide reads the service's own settings.
func rawSide(getenv func(string) string) (http.Handler, error) {
	service, err := openTables(getenv("TABLE_CONNECTION"))
	if err != nil {
		return nil, err
	}
	r := &raw{
		links: service.NewClient(getenv("SHORTURL_TABLE_NAME")), index: service.NewClient(getenv("URLINDEX_TABLE_NAME")),
		expiry: service.NewClient(getenv("EXPIRYINDEX_TABLE_NAME")),
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /api/ready", func(http.ResponseWriter, *http.Request) {})
	for path, answer := range map[string]func(*http.Request) (status int, said any, err error){"POST /api/shorten": r.shorten, "POST /reaper": r.reap} {
		routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			status, said, err := answer(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(said) // a client that has gone is no matter
		})
	}
	return routes, nil
}

func urlKey(longURL string) (partition, key string) {
	sum := sha256.Sum256([]byte(longURL))
	key = hex.EncodeToString(sum[:])
	return key[:8], key
}

// shorten makes the calls of a create that nobody else is in the way of, or those for a URL that has its link.
func (r *raw) shorten(request *http.Request) (status int, said any, err error) {
	var asked struct {
		LongURL          string `json:"longUrl"`
		ExpiresInSeconds int    `json:"expiresInSeconds"`
	}
	if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
		return 0, nil, err
	}
	ctx := request.Context()
	partition, key := urlKey(asked.LongURL)
	there, err := r.index.GetEntity(ctx, partition, key, nil)
	if err == nil {
		var row rawRow
		err := json.Unmarshal(there.Value, &row)
		return http.StatusOK, map[string]string{"alias": row.Alias}, err
	}
	if answer := (*azcore.ResponseError)(nil); !errors.As(err, &answer) || answer.StatusCode != http.StatusNotFound {
		return 0, nil, err
	}
	const edm = "Edm.DateTime"
	alias, now := rand.Text()[:8], time.Now().UTC()
	expires := now.Add(time.Duration(asked.ExpiresInSeconds) * time.Second)
	created, ends, of := now.Format(time.RFC3339), expires.Format(time.RFC3339), strings.ToLower(alias[:2])
	for _, insert := range []struct {
		table *aztables.Client
		row   rawRow
	}{
		{r.expiry, rawRow{PartitionKey: expires.Format("20060102"), RowKey: expires.Format("150405") + "|" + alias,
			AliasPartitionKey: of, AliasRowKey: alias, ExpiresAtUtc: ends, ExpiresAtType: edm}},
		{r.links, rawRow{PartitionKey: of, RowKey: alias, LongURL: asked.LongURL, IsDisabled: new(bool),
			CreatedAtUtc: created, CreatedAtType: edm, ExpiresAtUtc: ends, ExpiresAtType: edm}},
		{r.index, rawRow{PartitionKey: partition, RowKey: key, Alias: alias, LongURL: asked.LongURL, ExpiresAtUtc: ends, ExpiresAtType: edm}},
	} {
		data, err := json.Marshal(insert.row)
		if err != nil {
			return 0, nil, err
		}
		if _, err := insert.table.AddEntity(ctx, data, nil); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusCreated, map[string]string{"alias": alias}, nil
}

// reap makes the calls of a reap in which every row is due and nothing fails.
func (r *raw) reap(request *http.Request) (status int, said any, err error) {
	ctx := request.Context()
	_, err = r.expiry.GetEntity(ctx, "-", "-", nil) // the service asks what time it is there
	if answer := (*azcore.ResponseError)(nil); !errors.As(err, &answer) || answer.StatusCode != http.StatusNotFound {
		return 0, nil, fmt.Errorf("a row that cannot be there: %w", err)
	}
	now := time.Now().UTC()
	today, deleted := now.Format("20060102"), 0
	for _, filter := range []string{"PartitionKey lt '" + today + "'", "PartitionKey eq '" + today + "' and RowKey lt '" + now.Format("150405") + "}'"} {
		pager := r.expiry.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter, Top: to.Ptr(int32(1000)), Format: to.Ptr(aztables.MetadataFormatFull)})
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return 0, nil, err
			}
			if err := r.page(ctx, page.Entities); err != nil {
				return 0, nil, err
			}
			deleted += len(page.Entities)
		}
	}
	return http.StatusOK, map[string]any{"Logs": []string{fmt.Sprintf("deleted %d links, complete: true", deleted)}}, nil
}

func (r *raw) page(ctx context.Context, entities [][]byte) error {
	page := make([]rawRow, len(entities))
	for i, data := range entities {
		if err := json.Unmarshal(data, &page[i]); err != nil {
			return err
		}
	}
	var rows errgroup.Group
	rows.SetLimit(storage.ReapConcurrency)
	for len(page) > 0 {
		// At most a hundred rows of one partition.
		n := slices.IndexFunc(page, func(e rawRow) bool { return e.PartitionKey != page[0].PartitionKey })
		if n < 0 {
			n = len(page)
		}
		n = min(n, 100)
		batch := page[:n]
		page = page[n:]
		var mu sync.Mutex
		var deletes []aztables.TransactionAction
		for _, e := range batch {
			rows.Go(func() error {
				if err := r.link(ctx, e); err != nil {
					return err
				}
				keys, err := json.Marshal(map[string]string{"PartitionKey": e.PartitionKey, "RowKey": e.RowKey})
				if err != nil {
					return err
				}
				mu.Lock()
				deletes = append(deletes, aztables.TransactionAction{ActionType: aztables.TransactionTypeDelete, Entity: keys, IfMatch: &e.ETag})
				last := len(deletes) == n
				mu.Unlock()
				if last {
					_, err = r.expiry.SubmitTransaction(ctx, deletes, nil)
				}
				return err
			})
		}
	}
	return rows.Wait()
}

// link deletes the link of an expiry row, and its index row before it.
func (r *raw) link(ctx context.Context, e rawRow) error {
	got, err := r.links.GetEntity(ctx, e.AliasPartitionKey, e.AliasRowKey, nil)
	if err != nil {
		return err
	}
	var l rawRow
	if err := json.Unmarshal(got.Value, &l); err != nil {
		return err
	}
	partition, key := urlKey(l.LongURL)
	index, err := r.index.GetEntity(ctx, partition, key, nil)
	if err != nil {
		return err
	}
	if _, err := r.index.DeleteEntity(ctx, partition, key, &aztables.DeleteEntityOptions{IfMatch: &index.ETag}); err != nil {
		return err
	}
	_, err = r.links.DeleteEntity(ctx, e.AliasPartitionKey, e.AliasRowKey, &aztables.DeleteEntityOptions{IfMatch: &got.ETag})
	return err
}

// Package table calls Azure Table storage: connections, retries, errors, and the calls for rows. It
// is the only package that imports the SDK of the tables. Package memtable is the same in memory.
//
// A row goes to and from a table as the JSON of the service's own protocol, with the properties
// PartitionKey and RowKey, and types as in "CreatedAtUtc@odata.type".
package table

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"tiney/internal/link"
	"tiney/internal/telemetry"
)

// ETag is the version of a row. "" stands for no row.
type ETag string

// Any stands for a row in whatever version it is.
const Any ETag = "*"

// The service's own limits.
const (
	MaxPage  = 1000 // rows of a query that it returns at a time
	MaxBatch = 100  // rows of a batch
	MaxKey   = 1024 // bytes of a RowKey, at least
)

// Range selects rows by their keys. Rows come in the order of their partitions, and in a partition
// in that of their keys. The zero Range is the whole table.
type Range struct {
	// Partition is the partition of all rows. If it is "", the bounds below are of partitions, else
	// of the keys in that partition.
	Partition string
	From      string // the first one; "" for no bound
	After     string // the one before the first
	Before    string // the one after the last
}

// filter returns the range in the query language of the service, "" for the whole table.
func (r Range) filter() string {
	var all []string
	add := func(property, operator, value string) {
		if value != "" {
			value = strings.ReplaceAll(value, "'", "''")
			all = append(all, fmt.Sprintf("%s %s '%s'", property, operator, value))
		}
	}
	add("PartitionKey", "eq", r.Partition)
	property := "RowKey"
	if r.Partition == "" {
		property = "PartitionKey"
	}
	add(property, "ge", r.From)
	add(property, "gt", r.After)
	add(property, "lt", r.Before)
	return strings.Join(all, " and ")
}

// Query is what is listed.
type Query struct {
	Range
	Properties []string // of each row; nil: all. One that a row lacks may be null.
	PageSize   int      // at most MaxPage; zero: MaxPage
	ETags      bool     // each row has its ETag, as "odata.etag"
}

// Service is the tables of a storage account.
type Service struct {
	client *aztables.ServiceClient
	url    string // that all its tables' begin with
	query  string // of each URL: a shared access signature, or ""
}

// Open returns the tables of an account. It makes no call. The sender gets each try of a call as a
// dependency; nil disables that.
func Open(c Connection, sender *telemetry.Sender) (*Service, error) {
	options := &aztables.ClientOptions{ClientOptions: ClientOptions(telemetry.TypeTable, sender)}
	var client *aztables.ServiceClient
	var query string
	var err error
	switch {
	case c.identity != nil:
		client, err = aztables.NewServiceClient(c.tables, c.identity, options)
	case c.key != "":
		var key *aztables.SharedKeyCredential
		if key, err = aztables.NewSharedKeyCredential(c.account, c.key); err == nil {
			client, err = aztables.NewServiceClientWithSharedKey(c.tables, key, options)
		}
	default:
		query = "?" + c.sas
		client, err = aztables.NewServiceClientWithNoCredential(c.tables+"/"+query, options)
	}
	if err != nil {
		return nil, err
	}
	return &Service{client, c.tables + "/", query}, nil
}

// Table returns one table, which need not exist.
func (s *Service) Table(name string) Table { return &azureTable{name, s.client.NewClient(name), s} }

// azureTable is a Table of Azure.
type azureTable struct {
	name    string
	client  *aztables.Client
	service *Service
}

func (t *azureTable) Name() string { return t.name }

// do makes one call. again: it was sent more than once.
func (t *azureTable) do(ctx context.Context, name string, send func(context.Context) error) (
	again bool, err error) {
	ctx, c := WithCall(ctx, name+" "+t.name)
	err = classify(c.name, send(ctx))
	return c.tries > 1, err
}

// Names ignores case, since names of tables do.
func (t *azureTable) Names(ctx context.Context, prefix string) (names []string, err error) {
	const call = "QueryTables"
	pager := t.service.client.NewListTablesPager(nil) // a filter would regard case
	for pager.More() {
		called, _ := WithCall(ctx, call)
		page, err := pager.NextPage(called)
		if err != nil {
			return nil, classify(call, err)
		}
		for _, there := range page.Tables {
			name := *there.Name
			if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

func (t *azureTable) Create(ctx context.Context) error {
	ctx, c := WithCall(ctx, "CreateTable "+t.name)
	_, err := t.client.CreateTable(ctx, nil)
	if hasCode(err, "TableAlreadyExists") {
		return nil
	}
	return Classify(c.name, err)
}

func (t *azureTable) Drop(ctx context.Context) error {
	_, err := t.do(ctx, "DeleteTable", func(ctx context.Context) error {
		_, err := t.client.Delete(ctx, nil)
		return err
	})
	if errors.Is(err, ErrNoTable) || errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// Clock asks for a row whose key no link can have.
func (t *azureTable) Clock(ctx context.Context) (time.Time, error) {
	resp, err := t.read(ctx, "-", "-")
	if err != nil && !errors.Is(err, ErrGone) {
		return time.Time{}, err
	}
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the clock of %s: %w: %w", t.name, link.ErrUnavailable, err)
	}
	return at, nil
}

func (t *azureTable) Get(ctx context.Context, partition, key string, properties ...string) (
	[]byte, ETag, error) {
	if properties != nil {
		ctx = withSelect(ctx, properties)
	}
	resp, err := t.read(ctx, partition, key)
	if err != nil {
		return nil, "", err
	}
	data, err := runtime.Payload(resp) // the SDK has read it, and keeps it there
	return data, ETag(resp.Header.Get("ETag")), err
}

// read returns the response for a row, also where that says that there is none. What the SDK itself
// returns went through a map, in which a Double of 3.0 is a 3, and a 3 is written back as an Int32.
func (t *azureTable) read(ctx context.Context, partition, key string) (resp *http.Response,
	err error) {
	_, err = t.do(ctx, "GetEntity", func(ctx context.Context) error {
		_, err := t.client.GetEntity(policy.WithCaptureResponse(ctx, &resp), partition, key, nil)
		return err
	})
	return resp, err
}

func (t *azureTable) List(ctx context.Context, q Query, page func(rows [][]byte) error) error {
	options := &aztables.ListEntitiesOptions{}
	if filter := q.filter(); filter != "" {
		options.Filter = &filter
	}
	if q.Properties != nil {
		properties := strings.Join(q.Properties, ",")
		options.Select = &properties
	}
	if q.PageSize != 0 {
		size := int32(q.PageSize)
		options.Top = &size
	}
	format := aztables.MetadataFormatNone
	if q.ETags {
		format = aztables.MetadataFormatFull // the one that is documented to carry ETags
	}
	options.Format = &format
	for pager := t.client.NewListEntitiesPager(options); pager.More(); {
		var resp aztables.ListEntitiesResponse
		_, err := t.do(ctx, "QueryEntities", func(ctx context.Context) (err error) {
			resp, err = pager.NextPage(ctx)
			return err
		})
		if err == nil {
			err = page(resp.Entities)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

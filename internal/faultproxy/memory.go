package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/go-json-experiment/json"

	"tiney/internal/azurite"
	"tiney/link"
	"tiney/storage"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

// InMemory returns a proxy in front of tables in memory. What it opens behaves as the client of
// package table does behind a Proxy: it makes up to three tries, of which each is a call.
func InMemory(service *memtable.Service) *Proxy {
	p := newProxy()
	p.memory = service
	return p
}

// Open opens tables through the proxy.
func (p *Proxy) Open() (func(name string) storage.Table, error) {
	if p.memory == nil {
		return azurite.Tables(p.ConnectionString())
	}
	return func(name string) storage.Table { return &memoryTable{p.memory.Table(name), p} }, nil
}

// The tries of a call, as package table makes them.
const (
	maxTries        = 3
	firstTryTimeout = 1200 * time.Millisecond
	pause           = time.Millisecond // shorter than theirs, since nothing needs the time
)

type byKey struct{}

// By has each call that is made in memory with the context it returns tell who makes it.
func By(ctx context.Context, who int) context.Context {
	return context.WithValue(ctx, byKey{},
		who)
}

type triesKey struct{}

// WithTries has each call that is made with the context it returns be tried as options say, whether
// by the SDK or in memory. Retries that are zero are as the product has them, and negative ones
// none.
func WithTries(ctx context.Context, options policy.RetryOptions) context.Context {
	return context.WithValue(policy.WithRetryOptions(ctx, options), triesKey{}, options)
}

// Patient gives a try as much time as its call has: on a busy machine an emulator may stand still
// for longer than a try of the product takes, and a second try is one more call to count.
func Patient(ctx context.Context) context.Context {
	return WithTries(ctx, policy.RetryOptions{MaxRetries: 2, RetryDelay: 50 * time.Millisecond,
		MaxRetryDelay: 200 * time.Millisecond, TryTimeout: time.Minute})
}

type memoryTable struct {
	*memtable.Table
	p *Proxy
}

var (
	errNoResponse = fmt.Errorf("%w: no response", link.ErrUnavailable)
	errBusy       = fmt.Errorf("%w (503 ServerBusy)", link.ErrUnavailable)
)

// result is what came of a call.
type result struct {
	row     []byte
	etag    table.ETag
	at      time.Time
	rows    [][]byte
	next    memtable.Position
	retried bool
	err     error
}

// do makes the tries of a call. One that gets no response in its time is given up, and goes on.
func (t *memoryTable) do(ctx context.Context, call Call,
	apply func(context.Context) result) result {
	call.By, _ = ctx.Value(byKey{}).(int)
	if call.Operation != "CreateTable" {
		call.Target = t.Name()
	}
	limit, tries := firstTryTimeout, maxTries
	if options, ok := ctx.Value(triesKey{}).(policy.RetryOptions); ok {
		limit = min(options.TryTimeout, table.Timeout)
		if options.MaxRetries != 0 {
			tries = int(max(options.MaxRetries, 0)) + 1
		}
	}
	for try := 1; ; try++ {
		if try > 1 {
			limit = table.Timeout
		}
		got, again := t.try(ctx, limit, call, apply)
		got.retried = try > 1
		if !again || try == tries || ctx.Err() != nil {
			return got
		}
		time.Sleep(pause)
	}
}

func (t *memoryTable) try(ctx context.Context, limit time.Duration, call Call,
	apply func(context.Context) result) (got result, again bool) {
	type response struct {
		result
		again bool
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if ctx.Err() != nil {
		return result{err: table.Classify(call.Operation, ctx.Err())}, false
	}
	came := make(chan response, 1)
	go func() {
		got, again := t.pass(ctx, call, apply)
		came <- response{got, again}
	}()
	select {
	case r := <-came:
		return r.result, r.again
	case <-ctx.Done():
		return result{err: table.Classify(call.Operation+" "+t.Name(), ctx.Err())}, true
	}
}

// pass passes a call on, unless a fault keeps it from that.
func (t *memoryTable) pass(ctx context.Context, call Call,
	apply func(context.Context) result) (got result, again bool) {
	fault, after := t.p.begin(&call)
	defer t.p.done()
	switch fault {
	case Refuse:
		return result{err: errNoResponse}, true
	case ServerBusy:
		return result{err: errBusy}, true
	case TooManyRequests:
		return result{err: fmt.Errorf("%w (429 TooManyRequests)", link.ErrUnavailable)}, false
	case BeingDeleted:
		return result{err: fmt.Errorf("%w (409 TableBeingDeleted)", link.ErrUnavailable)}, false
	case NotFound:
		return result{err: table.ErrGone}, false
	case Lie:
		return result{etag: "W/\"lie\""}, false
	case Freeze:
		<-ctx.Done()
		return result{err: table.Classify(call.Operation+" "+t.Name(), ctx.Err())}, true
	}
	// a network does not take back a call whose client is gone
	got = apply(context.WithValue(context.WithoutCancel(ctx), faultKey{}, fault))
	switch fault {
	case DropResponse:
		return result{err: errNoResponse}, true
	case EmptyResponse:
		return result{err: errNoResponse}, false
	}
	after(call)
	return got, false
}

type faultKey struct{}

// known returns the ETag that a call is conditional on.
func known(ctx context.Context, read table.ETag) table.ETag {
	if ctx.Value(faultKey{}) == Unconditional {
		return table.Any
	}
	return read
}

func (t *memoryTable) Create(ctx context.Context) error {
	return t.do(ctx, Call{Operation: "CreateTable"}, func(ctx context.Context) result {
		return result{err: t.Table.Create(ctx)}
	}).err
}

func (t *memoryTable) Drop(ctx context.Context) error {
	err := t.do(ctx, Call{Operation: "DeleteTable"}, func(ctx context.Context) result {
		return result{err: t.Table.Drop(ctx)}
	}).err
	return unlessGone(err)
}

func (t *memoryTable) Clock(ctx context.Context) (time.Time, error) {
	got := t.do(ctx, Call{Operation: "GetEntity",
		Partition: "-"}, func(ctx context.Context) (got result) {
		got.at, got.err = t.Table.Clock(ctx)
		return got
	})
	if errors.Is(got.err, table.ErrGone) { // what a fault says of the row, which has the time too
		return t.Table.Clock(ctx)
	}
	return got.at, got.err
}

func (t *memoryTable) Get(ctx context.Context, partition, key string, properties ...string) ([]byte,
	table.ETag, error) {
	got := t.do(ctx, Call{Operation: "GetEntity", Partition: partition,
		Key: key}, func(ctx context.Context) (
		got result) {
		got.row, got.etag, got.err = t.Table.Get(ctx, partition, key, properties...)
		return got
	})
	return got.row, got.etag, got.err
}

func (t *memoryTable) Insert(ctx context.Context, row []byte) (table.ETag, bool, error) {
	got := t.do(ctx, insert(row), func(ctx context.Context) (got result) {
		got.etag, _, got.err = t.Table.Insert(ctx, row)
		return got
	})
	return got.etag, got.retried, got.err
}

func (t *memoryTable) Upsert(ctx context.Context, row []byte) (table.ETag, error) {
	got := t.do(ctx, update(row), func(ctx context.Context) (got result) {
		got.etag, got.err = t.Table.Upsert(ctx, row)
		return got
	})
	return got.etag, got.err
}

func (t *memoryTable) Replace(ctx context.Context, row []byte, read table.ETag) (table.ETag, bool,
	error) {
	got := t.do(ctx, update(row), func(ctx context.Context) (got result) {
		got.etag, _, got.err = t.Table.Replace(ctx, row, known(ctx, read))
		return got
	})
	return got.etag, got.retried, changed(got.err)
}

func (t *memoryTable) Merge(ctx context.Context, row []byte, read table.ETag) (table.ETag, bool,
	error) {
	got := t.do(ctx, update(row), func(ctx context.Context) (got result) {
		got.etag, _, got.err = t.Table.Merge(ctx, row, known(ctx, read))
		return got
	})
	return got.etag, got.retried, changed(got.err)
}

// changed is for updates that a fault has called gone.
func changed(err error) error {
	if errors.Is(err, table.ErrGone) {
		return fmt.Errorf("%w: %w", table.ErrChanged, err)
	}
	return err
}

// insert names no partition, as it does on the wire.
func insert(row []byte) Call {
	_, key := keysOf(row)
	return Call{Operation: "InsertEntity", Key: key, Bytes: len(row)}
}

func update(row []byte) Call {
	partition, key := keysOf(row)
	return Call{Operation: "UpdateEntity", Partition: partition, Key: key, Bytes: len(row)}
}

func keysOf(row []byte) (partition, key string) {
	var e struct{ PartitionKey, RowKey string }
	_ = json.Unmarshal(row, &e)
	return e.PartitionKey, e.RowKey
}

func (t *memoryTable) Delete(ctx context.Context, partition, key string, read table.ETag) error {
	if read == "" {
		return t.Table.Delete(ctx, partition, key, read) // which makes no call
	}
	err := t.do(ctx, Call{Operation: "DeleteEntity", Partition: partition,
		Key: key}, func(ctx context.Context) result {
		return result{err: t.Table.Delete(ctx, partition, key, known(ctx, read))}
	}).err
	return unlessGone(err)
}

func unlessGone(err error) error {
	if errors.Is(err, table.ErrGone) {
		return nil
	}
	return err
}

func (t *memoryTable) Batch(ctx context.Context, writes []table.Write) (bool, error) {
	partition, key := keysOf(writes[0].Row)
	call := Call{Operation: batch, Partition: partition, Key: key, Rows: len(writes)}
	for _, w := range writes {
		call.Bytes += len(w.Row)
		if w.Kind >= table.Replace && w.Read == "" || w.Kind == table.Delete &&
			bytes.ContainsRune(w.Row, '\'') {
			return false, fmt.Errorf("a row that is not fit for a batch: %w", link.ErrUnavailable)
		}
	}
	got := t.do(ctx, call, func(ctx context.Context) (got result) {
		conditional := slices.Clone(writes)
		for i, w := range writes {
			if w.Kind >= table.Replace {
				conditional[i].Read = known(ctx, w.Read)
			}
		}
		if ctx.Value(faultKey{}) == Twice {
			_, _ = t.Table.Batch(ctx, others(writes))
		}
		_, got.err = t.Table.Batch(ctx, conditional)
		return got
	})
	return got.retried, got.err
}

// others returns a batch of counts as another process makes it.
func others(writes []table.Write) []table.Write {
	writes = slices.Clone(writes)
	for i, w := range writes {
		writes[i].Row = countRow.ReplaceAll(w.Row, []byte("${1}0"))
	}
	return writes
}

func (t *memoryTable) List(ctx context.Context, q table.Query,
	page func(rows [][]byte) error) error {
	for from := (memtable.Position{}); ; {
		got := t.do(ctx, Call{Operation: "QueryEntities",
			Key: fmt.Sprint(q.Range, from)}, func(ctx context.Context) (got result) {
			got.rows, got.next, got.err = t.Table.Page(ctx, q, from)
			return got
		})
		if got.err == nil {
			got.err = page(got.rows)
		}
		if got.err != nil || got.next == (memtable.Position{}) {
			return got.err
		}
		from = got.next
	}
}

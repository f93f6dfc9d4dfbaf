package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/go-json-experiment/json"

	"tiney/internal/link"
	"tiney/internal/testing/azurite"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

// InMemory returns a proxy in front of tables in memory. Tables that Open opens behave like the
// client of package table behind a Proxy: they make up to three tries, and each try is a call.
func InMemory(service *memtable.Service) *Proxy {
	p := newProxy()
	p.memory = service
	return p
}

// Open returns a function that opens tables through the proxy. Only the connection to Azurite can
// fail.
func (p *Proxy) Open() (func(name string) table.Table, error) {
	if p.memory == nil {
		return azurite.Tables(p.ConnectionString())
	}
	return func(name string) table.Table {
		return &memoryTable{p.memory.Table(name).(*memtable.Table), p}
	}, nil
}

// The tries of a call, as package table makes them.
const (
	maxTries        = 3
	firstTryTimeout = 1200 * time.Millisecond
	pause           = time.Millisecond // shorter than package table's, to save time
)

type byKey struct{}

// By returns a context whose in-memory calls say who makes them, in Call.By.
func By(ctx context.Context, who int) context.Context {
	return context.WithValue(ctx, byKey{}, who)
}

type triesKey struct{}

// WithTries returns a context whose calls are tried as options say, both by the SDK and in memory.
// A MaxRetries of zero stands for the product's number, and a negative one for no retries.
func WithTries(ctx context.Context, options policy.RetryOptions) context.Context {
	return context.WithValue(policy.WithRetryOptions(ctx, options), triesKey{}, options)
}

// Patient returns a context that gives each try as much time as its call has. On a busy machine, an
// emulator may hang for longer than the product allows a try, and a second try would be one more
// call to count.
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

// result is the result of a call.
type result struct {
	table.Result
	row   []byte
	at    time.Time
	rows  [][]byte
	names []string // of tables
	next  memtable.Position
	err   error
	lost  bool // another try may succeed
}

// do makes the tries of a call. It stops waiting for a try that gets no response in time, but the
// try goes on.
func (t *memoryTable) do(ctx context.Context, call Call,
	apply func(context.Context) result) result {
	call.By, _ = ctx.Value(byKey{}).(int)
	if call.Operation != "CreateTable" && call.Operation != "QueryTables" {
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
		got := t.try(ctx, limit, call, apply)
		got.Again = try > 1
		if !got.lost || try == tries || ctx.Err() != nil {
			return got
		}
		time.Sleep(pause)
	}
}

func (t *memoryTable) try(ctx context.Context, limit time.Duration, call Call,
	apply func(context.Context) result) result {
	ended := func(ctx context.Context) error {
		return table.Classify(call.Operation+" "+t.Name(), ctx.Err())
	}
	if ctx.Err() != nil {
		return result{err: ended(ctx)}
	}
	if !t.p.harms() {
		return t.pass(ctx, call, apply) // at once, so there is nothing to wait for
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if ctx.Err() != nil { // at a limit of nothing
		return result{err: ended(ctx)}
	}
	came := make(chan result, 1)
	go func() { came <- t.pass(ctx, call, apply) }()
	select {
	case got := <-came:
		return got
	case <-ctx.Done():
		return result{err: ended(ctx), lost: true}
	}
}

// pass passes a call on, unless a fault prevents that.
func (t *memoryTable) pass(ctx context.Context, call Call,
	apply func(context.Context) result) result {
	fault, after := t.p.begin(&call)
	defer t.p.done()
	switch fault {
	case Refuse:
		return result{err: errNoResponse, lost: true}
	case ServerBusy:
		return result{err: errBusy, lost: true}
	case TooManyRequests:
		return result{err: fmt.Errorf("%w (429 TooManyRequests)", link.ErrUnavailable)}
	case BeingDeleted:
		return result{err: table.ErrNoTable}
	case NotFound:
		return result{err: table.ErrGone}
	case Lie:
		return result{Result: table.Result{ETag: "W/\"lie\""}}
	case Freeze:
		<-ctx.Done()
		return result{err: table.Classify(call.Operation+" "+t.Name(), ctx.Err()), lost: true}
	}
	if err := t.p.failed(call); err != nil {
		return result{err: err}
	}
	// A network does not cancel a call whose client is gone.
	got := apply(context.WithValue(context.WithoutCancel(ctx), faultKey{}, fault))
	switch fault {
	case DropResponse, EmptyResponse:
		return result{err: errNoResponse, lost: fault == DropResponse}
	}
	after(call)
	return got
}

// harms reports whether faults, or what tests do meanwhile, may hold up a call.
func (p *Proxy) harms() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.before != nil || p.after != nil
}

// failed returns the error that FailAs gives a call.
func (p *Proxy) failed(call Call) error {
	p.mu.Lock()
	failure := p.failure
	p.mu.Unlock()
	if failure == nil {
		return nil
	}
	return failure(call)
}

type faultKey struct{}

// known returns the ETag that a write is conditional on, Any under the fault Unconditional.
func known(ctx context.Context, w table.Write) table.ETag {
	if w.Conditional() && ctx.Value(faultKey{}) == Unconditional {
		return table.Any
	}
	return w.Read
}

func (t *memoryTable) Create(ctx context.Context) error {
	err := t.do(ctx, Call{Operation: "CreateTable"}, func(ctx context.Context) result {
		return result{err: t.Table.Create(ctx)}
	}).err
	if errors.Is(err, table.ErrNoTable) || errors.Is(err, table.ErrGone) { // errors for rows
		return fmt.Errorf("%w (refused)", link.ErrUnavailable)
	}
	return err
}

func (t *memoryTable) Drop(ctx context.Context) error {
	err := t.do(ctx, Call{Operation: "DeleteTable"}, func(ctx context.Context) result {
		return result{err: t.Table.Drop(ctx)}
	}).err
	if errors.Is(err, table.ErrNoTable) || errors.Is(err, table.ErrGone) {
		return nil
	}
	return err
}

func (t *memoryTable) Names(ctx context.Context, prefix string) ([]string, error) {
	got := t.do(ctx, Call{Operation: "QueryTables"}, func(ctx context.Context) (got result) {
		got.names, got.err = t.Table.Names(ctx, prefix)
		return got
	})
	return got.names, got.err
}

func (t *memoryTable) Clock(ctx context.Context) (time.Time, error) {
	got := t.do(ctx, Call{Operation: "GetEntity",
		Partition: "-"}, func(ctx context.Context) (got result) {
		got.at, got.err = t.Table.Clock(ctx)
		return got
	})
	if errors.Is(got.err, table.ErrGone) { // a 404 for the row has the time as well
		return t.Table.Clock(ctx)
	}
	return got.at, got.err
}

func (t *memoryTable) Get(ctx context.Context, partition, key string, properties ...string) ([]byte,
	table.ETag, error) {
	got := t.do(ctx, Call{Operation: "GetEntity", Partition: partition,
		Key: key}, func(ctx context.Context) (got result) {
		got.row, got.ETag, got.err = t.Table.Get(ctx, partition, key, properties...)
		return got
	})
	return got.row, got.ETag, got.err
}

func (t *memoryTable) Write(ctx context.Context, w table.Write) (table.Result, error) {
	return w.Do(t.Name(), func() (table.Result, error) {
		call := Call{Operation: w.Kind.Operation(), Bytes: len(w.Row)}
		call.Partition, call.Key = keysOf(w.Row)
		switch w.Kind {
		case table.Insert:
			call.Partition = "" // as on the wire
		case table.Upsert:
			call.Operation = table.Merge.Operation() // the two differ only in a header
		case table.Delete:
			call.Bytes = 0
		}
		got := t.do(ctx, call, func(ctx context.Context) (got result) {
			conditional := w
			conditional.Read = known(ctx, w)
			got.Result, got.err = t.Table.Write(ctx, conditional)
			return got
		})
		return got.Result, got.err
	})
}

func keysOf(row []byte) (partition, key string) {
	var e struct{ PartitionKey, RowKey string }
	_ = json.Unmarshal(row, &e)
	return e.PartitionKey, e.RowKey
}

func (t *memoryTable) Batch(ctx context.Context, writes []table.Write) (bool, error) {
	partition, key := keysOf(writes[0].Row)
	call := Call{Operation: batch, Partition: partition, Key: key, Rows: len(writes)}
	for _, w := range writes {
		call.Bytes += len(w.Row)
		if w.Conditional() && w.Read == "" {
			return false, fmt.Errorf("a write without an ETag: %w", link.ErrUnavailable)
		}
	}
	got := t.do(ctx, call, func(ctx context.Context) (got result) {
		conditional := slices.Clone(writes)
		for i, w := range writes {
			conditional[i].Read = known(ctx, w)
		}
		if ctx.Value(faultKey{}) == Twice {
			_, _ = t.Table.Batch(ctx, others(writes))
		}
		_, got.err = t.Table.Batch(ctx, conditional)
		return got
	})
	return got.Again, got.err
}

// others returns a batch of counts as if another process had made it.
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

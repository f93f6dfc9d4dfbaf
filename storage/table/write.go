package table

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/go-json-experiment/json"
)

// Kind is what a Write does.
type Kind int

// The kinds of writes. Read is the ETag of the Write.
const (
	// Insert adds a row. ErrExists: a row with that key is there.
	Insert Kind = iota
	// Upsert writes a row's properties, whether there is a row with that key or not. The row gets a
	// new ETag, so that nothing deletes it by an older one.
	Upsert
	// Replace writes a row in place of what was read. ErrChanged: that has changed or is gone.
	Replace
	// Merge is Replace, but properties that the new row lacks stay as they are.
	Merge
	// Delete deletes a row as it was read. A row that is gone is no error. ErrChanged: it was
	// written since, or Read is "".
	Delete
)

var methods = [...]string{Insert: http.MethodPost, Upsert: http.MethodPatch,
	Replace: http.MethodPut, Merge: http.MethodPatch, Delete: http.MethodDelete}

// Operation returns the service's name of the call that makes a write of this kind.
func (k Kind) Operation() string {
	return [...]string{Insert: "InsertEntity", Upsert: "UpsertEntity", Replace: "UpdateEntity",
		Merge: "UpdateEntity", Delete: "DeleteEntity"}[k]
}

// Write is one write of a row.
type Write struct {
	Kind Kind
	Row  []byte // of a Delete, the keys alone
	Read ETag   // of a Replace, Merge or Delete
}

// NewDelete returns the Write that deletes a row as it was read.
func NewDelete(partition, key string, read ETag) Write {
	row, err := json.Marshal(keys{partition, key})
	if err != nil {
		panic(err) // keys that storage has returned are valid UTF-8
	}
	return Write{Kind: Delete, Row: row, Read: read}
}

// Conditional reports whether the write depends on an ETag.
func (w Write) Conditional() bool { return w.Kind >= Replace }

// Result is the result of a write.
type Result struct {
	ETag ETag // of the row that was written
	// Again: the write was sent more than once. An earlier try may have been applied although its
	// response was lost, or may still be applied. So an error may be due to the write itself.
	Again bool
}

// Do makes one write by a call of send, whose error is a result of the service.
func (w Write) Do(table string, send func() (Result, error)) (Result, error) {
	if w.Conditional() && w.Read == "" {
		// The SDK would send "*", and change whatever is there now.
		return Result{}, fmt.Errorf("%s %s: no ETag: %w", w.Kind.Operation(), table, ErrChanged)
	}
	r, err := send()
	switch gone := errors.Is(err, ErrGone) && w.Conditional(); {
	case gone && w.Kind == Delete:
		err = nil
	case gone:
		err = fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return r, err
}

func (t *azureTable) Write(ctx context.Context, w Write) (Result, error) {
	return w.Do(t.name, func() (r Result, err error) {
		r.Again, err = t.do(ctx, w.Kind.Operation(), func(ctx context.Context) (err error) {
			r.ETag, err = t.send(ctx, w)
			return err
		})
		return r, err
	})
}

func (t *azureTable) send(ctx context.Context, w Write) (ETag, error) {
	read := (*azcore.ETag)(&w.Read)
	switch w.Kind {
	case Insert:
		resp, err := t.client.AddEntity(ctx, w.Row, nil)
		return ETag(resp.ETag), err
	case Upsert:
		resp, err := t.client.UpsertEntity(ctx, w.Row,
			&aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeMerge})
		return ETag(resp.ETag), err
	case Delete:
		k, err := keysOf(w.Row)
		if err == nil {
			_, err = t.client.DeleteEntity(ctx, k.PartitionKey, k.RowKey,
				&aztables.DeleteEntityOptions{IfMatch: read})
		}
		return "", err
	}
	options := &aztables.UpdateEntityOptions{IfMatch: read, UpdateMode: aztables.UpdateModeMerge}
	if w.Kind == Replace {
		options.UpdateMode = aztables.UpdateModeReplace
	}
	resp, err := t.client.UpdateEntity(withBody(ctx, w.Row), w.Row, options)
	return ETag(resp.ETag), err
}

// keys are the keys of a row.
type keys struct{ PartitionKey, RowKey string }

// keysOf returns the keys of a row. The product's rows begin with them, so that the rest of a row,
// which may be long, need not be read.
func keysOf(row []byte) (k keys, err error) {
	if rest, ok := bytes.CutPrefix(row, []byte(`{"PartitionKey":"`)); ok {
		partition, rest, _ := bytes.Cut(rest, []byte(`","RowKey":"`))
		key, _, ok := bytes.Cut(rest, []byte(`"`))
		if ok && !bytes.ContainsAny(partition, `"\`) && !bytes.ContainsRune(key, '\\') {
			return keys{string(partition), string(key)}, nil
		}
	}
	return k, json.Unmarshal(row, &k)
}

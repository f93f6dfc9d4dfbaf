package table

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"tiney/internal/link"
)

// maxBatchBytes is the service's own limit of a batch.
const maxBatchBytes = 4 << 20

// batch is a batch on the wire. The SDK's own encoding goes through a map and a request for each
// row, and its decoding through a response for each, which takes longer than all else of a count.
// So it is given this instead, and does the rest of the call.
type batch struct {
	rows        int
	contentType string
	body        []byte
}

type batchKey struct{}

func batchOf(ctx context.Context) (b *batch, ok bool) {
	b, ok = ctx.Value(batchKey{}).(*batch)
	return b, ok
}

// unsent is what the SDK encodes, and batchPolicy does not send.
var unsent = []aztables.TransactionAction{{ActionType: aztables.TransactionTypeDelete,
	Entity: []byte(`{"PartitionKey":"-","RowKey":"-"}`)}}

func (t *azureTable) Batch(ctx context.Context, writes []Write) (again bool, err error) {
	b, err := t.newBatch(writes)
	if err != nil {
		return false, fmt.Errorf("SubmitTransaction %s: %w: %w", t.name, link.ErrUnavailable, err)
	}
	ctx = context.WithValue(ctx, batchKey{}, b)
	return t.do(ctx, "SubmitTransaction", func(ctx context.Context) error {
		_, err := t.client.SubmitTransaction(ctx, unsent, nil)
		if errors.Is(err, errApplied) {
			return nil
		}
		return err
	})
}

// newBatch encodes a batch, with the methods and headers that the SDK gives its parts.
func (t *azureTable) newBatch(writes []Write) (*batch, error) {
	size := 0
	for _, w := range writes {
		size += len(w.Row) + 600
	}
	text := make([]byte, 0, size)
	// No value of a row can contain the boundary, since nobody knows it before.
	boundary := rand.Text()
	text = fmt.Appendf(text, "--batch_%s\r\nContent-Type: multipart/mixed; "+
		"boundary=changeset_%[1]s\r\n\r\n", boundary)
	for _, w := range writes {
		k, err := keysOf(w.Row)
		if err != nil || k.PartitionKey == "" || k.RowKey == "" {
			return nil, errors.New("a row without keys")
		}
		if w.Conditional() && w.Read == "" {
			return nil, errors.New("a write without an ETag")
		}
		text = fmt.Appendf(text, "--changeset_%s\r\nContent-Transfer-Encoding: binary\r\n"+
			"Content-Type: application/http\r\n\r\n%s %s%s", boundary, methods[w.Kind],
			t.service.url, t.name)
		if w.Kind != Insert {
			text = fmt.Appendf(text, "(PartitionKey='%s',RowKey='%s')", inURL(k.PartitionKey),
				inURL(k.RowKey))
		}
		text = fmt.Appendf(text, "%s HTTP/1.1\r\nAccept: application/json;"+
			"odata=minimalmetadata\r\nDataServiceVersion: 3.0\r\n", t.service.query)
		if w.Conditional() {
			text = fmt.Appendf(text, "If-Match: %s\r\n", w.Read)
		}
		if w.Kind == Insert {
			text = append(text, "Prefer: return-no-content\r\n"...)
		}
		if w.Kind == Delete {
			text = append(text, "\r\n\r\n"...)
			continue
		}
		text = fmt.Appendf(text, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n",
			len(w.Row))
		text = append(append(text, w.Row...), "\r\n"...)
	}
	text = fmt.Appendf(text, "--changeset_%s--\r\n\r\n--batch_%[1]s--\r\n", boundary)
	if len(writes) == 0 || len(writes) > MaxBatch || len(text) > maxBatchBytes {
		return nil, fmt.Errorf("%d rows of %d bytes", len(writes), len(text))
	}
	return &batch{len(writes), "multipart/mixed; boundary=batch_" + boundary, text}, nil
}

// inURL returns a key as it stands in a URL. Nothing is left that has a meaning there.
func inURL(key string) string {
	key = url.QueryEscape(strings.ReplaceAll(key, "'", "''"))
	return strings.ReplaceAll(key, "+", "%20")
}

// errApplied says that a batch was applied. As an error, it keeps the SDK from the response.
var errApplied = errors.New("the batch was applied")

// batchPolicy sends a batch and reads its response.
type batchPolicy struct{}

func (batchPolicy) Do(req *policy.Request) (*http.Response, error) {
	b, ok := batchOf(req.Raw().Context())
	if !ok {
		return req.Next()
	}
	if err := req.SetBody(streaming.NopCloser(bytes.NewReader(b.body)),
		b.contentType); err != nil {
		return nil, err
	}
	resp, err := req.Next()
	if err != nil || resp.StatusCode >= 300 {
		return resp, err
	}
	switch status, errorCode, applied := b.outcome(resp); {
	case applied:
		return nil, errApplied
	case status == resp.StatusCode:
		return nil, fmt.Errorf("a response (%d) that is not one to a batch", status)
	default:
		return nil, &azcore.ResponseError{StatusCode: status, ErrorCode: errorCode,
			RawResponse: resp}
	}
}

// outcome returns the result of a batch. Its response is always a 202, whose body has a response
// per row, or the one of the row that made it fail: then status and code are that row's.
func (b *batch) outcome(resp *http.Response) (status int, errorCode string, applied bool) {
	body, _ := runtime.Payload(resp) // an unreadable body does not count as applied
	for parts := 0; ; parts++ {
		_, part, found := bytes.Cut(body, []byte("\nHTTP/1.1 "))
		if !found {
			return resp.StatusCode, "", parts == b.rows
		}
		status, err := strconv.Atoi(string(part[:min(3, len(part))]))
		if err != nil {
			return resp.StatusCode, "", false
		}
		if status/100 != 2 {
			if code := partCode().FindSubmatch(part); code != nil {
				errorCode = string(code[1])
			}
			return status, errorCode, false
		}
		body = part
	}
}

// partCode finds the error code in the failed part of a batch's response.
var partCode = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`"code":\s*"([A-Za-z0-9_]{1,64})"`)
})

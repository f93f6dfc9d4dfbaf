package table

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"tiney/internal/link"
)

// serve opens a table of a server that is not Azure. Sas is of its connection, and may be "".
func serve(t testing.TB, sas string, serve http.HandlerFunc) *azureTable {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	c := Connection{tables: server.URL + "/account", sas: sas}
	if sas == "" {
		c.account, c.key = "account", "a2V5"
	}
	service, err := Open(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return service.Table("Rows").(*azureTable)
}

// A batch has the bytes that the SDK would send, but for what is said here.
func TestBatchesAreTheSDKs(t *testing.T) {
	for _, sas := range []string{"", "sig=a%2Bb%3D&sv=2019-02-02"} {
		var sent []string
		rows := serve(t, sas, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			text := r.RequestURI + "\nContent-Type: " + r.Header.Get("Content-Type") + "\n" +
				string(body)
			for _, different := range []struct{ of, to string }{
				{`(batch|changeset)_[-0-9A-Za-z]+`, "${1}_"},
				// It asks for a format in some URLs, as their Accept does anyway.
				{`\?%24format=application%2Fjson%3Bodata%3Dminimalmetadata(&)?`, "?"},
				{`\? HTTP`, " HTTP"},
				{`Accept: application/json\r\n`,
					"Accept: application/json;odata=minimalmetadata\r\n"},
				// It leaves versions empty.
				{`x-ms-version: \r\n`, ""},
				{`DataServiceVersion: \r\n`, "DataServiceVersion: 3.0\r\n"},
			} {
				text = regexp.MustCompile(different.of).ReplaceAllString(text, different.to)
			}
			// The order of headers has no meaning.
			lines := strings.SplitAfter(text, "\r\n")
			for i := 1; i < len(lines); i++ {
				for j := i; j > 0 && strings.Contains(lines[j], ": ") &&
					strings.Contains(lines[j-1], ": ") && lines[j] < lines[j-1]; j-- {
					lines[j], lines[j-1] = lines[j-1], lines[j]
				}
			}
			sent = append(sent, strings.Join(lines, ""))
			w.WriteHeader(http.StatusBadRequest)
		})
		const read = `W/"datetime'2026-11-23T12%3A34%3A56.1234567Z'"`
		var writes []Write
		var actions []aztables.TransactionAction
		for kind, of := range map[Kind]aztables.TransactionType{
			Insert:  aztables.TransactionTypeAdd,
			Upsert:  aztables.TransactionTypeInsertMerge,
			Replace: aztables.TransactionTypeUpdateReplace,
			Merge:   aztables.TransactionTypeUpdateMerge,
			Delete:  aztables.TransactionTypeDelete,
		} {
			w := Write{Kind: kind,
				Row: []byte(`{"PartitionKey":"a b","RowKey":"é|!~","Text":"x"}`)}
			action := aztables.TransactionAction{ActionType: of, Entity: w.Row}
			if kind >= Replace {
				w.Read = read
				action.IfMatch = (*azcore.ETag)(&w.Read)
			}
			writes, actions = append(writes, w), append(actions, action)
		}
		if _, err := rows.Batch(t.Context(), writes); err == nil {
			t.Error("applied")
		}
		if _, err := rows.client.SubmitTransaction(t.Context(), actions, nil); err == nil {
			t.Error("applied by the SDK")
		}
		if len(sent) != 2 || sent[0] != sent[1] {
			t.Errorf("sent %q", sent)
		}
	}
}

func TestResponsesToABatch(t *testing.T) {
	part := func(status int, body string) string {
		return fmt.Sprintf("--changesetresponse_0\r\nContent-Type: application/http\r\n\r\n"+
			"HTTP/1.1 %d Some Text\r\nDataServiceVersion: 3.0;\r\n\r\n%s\r\n", status, body)
	}
	failed := func(status int, code string) string {
		return part(status, `{"odata.error":{"code":"`+code+`","message":{"lang":"en-US",`+
			`"value":"1:Why.\nHTTP/1.1 204 No Content"}}}`)
	}
	whole := func(parts ...string) string {
		return "--batchresponse_0\r\nContent-Type: multipart/mixed; " +
			"boundary=changesetresponse_0\r\n\r\n" + strings.Join(parts, "") +
			"--changesetresponse_0--\r\n--batchresponse_0--\r\n"
	}
	done := part(http.StatusNoContent, "")
	for what, test := range map[string]struct {
		status int
		body   string
		want   error // nil: applied
	}{
		"applied":                 {202, whole(done, done), nil},
		"applied, with content":   {202, whole(done, part(201, "{}")), nil},
		"there already":           {202, whole(failed(409, "EntityAlreadyExists")), ErrExists},
		"gone":                    {202, whole(failed(404, "ResourceNotFound")), ErrGone},
		"changed":                 {202, whole(failed(412, "ConditionNotMet")), ErrChanged},
		"changed, without a code": {202, whole(part(412, "")), ErrChanged},
		"no table":                {202, whole(failed(404, "TableNotFound")), ErrNoTable},
		"being deleted":           {202, whole(failed(409, "TableBeingDeleted")), ErrNoTable},
		"being deleted, as one": {409, `{"odata.error":{"code":"TableBeingDeleted"}}`,
			ErrNoTable},
		"not valid":                {202, whole(failed(400, "InvalidInput")), link.ErrUnavailable},
		"the second one":           {202, whole(done, failed(404, "ResourceNotFound")), ErrGone},
		"too few":                  {202, whole(done), link.ErrUnavailable},
		"too many":                 {202, whole(done, done, done), link.ErrUnavailable},
		"nothing":                  {202, "", link.ErrUnavailable},
		"nothing, and no content":  {204, "", link.ErrUnavailable},
		"a part moved":             {202, whole(done, part(302, "")), link.ErrUnavailable},
		"a part to come":           {202, whole(done, part(100, "")), link.ErrUnavailable},
		"no parts":                 {202, whole(), link.ErrUnavailable},
		"cut off in a status":      {202, whole(done, "HTTP/1.1 20")[:250], link.ErrUnavailable},
		"cut off":                  {202, whole(done, done), link.ErrUnavailable},
		"no status":                {202, whole(done, "\r\nHTTP/1.1 none"), link.ErrUnavailable},
		"a proxy's page":           {202, "<html>HTTP/1.1 200 OK</html>", link.ErrUnavailable},
		"a proxy's page, as found": {200, "<html>\nlogin</html>", link.ErrUnavailable},
		"an object":                {202, `{"odata.error":{"code":"Other"}}`, link.ErrUnavailable},
		"a redirect":               {302, "", link.ErrUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			calls := 0
			rows := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
				if calls++; what == "cut off" {
					w.Header().Set("Content-Length", "10000")
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			row := []byte(`{"PartitionKey":"a","RowKey":"b"}`)
			retried, err := rows.Batch(t.Context(), []Write{{Kind: Upsert, Row: row},
				{Kind: Merge, Row: row, Read: Any}})
			if !errors.Is(err, test.want) || test.want != nil && !errors.Is(err,
				link.ErrUnavailable) || retried || calls != 1 {
				t.Errorf("got %v, retried %t, %d calls", err, retried, calls)
			}
			for _, other := range []error{ErrExists, ErrGone, ErrChanged, ErrNoTable} {
				if other != test.want && errors.Is(err, other) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// What the service could not take is not sent.
func TestBatchesThatAreTooLarge(t *testing.T) {
	rows := serve(t, "", func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	row := []byte(`{"PartitionKey":"a","RowKey":"b","Text":"` + strings.Repeat("x", 600_000) + `"}`)
	for size, of := range map[int][]byte{0: nil, 7: row,
		MaxBatch + 1: []byte(`{"PartitionKey":"a","RowKey":"b"}`)} {
		var writes []Write
		for range size {
			writes = append(writes, Write{Kind: Upsert, Row: of})
		}
		if _, err := rows.Batch(t.Context(), writes); !errors.Is(err, link.ErrUnavailable) {
			t.Errorf("%d rows: %v", size, err)
		}
	}
}

func TestKeysOf(t *testing.T) {
	for row, want := range map[string]keys{
		`{"PartitionKey":"a","RowKey":"b"}`:                     {"a", "b"},
		`{"PartitionKey":"a","RowKey":"b","Text":"\u0041"}`:     {"a", "b"},
		`{"RowKey":"b","PartitionKey":"a"}`:                     {"a", "b"},
		`{"PartitionKey": "a", "RowKey": "b"}`:                  {"a", "b"},
		`{"PartitionKey":"a","Text":"x","RowKey":"b"}`:          {"a", "b"},
		`{"Text":"\",\"RowKey\":\"","PartitionKey":"a"}`:        {"a", ""},
		`{"PartitionKey":"a\",\"RowKey\":\"x","RowKey":"b"}`:    {`a","RowKey":"x`, "b"},
		`{"PartitionKey":"\u00e9","RowKey":"b\"c"}`:             {"é", `b"c`},
		`{"PartitionKey":"a","X":"y","Text":",","RowKey":"b"}`:  {"a", "b"},
		`{"PartitionKey":"a'","RowKey":"b|%20é"}`:               {"a'", "b|%20é"},
		`{"PartitionKey":"a","Text":"\",\"RowKey\":\"x"}`:       {"a", ""},
		`{"PartitionKey":"","RowKey":"","Text":"PartitionKey"}`: {"", ""},
	} {
		if got, err := keysOf([]byte(row)); err != nil || got != want {
			t.Errorf("%s: got %q, %v", row, got, err)
		}
	}
	for _, row := range []string{"", "{", `{"PartitionKey":"a`, `{"PartitionKey":1,"RowKey":"b"}`} {
		if k, err := keysOf([]byte(row)); err == nil {
			t.Errorf("%s: got %q", row, k)
		}
	}
}

package memtables_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"tiney/internal/azurite"
	"tiney/internal/memtables"
)

var emulator azurite.Ports

func TestMain(m *testing.M) {
	os.Exit(azurite.ForTests(func(ports azurite.Ports) int {
		emulator = ports
		return m.Run()
	}))
}

var ctx = context.Background()

// recorder keeps what each call was answered with, in a form that does not depend on who has answered, and when.
type recorder struct{ seen []string }

var (
	etag     = regexp.MustCompile(`W/\\?"datetime'[^']*'\\?"`)
	instant  = regexp.MustCompile(`"Timestamp":"[^"]*"`)
	address  = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	request  = regexp.MustCompile(`\\nRequestId:[^"]*`)
	boundary = regexp.MustCompile(`(batch|changeset)response(_[0-9a-f]+(-[0-9a-f]+)*)?`)
	nothing  = regexp.MustCompile(`(?m)^(X-Content-Type-Options|Cache-Control): .*\r\n`)
)

func plain(text string) string {
	for what, with := range map[*regexp.Regexp]string{etag: "ETAG", instant: `"Timestamp":"AT"`, address: "HOST", request: "", boundary: "${1}response", nothing: ""} {
		text = what.ReplaceAllString(text, with)
	}
	return strings.TrimSpace(text)
}

func (r *recorder) Do(req *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	said := plain(string(body))
	var parsed any
	if json.Unmarshal([]byte(said), &parsed) == nil {
		sorted, _ := json.Marshal(parsed)
		said = string(sorted)
	}
	text := fmt.Sprintf("%s %s\n%d\n", req.Method, req.URL.Path, answer.StatusCode)
	for _, name := range []string{"Content-Type", "ETag", "Preference-Applied", "x-ms-error-code", "x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey"} {
		text += name + ": " + plain(answer.Header.Get(name)) + "\n"
	}
	r.seen = append(r.seen, text+said)
	return answer, err
}

func open(t *testing.T, connection string) (*aztables.ServiceClient, *recorder) {
	r := new(recorder)
	service, err := aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{
		ClientOptions: policy.ClientOptions{Transport: r, Retry: policy.RetryOptions{MaxRetries: -1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return service, r
}

// calls makes all that the service knows, and what it has to refuse in the same way.
func calls(service *aztables.ServiceClient, table string) {
	_, _ = service.CreateTable(ctx, table, nil)
	_, _ = service.CreateTable(ctx, table, nil)
	c := service.NewClient(table)
	etags := map[string]azcore.ETag{}
	add := func(partition, key, more string) {
		answer, _ := c.AddEntity(ctx, fmt.Appendf(nil, `{"PartitionKey":%q,"RowKey":%q%s}`, partition, key, more), nil)
		etags[key] = answer.ETag
	}
	const at = `,"ExpiresAtUtc":"2026-01-01T10:11:12Z","ExpiresAtUtc@odata.type":"Edm.DateTime"`
	add("20260101", "101112|a", at+`,"AliasRowKey":"a","IsDisabled":false,"LongUrl":"https://example.com/?a=1&b=<2>"`)
	add("20260101", "101112|b", at)
	add("20260101", "101113|c", "")
	add("20260101", "it's", "")
	add("20260102", "101112|d", at)
	add("20260103", "000000|e", "")
	add("20260103", "101112|f", "")
	first := etags["101112|a"]
	add("20260101", "101112|a", "") // is there
	add("2026/01", "a", "")         // no such key can be

	for _, key := range []string{"101112|a", "it's", "-"} {
		_, _ = c.GetEntity(ctx, "20260101", key, nil)
	}
	list := func(filter string, top int32) {
		pager := c.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter, Top: &top, Format: to.Ptr(aztables.MetadataFormatFull)})
		for pager.More() {
			if _, err := pager.NextPage(ctx); err != nil {
				return
			}
		}
	}
	list("PartitionKey lt '20260103'", 1000)
	list("PartitionKey lt '20260103'", 2)
	list("PartitionKey lt '20260104'", 5)
	list("PartitionKey eq '20260101' and RowKey lt '101112}'", 1)
	list("PartitionKey eq '20260103'", 1000)
	list("PartitionKey lt '2026'", 1000)

	remove := func(partition, key string, etag azcore.ETag) {
		_, _ = c.DeleteEntity(ctx, partition, key, &aztables.DeleteEntityOptions{IfMatch: &etag})
	}
	remove("20260102", "101112|d", first) // of another row
	remove("20260102", "101112|d", etags["101112|d"])
	remove("20260102", "101112|d", etags["101112|d"])
	remove("20260101", "it's", azcore.ETagAny)

	batch := func(keys ...string) {
		var actions []aztables.TransactionAction
		for _, key := range keys {
			actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeDelete,
				Entity: fmt.Appendf(nil, `{"PartitionKey":"20260101","RowKey":%q}`, key), IfMatch: to.Ptr(etags[key])})
		}
		_, _ = c.SubmitTransaction(ctx, actions, nil)
	}
	etags["101112|a"], etags["gone"] = first, first
	batch("101112|a", "gone") // there is no such row: none is deleted
	right := etags["101113|c"]
	etags["101113|c"] = first
	batch("101112|a", "101112|b", "101113|c") // one has another ETag: none is deleted
	etags["101113|c"] = right
	_, _ = c.GetEntity(ctx, "20260101", "101112|a", nil)
	batch("101112|a", "101112|b", "101113|c")
	list("PartitionKey lt '20260104'", 1000)

	none := service.NewClient(table + "Not")
	_, _ = none.GetEntity(ctx, "-", "-", nil)
	_, _ = none.AddEntity(ctx, []byte(`{"PartitionKey":"a","RowKey":"b"}`), nil)
	_, _ = none.DeleteEntity(ctx, "-", "-", nil)
}

func TestAnswersAreThoseOfAzurite(t *testing.T) {
	real, want := open(t, emulator.ConnectionString())
	calls(real, "Conform")
	s := memtables.Start()
	defer s.Close()
	double, got := open(t, s.ConnectionString())
	calls(double, "Conform")
	if len(got.seen) != len(want.seen) {
		t.Fatalf("%d answers, Azurite gives %d", len(got.seen), len(want.seen))
	}
	for i := range want.seen {
		if got.seen[i] != want.seen[i] {
			t.Errorf("call %d\n%s\n\nAzurite:\n%s", i+1, got.seen[i], want.seen[i])
		}
	}
	if rows := s.Rows(); rows != 2 {
		t.Errorf("%d rows are left, want 2", rows)
	}
	if calls := s.Calls(); calls["SubmitTransaction"] != 3 || calls["DeleteEntity"] != 4 || calls["CreateTable"] != 2 {
		t.Errorf("it has counted %v", calls)
	}
}

func TestWhatItDoesNotKnowItRefuses(t *testing.T) {
	s := memtables.Start()
	defer s.Close()
	service, r := open(t, s.ConnectionString())
	_, _ = service.CreateTable(ctx, "T", nil)
	c := service.NewClient("T")
	if err := s.Insert("T", []byte(`{"PartitionKey":"a","RowKey":"b"}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.Insert("Not", []byte(`{"PartitionKey":"a","RowKey":"b"}`)); err == nil {
		t.Error("a row went into a table that there is not")
	}
	row := []byte(`{"PartitionKey":"a","RowKey":"b"}`)
	list := func(o aztables.ListEntitiesOptions) { _, _ = c.NewListEntitiesPager(&o).NextPage(ctx) }
	batch := func(action aztables.TransactionType, n int) {
		var all []aztables.TransactionAction
		for i := range n {
			all = append(all, aztables.TransactionAction{ActionType: action, Entity: fmt.Appendf(nil, `{"PartitionKey":"a","RowKey":"%d"}`, i/2), IfMatch: to.Ptr(azcore.ETagAny)})
		}
		_, _ = c.SubmitTransaction(ctx, all, nil)
	}
	full := to.Ptr(aztables.MetadataFormatFull)
	for name, call := range map[string]func(){
		"501 an update":          func() { _, _ = c.UpdateEntity(ctx, row, nil) },
		"501 an upsert":          func() { _, _ = c.UpsertEntity(ctx, row, nil) },
		"501 a number":           func() { _, _ = c.AddEntity(ctx, []byte(`{"PartitionKey":"a","RowKey":"c","N":5}`), nil) },
		"501 a table's deletion": func() { _, _ = c.Delete(ctx, nil) },
		"501 all tables":         func() { _, _ = service.NewListTablesPager(nil).NextPage(ctx) },
		"501 no filter":          func() { list(aztables.ListEntitiesOptions{Top: to.Ptr(int32(5)), Format: full}) },
		"501 another filter": func() {
			list(aztables.ListEntitiesOptions{Filter: to.Ptr("RowKey gt 'a'"), Top: to.Ptr(int32(5)), Format: full})
		},
		"501 other metadata": func() {
			list(aztables.ListEntitiesOptions{Filter: to.Ptr("PartitionKey lt 'a'"), Top: to.Ptr(int32(5))})
		},
		"501 some properties": func() {
			list(aztables.ListEntitiesOptions{Filter: to.Ptr("PartitionKey lt 'a'"), Select: to.Ptr("A"), Format: full})
		},
		"501 a batch of inserts": func() { batch(aztables.TransactionTypeInsertReplace, 1) },
		"400 a time that is none": func() { // which Azurite takes
			_, _ = c.AddEntity(ctx, []byte(`{"PartitionKey":"a","RowKey":"c","At":"soon","At@odata.type":"Edm.DateTime"}`), nil)
		},
		"400 too large a page": func() {
			list(aztables.ListEntitiesOptions{Filter: to.Ptr("PartitionKey lt 'a'"), Top: to.Ptr(int32(1001)), Format: full})
		},
		"400 a page of no size": func() { list(aztables.ListEntitiesOptions{Filter: to.Ptr("PartitionKey lt 'a'"), Format: full}) },
		"400 too large a batch": func() { batch(aztables.TransactionTypeDelete, 101) },
	} {
		r.seen = nil
		call()
		if len(r.seen) != 1 || !strings.Contains(r.seen[0], "\n"+name[:3]+"\n") {
			t.Errorf("%s: %q", name, r.seen)
		}
	}
	if rows := s.Rows(); rows != 1 {
		t.Errorf("%d rows, want the one that was there", rows)
	}
}

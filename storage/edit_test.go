package storage_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tiney/internal/link"
	"tiney/storage"
)

// What other programs keep in a link's row goes back as it came. Azure tells a Double by its
// decimal point alone, where Azurite names the type.
func TestAnEditKeepsWhatIsNotOurs(t *testing.T) {
	kept := map[string]string{"Weight": `3.0`, "Ratio": `0.5`, "Far": `1E+300`, "Count": `3`,
		"Big":            `"9007199254740993"`,
		"Big@odata.type": `"Edm.Int64"`, "Note": `"\u00fc <&> /"`}
	row := `{"odata.metadata":"x","PartitionKey":"on","RowKey":"one","Timestamp":"2026-01-01T00:00:00Z","LongUrl":"` + url1 + `","IsDisabled":false,"Owner":"a"`
	for name, value := range kept {
		row += fmt.Sprintf(`,%q:%s`, name, value)
	}
	var put map[string]json.RawMessage
	azure := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		links := strings.Contains(r.URL.Path, "ShortUrls(")
		switch {
		case r.Method == http.MethodGet && links:
			w.Header().Set("ETag", "the first")
			w.Header().Set("Content-Type",
				"application/json;odata=minimalmetadata;streaming=true;charset=utf-8")
			_, _ = io.WriteString(w, row+"}")
			return
		case r.Method == http.MethodPut && links && r.Header.Get("If-Match") == "the first":
			if err := json.Unmarshal(body, &put); err != nil ||
				r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%v, %q", err, r.Header)
			}
		}
		w.Header().Set("ETag", "the second")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer azure.Close()
	r := newRig(t)
	r.config.Open = connect(t, fmt.Sprintf(
		"AccountName=a;AccountKey=AAAA;TableEndpoint=%s;BlobEndpoint=%[1]s", azure.URL), nil)
	r.config.Tables.Links = "ShortUrls"
	s, err := storage.Open(r.config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Edit(ctx, "one", false, func(l link.Link) (link.Link, error) {
		l.Title = "new"
		return l, nil
	}); err != nil {
		t.Fatal(err)
	}
	if string(put["Title"]) != `"new"` {
		t.Errorf("got %s", put)
	}
	for name, value := range kept {
		var got, want any
		_, _ = json.Unmarshal(put[name], &got), json.Unmarshal([]byte(value), &want)
		if string(put[name]) != value && (value[0] != '"' || got != want) {
			t.Errorf("%s came as %s, and is written as %s", name, value, put[name])
		}
	}
}

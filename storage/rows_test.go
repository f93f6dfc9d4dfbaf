package storage

import (
	"fmt"
	"testing"
	"time"

	"tiney/internal/link"
)

// Whatever a row holds, it is decoded or called damaged; and what was decoded is decoded from what
// is written for it.
func FuzzDecodeLink(f *testing.F) {
	for _, seed := range []string{
		`{"LongUrl":"https://example.com/","IsDisabled":false,"CreatedAtUtc":"2024-02-29T12:00:00.1234567Z","CreatedAtUtc@odata.type":"Edm.DateTime"}`,
		`{"odata.metadata":"x","odata.etag":"y","PartitionKey":"on","RowKey":"one","Timestamp":"2024-02-29T12:00:00Z","LongUrl":"u","Clicks":"7","Clicks@odata.type":"Edm.Int64"}`,
		`{"LongUrl":"u","Owner":"a","StatusCode":308,"Title":"t","Tags":"[\"x\"]","Shared":true,"ClaimHash":"h","DeletedAtUtc":"2024-02-29T12:00:00Z","ExpiryETag":"e"}`,
		`{"LongUrl":"u","Password":"h","MaxOpens":3,"OpensLeft":0,"OpenId":"o","ExpiresAtUtc":"2024-02-29T12:00:00Z","ExpiresAtUtcKept":"2024-03-01T12:00:00Z"}`,
		`{"LongUrl":"u","MaxOpens":3,"OpensLeft":-1}`, `{"LongUrl":"u","OpensLeft":1,"OpenId":"o"}`,
		`{"GoneAtUtc":"2024-02-29T12:00:00Z","GoneReason":"deleted"}`,
		`{"GoneAtUtc":"2024-02-29T12:00:00Z","GoneReason":"moved"}`,
		`{"LongUrl":"u","Tags":"a,b","StatusCode":200,"ExpiresAtUtc":"9999-12-31T23:59:59-01:00"}`,
		`{"LongUrl":"u","CreatedAtUtc":"0000-01-01T00:00:00+01:00"}`,
		`{"LongUrl":7}`, `{"LongUrl":"u","LongUrl":"v"}`, `{"LongUrl":"\ud800"}`,
		`{"LongUrl":"u","":null,"Object":{"a":[1]}}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeLink(data, "one", "etag")
		if err != nil {
			return
		}
		again, err := decodeLink(encodeLink(r), "one", "etag")
		if err != nil || !Same(again.Link, r.Link) || again.Changed(r.Link) ||
			again.GoneReason != r.GoneReason || again.Shared != r.Shared ||
			!again.CreatedAt.Equal(r.CreatedAt) || !again.UpdatedAt.Equal(r.UpdatedAt) {
			t.Fatalf("%s: %+v is written and read as %+v, %v", data, r.Link, again.Link, err)
		}
		if again.createID != r.createID || again.editID != r.editID ||
			r.MaxOpens > 0 && again.openID != r.openID ||
			again.expiryETag != r.expiryETag || fmt.Sprint(again.unknown) != fmt.Sprint(r.unknown) {
			t.Fatalf("%s: %+v is written and read as %+v", data, r, again)
		}
	})
}

func TestOwnerRowsSortByAge(t *testing.T) {
	at := time.Date(2026, 9, 1, 3, 15, 0, 0, time.UTC)
	newer, older := link.Link{Name: "newer", CreatedAt: at.Add(time.Second)},
		link.Link{Name: "a-older", CreatedAt: at}
	if n, o := ownerKey(newer), ownerKey(older); n >= o || o != "8211767499|a-older" {
		t.Errorf("%s, %s", n, o)
	}
}

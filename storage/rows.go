package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"tiney/link"
)

const edmDateTime = "Edm.DateTime"

// linkRow is a row of the ShortUrls table, or a link from the cache in front of it.
type linkRow struct {
	link.Link
	etag    azcore.ETag // of the row that was read or written; "" from the cache
	stale   bool        // from the cache and no longer fresh, because storage failed
	retried bool        // its insert was sent more than once, and an earlier try may still arrive
}

// linkEntity is a row of ShortUrls on the wire. Properties that it does not name are ignored on reading and never
// overwritten.
type linkEntity struct {
	PartitionKey  string
	RowKey        string
	LongURL       string     `json:"LongUrl"`
	CreatedAt     *time.Time `json:"CreatedAtUtc,omitempty"`
	CreatedAtType string     `json:"CreatedAtUtc@odata.type,omitempty"`
	ExpiresAt     *time.Time `json:"ExpiresAtUtc,omitempty"`
	ExpiresAtType string     `json:"ExpiresAtUtc@odata.type,omitempty"`
	IsDisabled    bool
	CreatedBy     string `json:",omitempty"`
}

// linkPartition spreads links over 36² partitions and more, by a rule that other programs can compute too.
func linkPartition(a link.Alias) string {
	if len(a) < 2 {
		return "xx"
	}
	return strings.ToLower(string(a[:2]))
}

func encodeLink(l link.Link) []byte {
	e := linkEntity{
		PartitionKey: linkPartition(l.Alias), RowKey: string(l.Alias),
		LongURL: l.LongURL, IsDisabled: l.Disabled, CreatedBy: l.CreatedBy,
	}
	e.CreatedAt, e.CreatedAtType = dateTime(l.CreatedAt)
	e.ExpiresAt, e.ExpiresAtType = dateTime(l.ExpiresAt)
	return encode(e)
}

func decodeLink(data []byte, a link.Alias, etag azcore.ETag) (linkRow, error) {
	var e linkEntity
	if err := json.Unmarshal(data, &e); err != nil || e.LongURL == "" {
		return linkRow{}, fmt.Errorf("link %s: %w", a, link.ErrDamaged)
	}
	return linkRow{etag: etag, Link: link.Link{
		Alias: a, LongURL: e.LongURL, CreatedAt: orZero(e.CreatedAt), ExpiresAt: orZero(e.ExpiresAt),
		Disabled: e.IsDisabled, CreatedBy: e.CreatedBy,
	}}, nil
}

// indexEntity is a row of UrlIndex on the wire: it leads from a long URL to its one live link.
type indexEntity struct {
	PartitionKey  string
	RowKey        string
	Alias         string
	LongURL       string     `json:"LongUrl"`
	ExpiresAt     *time.Time `json:"ExpiresAtUtc,omitempty"`
	ExpiresAtType string     `json:"ExpiresAtUtc@odata.type,omitempty"`
}

func indexKey(longURL string) (partition, key string) {
	sum := sha256.Sum256([]byte(longURL))
	key = hex.EncodeToString(sum[:])
	return key[:8], key
}

func encodeIndex(l link.Link) []byte {
	e := indexEntity{Alias: string(l.Alias), LongURL: l.LongURL}
	e.PartitionKey, e.RowKey = indexKey(l.LongURL)
	e.ExpiresAt, e.ExpiresAtType = dateTime(l.ExpiresAt)
	return encode(e)
}

// expiryEntity is a row of ShortUrlsExpiryIndex on the wire: it leads the reaper to an expired link.
type expiryEntity struct {
	PartitionKey      string
	RowKey            string
	AliasPartitionKey string
	AliasRowKey       string
	ExpiresAt         *time.Time  `json:"ExpiresAtUtc,omitempty"`
	ExpiresAtType     string      `json:"ExpiresAtUtc@odata.type,omitempty"`
	ETag              azcore.ETag `json:"odata.etag,omitempty"` // in listings only
}

// Expiry rows sort by time: a partition is a day, and within it "HHmmss|alias".
const (
	expiryDay    = "20060102"
	expirySecond = "150405"
	// afterBar sorts right after every "HHmmss|alias" of its second.
	afterBar = "}"
)

func expiryKey(l link.Link) (partition, key string) {
	at := l.ExpiresAt.UTC()
	return at.Format(expiryDay), at.Format(expirySecond) + "|" + string(l.Alias)
}

func encodeExpiry(l link.Link) []byte {
	e := expiryEntity{AliasPartitionKey: linkPartition(l.Alias), AliasRowKey: string(l.Alias)}
	e.PartitionKey, e.RowKey = expiryKey(l)
	e.ExpiresAt, e.ExpiresAtType = dateTime(l.ExpiresAt)
	return encode(e)
}

// dateTime returns a time and its type for the wire, and neither for the zero time.
func dateTime(t time.Time) (*time.Time, string) {
	if t.IsZero() {
		return nil, ""
	}
	t = t.UTC()
	return &t, edmDateTime
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func encode(entity any) []byte {
	data, err := json.Marshal(entity)
	if err != nil {
		panic(err) // strings, booleans and times always encode, but for years past 9999, which the settings exclude
	}
	return data
}

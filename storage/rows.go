package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/clicks"
	"tiney/link"
)

const edmDateTime = "Edm.DateTime"

// linkRow is a row of the ShortUrls table, or a link from the cache in front of it.
type linkRow struct {
	link.Link
	etag       azcore.ETag    // of the row that was read or written; "" from the cache, unless the link may still become shared
	expiryETag azcore.ETag    // of the expiry row for ExpiresAt; "" if only the reaper may delete that
	createID   string         // tells apart those who make a link under one alias
	editID     string         // tells apart those who change a link
	unknown    jsontext.Value // the properties of other programs
	cached     bool           // from the cache
	unsettled  bool           // from the cache, and it was unsettled when it was read
	retried    bool           // its write was sent more than once, and an earlier try may still arrive
}

// linkEntity is a row of ShortUrls on the wire, of a link or of a tombstone.
type linkEntity struct {
	PartitionKey  string
	RowKey        string
	LongURL       string      `json:"LongUrl,omitzero"`
	CreatedAt     time.Time   `json:"CreatedAtUtc,omitzero"`
	CreatedAtType string      `json:"CreatedAtUtc@odata.type,omitzero"`
	ExpiresAt     time.Time   `json:"ExpiresAtUtc,omitzero"`
	ExpiresAtType string      `json:"ExpiresAtUtc@odata.type,omitzero"`
	IsDisabled    *bool       `json:",omitzero"` // a tombstone has none
	Owner         string      `json:",omitzero"`
	StatusCode    int         `json:",omitzero"`
	Title         string      `json:",omitzero"`
	Tags          string      `json:",omitzero"` // a JSON list
	Shared        bool        `json:",omitzero"`
	ClaimHash     string      `json:",omitzero"`
	UpdatedAt     time.Time   `json:"UpdatedAtUtc,omitzero"`
	UpdatedAtType string      `json:"UpdatedAtUtc@odata.type,omitzero"`
	DeletedAt     time.Time   `json:"DeletedAtUtc,omitzero"`
	DeletedAtType string      `json:"DeletedAtUtc@odata.type,omitzero"`
	CountedFrom   string      `json:",omitzero"` // "20060102"
	CreateID      string      `json:"CreateId,omitzero"`
	EditID        string      `json:"EditId,omitzero"`
	ExpiryETag    azcore.ETag `json:",omitzero"`
	GoneAt        time.Time   `json:"GoneAtUtc,omitzero"`
	GoneAtType    string      `json:"GoneAtUtc@odata.type,omitzero"`
	GoneReason    link.State  `json:",omitzero"`
	ClicksBefore  int64       `json:",string,omitzero"`
	ClicksType    string      `json:"ClicksBefore@odata.type,omitzero"`
	BotsBefore    int64       `json:",string,omitzero"`
	BotsType      string      `json:"BotsBefore@odata.type,omitzero"`
	LastAt        time.Time   `json:"LastClickBeforeUtc,omitzero"`
	LastAtType    string      `json:"LastClickBeforeUtc@odata.type,omitzero"`

	// What storage says about the row, and what other programs keep in it. An edit writes the latter back as it was.
	Metadata      string         `json:"odata.metadata,omitzero"`
	ETag          string         `json:"odata.etag,omitzero"`
	Timestamp     string         `json:",omitzero"`
	TimestampType string         `json:"Timestamp@odata.type,omitzero"`
	Unknown       jsontext.Value `json:",embed"`
}

// linkPartition spreads links over 36² partitions and more, by a rule that other programs can compute too.
func linkPartition(a link.Alias) string {
	if len(a) < 2 {
		return "xx"
	}
	return strings.ToLower(string(a[:2]))
}

func encodeLink(r linkRow) []byte {
	e := linkEntity{
		PartitionKey: linkPartition(r.Alias), RowKey: string(r.Alias),
		LongURL: r.LongURL, Shared: r.Shared, Owner: r.Owner, Title: r.Title, ClaimHash: r.ClaimHash,
		CreateID: r.createID, EditID: r.editID, ExpiryETag: r.expiryETag, Unknown: r.unknown, GoneReason: r.GoneReason,
	}
	if r.GoneReason == link.StateLive {
		e.IsDisabled = &r.Disabled
	}
	if r.StatusCode != link.DefaultStatusCode {
		e.StatusCode = r.StatusCode
	}
	if len(r.Tags) > 0 {
		e.Tags = string(encode(r.Tags))
	}
	if !r.CountedFrom.IsZero() {
		e.CountedFrom = clicks.DayOf(r.CountedFrom).String()
	}
	e.CreatedAt, e.CreatedAtType = dateTime(r.CreatedAt)
	e.ExpiresAt, e.ExpiresAtType = dateTime(r.ExpiresAt)
	e.UpdatedAt, e.UpdatedAtType = dateTime(r.UpdatedAt)
	e.DeletedAt, e.DeletedAtType = dateTime(r.DeletedAt)
	e.GoneAt, e.GoneAtType = dateTime(r.GoneAt)
	if r.Before.Clicks != 0 {
		e.ClicksBefore, e.ClicksType = r.Before.Clicks, edmInt64
	}
	if r.Before.Bots != 0 {
		e.BotsBefore, e.BotsType = r.Before.Bots, edmInt64
	}
	e.LastAt, e.LastAtType = dateTime(r.Before.LastAt)
	return encode(e)
}

func decodeLink(data []byte, a link.Alias, etag azcore.ETag) (linkRow, error) {
	var e linkEntity
	// Half of an emoji, in what another program keeps there, does not make the link a damaged one.
	err := json.Unmarshal(data, &e, jsontext.AllowInvalidUTF8(true))
	if err != nil || e.LongURL == "" && e.GoneAt.IsZero() {
		return linkRow{}, fmt.Errorf("link %s: %w", a, link.ErrDamaged)
	}
	for _, at := range []time.Time{e.CreatedAt, e.ExpiresAt, e.UpdatedAt, e.DeletedAt, e.GoneAt, e.LastAt} {
		if year := at.UTC().Year(); year < 0 || year > 9999 { // by its offset; it could not be written again
			return linkRow{}, fmt.Errorf("link %s: %w", a, link.ErrDamaged)
		}
	}
	l := link.Link{Alias: a, Version: string(etag)}
	if e.LongURL == "" {
		l.GoneAt, l.GoneReason = e.GoneAt.UTC(), link.StateExpired
		if e.GoneReason == link.StateDeleted {
			l.GoneReason = link.StateDeleted
		}
		return linkRow{Link: l, etag: etag}, nil
	}
	l.LongURL, l.CreatedAt, l.ExpiresAt, l.StatusCode = e.LongURL, e.CreatedAt.UTC(), e.ExpiresAt.UTC(), e.StatusCode
	l.Disabled, l.Shared, l.Owner, l.DeletedAt = e.IsDisabled != nil && *e.IsDisabled, e.Shared, e.Owner, e.DeletedAt.UTC()
	l.UpdatedAt, l.Title, l.ClaimHash = e.UpdatedAt.UTC(), e.Title, e.ClaimHash
	l.Before = link.Count{Clicks: e.ClicksBefore, Bots: e.BotsBefore, LastAt: e.LastAt.UTC()}
	if !link.ValidStatusCode(l.StatusCode) {
		l.StatusCode = link.DefaultStatusCode
	}
	if day, ok := clicks.ParseDay(e.CountedFrom); ok {
		l.CountedFrom = day.Start()
	}
	_ = json.Unmarshal([]byte(e.Tags), &l.Tags) // another program may keep its own there
	return linkRow{Link: l, etag: etag, expiryETag: e.ExpiryETag, createID: e.CreateID, editID: e.EditID, unknown: e.Unknown}, nil
}

// indexEntity is a row of UrlIndex on the wire: it leads from a long URL to its one live link.
type indexEntity struct {
	PartitionKey  string
	RowKey        string
	Alias         string
	LongURL       string    `json:"LongUrl"`
	ExpiresAt     time.Time `json:"ExpiresAtUtc,omitzero"`
	ExpiresAtType string    `json:"ExpiresAtUtc@odata.type,omitzero"`
}

// indexKey returns the key of a link in the index: that of its long URL, for each owner apart.
func indexKey(l link.Link) string {
	named := l.LongURL
	if l.Owner != "" {
		named = l.Owner + "\n" + l.LongURL
	}
	sum := sha256.Sum256([]byte(named))
	return hex.EncodeToString(sum[:])
}

func encodeIndex(l link.Link) []byte {
	key := indexKey(l)
	e := indexEntity{PartitionKey: indexPartition(key), RowKey: key, Alias: string(l.Alias), LongURL: l.LongURL}
	e.ExpiresAt, e.ExpiresAtType = dateTime(l.ExpiresAt)
	return encode(e)
}

func indexPartition(key string) string { return key[:8] }

// ownerEntity is a row of ShortUrlsByOwner on the wire: it lists a link among those of its owner.
type ownerEntity struct {
	PartitionKey string
	RowKey       string
	CreateID     string `json:"CreateId"`
}

// ownerPartition returns the partition of an owner's rows, in a form that keys may have.
func ownerPartition(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:16])
}

// ownerKey sorts an owner's links, the newest first.
func ownerKey(l link.Link) string {
	return fmt.Sprintf("%010d|%s", 9999999999-l.CreatedAt.Unix(), l.Alias)
}

// expiryEntity is a row of ShortUrlsExpiryIndex on the wire: it leads the reaper to an expired link.
type expiryEntity struct {
	PartitionKey      string
	RowKey            string
	AliasPartitionKey string
	AliasRowKey       string
	ExpiresAt         time.Time   `json:"ExpiresAtUtc,omitzero"`
	ExpiresAtType     string      `json:"ExpiresAtUtc@odata.type,omitzero"`
	CreateID          string      `json:"CreateId,omitzero"`
	OldIndexKey       string      `json:",omitzero"` // of a guard: the keys of the index between which the link moves
	NewIndexKey       string      `json:",omitzero"`
	Again             bool        `json:",omitzero"`           // its link was found to be renewed, and is looked at once more
	ETag              azcore.ETag `json:"odata.etag,omitzero"` // in listings only
}

// Expiry rows sort by time: a partition is a day, and within it "HHmmss|alias".
const (
	expiryDay    = "20060102"
	expirySecond = "150405"
	// afterBar sorts right after every "HHmmss|alias" of its second.
	afterBar = "}"
)

func expiryKey(at time.Time, a link.Alias) (partition, key string) {
	at = at.UTC()
	return at.Format(expiryDay), at.Format(expirySecond) + "|" + string(a)
}

// newExpiry returns the row that makes the reaper look at a link at the given time.
func newExpiry(at time.Time, a link.Alias) expiryEntity {
	e := expiryEntity{AliasPartitionKey: linkPartition(a), AliasRowKey: string(a)}
	e.PartitionKey, e.RowKey = expiryKey(at, a)
	e.ExpiresAt, e.ExpiresAtType = dateTime(at)
	return e
}

// dateTime returns a time and its type for the wire.
func dateTime(t time.Time) (time.Time, string) {
	if t.IsZero() {
		return time.Time{}, ""
	}
	return t.UTC(), edmDateTime
}

func encode(entity any) []byte {
	data, err := json.Marshal(entity, jsontext.AllowInvalidUTF8(true)) // of other programs
	if err != nil {
		panic(err) // strings, booleans and times always encode, but for years past 9999, which the rules exclude
	}
	return data
}

package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage/table"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/go-json-experiment/json"
)

// linkRow is a row of the ShortUrls table, or a link from the cache in front of that table.
type linkRow struct {
	link.Link
	etag table.ETag // of the row that was read or written; "" for a link from the cache
	// of the expiry row for ExpiresAt; "" if only the reaper may delete that row
	expiryETag table.ETag
	createID   string         // distinguishes the creates of one alias
	editID     string         // distinguishes the edits of a link
	openID     string         // of the last opening of a link with MaxOpens
	unknown    jsontext.Value // properties that other programs have added
	cached     bool           // from the cache
	absent     bool           // for the cache: see entry
}

// linkEntity is a row of ShortUrls on the wire: a link or a tombstone.
type linkEntity struct {
	PartitionKey  string
	RowKey        string
	LongURL       string     `json:"LongUrl,omitzero"`
	CreatedAt     time.Time  `json:"CreatedAtUtc,omitzero"`
	CreatedAtType string     `json:"CreatedAtUtc@odata.type,omitzero"`
	ExpiresAt     time.Time  `json:"ExpiresAtUtc,omitzero"`
	ExpiresAtType string     `json:"ExpiresAtUtc@odata.type,omitzero"`
	StartsAt      time.Time  `json:"StartsAtUtc,omitzero"`
	StartsAtType  string     `json:"StartsAtUtc@odata.type,omitzero"`
	GoneURL       string     `json:"GoneUrl,omitzero"`
	IsDisabled    *bool      `json:",omitzero"` // a tombstone has none
	Owner         string     `json:",omitzero"`
	StatusCode    int        `json:",omitzero"`
	Spelling      link.Alias `json:",omitzero"`
	Forward       string     `json:",omitzero"` // a JSON list
	Rules         string     `json:",omitzero"` // a JSON list
	Password      string     `json:",omitzero"` // a hash
	MaxOpens      int        `json:",omitzero"`
	linkOpenings
	Title         string     `json:",omitzero"`
	Tags          string     `json:",omitzero"` // a JSON list
	Shared        bool       `json:",omitzero"`
	ClaimHash     string     `json:",omitzero"`
	UpdatedAt     time.Time  `json:"UpdatedAtUtc,omitzero"`
	UpdatedAtType string     `json:"UpdatedAtUtc@odata.type,omitzero"`
	DeletedAt     time.Time  `json:"DeletedAtUtc,omitzero"`
	DeletedAtType string     `json:"DeletedAtUtc@odata.type,omitzero"`
	CountedFrom   string     `json:",omitzero"` // "20060102"
	CreateID      string     `json:"CreateId,omitzero"`
	EditID        string     `json:"EditId,omitzero"`
	ExpiryETag    table.ETag `json:",omitzero"`
	Locked        bool       `json:",omitzero"`
	History       string     `json:",omitzero"` // a JSON list; only history and edits read it
	GoneAt        time.Time  `json:"GoneAtUtc,omitzero"`
	GoneAtType    string     `json:"GoneAtUtc@odata.type,omitzero"`
	GoneReason    link.State `json:",omitzero"`
	ClicksBefore  int64      `json:",string,omitzero"`
	ClicksType    string     `json:"ClicksBefore@odata.type,omitzero"`
	BotsBefore    int64      `json:",string,omitzero"`
	BotsType      string     `json:"BotsBefore@odata.type,omitzero"`
	LastAt        time.Time  `json:"LastClickBeforeUtc,omitzero"`
	LastAtType    string     `json:"LastClickBeforeUtc@odata.type,omitzero"`

	// What storage says about the row, and the properties that other programs keep in it. An edit
	// writes the latter back unchanged.
	Metadata      string         `json:"odata.metadata,omitzero"`
	ETag          string         `json:"odata.etag,omitzero"`
	Timestamp     string         `json:",omitzero"`
	TimestampType string         `json:"Timestamp@odata.type,omitzero"`
	Unknown       jsontext.Value `json:",embed"`
}

// linkOpenings is what an opening merges into the row of a link with MaxOpens. The end is that of
// the last one.
type linkOpenings struct {
	OpensLeft   *int      `json:",omitzero"` // 0 has to be written, too
	OpenID      string    `json:"OpenId,omitzero"`
	EndKept     time.Time `json:"ExpiresAtUtcKept,omitzero"`
	EndKeptType string    `json:"ExpiresAtUtcKept@odata.type,omitzero"`
}

func openingsOf(r linkRow) (o linkOpenings) {
	if r.MaxOpens > 0 {
		o.OpensLeft, o.OpenID = &r.OpensLeft, r.openID
		o.EndKept, o.EndKeptType = table.DateTime(r.EndKept)
	}
	return o
}

// linkPartition returns the partition of a link, which goes by its alias, in every domain. It
// spreads links over 36² partitions and more, by a rule that other programs can compute too.
func linkPartition(name link.Name) string {
	a := name.Alias()
	if len(a) < 2 {
		return "xx"
	}
	return strings.ToLower(string(a[:2]))
}

func encodeLink(r linkRow) []byte {
	e := linkEntity{
		PartitionKey: linkPartition(r.Name), RowKey: string(r.Name),
		LongURL: r.LongURL, Shared: r.Shared, Owner: r.Owner, Title: r.Title,
		ClaimHash: r.ClaimHash, Spelling: r.Spelling, GoneURL: string(r.GoneURL),
		Locked: r.Locked, History: r.History.JSON(),
		CreateID: r.createID, EditID: r.editID, ExpiryETag: r.expiryETag, Unknown: r.unknown,
		GoneReason: r.GoneReason, Rules: link.EncodeTargetRules(r.Rules),
		Password: r.Password, MaxOpens: r.MaxOpens, linkOpenings: openingsOf(r),
	}
	if r.GoneReason == link.StateLive {
		e.IsDisabled = &r.Disabled
	}
	if r.StatusCode != link.DefaultStatusCode {
		e.StatusCode = r.StatusCode
	}
	if len(r.Tags) > 0 {
		e.Tags = string(table.Encode(r.Tags))
	}
	if r.Forward != 0 {
		e.Forward = string(table.Encode(r.Forward.Names()))
	}
	if !r.CountedFrom.IsZero() {
		e.CountedFrom = clicks.DayOf(r.CountedFrom).String()
	}
	e.CreatedAt, e.CreatedAtType = table.DateTime(r.CreatedAt)
	e.ExpiresAt, e.ExpiresAtType = table.DateTime(r.ExpiresAt)
	e.StartsAt, e.StartsAtType = table.DateTime(r.StartsAt)
	e.UpdatedAt, e.UpdatedAtType = table.DateTime(r.UpdatedAt)
	e.DeletedAt, e.DeletedAtType = table.DateTime(r.DeletedAt)
	e.GoneAt, e.GoneAtType = table.DateTime(r.GoneAt)
	if r.Before.Clicks != 0 {
		e.ClicksBefore, e.ClicksType = r.Before.Clicks, table.EdmInt64
	}
	if r.Before.Bots != 0 {
		e.BotsBefore, e.BotsType = r.Before.Bots, table.EdmInt64
	}
	e.LastAt, e.LastAtType = table.DateTime(r.Before.LastAt)
	return table.Encode(e)
}

func decodeLink(data []byte, a link.Name, etag table.ETag) (linkRow, error) {
	var e linkEntity
	// Another program may keep half of an emoji in its properties. That does not make the link
	// damaged.
	err := json.Unmarshal(data, &e, jsontext.AllowInvalidUTF8(true))
	if err != nil || e.LongURL == "" && e.GoneAt.IsZero() {
		return linkRow{}, fmt.Errorf("link %s: %w", a, link.ErrDamaged)
	}
	for _, at := range []time.Time{e.CreatedAt, e.ExpiresAt, e.StartsAt, e.UpdatedAt, e.DeletedAt,
		e.GoneAt, e.LastAt, e.EndKept} {
		// an offset may move a time into another year; such a time could not be written again
		if year := at.UTC().Year(); year < 0 || year > 9999 {
			return linkRow{}, fmt.Errorf("link %s: %w", a, link.ErrDamaged)
		}
	}
	l := link.Link{Name: a, Version: string(etag)}
	if link.HostOf(e.GoneURL) != "" { // another program may keep something else in it
		l.GoneURL = link.Fallback(e.GoneURL)
	}
	if e.LongURL == "" {
		l.GoneAt, l.GoneReason = e.GoneAt.UTC(), link.StateExpired
		if e.GoneReason == link.StateDeleted {
			l.GoneReason = link.StateDeleted
		}
		return linkRow{Link: l, etag: etag}, nil
	}
	l.LongURL, l.CreatedAt, l.ExpiresAt, l.StartsAt, l.StatusCode = e.LongURL, e.CreatedAt.UTC(),
		e.ExpiresAt.UTC(), e.StartsAt.UTC(), e.StatusCode
	l.Disabled, l.Shared, l.Owner, l.DeletedAt = e.IsDisabled != nil && *e.IsDisabled, e.Shared,
		e.Owner, e.DeletedAt.UTC()
	l.UpdatedAt, l.Title, l.ClaimHash = e.UpdatedAt.UTC(), e.Title, e.ClaimHash
	// Before there was Locked, only admins disabled links without an owner.
	l.Locked = e.Locked || l.Owner == "" && l.Disabled
	l.History, l.Rules = link.ParseHistory(e.History), link.ParseTargetRules(e.Rules)
	l.Before = link.Count{Clicks: e.ClicksBefore, Bots: e.BotsBefore, LastAt: e.LastAt.UTC()}
	if !link.ValidStatusCode(l.StatusCode) {
		l.StatusCode = link.DefaultStatusCode
	}
	if day, ok := clicks.ParseDay(e.CountedFrom); ok {
		l.CountedFrom = day.Start()
	}
	// Another program may keep something else in these.
	_ = json.Unmarshal([]byte(e.Tags), &l.Tags)
	var forward []string
	_ = json.Unmarshal([]byte(e.Forward), &forward)
	l.Forward, _ = link.ParseForward(forward)
	if s, ok := link.ParseAlias(string(e.Spelling)); ok && s.Lower() == a.Alias() &&
		s != a.Alias() {
		l.Spelling = s
	}
	l.Password = e.Password
	if e.MaxOpens > 0 {
		l.MaxOpens, l.OpensLeft, l.EndKept = e.MaxOpens, e.MaxOpens, e.EndKept.UTC()
		if e.OpensLeft != nil {
			l.OpensLeft = max(0, *e.OpensLeft)
		}
	}
	r := linkRow{Link: l, expiryETag: e.ExpiryETag, createID: e.CreateID, editID: e.EditID,
		openID: e.OpenID, unknown: e.Unknown}
	return r.versioned(etag), nil
}

// linkTable is the ShortUrls table.
type linkTable struct{ rows *table.Store }

// linkProperties are the properties of a link's row, without its history, which may be longer than
// all others together, and without those of other programs.
var linkProperties = sync.OnceValue(func() (names []string) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[linkEntity]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name = cmp.Or(name, field.Name); !field.Anonymous && !strings.Contains(name, "odata") &&
			name != "History" && name != "Unknown" {
			names = append(names, name)
		}
	}
	return names
})

// get reads the row of an alias, which is a link or a tombstone, without its history. Errors:
// link.ErrNotFound, link.ErrDamaged. Any other error says nothing about the link.
func (t *linkTable) get(ctx context.Context, a link.Name) (linkRow, error) {
	return t.getOnly(ctx, a, linkProperties()...)
}

// whole reads the row of an alias with its history and with what other programs keep in it. Only
// such a row may be written again.
func (t *linkTable) whole(ctx context.Context, a link.Name) (linkRow, error) {
	return t.getOnly(ctx, a)
}

func (t *linkTable) getOnly(ctx context.Context, a link.Name, properties ...string) (linkRow,
	error) {
	data, etag, err := t.rows.Get(ctx, linkPartition(a), string(a), properties...)
	if errors.Is(err, table.ErrGone) {
		return linkRow{}, link.ErrNotFound
	}
	if err != nil {
		return linkRow{}, err
	}
	return decodeLink(data, a, etag)
}

// decided reports whether the error of a get says something about the link.
func decided(err error) bool {
	return errors.Is(err, link.ErrNotFound) || errors.Is(err, link.ErrDamaged)
}

// versioned returns the row in a version. Openings are no other version of a link with MaxOpens.
func (r linkRow) versioned(etag table.ETag) linkRow {
	r.etag, r.Version = etag, string(etag)
	if r.MaxOpens > 0 && etag != "" {
		r.Version = cmp.Or(r.editID, r.createID, r.Version)
	}
	return r
}

// insert makes the link durable before it returns. again: an earlier try may still arrive.
// table.ErrExists: another link has the alias. After any other error the link may or may not be
// there.
func (t *linkTable) insert(ctx context.Context, r linkRow) (_ linkRow, again bool, err error) {
	w, err := t.rows.InsertOnce(ctx, encodeLink(r), linkPartition(r.Name), string(r.Name),
		r.createID)
	return r.versioned(w.ETag), w.Again, err
}

// replace writes next over the row that was read, if that row is unchanged. table.ErrChanged: the
// row was changed; if again is true, perhaps by an earlier try and by others after it.
func (t *linkTable) replace(ctx context.Context, read table.ETag, next linkRow) (_ linkRow,
	again bool, err error) {
	w, err := t.rows.Put(ctx, encodeLink(next), read)
	if errors.Is(err, table.ErrChanged) && w.Again {
		there, readErr := t.get(ctx, next.Name)
		switch {
		case readErr == nil && (there.editID == next.editID && next.editID != "" ||
			there.GoneReason != "" && next.GoneReason != ""):
			return there, true, nil // an earlier try was applied, and its response was lost
		case readErr != nil && !decided(readErr):
			return linkRow{}, true, readErr
		}
	}
	return next.versioned(w.ETag), w.Again, err
}

// share sets Shared in the row that was read, if that row is unchanged. table.ErrChanged: the row
// was changed, or an earlier try has done this already.
func (t *linkTable) share(ctx context.Context, r linkRow) (linkRow, error) {
	entity := table.Encode(linkEntity{PartitionKey: linkPartition(r.Name), RowKey: string(r.Name),
		Shared: true})
	w, err := t.rows.Write(ctx, table.Merge, entity, r.etag)
	r.Shared = true
	return r.versioned(w.ETag), err
}

// open merges an opening into the row that was read, if that row is unchanged. table.ErrChanged:
// the row was changed; if again is true, perhaps by an earlier try and by others after it.
func (t *linkTable) open(ctx context.Context, read table.ETag, next linkRow) (again bool,
	err error) {
	entity := linkEntity{PartitionKey: linkPartition(next.Name), RowKey: string(next.Name),
		linkOpenings: openingsOf(next)}
	if next.UsedUp() {
		entity.ExpiresAt, entity.ExpiresAtType = table.DateTime(next.ExpiresAt)
	}
	w, err := t.rows.Write(ctx, table.Merge, table.Encode(entity), read)
	return w.Again, err
}

func (t *linkTable) delete(ctx context.Context, r linkRow) error {
	return t.rows.Delete(ctx,
		table.Key{Partition: linkPartition(r.Name), Row: string(r.Name), ETag: r.etag})
}

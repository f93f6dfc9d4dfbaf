package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	// keyFresh is how long a key is served after it was read, whether storage responds or not. No
	// longer, since a revoked key must not live on in an outage.
	keyFresh = time.Minute
	// keysCached is how many keys are cached at most. Unknown keys are not cached, so that
	// strangers cannot push out the others.
	keysCached = 1000
	// keyUseRetry is the time between two attempts to save the day of a key's last use.
	keyUseRetry = time.Minute

	keyIDLength = 16
	hashLength  = 64
)

// Keys keeps API keys in a table, and caches those in use. Its methods may be called concurrently,
// and other processes may work on the same table at the same time.
//
// A key is one row, by its hash, and all rows are in one partition. A list scans it, so an owner
// sees every key that works.
type Keys struct {
	rows    *table.Store
	config  *Config
	changes *changes
	warned  atomic.Bool // that the day of a key's last use was not saved

	mu     sync.Mutex
	cached map[string]*cachedKey // by hash
	// how often a key was forgotten; a key that was being read meanwhile is not cached
	forgotten int
}

type cachedKey struct {
	access.Key
	// in Unix nanoseconds
	readAt int64
	usedAt int64 // when saving the day of its last use was last attempted; zero: it is saved
}

func newKeys(config *Config, rows *table.Store, changes *changes) *Keys {
	k := &Keys{config: config, rows: rows, changes: changes, cached: map[string]*cachedKey{}}
	changes.subscribe(subscriber{prefix: keyChange, forget: k.forget, doubt: k.doubt,
		end: k.dropRevoked})
	return k
}

// Key returns the key with this hash, expired or not, as it was in the table within the last
// minute. The day of its last use is saved in the background. In a context of access.WithoutLookup,
// only a cached key is available. Errors: access.ErrUnknownKey, link.ErrUnavailable.
func (k *Keys) Key(ctx context.Context, hash string) (access.Key, error) {
	current := k.changes.current(ctx, k.config.Now())
	key, cached := k.lookUp(ctx, hash)
	if cached && current {
		return key, nil
	}
	if !access.LookupAllowed(ctx) {
		return access.Key{}, fmt.Errorf("the key is not cached: %w", link.ErrUnavailable)
	}
	limit := k.config.Timeout
	if cached {
		limit = k.config.StaleWait
	}
	reading, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	key, err := k.read(reading, hash)
	if err == nil || errors.Is(err, access.ErrUnknownKey) {
		return key, err
	}
	// In an outage the keys in use work on for a while, unless they were found to be revoked.
	if key, cached := k.lookUp(ctx, hash); cached {
		return key, nil
	}
	return access.Key{}, err
}

// lookUp returns a key from the cache.
func (k *Keys) lookUp(ctx context.Context, hash string) (key access.Key, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.cached[hash]
	if c == nil {
		return access.Key{}, false
	}
	now := k.config.Now()
	if age := now.UnixNano() - c.readAt; age < 0 || age >= int64(keyFresh) {
		return access.Key{}, false
	}
	k.used(ctx, c, now)
	return c.Key, true
}

// read reads a key from the table and caches it, unless it was forgotten meanwhile.
func (k *Keys) read(ctx context.Context, hash string) (access.Key, error) {
	k.mu.Lock()
	forgotten := k.forgotten
	k.mu.Unlock()
	now := k.config.Now()
	data, _, err := k.rows.Get(ctx, keysPartition, hash)
	if err != nil && !errors.Is(err, table.ErrGone) {
		return access.Key{}, err
	}
	key, revoked := decodeKey(data, hash)
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.cached[hash]
	if err != nil || !revoked.IsZero() {
		delete(k.cached, hash)
		return access.Key{}, access.ErrUnknownKey
	}
	c := &cachedKey{Key: key, readAt: now.UnixNano()}
	if k.forgotten != forgotten {
		return c.Key, nil
	}
	if old != nil {
		c.usedAt = old.usedAt
	} else if len(k.cached) >= keysCached {
		for other := range k.cached { // whichever comes first
			delete(k.cached, other)
			break
		}
	}
	k.cached[hash] = c
	k.used(ctx, c, now)
	return c.Key, nil
}

// used saves the day of a key's use in the background, unless it is saved. The caller holds k.mu.
func (k *Keys) used(ctx context.Context, c *cachedKey, now time.Time) {
	day := now.UTC().Format(time.DateOnly)
	if c.LastUsedOn < day && !c.Expired(now) && now.UnixNano()-c.usedAt >= int64(keyUseRetry) {
		c.usedAt = now.UnixNano()
		go k.saveUse(context.WithoutCancel(ctx), c.Hash, day)
	}
}

func (k *Keys) saveUse(ctx context.Context, hash, day string) {
	ctx, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	err := concurrent.Safely(func() error {
		// Not an upsert, which would bring back a key that was revoked meanwhile.
		row := table.Encode(map[string]string{"PartitionKey": keysPartition, "RowKey": hash,
			"LastUsedOn": day})
		_, err := k.rows.Write(ctx, table.Merge, row, table.Any)
		return err
	})
	if err != nil && !errors.Is(err, table.ErrChanged) {
		if !k.warned.Swap(true) { // once per outage
			k.config.Log.Warn(telemetry.LogKeyUseNotSaved, "error", err)
		}
		return
	}
	k.warned.Store(false)
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.cached[hash]; c != nil {
		c.LastUsedOn, c.usedAt = max(c.LastUsedOn, day), 0
	}
}

// forget evicts a key from the cache, and keeps one that is being read from being cached.
func (k *Keys) forget(hash string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgotten++
	delete(k.cached, hash)
}

// doubt evicts all keys. One may have been read while polls failed, between the announcement that
// it is revoked, which the next poll may not read any more, and the revocation.
func (k *Keys) doubt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgotten++
	clear(k.cached)
}

// Create adds a key, unless its owner already has access.MaxKeys that have not expired. When it
// returns no error, the key is durable. After an error the key may exist all the same, and the
// caller repeats it with a new key. The end of ctx does not cut it short. Errors:
// access.ErrTooManyKeys, link.ErrUnavailable.
//
// Concurrent creates may make fewer keys than allowed, but not more.
func (k *Keys) Create(ctx context.Context, key access.Key) error {
	d, ctx, cancel := k.config.startWrite(ctx)
	defer cancel()
	// An owner who has enough keys is refused here, before a crash could leave one more.
	if err := k.permit(ctx, key.Owner, access.MaxKeys-1); err != nil {
		return err
	}
	if err := d.inTime(); err != nil {
		return err
	}
	r, err := k.rows.Write(ctx, table.Insert, encodeKey(key), "")
	if err != nil && !(r.Again && errors.Is(err, table.ErrExists)) { // an earlier try was applied
		return err
	}
	// Other creates may have inserted keys since the first count. Whichever key comes last, its
	// create counts all of them now. A crash before that leaves a key whose secret nobody knows.
	// The key counts, its owner sees and may revoke it, and it may be one more than allowed.
	if err := k.permit(ctx, key.Owner, access.MaxKeys); err != nil {
		// If this fails, too, it leaves what a crash leaves.
		_ = k.revoke(ctx, d, key.Hash)
		return err
	}
	return nil
}

// permit returns access.ErrTooManyKeys if more than most keys of an owner have not expired.
func (k *Keys) permit(ctx context.Context, owner string, most int) error {
	keys, err := k.in(ctx, table.Range{Partition: keysPartition})
	if err != nil {
		return err
	}
	now, count := k.config.Now(), 0
	for _, key := range keys {
		if key.Owner == owner && !key.Expired(now) {
			count++
		}
	}
	if count > most {
		return access.ErrTooManyKeys
	}
	return nil
}

// List returns the keys of these owners, or of all owners if owners is nil, the newest first. It
// reads all rows, 1,000 with each call. Errors: link.ErrUnavailable.
func (k *Keys) List(ctx context.Context, owners []string) ([]access.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	keys, err := k.in(ctx, table.Range{Partition: keysPartition})
	if err != nil {
		return nil, err
	}
	if owners != nil {
		keys = slices.DeleteFunc(keys, func(key access.Key) bool {
			return !slices.Contains(owners, key.Owner)
		})
	}
	// A sort that is compiled for keys would make the executable 28 KB larger.
	sort.Slice(keys, func(i, j int) bool {
		a, b := keys[i], keys[j]
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Hash, b.Hash)) < 0
	})
	return keys, nil
}

// in returns the keys of a range of rows, without revoked keys and other programs' rows.
func (k *Keys) in(ctx context.Context, r table.Range) (keys []access.Key, err error) {
	rows, err := k.rows.First(ctx, r, math.MaxInt)
	for _, r := range rows {
		key, revokedAt := decodeKey(r.Data, r.Row)
		if len(r.Row) == hashLength && revokedAt.IsZero() {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// Revoke revokes the key with this id if it belongs to one of owners; nil stands for all owners.
// When it returns no error, this process refuses the key from now on, and every other one within 15
// seconds. The end of ctx does not cut it short.
//
// After an error it is safe to repeat. If the key was revoked all the same, the repetition returns
// access.ErrUnknownKey. Errors: access.ErrUnknownKey, link.ErrForbidden, link.ErrUnavailable.
func (k *Keys) Revoke(ctx context.Context, id string, owners []string) error {
	if len(id) != keyIDLength || strings.Trim(id, "0123456789abcdef") != "" {
		return access.ErrUnknownKey
	}
	d, ctx, cancel := k.config.startWrite(ctx)
	defer cancel()
	// "g" comes after every hex digit with which the hash goes on.
	keys, err := k.in(ctx, table.Range{Partition: keysPartition, From: id, Before: id + "g"})
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return access.ErrUnknownKey
	}
	if owners != nil && !slices.Contains(owners, keys[0].Owner) {
		return link.ErrForbidden
	}
	return k.revoke(ctx, d, keys[0].Hash)
}

// revoke announces that a key is revoked, and replaces its row by one that keeps its place, since a
// try of its insert may still arrive: it must find a row there. After a crash in between, the key
// works, and the announcement does no harm.
func (k *Keys) revoke(ctx context.Context, d deadline, hash string) error {
	if err := k.changes.announce(ctx, keyChange+hash); err != nil {
		return err
	}
	if err := d.inTime(); err != nil { // others may have read the key again since the announcement
		return err
	}
	e := keyEntity{PartitionKey: keysPartition, RowKey: hash}
	e.RevokedAt, e.RevokedAtType = table.DateTime(k.config.Now())
	_, err := k.rows.Put(ctx, table.Encode(e), table.Any)
	if errors.Is(err, table.ErrChanged) {
		err = nil // another process has revoked it, and that row was dropped already
	}
	k.forget(hash)
	return err
}

// dropRevoked deletes the row that keeps the place of a revoked key. The reaper calls it an hour
// after the key was revoked.
func (k *Keys) dropRevoked(ctx context.Context, hash string) error {
	if len(hash) != hashLength {
		return nil // another program's announcement
	}
	data, etag, err := k.rows.Get(ctx, keysPartition, hash)
	if _, revoked := decodeKey(data, hash); err == nil && !revoked.IsZero() {
		err = k.rows.Delete(ctx, table.Key{Partition: keysPartition, Row: hash, ETag: etag})
	}
	if errors.Is(err, table.ErrGone) || errors.Is(err, table.ErrChanged) {
		err = nil // another process works on it
	}
	return err
}

// keyEntity is the row of a key in ShortUrlsKeys on the wire. The row of a revoked key has nothing
// but RevokedAtUtc.
type keyEntity struct {
	PartitionKey  string
	RowKey        string
	Owner         string    `json:",omitzero"`
	CreatedBy     string    `json:",omitzero"`
	ActsFor       string    `json:",omitzero"`
	Name          string    `json:",omitzero"`
	Last4         string    `json:",omitzero"`
	CreatedAt     time.Time `json:"CreatedAtUtc,omitzero"`
	CreatedAtType string    `json:"CreatedAtUtc@odata.type,omitzero"`
	ExpiresAt     time.Time `json:"ExpiresAtUtc,omitzero"`
	ExpiresAtType string    `json:"ExpiresAtUtc@odata.type,omitzero"`
	LastUsedOn    string    `json:",omitzero"`
	Access        string    `json:",omitzero"` // accessRead, or none
	RevokedAt     time.Time `json:"RevokedAtUtc,omitzero"`
	RevokedAtType string    `json:"RevokedAtUtc@odata.type,omitzero"`
}

// accessRead is the Access of a key that may only read.
const accessRead = "read"

// keysPartition is the partition of all keys.
const keysPartition = "key"

func encodeKey(k access.Key) []byte {
	e := keyEntity{PartitionKey: keysPartition, RowKey: k.Hash, Owner: k.Owner,
		CreatedBy: k.CreatedBy, ActsFor: k.ActsFor, Name: k.Name, Last4: k.Last4,
		LastUsedOn: k.LastUsedOn}
	e.CreatedAt, e.CreatedAtType = table.DateTime(k.CreatedAt)
	e.ExpiresAt, e.ExpiresAtType = table.DateTime(k.ExpiresAt)
	if k.ReadOnly {
		e.Access = accessRead
	}
	return table.Encode(e)
}

// decodeKey returns the key of a row, and when it was revoked, the zero time for never. A corrupt
// one has no owner, so that it gives access to nothing.
func decodeKey(data []byte, hash string) (key access.Key, revokedAt time.Time) {
	var e keyEntity
	if json.Unmarshal(data, &e) != nil {
		return access.Key{Hash: hash}, time.Time{}
	}
	return access.Key{Hash: hash, Owner: e.Owner, CreatedBy: e.CreatedBy, ActsFor: e.ActsFor,
		Name: e.Name, Last4: e.Last4, CreatedAt: e.CreatedAt.UTC(), ExpiresAt: e.ExpiresAt.UTC(),
		LastUsedOn: e.LastUsedOn,
		ReadOnly:   e.Access != ""}, e.RevokedAt // whatever a later version writes in Access
}

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
// A key has a row by its hash, and a row in the list of its owner. The row in the list is inserted
// first and deleted last, so that an owner sees every key that works.
type Keys struct {
	rows    *store
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

func newKeys(config *Config, rows *store, changes *changes) *Keys {
	k := &Keys{config: config, rows: rows, changes: changes, cached: map[string]*cachedKey{}}
	changes.subscribe(subscriber{prefix: keyChange, forget: k.forget, end: k.dropRevoked})
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
	data, _, err := k.rows.get(ctx, keyPartition(hash), hash)
	if err != nil && !errors.Is(err, table.ErrGone) {
		return access.Key{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.cached[hash]
	if err != nil || !revokedAt(data).IsZero() {
		delete(k.cached, hash)
		return access.Key{}, access.ErrUnknownKey
	}
	c := &cachedKey{Key: decodeKey(data, hash), readAt: now.UnixNano()}
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
	err := table.Safely(func() error {
		// Not an upsert, which would bring back a key that was revoked meanwhile.
		row := encode(map[string]string{"PartitionKey": keyPartition(hash), "RowKey": hash,
			"LastUsedOn": day})
		_, _, err := k.rows.merge(ctx, row, table.Any)
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

// Create adds a key, unless its owner already has access.MaxKeys that have not expired. When it
// returns no error, the key is durable. After an error the key may exist all the same, and the
// caller repeats it with a new key. The end of ctx does not cut it short. Errors:
// access.ErrTooManyKeys, link.ErrUnavailable.
func (k *Keys) Create(ctx context.Context, key access.Key) error {
	d, ctx, cancel := k.config.startWrite(ctx)
	defer cancel()
	listed := encode(keyListEntity{PartitionKey: keyList(key.Owner), RowKey: key.ID(),
		Hash: key.Hash})
	if _, err := k.rows.upsert(ctx, listed); err != nil {
		return err
	}
	if err := k.permit(ctx, key.Owner); err != nil {
		if errors.Is(err, access.ErrTooManyKeys) {
			// If this fails, the row leads nowhere, and List drops it.
			_ = k.rows.delete(ctx, rowKey{keyList(key.Owner), key.ID(), table.Any})
		}
		return err
	}
	// A crash here leaves a row that leads nowhere, which List drops.
	if err := d.inTime(); err != nil {
		return err
	}
	_, _, err := k.rows.insert(ctx, encodeKey(key))
	if errors.Is(err, table.ErrExists) {
		// The key is ours if an earlier try was applied and only its response was lost.
		data, _, readErr := k.rows.get(ctx, keyPartition(key.Hash), key.Hash)
		if there := decodeKey(data, key.Hash); readErr == nil && there.Owner == key.Owner &&
			there.Name == key.Name {
			err = nil
		}
	}
	if err == nil && d.inTime() != nil {
		// The process stood still for so long that List may have dropped the row of the list.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, err = k.rows.upsert(ctx, listed)
	}
	return err
}

// permit returns access.ErrTooManyKeys if too many keys of an owner have not expired. The new key
// is already listed, so that concurrent creates do not overlook each other: together they may make
// fewer keys than allowed, but not more.
func (k *Keys) permit(ctx context.Context, owner string) error {
	rows, err := k.rows.first(ctx, table.Range{Partition: keyList(owner)}, access.MaxKeys+1)
	if err != nil || len(rows) <= access.MaxKeys {
		return err
	}
	keys, coming, err := k.ofOwners(ctx, []string{owner}) // some may have expired
	if err != nil {
		return err
	}
	now := k.config.Now()
	keys = slices.DeleteFunc(keys, func(key access.Key) bool { return key.Expired(now) })
	if len(keys)+coming > access.MaxKeys {
		return access.ErrTooManyKeys
	}
	return nil
}

// List reads the keys of these owners, or of all owners if owners is nil, the newest first. It
// deletes rows of the owners' lists that lead nowhere. Errors: link.ErrUnavailable.
func (k *Keys) List(ctx context.Context, owners []string) (keys []access.Key, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	if owners == nil {
		keys, err = k.all(ctx)
	} else {
		keys, _, err = k.ofOwners(ctx, owners)
	}
	// A sort that is compiled for keys would make the executable 28 KB larger.
	sort.Slice(keys, func(i, j int) bool {
		a, b := keys[i], keys[j]
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Hash, b.Hash)) < 0
	})
	return keys, err
}

func (k *Keys) all(ctx context.Context) ([]access.Key, error) {
	rows, err := k.rows.first(ctx, table.Range{From: keysPrefix, Before: beyond(keysPrefix)},
		math.MaxInt)
	var keys []access.Key
	for _, r := range rows {
		if revokedAt(r.data).IsZero() {
			keys = append(keys, decodeKey(r.data, r.key))
		}
	}
	return keys, err
}

// ofOwners returns the keys of some owners, and how many listed ones may be about to be inserted.
func (k *Keys) ofOwners(ctx context.Context, owners []string) (keys []access.Key, coming int,
	err error) {
	strays := newStrays(k.config, k.rows, guardAfter)
	lists := make([][]listedRow, len(owners))
	err = eachListed(ctx, len(owners), func(ctx context.Context, i int) (err error) {
		lists[i], err = k.rows.first(ctx, table.Range{Partition: keyList(owners[i])}, math.MaxInt)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	rows := slices.Concat(lists...)
	keys = make([]access.Key, len(rows))
	var young atomic.Int64
	err = eachListed(ctx, len(rows), func(ctx context.Context, i int) error {
		var listed keyListEntity
		if json.Unmarshal(rows[i].data, &listed) != nil || len(listed.Hash) != hashLength {
			return nil // another program's row
		}
		data, _, err := k.rows.get(ctx, keyPartition(listed.Hash), listed.Hash)
		if errors.Is(err, table.ErrGone) || err == nil && !revokedAt(data).IsZero() {
			if !strays.drop(ctx, rows[i]) {
				young.Add(1)
			}
			return nil
		}
		keys[i] = decodeKey(data, listed.Hash)
		return err
	})
	keys = slices.DeleteFunc(keys, func(key access.Key) bool {
		return !slices.Contains(owners, key.Owner)
	})
	return keys, int(young.Load()), err
}

// Revoke deletes the key with this id if it belongs to one of owners; nil stands for all owners.
// When it returns no error, this process refuses the key from now on, and every other one within 15
// seconds. The end of ctx does not cut it short.
//
// After an error it is safe to repeat. If the key is gone by then, the call succeeds as long as the
// owner's list has the row of the key, and returns access.ErrUnknownKey afterwards. Errors:
// access.ErrUnknownKey, link.ErrForbidden, link.ErrUnavailable.
func (k *Keys) Revoke(ctx context.Context, id string, owners []string) error {
	if len(id) != keyIDLength || strings.Trim(id, "0123456789abcdef") != "" {
		return access.ErrUnknownKey
	}
	d, ctx, cancel := k.config.startWrite(ctx)
	defer cancel()
	// "g" comes after every hex digit with which the hash goes on.
	r := table.Range{Partition: keyPartition(id), From: id, Before: id + "g"}
	rows, err := k.rows.first(ctx, r, 1)
	if err != nil {
		return err
	}
	if len(rows) == 0 || !revokedAt(rows[0].data).IsZero() {
		return k.revoked(ctx, id, owners)
	}
	key := decodeKey(rows[0].data, rows[0].key)
	if owners != nil && !slices.Contains(owners, key.Owner) {
		return link.ErrForbidden
	}
	if err := k.changes.announce(ctx, keyChange+key.Hash); err != nil {
		return err
	}
	if err := d.inTime(); err != nil { // others may have read the key again since they were told
		return err
	}
	if now := k.config.Now(); now.Sub(key.CreatedAt) < settledAfter {
		// A try of the key's insert may still arrive. It must find a row there.
		e := revokedEntity{PartitionKey: keyPartition(key.Hash), RowKey: key.Hash}
		e.RevokedAt, e.RevokedAtType = dateTime(now)
		_, _, err = k.rows.replace(ctx, encode(e), table.Any)
		if errors.Is(err, table.ErrChanged) {
			err = nil // another Revoke was faster
		}
	} else {
		err = k.rows.delete(ctx, rowKey{keyPartition(key.Hash), key.Hash, table.Any})
	}
	k.forget(key.Hash)
	if err != nil {
		return err
	}
	// The key is revoked. If this fails, the row leads nowhere, and List drops it.
	_ = k.rows.delete(ctx, rowKey{keyList(key.Owner), key.ID(), table.Any})
	return nil
}

// revoked finishes a Revoke that was cut short.
func (k *Keys) revoked(ctx context.Context, id string, owners []string) error {
	strays := newStrays(k.config, k.rows, guardAfter)
	// For an admin, nothing tells which list has the key. That owner's List drops the row.
	var listed atomic.Bool
	err := eachListed(ctx, len(owners), func(ctx context.Context, i int) error {
		r := table.Range{Partition: keyList(owners[i]), From: id, Before: id + "!"}
		rows, err := k.rows.first(ctx, r, 1)
		for _, r := range rows {
			listed.Store(true)
			strays.drop(ctx, r)
		}
		return err
	})
	if err == nil && !listed.Load() {
		return access.ErrUnknownKey
	}
	return err
}

// dropRevoked deletes the row that keeps the place of a revoked key. The reaper calls it an hour
// after the key was revoked.
func (k *Keys) dropRevoked(ctx context.Context, hash string) error {
	if len(hash) != hashLength {
		return nil // another program's announcement
	}
	data, etag, err := k.rows.get(ctx, keyPartition(hash), hash)
	if err == nil && !revokedAt(data).IsZero() {
		err = k.rows.delete(ctx, rowKey{keyPartition(hash), hash, etag})
	}
	if errors.Is(err, table.ErrGone) || errors.Is(err, table.ErrChanged) {
		err = nil // another process works on it
	}
	return err
}

// keyEntity is the row of a key in ShortUrlsKeys on the wire.
type keyEntity struct {
	PartitionKey  string
	RowKey        string
	Owner         string
	CreatedBy     string `json:",omitzero"`
	ActsFor       string `json:",omitzero"`
	Name          string
	Last4         string
	CreatedAt     time.Time `json:"CreatedAtUtc,omitzero"`
	CreatedAtType string    `json:"CreatedAtUtc@odata.type,omitzero"`
	ExpiresAt     time.Time `json:"ExpiresAtUtc,omitzero"`
	ExpiresAtType string    `json:"ExpiresAtUtc@odata.type,omitzero"`
	LastUsedOn    string    `json:",omitzero"`
	Access        string    `json:",omitzero"` // accessRead, or none
}

// accessRead is the Access of a key that may only read.
const accessRead = "read"

// revokedEntity takes the place of the row of a key that was revoked soon after it was made.
type revokedEntity struct {
	PartitionKey, RowKey string
	RevokedAt            time.Time `json:"RevokedAtUtc,omitzero"`
	RevokedAtType        string    `json:"RevokedAtUtc@odata.type,omitzero"`
}

// keyListEntity is the row of a key in the list of its owner's keys, in the same table.
type keyListEntity struct {
	PartitionKey string
	RowKey       string
	Hash         string
}

const (
	keysPrefix    = "key|"
	keyListPrefix = "owner|"
)

// keyPartition returns the partition of a key by its hash, or by its id.
func keyPartition(hash string) string { return keysPrefix + hash[:2] }

func keyList(owner string) string { return keyListPrefix + ownerPartition(owner) }

func encodeKey(k access.Key) []byte {
	e := keyEntity{PartitionKey: keyPartition(k.Hash), RowKey: k.Hash, Owner: k.Owner,
		CreatedBy: k.CreatedBy, ActsFor: k.ActsFor, Name: k.Name, Last4: k.Last4,
		LastUsedOn: k.LastUsedOn}
	e.CreatedAt, e.CreatedAtType = dateTime(k.CreatedAt)
	e.ExpiresAt, e.ExpiresAtType = dateTime(k.ExpiresAt)
	if k.ReadOnly {
		e.Access = accessRead
	}
	return encode(e)
}

// revokedAt returns the time of a revokedEntity, and the zero time for every other row.
func revokedAt(data []byte) time.Time {
	var e revokedEntity
	_ = json.Unmarshal(data, &e)
	return e.RevokedAt
}

// decodeKey returns the key of a row. A corrupt one has no owner, so that it gives access to
// nothing.
func decodeKey(data []byte, hash string) access.Key {
	var e keyEntity
	if json.Unmarshal(data, &e) != nil {
		return access.Key{Hash: hash}
	}
	return access.Key{Hash: hash, Owner: e.Owner, CreatedBy: e.CreatedBy, ActsFor: e.ActsFor,
		Name: e.Name, Last4: e.Last4, CreatedAt: e.CreatedAt.UTC(), ExpiresAt: e.ExpiresAt.UTC(),
		LastUsedOn: e.LastUsedOn, ReadOnly: e.Access != ""} // whatever a later version writes there
}

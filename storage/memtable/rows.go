package memtable

import (
	"cmp"
	"slices"

	"tiney/storage/table"
)

// rows are the rows of a table in the order of their keys, in chunks: so that neither a write in
// the middle nor a search takes long among a million.
type rows struct{ chunks [][]*row }

// maxChunk is how many rows a chunk has at most.
const maxChunk = 512

func compare(r *row, partition, key string) int {
	return cmp.Or(cmp.Compare(r.partition, partition), cmp.Compare(r.key, key))
}

// find returns where a row is, or has to be inserted.
func (t *rows) find(partition, key string) (chunk, at int, found bool) {
	chunk, _ = slices.BinarySearchFunc(t.chunks, 0, func(c []*row, _ int) int {
		return compare(c[len(c)-1], partition, key)
	})
	if chunk == len(t.chunks) {
		if chunk == 0 {
			return 0, 0, false
		}
		return chunk - 1, len(t.chunks[chunk-1]), false
	}
	at, found = slices.BinarySearchFunc(t.chunks[chunk], 0, func(r *row, _ int) int {
		return compare(r, partition, key)
	})
	return chunk, at, found
}

// get returns a row, or nil.
func (t *rows) get(partition, key string) *row {
	if chunk, at, found := t.find(partition, key); found {
		return t.chunks[chunk][at]
	}
	return nil
}

// put inserts or replaces a row, or deletes it.
func (t *rows) put(r *row, gone bool) {
	chunk, at, found := t.find(r.partition, r.key)
	switch {
	case gone && !found:
	case gone:
		t.chunks[chunk] = slices.Delete(t.chunks[chunk], at, at+1)
		if len(t.chunks[chunk]) == 0 {
			t.chunks = slices.Delete(t.chunks, chunk, chunk+1)
		}
	case found:
		t.chunks[chunk][at] = r
	case len(t.chunks) == 0:
		t.chunks = [][]*row{{r}}
	default:
		c := slices.Insert(t.chunks[chunk], at, r)
		if len(c) > maxChunk {
			// Rows that come in their order leave full chunks behind them.
			cut := len(c) / 2
			if at == len(c)-1 {
				cut = at
			}
			t.chunks = slices.Insert(t.chunks, chunk+1, slices.Clone(c[cut:]))
			c = slices.Clip(c[:cut])
		}
		t.chunks[chunk] = c
	}
}

// list returns the first rows of a range that come after a position, and whether there are more.
func (t *rows) list(in table.Range, last Position, size int) (found []*row, more bool) {
	partition, key := in.Partition, max(in.From, in.After)
	if partition == "" {
		partition, key = key, ""
	}
	if last != (Position{}) {
		partition, key = last.Partition, last.Key
	}
	chunk, at, _ := t.find(partition, key)
	for ; chunk < len(t.chunks); chunk, at = chunk+1, 0 {
		for _, r := range t.chunks[chunk][at:] {
			bounded := r.key
			if in.Partition == "" {
				bounded = r.partition
			}
			switch {
			case in.Partition != "" && r.partition != in.Partition, in.Before != "" &&
				bounded >= in.Before:
				return found, false
			case bounded < in.From, in.After != "" && bounded <= in.After,
				last != (Position{}) && compare(r, last.Partition, last.Key) <= 0:
				continue
			case len(found) == size:
				return found, true
			}
			found = append(found, r)
		}
	}
	return found, false
}

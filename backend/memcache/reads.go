package memcache

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
	"github.com/abacus-go/abacus/tiers"
)

// chunkSize is the number of items in a multi-get. memcached needs about a
// millisecond for a thousand items, and its thread answers no other client
// meanwhile.
const chunkSize = 1000

// reads are the spans of a call, each bucket once.
type reads struct {
	runs   tiers.Cover // each bucket once
	counts []int64     // in the order of runs
}

// set makes runs of the spans of op, and room for their counts.
func (r *reads) set(op *backend.Request) {
	for i := range op.Read {
		span := &op.Read[i]
		for first, left := span.First, int64(len(span.Counts)); left > 0; {
			at, n := r.row(span.Width, first, left)
			if at < 0 {
				r.runs = append(r.runs, tiers.Run{Width: span.Width, First: first, N: n})
			}
			first, left = first+n, left-n
		}
	}
	total := int(r.runs.Reads())
	r.counts = slices.Grow(r.counts[:0], total)[:total]
	clear(r.counts)
}

// row returns the index of the count of a bucket, below zero if it is not read, and
// for how many buckets from this one on, n at most, the same holds.
func (r *reads) row(width time.Duration, first, n int64) (at int, same int64) {
	before := int64(0)
	for _, run := range r.runs {
		if run.Width == width && run.First <= first && first-run.First < run.N {
			return int(before + first - run.First), min(n, run.First+run.N-first)
		}
		if run.Width == width && run.First > first {
			n = min(n, run.First-first)
		}
		before += run.N
	}
	return -1, n
}

// index returns the index of the count of a bucket, below zero if it is not read.
func (r *reads) index(b tiers.Bucket) int {
	at, _ := r.row(b.Width, b.Index, 1)
	return at
}

// find returns the index of the count of an item of key, below zero if it is not
// read.
func (r *reads) find(key string, name []byte) int {
	from := len(name)
	for from > 0 && (name[from-1] == '-' || '0' <= name[from-1] && name[from-1] <= '9') {
		from--
	}
	index, _ := strconv.ParseInt(string(name[from:]), 10, 64)
	var buf [item.MaxName]byte
	for _, run := range r.runs {
		b := tiers.Bucket{Width: run.Width, Index: index}
		if i := r.index(b); i >= 0 && bytes.Equal(item.AppendName(buf[:0], key, b), name) {
			return i
		}
	}
	return -1
}

// fill writes the counts into op.
func (r *reads) fill(op *backend.Request) {
	for i := range op.Read {
		span := &op.Read[i]
		for first, counts := span.First, span.Counts; len(counts) > 0; {
			at, n := r.row(span.Width, first, int64(len(counts)))
			copy(counts[:n], r.counts[at:])
			first, counts = first+n, counts[n:]
		}
	}
}

package memcache

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
	"github.com/abacus-go/abacus/internal/cover"
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

// merge sets the runs, and makes room for the counts.
func (r *reads) merge(op *backend.Request) {
	for i := range op.Read {
		if span := &op.Read[i]; len(span.Counts) > 0 {
			r.runs = append(r.runs, tiers.Run{Width: span.Width, First: span.First, N: int64(len(span.Counts))})
		}
	}
	if len(r.runs) > 1 {
		r.runs = cover.Merge(r.runs)
	}
	total := int(r.runs.Reads())
	r.counts = slices.Grow(r.counts[:0], total)[:total]
	clear(r.counts)
}

// index returns the index of the count of a bucket, below zero if it is not read.
func (r *reads) index(b tiers.Bucket) int {
	at := int64(0)
	for _, run := range r.runs {
		if run.Width == b.Width && run.First <= b.Index && b.Index < run.First+run.N {
			return int(at + b.Index - run.First)
		}
		at += run.N
	}
	return -1
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
		if at := r.index(tiers.Bucket{Width: span.Width, Index: span.First}); at >= 0 {
			copy(span.Counts, r.counts[at:])
		}
	}
}

package memcache

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/abacus-go/abacus/backend"
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
	items  []string    // names, in the order of runs
	counts []int64     // counts[i] belongs to items[i]
}

// merge sets the runs, and makes room for the counts.
func (r *reads) merge(op *backend.Request) error {
	for i := range op.Read {
		span := &op.Read[i]
		if err := checkWidth(span.Width); err != nil {
			return err
		}
		n := int64(len(span.Counts))
		if span.First > math.MaxInt64-n {
			return fmt.Errorf("memcache: Span of %d buckets from index %d, want indexes of 64 bits", n, span.First)
		}
		if n > 0 {
			r.runs = append(r.runs, tiers.Run{Width: span.Width, First: span.First, N: n})
		}
	}
	if len(r.runs) > 1 {
		r.runs = cover.Merge(r.runs)
	}
	total := int(r.runs.Reads())
	r.counts = slices.Grow(r.counts[:0], total)[:total]
	clear(r.counts)
	return nil
}

// name makes the items' names, which share one string for each chunk.
func (r *reads) name(key string) {
	r.items = make([]string, 0, len(r.counts))
	var names []byte
	var ends []int
	cut := func() {
		all, start := string(names), 0
		for _, end := range ends {
			r.items = append(r.items, all[start:end])
			start = end
		}
		names, ends = names[:0], ends[:0]
	}
	for _, run := range r.runs {
		stem := appendStem(nil, key, run.Width)
		names = slices.Grow(names, int(min(run.N, chunkSize))*(len(stem)+12))
		for i := range run.N {
			names = strconv.AppendInt(append(names, stem...), run.First+i, 10)
			if ends = append(ends, len(names)); len(ends) == chunkSize {
				cut()
			}
		}
	}
	cut()
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

func (r *reads) chunks() int { return (len(r.items) + chunkSize - 1) / chunkSize }

// fill writes the counts into op.
func (r *reads) fill(op *backend.Request) {
	for i := range op.Read {
		span := &op.Read[i]
		if at := r.index(tiers.Bucket{Width: span.Width, Index: span.First}); at >= 0 {
			copy(span.Counts, r.counts[at:])
		}
	}
}

// read asks for chunk k. The items that gomemcache returns beside an error are
// dropped: if a server fails in the middle, or one of several servers fails,
// missing items would pass for zero.
func (c *call) read(l *link, k int) error {
	if err := l.ready(); err != nil {
		return c.failed("get", err)
	}
	from := k * chunkSize
	names := c.reads.items[from:min(from+chunkSize, len(c.reads.items))]
	items, err := l.client.GetMulti(names)
	if err != nil {
		return c.failed("get", err)
	}
	found := 0
	for i, name := range names {
		item, ok := items[name]
		if !ok {
			continue
		}
		found++
		if c.reads.counts[from+i], err = parseCount(item.Value); err != nil {
			return c.failedItem("get", name, err)
		}
	}
	if found != len(items) {
		return c.failed("get", errors.New("answered with items that were not asked for"))
	}
	return nil
}

package memcache

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// chunkSize is how many items one multi-get asks for. A thousand take memcached
// about a millisecond, in which its thread answers nobody else.
const chunkSize = 1000

// run is a row of adjacent buckets.
type run struct {
	width time.Duration
	first int64
	n     int64
	at    int // of the first, in reads
}

// reads are the spans of a call, each bucket once.
type reads struct {
	runs   []run    // by width and first, without overlap
	items  []string // names
	counts []int64  // counts[i] is that of items[i]
}

func readsOf(op *backend.Request) (reads, error) {
	var r reads
	for i := range op.Read {
		span := &op.Read[i]
		if err := checkWidth(span.Width); err != nil {
			return r, err
		}
		n := int64(len(span.Counts))
		if span.First > math.MaxInt64-n {
			return r, fmt.Errorf("memcache: %d buckets from %d on, which is beyond 64 bits", n, span.First)
		}
		if n > 0 {
			r.runs = append(r.runs, run{width: span.Width, first: span.First, n: n})
		}
	}
	if len(r.runs) == 0 {
		return r, nil
	}
	r.merge()
	r.name(op.Key)
	return r, nil
}

// merge makes one run of those that touch.
func (r *reads) merge() {
	slices.SortFunc(r.runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(a.width, b.width), cmp.Compare(a.first, b.first))
	})
	merged := r.runs[:1]
	for _, next := range r.runs[1:] {
		last := &merged[len(merged)-1]
		if next.width == last.width && next.first <= last.first+last.n {
			last.n = max(last.n, next.first+next.n-last.first)
			continue
		}
		merged = append(merged, next)
	}
	r.runs = merged
}

// name makes the items' names, which share one string for each chunk.
func (r *reads) name(key string) {
	total := 0
	for i := range r.runs {
		r.runs[i].at = total
		total += int(r.runs[i].n)
	}
	r.items, r.counts = make([]string, 0, total), make([]int64, total)
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
		stem := appendStem(nil, key, run.width)
		names = slices.Grow(names, int(min(run.n, chunkSize))*(len(stem)+12))
		for i := range run.n {
			names = strconv.AppendInt(append(names, stem...), run.first+i, 10)
			if ends = append(ends, len(names)); len(ends) == chunkSize {
				cut()
			}
		}
	}
	cut()
}

func (r *reads) chunks() int { return (len(r.items) + chunkSize - 1) / chunkSize }

// fill writes the counts into op.
func (r *reads) fill(op *backend.Request) {
	for i := range op.Read {
		span := &op.Read[i]
		for _, run := range r.runs {
			if run.width == span.Width && run.first <= span.First && span.First < run.first+run.n {
				copy(span.Counts, r.counts[run.at+int(span.First-run.first):])
				break
			}
		}
	}
}

// read asks for chunk k. What gomemcache returns beside an error is not looked
// at: a server that fails in the middle, or one of several, leaves the others'
// items in it, and what is missing would pass for zero.
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
			return c.bad("get", name, err)
		}
	}
	if found != len(items) {
		return c.failed("get", errors.New("answered with items that were not asked for"))
	}
	return nil
}

package backendtest

import (
	"fmt"
	"sort"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// model is the contract as simple as it can be said: a map of buckets for each
// key. A bucket whose TTL has run out, by the latest clock that any call had,
// may be there or not: its count is a range.
type model struct {
	keys   map[string]map[tiers.Bucket]*held
	latest time.Time
}

type held struct {
	lo, hi int64
	until  time.Time // must be there before
}

func newModel() *model { return &model{keys: map[string]map[tiers.Bucket]*held{}} }

// see takes note of a clock: what has run out by it may be gone.
func (m *model) see(now time.Time) {
	if !now.After(m.latest) {
		return
	}
	m.latest = now
	for _, buckets := range m.keys {
		for _, h := range buckets {
			if !h.until.After(now) {
				h.lo = 0
			}
		}
	}
}

func (m *model) get(key string, b tiers.Bucket) held {
	if h := m.keys[key][b]; h != nil {
		return *h
	}
	return held{}
}

// add adds n, or takes back, and returns what the bucket holds then.
func (m *model) add(key string, slot counter.Slot, n int64, now time.Time) held {
	if m.keys[key] == nil {
		m.keys[key] = map[tiers.Bucket]*held{}
	}
	h := m.keys[key][slot.Bucket]
	if h == nil {
		h = &held{}
		m.keys[key][slot.Bucket] = h
	}
	sure := h.until.After(m.latest)
	switch {
	case n < 0:
		h.lo = max(0, h.lo+n)
		if sure { // else it may be gone for this clock, and there for a slower one
			h.hi = max(0, h.hi+n)
		}
	default:
		if until := now.Add(slot.TTL); h.lo == 0 && until.After(h.until) { // it may be created now
			h.until = until
		}
		h.lo, h.hi = h.lo+n, h.hi+n
		if !h.until.After(m.latest) {
			h.lo = 0
		}
	}
	return *h
}

// window is the buckets of a width from number first on that may hold
// something, oldest first.
func (m *model) window(key string, width time.Duration, first int64) (row []tiers.Bucket) {
	for b, h := range m.keys[key] {
		if b.Width == width && b.Index >= first && h.hi > 0 {
			row = append(row, b)
		}
	}
	sort.Slice(row, func(i, j int) bool { return row[i].Index < row[j].Index })
	return row
}

// step holds the answer to a step to the model, and writes down what it did.
func (m *model) step(t *counter.Taking, prefix int) error {
	m.see(t.Now)
	allowed := true
	for _, d := range t.Demands {
		key := string(d.Key[prefix:])
		for _, w := range d.Windows {
			if err := m.count(t, key, w); err != nil {
				return fmt.Errorf("key %s, window %s, finest tier %d: %w", key, w.Limit, w.Finest, err)
			}
			allowed = allowed && w.Count <= w.Max-t.N
		}
	}
	if t.Allowed != allowed {
		return fmt.Errorf("allowed is %v, which is not what its own counts say", t.Allowed)
	}
	if allowed && !t.Peek {
		for _, d := range t.Demands {
			for i, b := range t.Ladder.Buckets(t.Now) {
				m.add(string(d.Key[prefix:]), counter.Slot{Bucket: b, TTL: t.TTLs[i]}, t.N, t.Now)
			}
		}
	}
	for _, d := range t.Demands {
		key := string(d.Key[prefix:])
		for _, w := range d.Windows {
			if err := m.newest(t, key, w); err != nil {
				return fmt.Errorf("key %s, window %s, finest tier %d: %w", key, w.Limit, w.Finest, err)
			}
		}
	}
	return nil
}

// first is the number of the oldest bucket of a window, and last that of the
// newest which it has to count.
func reach(t *counter.Taking, w counter.Window) (first, last int64) {
	width := t.Ladder.At(w.Finest).Width
	return tiers.Index(t.Now.Add(-w.Per-t.Slack).UnixNano(), width), tiers.Index(t.Now.Add(t.Slack).UnixNano(), width)
}

func (m *model) count(t *counter.Taking, key string, w counter.Window) error {
	first, last := reach(t, w)
	row := m.window(key, t.Ladder.At(w.Finest).Width, first)
	var lo, hi int64
	sure := true
	for _, b := range row {
		h := m.get(key, b)
		if hi += h.hi; b.Index <= last {
			lo += h.lo
		}
		sure = sure && h.lo == h.hi
	}
	if w.Count < lo || w.Count > hi {
		return fmt.Errorf("count %d, want %d to %d", w.Count, lo, hi)
	}
	need := w.Count + t.N - w.Max
	if need <= 0 || !sure {
		return nil
	}
	for _, b := range row {
		if need -= m.get(key, b).lo; need > 0 {
			continue
		}
		if w.Leaves != b {
			return fmt.Errorf("count %d and %d more: leaves %s, want %s", w.Count, t.N, w.Leaves, b)
		}
		return nil
	}
	return fmt.Errorf("count %d and %d more are too many even when all buckets have left", w.Count, t.N)
}

func (m *model) newest(t *counter.Taking, key string, w counter.Window) error {
	first, last := reach(t, w)
	// A bucket right of what must be counted may be counted or not, and one that
	// may be gone be there or not: then there are several right answers.
	row := m.window(key, t.Ladder.At(w.Finest).Width, first)
	for i := len(row) - 1; i >= 0; i-- {
		if row[i] == w.Newest {
			return nil
		}
		if m.get(key, row[i]).lo > 0 && row[i].Index <= last {
			return fmt.Errorf("newest %v, want %s", w.Newest, row[i])
		}
	}
	if w.Newest != (tiers.Bucket{}) {
		return fmt.Errorf("newest %v, want none", w.Newest)
	}
	return nil
}

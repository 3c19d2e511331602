package backendtest

import (
	"fmt"
	"sort"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// model is the contract in its simplest form: a map of buckets for each key. A
// bucket whose TTL has run out, by the latest clock of any call, may be there or
// not: its count is a range.
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
func (m *model) add(key string, slot backend.Slot, n int64, now time.Time) held {
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
		if sure { // else the bucket may be gone for this clock, and there for a slower clock
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
func (m *model) step(r *backend.TakeRequest, prefix int) error {
	m.see(r.Now)
	allowed := true
	for i := range r.Keys {
		key, fits := &r.Keys[i], true
		name := string(key.Key[prefix:])
		for _, w := range key.Windows {
			if err := m.count(r, key, name, w); err != nil {
				return fmt.Errorf("key %s, window of %s, finest tier %d: %w", name, w.Reach, w.Finest, err)
			}
			fits = fits && w.Count <= w.Max-key.N
		}
		if key.Fits != fits {
			return fmt.Errorf("key %s: fits is %v, which is not what its own counts say", name, key.Fits)
		}
		allowed = allowed && (fits || key.Soft)
	}
	if r.Allowed != allowed {
		return fmt.Errorf("allowed is %v, which is not what its own counts say", r.Allowed)
	}
	for i := range r.Keys {
		if key := &r.Keys[i]; allowed && !r.Peek && key.Fits && key.N > 0 {
			for j, b := range key.Ladder.Buckets(r.Now) {
				m.add(string(key.Key[prefix:]), backend.Slot{Bucket: b, TTL: key.TTLs[j]}, key.N, r.Now)
			}
		}
	}
	for i := range r.Keys {
		key := &r.Keys[i]
		name := string(key.Key[prefix:])
		for _, w := range key.Windows {
			if err := m.newest(r, key, name, w); err != nil {
				return fmt.Errorf("key %s, window of %s, finest tier %d: %w", name, w.Reach, w.Finest, err)
			}
		}
	}
	return nil
}

// oldest is the number of the oldest bucket of a window.
func oldest(r *backend.TakeRequest, key *backend.TakeKey, w backend.Window) int64 {
	return tiers.Index(r.Now.Add(-w.Reach).UnixNano(), key.Ladder.At(w.Finest).Width)
}

func (m *model) count(r *backend.TakeRequest, key *backend.TakeKey, name string, w backend.Window) error {
	row := m.window(name, key.Ladder.At(w.Finest).Width, oldest(r, key, w))
	var lo, hi int64
	for _, b := range row {
		h := m.get(name, b)
		lo, hi = lo+h.lo, hi+h.hi
	}
	if w.Count < lo || w.Count > hi {
		return fmt.Errorf("count %d, want %d to %d", w.Count, lo, hi)
	}
	need := w.Count + key.N - w.Max
	if need <= 0 || lo != hi || w.Count == 0 {
		return nil
	}
	freed := row[len(row)-1]
	for _, b := range row {
		if need -= m.get(name, b).lo; need <= 0 {
			freed = b
			break
		}
	}
	if w.FreedBy != freed {
		return fmt.Errorf("count %d and %d more: freed by %s, want %s", w.Count, key.N, w.FreedBy, freed)
	}
	return nil
}

func (m *model) newest(r *backend.TakeRequest, key *backend.TakeKey, name string, w backend.Window) error {
	// A bucket that may be gone may be there or not: then there are several
	// right answers.
	row := m.window(name, key.Ladder.At(w.Finest).Width, oldest(r, key, w))
	for i := len(row) - 1; i >= 0; i-- {
		if row[i] == w.Newest {
			return nil
		}
		if m.get(name, row[i]).lo > 0 {
			return fmt.Errorf("newest %v, want %s", w.Newest, row[i])
		}
	}
	if w.Newest != (tiers.Bucket{}) {
		return fmt.Errorf("newest %v, want none", w.Newest)
	}
	return nil
}

package oracle

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// Store is the contract of a [backend.Store] and a [backend.Atomic] in its
// simplest form: a map of buckets for each key. A bucket whose TTL has run out, by
// the latest clock of any call, may be there or not: its count is a range. [NewStore]
// makes a Store; Do and Take hold the answer of a call to the contract, and count
// what the call has counted.
type Store struct {
	Keys   map[string]map[tiers.Bucket]*Held // by stored key, as in [backend.Request]
	Latest int64                             // the latest clock of any call, in nanoseconds since 1970

	// Stored is the width of the buckets that make up a bucket of the given width:
	// a taking back takes no more from the bucket than from those. Nil: each bucket
	// is stored itself.
	Stored func(l tiers.Ladder, width time.Duration) time.Duration

	// Exact holds the counts of every Take to be exact. Without Exact a count that is
	// [Bounded] may be greater.
	Exact bool

	// Forever holds a store to all buckets that there ever were: no TTL runs out.
	Forever bool

	next int64 // no TTL runs out before
}

// Bounded reports whether the count of w in the answer to r may be an upper bound, by the
// contract of [backend.Window].
func Bounded(r *backend.TakeRequest, key *backend.TakeKey, w *backend.Window) bool {
	return r.Allowed && !r.Peek && !r.Exact && w.Count <= w.Max-key.N
}

// Held is the range of a bucket's count.
type Held struct {
	Low, High int64
	until     int64 // the bucket must be there before
}

// NewStore returns a Store without keys.
func NewStore() *Store {
	return &Store{Keys: map[string]map[tiers.Bucket]*Held{}, Latest: math.MinInt64, next: math.MaxInt64}
}

// See takes note of a clock: a bucket whose TTL has run out may be gone.
func (m *Store) See(now time.Time) {
	if m.Forever {
		return
	}
	m.Latest = max(m.Latest, now.UnixNano())
	if m.Latest < m.next {
		return
	}
	m.next = math.MaxInt64
	for _, buckets := range m.Keys {
		for _, h := range buckets {
			if h.until <= m.Latest {
				h.Low = 0
			} else {
				m.next = min(m.next, h.until)
			}
		}
	}
}

func (m *Store) get(key string, b tiers.Bucket) Held {
	if h := m.Keys[key][b]; h != nil {
		return *h
	}
	return Held{until: math.MinInt64}
}

func (m *Store) add(key string, slot backend.Slot, n int64, now time.Time) {
	h := m.get(key, slot.Bucket)
	if h.Low == 0 { // the bucket may be created now
		h.until = max(h.until, now.Add(slot.TTL).UnixNano())
	}
	h.Low, h.High = h.Low+n, h.High+n
	if h.until <= m.Latest {
		h.Low = 0
	}
	if m.Keys[key] == nil {
		m.Keys[key] = map[tiers.Bucket]*Held{}
	}
	m.Keys[key][slot.Bucket] = &h
	m.next = min(m.next, h.until)
}

// takeBack takes r.N, below zero, from the buckets of one instant.
func (m *Store) takeBack(r *backend.Request) {
	stored := func(b tiers.Bucket) time.Duration {
		if m.Stored == nil {
			return b.Width
		}
		return m.Stored(r.Ladder, b.Width)
	}
	before := map[time.Duration]Held{}
	for _, slot := range r.Add {
		before[slot.Width] = m.get(r.Key, slot.Bucket)
	}
	for _, slot := range r.Add {
		h, is := m.Keys[r.Key][slot.Bucket]
		if !is {
			continue
		}
		least, most := -r.N, -r.N
		if of := stored(slot.Bucket); of != slot.Width {
			least, most = min(least, before[of].Low), min(most, before[of].High)
		}
		h.Low = max(0, h.Low-most)
		if h.until > m.Latest { // else the bucket may be gone for this clock, and there for a slower clock
			h.High = max(0, h.High-least)
		}
		if h.High == 0 {
			delete(m.Keys[r.Key], slot.Bucket)
		}
	}
	if len(m.Keys[r.Key]) == 0 {
		delete(m.Keys, r.Key)
	}
}

// Count counts what a Do without an error has counted, whatever its answer.
func (m *Store) Count(r *backend.Request) {
	m.See(r.Now)
	if r.N < 0 {
		m.takeBack(r)
	}
	for _, slot := range r.Add {
		if r.N > 0 {
			m.add(r.Key, slot, r.N, r.Now)
		}
	}
}

// Do is Count, and holds the answer to the contract.
func (m *Store) Do(r *backend.Request) error {
	m.Count(r)
	for _, slot := range r.Add {
		if h := m.get(r.Key, slot.Bucket); slot.Count < h.Low || slot.Count > h.High {
			return fmt.Errorf("key %s: bucket %s counts %d, want %d to %d", r.Key, slot.Bucket, slot.Count, h.Low, h.High)
		}
	}
	for _, span := range r.Read {
		for i, n := range span.Counts {
			b := tiers.Bucket{Width: span.Width, Index: span.First + int64(i)}
			if h := m.get(r.Key, b); n < h.Low || n > h.High {
				return fmt.Errorf("key %s: bucket %s was read as %d, want %d to %d", r.Key, b, n, h.Low, h.High)
			}
		}
	}
	return nil
}

// Window returns the buckets of a width from number first on that may hold
// something, oldest first, and the range of their sum.
func (m *Store) Window(key string, width time.Duration, first int64) (low, high int64, row []tiers.Bucket) {
	for b, h := range m.Keys[key] {
		if b.Width == width && b.Index >= first && h.High > 0 {
			row = append(row, b)
			low, high = plus(low, h.Low), plus(high, h.High)
		}
	}
	slices.SortFunc(row, func(a, b tiers.Bucket) int { return cmp.Compare(a.Index, b.Index) })
	return low, high, row
}

func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// window is the Window of w.
func (m *Store) window(r *backend.TakeRequest, key *backend.TakeKey, w *backend.Window) (low, high int64, row []tiers.Bucket) {
	width := key.Ladder.At(w.Finest).Width
	return m.Window(string(key.Key), width, tiers.Index(r.Now.Add(-w.Reach).UnixNano(), width))
}

// MayAllow reports whether a store may allow r before r is counted.
func (m *Store) MayAllow(r *backend.TakeRequest) bool {
	for i := range r.Keys {
		key := &r.Keys[i]
		for j := range key.Windows {
			w := &key.Windows[j]
			if low, _, _ := m.window(r, key, w); !key.Soft && low > w.Max-key.N {
				return false
			}
		}
	}
	return true
}

// Take holds the answer of a Take without an error to the contract.
func (m *Store) Take(r *backend.TakeRequest) error {
	m.See(r.Now)
	allowed := true
	for i := range r.Keys {
		key, fits := &r.Keys[i], true
		for j := range key.Windows {
			w := &key.Windows[j]
			if err := m.count(r, key, w); err != nil {
				return fmt.Errorf("key %s, window of %s, finest tier %d: %w", key.Key, w.Reach, w.Finest, err)
			}
			fits = fits && w.Count <= w.Max-key.N
		}
		if key.Fits != fits {
			return fmt.Errorf("key %s: fits is %v, which is not what its own counts say", key.Key, key.Fits)
		}
		allowed = allowed && (fits || key.Soft)
	}
	if r.Allowed != allowed {
		return fmt.Errorf("allowed is %v, which is not what its own counts say", r.Allowed)
	}
	times := r.Fitting()
	if allowed && !r.Peek && r.Times > 1 && r.Taken != times {
		return fmt.Errorf("taken %d times, which is not what its own counts say: want %d", r.Taken, times)
	}
	for i := range r.Keys {
		if key := &r.Keys[i]; allowed && !r.Peek && key.Fits && key.N > 0 {
			for j, b := range key.Ladder.Buckets(r.Now) {
				m.add(string(key.Key), backend.Slot{Bucket: b, TTL: key.TTLs[j]}, key.N*times, r.Now)
			}
		}
	}
	for i := range r.Keys {
		key := &r.Keys[i]
		for j := range key.Windows {
			w := &key.Windows[j]
			if err := m.newest(r, key, w); err != nil {
				return fmt.Errorf("key %s, window of %s, finest tier %d: %w", key.Key, w.Reach, w.Finest, err)
			}
		}
	}
	return nil
}

func (m *Store) count(r *backend.TakeRequest, key *backend.TakeKey, w *backend.Window) error {
	low, high, row := m.window(r, key, w)
	if w.Count < low || w.Count > high && (m.Exact || !Bounded(r, key, w)) {
		return fmt.Errorf("count %d, want %d to %d", w.Count, low, high)
	}
	need := w.Count - (w.Max - key.N)
	if need <= 0 || low != high || w.Count == 0 {
		return nil
	}
	freed := row[len(row)-1]
	for _, b := range row {
		if need -= m.get(string(key.Key), b).Low; need <= 0 {
			freed = b
			break
		}
	}
	if w.FreedBy != freed {
		return fmt.Errorf("count %d and %d more: freed by %s, want %s", w.Count, key.N, w.FreedBy, freed)
	}
	return nil
}

func (m *Store) newest(r *backend.TakeRequest, key *backend.TakeKey, w *backend.Window) error {
	// A bucket that may be gone may be there or not: then there are several
	// right answers.
	_, _, row := m.window(r, key, w)
	for _, b := range slices.Backward(row) {
		if b == w.Newest {
			return nil
		}
		if m.get(string(key.Key), b).Low > 0 {
			return fmt.Errorf("newest %v, want %s", w.Newest, b)
		}
	}
	if w.Newest != (tiers.Bucket{}) {
		return fmt.Errorf("newest %v, want none", w.Newest)
	}
	return nil
}

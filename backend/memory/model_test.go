package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// model is the contract of backend.Store and backend.Atomic in its simplest form:
// a map of buckets per key. A bucket whose TTL has run out, by the latest clock of
// any call, may be there or not: its count is a range.
type model struct {
	keys   map[string]map[tiers.Bucket]*held
	latest int64
	next   int64 // no TTL runs out before
}

type held struct {
	lo, hi int64
	until  int64 // must be there before
}

func newModel() *model { return &model{keys: map[string]map[tiers.Bucket]*held{}, next: forever} }

// see takes note of a clock: a bucket whose TTL has run out may be gone.
func (m *model) see(now int64) {
	m.latest = max(m.latest, now)
	if m.latest < m.next {
		return
	}
	m.next = forever
	for _, buckets := range m.keys {
		for _, h := range buckets {
			if h.until <= m.latest {
				h.lo = 0
			} else {
				m.next = min(m.next, h.until)
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

func (m *model) add(key string, b tiers.Bucket, n, now int64, ttl time.Duration) {
	h := m.get(key, b)
	if h.lo == 0 { // it may be created now
		h.until = max(h.until, plus(now, int64(ttl)))
	}
	h.lo, h.hi = h.lo+n, h.hi+n
	if h.until <= m.latest {
		h.lo = 0
	}
	if m.keys[key] == nil {
		m.keys[key] = map[tiers.Bucket]*held{}
	}
	m.keys[key][b] = &h
	m.next = min(m.next, h.until)
}

// takeBack takes op.N from all tiers of one instant, but no more than the finest
// bucket of equally long kept tiers holds.
func (m *model) takeBack(op *backend.Request) {
	type least struct{ lo, hi int64 }
	taken := map[int64]least{}
	for _, slot := range op.Add {
		h := m.get(op.Key, slot.Bucket)
		if baseWidth(op.Ladder, slot.Width) == int64(slot.Width) {
			taken[int64(slot.Width)] = least{min(-op.N, h.lo), min(-op.N, h.hi)}
		}
	}
	for _, slot := range op.Add {
		h, is := m.keys[op.Key][slot.Bucket]
		if !is {
			continue
		}
		n := taken[baseWidth(op.Ladder, slot.Width)]
		h.lo = max(0, h.lo-n.hi)
		if h.until > m.latest { // else it may be gone for this clock, and there for a slower one
			h.hi = max(0, h.hi-n.lo)
		}
		if h.hi == 0 {
			delete(m.keys[op.Key], slot.Bucket)
		}
	}
	if len(m.keys[op.Key]) == 0 {
		delete(m.keys, op.Key)
	}
}

// window is the range of the sum of the buckets of a width from an index on, and
// the buckets, oldest first.
func (m *model) window(key string, width time.Duration, from int64) (lo, hi int64, row []tiers.Bucket) {
	for b := range m.keys[key] {
		if b.Width == width && b.Index >= from {
			row = append(row, b)
		}
	}
	sort.Slice(row, func(i, j int) bool { return row[i].Index < row[j].Index })
	for _, b := range row {
		h := m.keys[key][b]
		lo, hi = plus(lo, h.lo), plus(hi, h.hi)
	}
	return lo, hi, row
}

// freedBy is the last of the first buckets of row that hold need hits together.
func (m *model) freedBy(key string, row []tiers.Bucket, need int64) tiers.Bucket {
	for _, b := range row {
		if need -= m.keys[key][b].lo; need <= 0 {
			return b
		}
	}
	return tiers.Bucket{}
}

// sure tells whether the range of every bucket in row is a single count.
func (m *model) sure(key string, row []tiers.Bucket) bool {
	for _, b := range row {
		if h := m.keys[key][b]; h.lo != h.hi {
			return false
		}
	}
	return true
}

// lastHit is the start of the newest bucket that must be there, and of the newest
// that may be there.
func (m *model) lastHit(key string) (sure, may int64) {
	sure, may = never, never
	for b, h := range m.keys[key] {
		may = max(may, b.Index*int64(b.Width))
		if h.lo > 0 {
			sure = max(sure, b.Index*int64(b.Width))
		}
	}
	return sure, may
}

func (s *Store) lookup(key string) *entry {
	h := maphash.String(s.seed, key)
	return s.shard(h).table.find(h, []byte(key))
}

// call is a line of a script: a TakeRequest or a Request.
type call struct {
	take *backend.TakeRequest
	op   *backend.Request
}

func (c call) now() time.Time {
	if c.take != nil {
		return c.take.Now
	}
	return c.op.Now
}

func (c call) String() string {
	var b strings.Builder
	if t := c.take; t != nil {
		fmt.Fprintf(&b, "take now=%d peek=%v", t.Now.UnixNano(), t.Peek)
		for _, d := range t.Keys {
			fmt.Fprintf(&b, " | %s n=%d soft=%v ladder=%q ttls=%v", d.Key, d.N, d.Soft, d.Ladder, d.TTLs)
			for _, w := range d.Windows {
				fmt.Fprintf(&b, " %d/%v:%d", w.Max, w.Reach, w.Finest)
			}
		}
		return b.String()
	}
	fmt.Fprintf(&b, "do now=%d key=%s n=%d", c.op.Now.UnixNano(), c.op.Key, c.op.N)
	for _, s := range c.op.Add {
		fmt.Fprintf(&b, " +%v@%d:%v", s.Width, s.Index, s.TTL)
	}
	for _, s := range c.op.Read {
		fmt.Fprintf(&b, " ?%v@%d*%d", s.Width, s.First, len(s.Counts))
	}
	return b.String()
}

// run does the call on s and compares with m. An error tells the difference.
func (c call) run(s *Store, m *model) error {
	m.see(c.now().UnixNano())
	before := s.Stats()
	var keys []string
	var err error
	if c.take != nil {
		for _, d := range c.take.Keys {
			keys = append(keys, string(d.Key))
		}
		err = c.runTake(s, m)
	} else {
		keys = []string{c.op.Key}
		err = c.runDo(s, m)
	}
	if err != nil {
		return err
	}
	return m.lost(s, before, c.now().UnixNano(), keys)
}

// lost compares the keys that are gone from s with Stats, and drops them from m.
func (m *model) lost(s *Store, before Stats, now int64, own []string) error {
	after := s.Stats()
	gone, firstLost, lastKept := int64(0), int64(never), int64(forever)
	for key := range m.keys {
		sure, may := m.lastHit(key)
		mine := slices.Contains(own, key)
		if s.lookup(key) != nil {
			if !mine {
				lastKept = min(lastKept, may)
			}
			continue
		}
		if sure != never {
			if mine {
				return fmt.Errorf("key %s of the call itself is gone", key)
			}
			gone++
			firstLost = max(firstLost, sure)
		}
		delete(m.keys, key)
	}
	// The store may keep buckets longer than their TTL, and so evict more keys than
	// the model is sure of.
	evicted := after.Evicted - before.Evicted
	if gone > evicted {
		return fmt.Errorf("%d keys are gone that count, %d are said to be evicted", gone, evicted)
	}
	need := int64(0) // at most, unless rings grow a lot
	for _, key := range own {
		need += 160
		if e := s.lookup(key); e != nil {
			need += 2 * e.cost()
		}
	}
	if evicted > 0 || after.Refused > before.Refused && need <= s.max {
		for i := range s.shards {
			for _, slot := range s.shards[i].table.slots {
				if slot.e != nil && slot.e.emptyAt() <= now && !slices.Contains(own, string(slot.e.key(nil))) {
					return fmt.Errorf("key %s is empty, and stayed when another was evicted or refused", slot.e.key(nil))
				}
			}
		}
	}
	if gone > 0 && firstLost > lastKept {
		return fmt.Errorf("a key hit at %d was evicted, a key hit at %d was kept", firstLost, lastKept)
	}
	return nil
}

func (c call) runTake(s *Store, m *model) error {
	t := c.take
	err := s.Take(context.Background(), t)
	now := t.Now.UnixNano()
	if errors.Is(err, backend.ErrStaleLabel) && !t.AnyLabel && m.latest > t.Now.UnixNano() {
		t.AnyLabel = true
		return c.runTake(s, m)
	}
	var mustAllow, mayAllow = true, true
	for _, d := range t.Keys {
		if d.Soft {
			continue
		}
		for _, w := range d.Windows {
			g := d.Ladder.At(w.Finest).Width
			lo, hi, _ := m.window(string(d.Key), g, tiers.Index(now-int64(w.Reach), g))
			mustAllow = mustAllow && hi <= w.Max-d.N
			mayAllow = mayAllow && lo <= w.Max-d.N
		}
	}
	if err == ErrFull && s.max < math.MaxInt32 && mayAllow && !t.Peek {
		return nil
	}
	if err != nil {
		if mayAllow && !t.Peek && errors.Is(err, backend.ErrMaxCount) && m.overflows(t) {
			return nil
		}
		return err
	}
	if t.Allowed && !mayAllow || !t.Allowed && mustAllow {
		return fmt.Errorf("allowed %v, must %v, may %v", t.Allowed, mustAllow, mayAllow)
	}
	for _, d := range t.Keys {
		fits := true
		for _, w := range d.Windows {
			fits = fits && w.Count <= w.Max-d.N
			g := d.Ladder.At(w.Finest).Width
			lo, hi, row := m.window(string(d.Key), g, tiers.Index(now-int64(w.Reach), g))
			if w.Count < lo || w.Count > hi {
				return fmt.Errorf("key %s window %v: count %d, want %d to %d", d.Key, w.Reach, w.Count, lo, hi)
			}
			if !m.sure(string(d.Key), row) {
				continue
			}
			want := tiers.Bucket{}
			if need := w.Count - (w.Max - d.N); need > 0 {
				want = m.freedBy(string(d.Key), row, need)
			}
			if w.FreedBy != want {
				return fmt.Errorf("key %s window %v: freed by %v, want %v", d.Key, w.Reach, w.FreedBy, want)
			}
		}
		if d.Fits != fits {
			return fmt.Errorf("key %s: fits %v, which is not what its counts say", d.Key, d.Fits)
		}
	}
	if t.Allowed && !t.Peek {
		for _, d := range t.Keys {
			if !d.Fits || d.N == 0 {
				continue
			}
			for i := range d.Ladder.Len() {
				b := tiers.Bucket{Width: d.Ladder.At(i).Width, Index: tiers.Index(now, d.Ladder.At(i).Width)}
				m.add(string(d.Key), b, d.N, now, d.TTLs[i])
			}
		}
	}
	for _, d := range t.Keys {
		for _, w := range d.Windows {
			g := d.Ladder.At(w.Finest).Width
			_, _, row := m.window(string(d.Key), g, tiers.Index(now-int64(w.Reach), g))
			if !m.sure(string(d.Key), row) {
				continue
			}
			want := tiers.Bucket{}
			if len(row) > 0 {
				want = row[len(row)-1]
			}
			if w.Newest != want {
				return fmt.Errorf("key %s: newest %v, want %v", d.Key, w.Newest, want)
			}
		}
	}
	return nil
}

// overflows tells whether a bucket of t might not have room for N.
func (m *model) overflows(t *backend.TakeRequest) bool {
	for _, d := range t.Keys {
		for i := range d.Ladder.Len() {
			if m.all(string(d.Key), d.Ladder.At(i).Width) > backend.MaxCount-d.N {
				return true
			}
		}
	}
	return false
}

// all is the greatest possible sum of all buckets of a width: a store may refuse
// an addition beyond MaxCount.
func (m *model) all(key string, width time.Duration) int64 {
	_, hi, _ := m.window(key, width, math.MinInt64)
	return hi
}

func (c call) runDo(s *Store, m *model) error {
	op := c.op
	err := s.Do(context.Background(), op)
	if err == nil {
		return c.compareDo(m)
	}
	stale := errors.Is(err, backend.ErrStaleLabel) && !op.AnyLabel
	for _, slot := range op.Add {
		if slot.Count != 0 {
			return fmt.Errorf("%w, and a count of %d", err, slot.Count)
		}
	}
	if err == ErrFull && op.N > 0 && s.max < math.MaxInt32 {
		return nil
	}
	if stale {
		op.AnyLabel = true
		return c.runDo(s, m)
	}
	if errors.Is(err, backend.ErrMaxCount) {
		for _, slot := range op.Add {
			if m.all(op.Key, slot.Width) > backend.MaxCount-op.N*int64(len(op.Add)) {
				return nil
			}
		}
	}
	return err
}

func (c call) compareDo(m *model) error {
	op := c.op
	if op.N < 0 {
		m.takeBack(op)
	}
	for _, slot := range op.Add {
		if op.N > 0 {
			m.add(op.Key, slot.Bucket, op.N, op.Now.UnixNano(), slot.TTL)
		}
		h := m.get(op.Key, slot.Bucket)
		if slot.Count < h.lo || slot.Count > h.hi {
			return fmt.Errorf("bucket %v holds %d, want %d to %d", slot.Bucket, slot.Count, h.lo, h.hi)
		}
	}
	for _, span := range op.Read {
		for i, n := range span.Counts {
			h := m.get(op.Key, tiers.Bucket{Width: span.Width, Index: span.First + int64(i)})
			if n < h.lo || n > h.hi {
				return fmt.Errorf("bucket %d of %v read as %d, want %d to %d", span.First+int64(i), span.Width, n, h.lo, h.hi)
			}
		}
	}
	return nil
}

package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// newModel returns the contract, of a store with sums.
func newModel() *oracle.Store {
	m := oracle.NewStore()
	m.Exact = true
	m.Stored = func(l tiers.Ladder, width time.Duration) time.Duration {
		p := new(layouts).plan(l, make([]time.Duration, l.Len()))
		return time.Duration(p.layout.all[p.of[tierOf(l, width)]].width)
	}
	return m
}

// lastHit is the start of the newest bucket that must be there, and of the newest
// that may be there.
func lastHit(m *oracle.Store, key string) (sure, may int64) {
	sure, may = never, never
	for b, h := range m.Keys[key] {
		may = max(may, b.Index*int64(b.Width))
		if h.Low > 0 {
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
	take  *backend.TakeRequest
	short bool // by a Quota, where one admits
	op    *backend.Request
}

func (c call) now() time.Time {
	if c.take != nil {
		return c.take.Now
	}
	return c.op.Now
}

func (c call) String() string {
	if c.take != nil {
		return fmt.Sprintf("take %+v", *c.take)
	}
	return fmt.Sprintf("do %+v", *c.op)
}

// run does the call on s and compares with m. An error tells the difference.
func (c call) run(s *Store, m *oracle.Store) error {
	m.See(c.now())
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
	return lost(m, s, before, c.now().UnixNano(), keys)
}

// lost compares the keys that are gone from s with Stats, and drops them from m.
func lost(m *oracle.Store, s *Store, before Stats, now int64, own []string) error {
	after := s.Stats()
	gone, firstLost, lastKept := int64(0), int64(never), int64(forever)
	for key := range m.Keys {
		sure, may := lastHit(m, key)
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
		delete(m.Keys, key)
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
				if slot.e != nil && slot.e.rank(byEmpty) <= now && !slices.Contains(own, string(slot.e.key())) {
					return fmt.Errorf("key %s is empty, and stayed when another was evicted or refused", slot.e.key())
				}
			}
		}
	}
	if gone > 0 && firstLost > lastKept {
		return fmt.Errorf("a key hit at %d was evicted, a key hit at %d was kept", firstLost, lastKept)
	}
	return nil
}

func (c call) runTake(s *Store, m *oracle.Store) error {
	t := c.take
	err := s.admitOrTake(t, c.short)
	switch {
	case err == nil:
	case errors.Is(err, backend.ErrStaleLabel) && !t.AnyLabel && m.Latest > t.Now.UnixNano():
		t.AnyLabel = true
		return c.runTake(s, m)
	case t.Peek || !m.MayAllow(t):
		return err
	case err == ErrFull && s.max < math.MaxInt32, errors.Is(err, backend.ErrMaxCount) && overflows(m, t):
		return nil
	default:
		return err
	}
	for _, d := range t.Keys {
		for _, w := range d.Windows {
			if w.Count <= w.Max-d.N && w.FreedBy != (tiers.Bucket{}) {
				return fmt.Errorf("key %s window %v: freed by %v, want none", d.Key, w.Reach, w.FreedBy)
			}
		}
	}
	return m.Take(t)
}

// admitOrTake does t by the short way, if t is asked for so and the way is open.
func (s *Store) admitOrTake(t *backend.TakeRequest, short bool) error {
	d := &t.Keys[0]
	if !short || len(t.Keys) > 1 || t.Peek {
		return s.Take(context.Background(), t)
	}
	whole := d.Key
	d.Key = whole[:len(whole)/2]
	q := s.Bind(s, d)
	d.Key = whole
	if q == nil {
		return s.Take(context.Background(), t)
	}
	a := q.Admit(string(whole[len(whole)/2:]), d.N, t.Now.UnixNano())
	if a.Number == 0 && !a.Denied {
		return s.Take(context.Background(), t)
	}
	d.Fits = !a.Denied
	t.Allowed = d.Fits || d.Soft
	for i := range d.Windows {
		w := &d.Windows[i]
		bucket := func(at int64) tiers.Bucket {
			width := d.Ladder.At(w.Finest).Width
			return tiers.Bucket{Width: width, Index: tiers.Index(at, width)}
		}
		w.Count, w.Newest, w.FreedBy = a.Counts[i], tiers.Bucket{}, tiers.Bucket{}
		if d.Fits {
			w.Newest = bucket(t.Now.UnixNano())
		} else if w.Count > 0 {
			w.Newest = bucket(a.Newest[i])
		}
		if w.Count > w.Max-d.N && w.Count > 0 {
			w.FreedBy = bucket(a.FreedBy[i])
		}
	}
	return nil
}

// overflows reports whether a bucket of t might not have room for N.
func overflows(m *oracle.Store, t *backend.TakeRequest) bool {
	for _, d := range t.Keys {
		for i := range d.Ladder.Len() {
			if most(m, string(d.Key), d.Ladder.At(i).Width) > backend.MaxCount-d.N {
				return true
			}
		}
	}
	return false
}

// most is the greatest possible sum of all buckets of a width: a store may refuse
// an addition beyond MaxCount.
func most(m *oracle.Store, key string, width time.Duration) int64 {
	_, high, _ := m.Window(key, width, math.MinInt64)
	return high
}

func (c call) runDo(s *Store, m *oracle.Store) error {
	op := c.op
	err := s.Do(context.Background(), op)
	if err == nil {
		return m.Do(op)
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
			if most(m, op.Key, slot.Width) > backend.MaxCount-op.N*int64(len(op.Add)) {
				return nil
			}
		}
	}
	return err
}

// requireSound fails unless each key of s can be found and has hits, MaxCount at most, and the
// memory of all keys is what s counts. No call may be under way.
func requireSound(t testing.TB, s *Store) { require.NoError(t, sound(s)) }

func sound(s *Store) error {
	spent := int64(0)
	for i := range s.shards {
		table := &s.shards[i].table
		for _, slot := range table.slots {
			switch e := slot.e; {
			case e == nil:
			case table.find(slot.hash, e.key()) != e:
				return fmt.Errorf("key %q cannot be found", e.key())
			case e.rank(byHit) == never:
				return fmt.Errorf("key %q has no buckets and is still there", e.key())
			default:
				spent += e.cost()
				for k := range e.layout.n {
					if sum := e.ring(k).last.sum; sum > backend.MaxCount {
						return fmt.Errorf("key %q: %d hits in tier %d", e.key(), sum, k)
					}
				}
			}
		}
	}
	if got := s.spent.Load(); got != spent || got > s.max {
		return fmt.Errorf("%d buckets are there, %d are counted, %d are allowed", spent, got, s.max)
	}
	return nil
}

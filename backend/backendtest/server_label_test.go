package backendtest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// drops tells of a server that has no clock, and drops buckets that have expired by
// its callers' labels. Dropping is no mistake, if the server also reports the
// labels of which nothing is known any more.
func (s *server) drops() bool { return strings.HasPrefix(s.fault, "drops by label") }

// drop lets go what has expired by now.
func (s *server) drop(key string, now time.Time) {
	if !s.drops() {
		return
	}
	for _, name := range s.keys[key] {
		if it, there := s.items[name]; there && !it.bucket.End().Add(it.ttl).After(now) {
			s.dropped[key] = append(s.dropped[key], it)
			delete(s.items, name)
		}
	}
}

// needs reports whether a call at now whose window of a width reaches from bucket
// first to last would need what was dropped.
func (s *server) needs(key string, now time.Time, width time.Duration, first, last int64) bool {
	for _, it := range s.dropped[key] {
		if b := it.bucket; b.Width == width && b.Index >= first && b.Index <= last && b.End().Add(it.ttl).After(now) {
			return true
		}
	}
	return false
}

func (s *server) stale(any bool) error {
	if any && !s.has("drops by label, and AnyLabel is stale too") || s.has("drops by label, and does not say so") {
		return nil
	}
	return fmt.Errorf("server: %w", backend.ErrStaleLabel)
}

// staleDo returns the error of a request that needs a dropped bucket, and drops the
// buckets that have expired by the request's own clock.
func (s *server) staleDo(op *backend.Request) error {
	s.drop(op.Key, op.Now)
	needs := s.has("drops by label, and the newest is stale") && len(s.dropped[op.Key]) > 0
	for _, slot := range op.Add {
		needs = needs || op.N > 0 && s.needs(op.Key, op.Now, slot.Width, slot.Index, slot.Index)
	}
	for _, r := range op.Read {
		needs = needs || !s.has("drops by label, and reads what is left") && s.needs(op.Key, op.Now, r.Width, r.First, r.First+int64(len(r.Counts))-1)
	}
	if !needs || op.N < 0 {
		return nil
	}
	err := s.stale(op.AnyLabel)
	if err != nil && op.N > 0 {
		s.addStale(op)
	}
	return err
}

// addStale makes the mistake of an addition that is refused and counts.
func (s *server) addStale(op *backend.Request) {
	if !s.has("drops by label, and a stale addition counts") {
		return
	}
	for i := range op.Add {
		_ = s.add(op, &op.Add[i])
		op.Add[i].Count = 0
	}
}

func (s *server) staleStep(t *backend.TakeRequest) error {
	for _, d := range t.Keys {
		key := string(d.Key)
		s.drop(key, t.Now)
		needs := false
		for i, b := range d.Ladder.Buckets(t.Now) {
			needs = needs || s.needs(key, t.Now, d.Ladder.At(i).Width, b.Index, b.Index)
		}
		for _, w := range d.Windows {
			width := d.Ladder.At(w.Finest).Width
			needs = needs || s.needs(key, t.Now, width, tiers.Index(t.Now.Add(-w.Reach).UnixNano(), width), math.MaxInt64)
		}
		if err := s.stale(t.AnyLabel); needs && err != nil {
			op := &backend.Request{Key: key, Ladder: d.Ladder, Now: t.Now, N: d.N}
			for i, b := range d.Ladder.Buckets(t.Now) {
				op.Add = append(op.Add, backend.Slot{Bucket: b, TTL: d.TTLs[i]})
			}
			s.addStale(op)
			return err
		}
	}
	return nil
}

// relabel makes the mistakes about an addition into the past.
func (s *server) relabel(op *backend.Request) {
	if op.Age == 0 || op.N < 0 {
		return
	}
	at := op.Now
	switch {
	case s.has("counts the past as the present"):
		at = at.Add(op.Age)
	case s.has("counts the past twice as old"):
		at = at.Add(-op.Age)
	}
	for i := range op.Add {
		op.Add[i].Index = tiers.Index(at.UnixNano(), op.Add[i].Width)
	}
}

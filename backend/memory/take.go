package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// Take is described in [backend.Atomic]. A key that is denied, or peeked at,
// leaves no trace.
func (s *Store) Take(ctx context.Context, t *backend.TakeRequest) error {
	if err := late(ctx, t.Deadline); err != nil {
		return err
	}
	now, err := instant(t.Now)
	if err != nil {
		return err
	}
	if len(t.Keys) == 1 && !t.Peek {
		key := &t.Keys[0]
		if shape := s.profiles.known(key.Ladder, key.TTLs); shape != nil {
			hash := maphash.Bytes(s.seed, key.Key)
			sh := s.shard(hash)
			sh.mu.Lock()
			e := sh.table.find(hash, key.Key)
			hit := e != nil && e.prof == shape.prof && e.hit(key, shape, &sh.clock, now, s)
			sh.mu.Unlock()
			if hit {
				key.Fits, t.Allowed = true, true
				return nil
			}
		}
	}
	if err := check(t); err != nil {
		return err
	}
	st := step{t: t, now: now}
	if len(t.Keys) > inPlace {
		st.moreParts = make([]part, len(t.Keys))
	}
	parts := st.all()
	for i := range parts {
		key := &t.Keys[i]
		shape := s.profiles.known(key.Ladder, key.TTLs)
		if shape == nil {
			shape = s.profiles.ladder(key.Ladder, key.TTLs)
		}
		parts[i] = part{key: key, shape: shape, hash: maphash.Bytes(s.seed, key.Key)}
	}
	for {
		lacks, err := s.try(&st)
		if err == nil && lacks > 0 {
			keep := make([]uint64, len(parts))
			for i := range parts {
				keep[i] = parts[i].hash
			}
			if err = s.make(&st.room, lacks, st.own, now, keep); err == nil {
				continue
			}
		}
		s.done(&st.room)
		return err
	}
}

// hit does the step if it is what nearly all are: one key that is known, whose
// newest buckets are those of now, and every window has room. Otherwise it
// does nothing, and the long way decides: it is the same, and answers the same,
// in twice the time.
func (e *entry) hit(key *backend.TakeKey, shape *shape, c *clock, now int64, s *Store) bool {
	tiers := e.prof.tiers
	if len(tiers) > perEntry || key.N < 1 || e.odd != 0 {
		return false
	}
	c.set(e.prof, now)
	for k := range tiers {
		if n := &e.newest[k]; n.start != c.at[k].start || n.n == 0 || n.n > half-key.N {
			return false
		}
	}
	for i := range key.Windows {
		w := &key.Windows[i]
		if w.Finest < 0 || w.Finest >= len(shape.of) || w.Reach < 0 || shape.sum(w.Finest) {
			return false
		}
		k := shape.of[w.Finest].at
		tier := &tiers[k]
		reach := int64(w.Reach)
		if reach > tier.ttl-tiers[0].width {
			return false // nothing that was dropped may be needed: see stale.go
		}
		w.Count = e.count(k, cutoff(now, reach, tier.width), reach, s)
		if w.Count > w.Max-key.N {
			return false
		}
		w.FreedBy.Width, w.FreedBy.Index = 0, 0
		w.Newest.Width, w.Newest.Index = time.Duration(tier.width), c.at[k].index
	}
	for k := range tiers {
		e.newest[k].n += key.N
	}
	return true
}

// check finds the caller's mistakes.
func check(t *backend.TakeRequest) error {
	for i := range t.Keys {
		key := &t.Keys[i]
		n := key.Ladder.Len()
		if n == 0 || len(key.TTLs) != n {
			return fmt.Errorf("memory: %d TTLs for a ladder of %d tiers, want one for each", len(key.TTLs), n)
		}
		for _, ttl := range key.TTLs {
			if ttl < 0 {
				return fmt.Errorf("memory: TTL %s, want above zero", ttl)
			}
		}
		if key.N < 0 || key.N > backend.MaxCount {
			return fmt.Errorf("memory: n %d, want 0 to %d", key.N, int64(backend.MaxCount))
		}
		for j := range key.Windows {
			if w := &key.Windows[j]; w.Finest < 0 || w.Finest >= n || w.Reach < 0 {
				return fmt.Errorf("memory: window of %s from tier %d, want a reach of zero or more and a tier of the ladder's %d", w.Reach, w.Finest, n)
			}
		}
	}
	return nil
}

package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// Take is described in [counter.Taker]. A key that is denied, or peeked at,
// leaves no trace.
func (s *Store) Take(ctx context.Context, t *counter.Taking) error {
	if err := late(ctx, t.Deadline); err != nil {
		return err
	}
	now, err := instant(t.Now)
	if err != nil {
		return err
	}
	shape, hash := s.profiles.known(t.Ladder, t.TTLs), uint64(0)
	if shape != nil && len(t.Demands) == 1 && !t.Peek {
		d := &t.Demands[0]
		hash = maphash.Bytes(s.seed, d.Key)
		sh := s.shard(hash)
		sh.mu.Lock()
		e := sh.table.find(hash, d.Key)
		hit := e != nil && e.prof == shape.prof && e.hit(t, d.Windows, shape, &sh.clock, now, s)
		sh.mu.Unlock()
		if hit {
			return nil
		}
	}
	if err := check(t); err != nil {
		return err
	}
	if shape == nil {
		shape = s.profiles.ladder(t.Ladder, t.TTLs)
	}
	st := step{t: t, now: now, shape: shape}
	if len(t.Demands) > inPlace {
		st.moreParts = make([]part, len(t.Demands))
	}
	parts := st.all()
	for i := range parts {
		if parts[i].hash = hash; hash == 0 || len(parts) > 1 {
			parts[i].hash = maphash.Bytes(s.seed, t.Demands[i].Key)
		}
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
func (e *entry) hit(t *counter.Taking, windows []counter.Window, shape *shape, c *clock, now int64, s *Store) bool {
	tiers := e.prof.tiers
	if len(tiers) > perEntry || t.N < 1 || t.Slack < 0 || e.odd != 0 {
		return false
	}
	c.set(e.prof, now)
	for k := range tiers {
		if n := &e.newest[k]; n.start != c.at[k].start || n.n == 0 || n.n > shape.safe-t.N {
			return false
		}
	}
	for i := range windows {
		w := &windows[i]
		if w.Finest < 0 || w.Decision < w.Finest || w.Decision >= len(shape.of) || w.Per < 0 || shape.sum(w.Finest) {
			return false
		}
		k := shape.of[w.Finest].at
		tier := &tiers[k]
		reach := add(int64(w.Per), int64(t.Slack))
		if reach > tier.ttl-tiers[0].width {
			return false // nothing that was dropped may be needed: see stale.go
		}
		w.Count = e.count(k, cutoff(now, reach, tier.width), reach, s)
		if w.Count > w.Max-t.N {
			return false
		}
		w.Leaves.Width, w.Leaves.Index = 0, 0
		w.Newest.Width, w.Newest.Index = time.Duration(tier.width), c.at[k].index
	}
	for k := range tiers {
		e.newest[k].n += t.N
	}
	t.Allowed = true
	return true
}

// check finds the caller's mistakes.
func check(t *counter.Taking) error {
	n := t.Ladder.Len()
	if n == 0 || len(t.TTLs) != n {
		return fmt.Errorf("memory: %d TTLs for a ladder of %d tiers, want one for each", len(t.TTLs), n)
	}
	for _, ttl := range t.TTLs {
		if ttl < 0 {
			return fmt.Errorf("memory: TTL %s, want above zero", ttl)
		}
	}
	if t.N < 1 || t.Slack < 0 {
		return fmt.Errorf("memory: n %d and slack %s, want one or more and zero or more", t.N, t.Slack)
	}
	for i := range t.Demands {
		for j := range t.Demands[i].Windows {
			if w := &t.Demands[i].Windows[j]; w.Finest < 0 || w.Decision < w.Finest || w.Decision >= n || w.Per < 0 {
				return fmt.Errorf("memory: window %s of tiers %d to %d, want a length of zero or more and tiers of the ladder's %d", w.Per, w.Finest, w.Decision, n)
			}
		}
	}
	return nil
}

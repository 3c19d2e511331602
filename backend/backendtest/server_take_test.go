package backendtest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

func (s *server) Together([]counter.Demand) bool { return true }

// row is the buckets of a key and a width from one on, oldest first.
func (s *server) row(key string, width time.Duration, first int64) (row []item) {
	for _, name := range s.keys[key] {
		if it := s.items[name]; it.key == key && it.bucket.Width == width && it.bucket.Index >= first && it.count > 0 && time.Now().Before(it.dies) {
			row = append(row, it)
		}
	}
	slices.SortFunc(row, func(a, b item) int { return cmp.Compare(a.bucket.Index, b.bucket.Index) })
	return slices.CompactFunc(row, func(a, b item) bool { return a.bucket == b.bucket })
}

func (s *server) Take(ctx context.Context, t *counter.Taking) error {
	timeout, err := s.begun(ctx, t.Deadline)
	if err != nil {
		return err
	}
	mine := *t
	mine.Demands = nil
	for _, d := range t.Demands {
		if err := badKey(string(d.Key)); err != nil {
			return err
		}
		key := d.Key
		if !s.has("keeps the key of a step") {
			key = slices.Clone(key)
		}
		mine.Demands = append(mine.Demands, counter.Demand{Key: key, Windows: slices.Clone(d.Windows)})
	}
	fill := func() {
		t.Allowed = mine.Allowed
		for i, d := range mine.Demands {
			copy(t.Demands[i].Windows, d.Windows)
		}
	}
	if !hurried(ctx, t.Deadline) {
		err := s.step(&mine)
		fill()
		return err
	}
	answered := make(chan error, 1)
	go func() {
		slowly()
		err := s.step(&mine)
		slowly()
		answered <- err
	}()
	select {
	case err := <-answered:
		fill()
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout:
		return errLate
	}
}

func (s *server) step(t *counter.Taking) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.staleStep(t); err != nil {
		return err
	}
	t.Allowed = true
	for i := range t.Demands {
		for j := range t.Demands[i].Windows {
			s.count(t, &t.Demands[i], j)
			w := &t.Demands[i].Windows[j]
			if s.has("only the first window is looked at") && j > 0 || s.has("only the first key is looked at") && i > 0 {
				continue
			}
			t.Allowed = t.Allowed && w.Count <= w.Max-t.N
		}
	}
	if s.has("looks first and adds later") {
		s.mu.Unlock()
		time.Sleep(10 * time.Microsecond)
		s.mu.Lock()
	}
	if (t.Allowed || s.has("a denial adds")) && (!t.Peek || s.has("a peek adds")) {
		for _, d := range t.Demands {
			op := &counter.Op{Key: string(d.Key), Ladder: t.Ladder, Now: t.Now, N: t.N}
			for i, b := range t.Ladder.Buckets(t.Now) {
				if i > 0 && s.has("a step adds to the finest tier alone") {
					break
				}
				op.Add = append(op.Add, counter.Slot{Bucket: b, TTL: t.TTLs[i]})
			}
			for i := range op.Add {
				if err := s.add(op, &op.Add[i]); err != nil {
					if s.has("a step beyond MaxCount is no error") {
						continue
					}
					// Together or not at all.
					for j := range i {
						back := *op
						back.N = -t.N
						_ = s.add(&back, &op.Add[j])
					}
					return err
				}
			}
		}
	}
	for i := range t.Demands {
		for j := range t.Demands[i].Windows {
			s.newest(t, &t.Demands[i], j)
		}
	}
	return nil
}

func (s *server) count(t *counter.Taking, d *counter.Demand, j int) {
	w := &d.Windows[j]
	width := t.Ladder.At(w.Finest).Width
	from := t.Now.Add(-w.Per - t.Slack)
	if s.has("a window without slack") {
		from = t.Now.Add(-w.Per)
	}
	first := tiers.Index(from.UnixNano(), width)
	if s.has("the oldest bucket leaves with its start") {
		first++
	}
	row := s.row(string(d.Key), width, first)
	w.Count, w.Leaves = 0, tiers.Bucket{}
	for _, it := range row {
		if !s.has("a window closed at now") || it.bucket.Index <= tiers.Index(t.Now.UnixNano(), width) {
			w.Count += it.count
		}
	}
	need := w.Count + t.N - w.Max
	for _, it := range row {
		if need > 0 {
			if w.Leaves = it.bucket; s.has("the oldest bucket is the one to leave") {
				need = 0
			}
		}
		need -= it.count
	}
}

func (s *server) newest(t *counter.Taking, d *counter.Demand, j int) {
	w := &d.Windows[j]
	width := t.Ladder.At(w.Finest).Width
	row := s.row(string(d.Key), width, tiers.Index(t.Now.Add(-w.Per-t.Slack).UnixNano(), width))
	w.Newest = tiers.Bucket{}
	if len(row) > 0 {
		w.Newest = row[len(row)-1].bucket
	}
	if s.has("now is always the newest") {
		w.Newest = tiers.Bucket{Width: width, Index: tiers.Index(t.Now.UnixNano(), width)}
	}
	if s.has("counts after the step") && t.Allowed && !t.Peek {
		w.Count += t.N
	}
}

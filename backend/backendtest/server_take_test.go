package backendtest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

func (s *server) Together([]backend.TakeKey) bool { return true }

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

func (s *server) Take(ctx context.Context, t *backend.TakeRequest) error {
	timeout, err := s.begun(ctx, t.Deadline)
	if err != nil {
		return err
	}
	mine := *t
	mine.Keys = nil
	for _, d := range t.Keys {
		if err := badKey(string(d.Key)); err != nil {
			return err
		}
		key := d.Key
		if !s.has("keeps the key of a step") {
			key = slices.Clone(key)
		}
		mine.Keys = append(mine.Keys, backend.TakeKey{Key: key, N: d.N, Ladder: d.Ladder, TTLs: d.TTLs, Soft: d.Soft, Windows: slices.Clone(d.Windows)})
	}
	fill := func() {
		t.Allowed, t.Taken = mine.Allowed, mine.Taken
		for i, d := range mine.Keys {
			t.Keys[i].Fits = d.Fits
			copy(t.Keys[i].Windows, d.Windows)
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

func (s *server) step(t *backend.TakeRequest) error {
	if s.has("a step is made as often as asked") {
		time.Sleep(time.Millisecond) // calls of a key wait for one another, also on a busy machine
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.staleStep(t); err != nil {
		return err
	}
	t.Allowed = true
	for i := range t.Keys {
		key := &t.Keys[i]
		if s.has("all keys have the n of the first") {
			key.N = t.Keys[0].N
		}
		if s.has("all keys have the ladder of the first") && t.Keys[0].Ladder.Len() >= key.Ladder.Len() {
			key.Ladder, key.TTLs = t.Keys[0].Ladder, t.Keys[0].TTLs
		}
		key.Fits = true
		for j := range key.Windows {
			s.count(t, key, j)
			w := &key.Windows[j]
			if s.has("only the first window is looked at") && j > 0 || s.has("only the first key is looked at") && i > 0 {
				continue
			}
			key.Fits = key.Fits && w.Count <= w.Max-key.N
		}
		t.Allowed = t.Allowed && (key.Fits || key.Soft && !s.has("a soft key denies"))
	}
	if s.has("looks first and adds later") {
		s.mu.Unlock()
		time.Sleep(10 * time.Microsecond)
		s.mu.Lock()
	}
	times := int64(1)
	switch {
	case s.has("a step for several times is made once"):
	case s.has("a step is made as often as asked"):
		times = max(1, t.Times)
	case t.Allowed:
		times = t.Fitting()
	}
	if t.Taken = times; s.has("a step tells the times that were asked") {
		t.Taken = t.Times
	}
	if (t.Allowed || s.has("a denial adds")) && (!t.Peek || s.has("a peek adds")) {
		for i := range t.Keys {
			d := &t.Keys[i]
			if d.N == 0 || d.Soft && (!d.Fits && !s.has("a soft key is added to without room") || s.has("a soft key is never added to")) {
				continue
			}
			op := &backend.Request{Key: string(d.Key), Ladder: d.Ladder, Now: t.Now, N: d.N * times}
			for i, b := range d.Ladder.Buckets(t.Now) {
				if i > 0 && s.has("a step adds to the finest tier alone") {
					break
				}
				op.Add = append(op.Add, backend.Slot{Bucket: b, TTL: d.TTLs[i]})
			}
			for i := range op.Add {
				if err := s.add(op, &op.Add[i]); err != nil {
					if s.has("a step beyond MaxCount is no error") {
						continue
					}
					// Together or not at all.
					for j := range i {
						back := *op
						back.N = -op.N
						_ = s.add(&back, &op.Add[j])
					}
					return err
				}
			}
		}
	}
	for i := range t.Keys {
		for j := range t.Keys[i].Windows {
			s.newest(t, &t.Keys[i], j)
		}
	}
	return nil
}

func (s *server) count(t *backend.TakeRequest, d *backend.TakeKey, j int) {
	w := &d.Windows[j]
	width := d.Ladder.At(w.Finest).Width
	from := t.Now.Add(-w.Reach)
	if s.has("a window that reaches too short") {
		from = t.Now.Add(-w.Reach + time.Second)
	}
	if limit := (backend.Window{Max: w.Max, Finest: w.Finest, Period: w.Period}); s.has("a limit keeps its first reach") {
		if s.reaches[limit] == 0 {
			s.reaches[limit] = w.Reach
		}
		from = t.Now.Add(-s.reaches[limit])
	}
	first := tiers.Index(from.UnixNano(), width)
	if s.has("the oldest bucket leaves with its start") {
		first++
	}
	row := s.row(string(d.Key), width, first)
	w.Count, w.FreedBy = 0, tiers.Bucket{}
	for _, it := range row {
		if !s.has("a window closed at now") || it.bucket.Index <= tiers.Index(t.Now.UnixNano(), width) {
			w.Count += it.count
		}
	}
	need := w.Count + d.N - w.Max
	for _, it := range row {
		if need > 0 {
			if w.FreedBy = it.bucket; s.has("the oldest bucket is the one to leave") {
				need = 0
			}
		}
		need -= it.count
	}
}

func (s *server) newest(t *backend.TakeRequest, d *backend.TakeKey, j int) {
	w := &d.Windows[j]
	width := d.Ladder.At(w.Finest).Width
	row := s.row(string(d.Key), width, tiers.Index(t.Now.Add(-w.Reach).UnixNano(), width))
	w.Newest = tiers.Bucket{}
	if len(row) > 0 && !s.has("nothing is the newest") {
		w.Newest = row[len(row)-1].bucket
	}
	if s.has("now is always the newest") {
		w.Newest = tiers.Bucket{Width: width, Index: tiers.Index(t.Now.UnixNano(), width)}
	}
	if s.has("counts after the step") && t.Allowed && !t.Peek {
		w.Count += d.N
	}
}

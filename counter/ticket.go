package counter

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// The ticket protocol, for stores that can only add and read. An atomic
// increment returns a number, and that number is a place in a queue. What is
// read when, plan says; why it holds, docs/design.md; the numbers of the steps
// are those of that page.

// maxRetries is how often a call that was refused tries again when, its hits
// taken back, there is room: it had met others who were refused as well.
const maxRetries = 2

// inTurn answers on a store without an atomic step for these demands: one key
// after the other. It returns the stamp of the try that decided.
func (c *Counter) inTurn(ctx context.Context, demands []Demand, asks []Ask, stamp time.Time, n int64, peek bool) (bool, time.Time, error) {
	c.inFlight.Add(1)
	defer c.inFlight.Add(-1)
	began := time.Now()
	deadline := c.deadline()
	if peek {
		allowed, err := c.lookAll(ctx, demands, asks, stamp, deadline, n, true)
		return allowed, stamp, err
	}
	if c.denied != nil {
		if c.denied.recall(demands, stamp.UnixNano(), n) {
			return false, stamp, nil
		}
		if c.denied.lately(demands, stamp.UnixNano()) {
			allowed, err := c.lookAll(ctx, demands, asks, stamp, deadline, n, false)
			if err != nil {
				return false, stamp, err
			}
			if !allowed {
				c.denied.learn(c, demands, stamp.UnixNano(), n, false)
				return false, stamp, nil
			}
			stamp = c.now()
		}
	}
	for try := 0; ; try++ {
		allowed, room, err := c.try(ctx, demands, asks, stamp, deadline, n)
		if err != nil {
			return false, stamp, err
		}
		if c.denied != nil {
			c.denied.note(demands, stamp.UnixNano(), n, allowed)
		}
		spent := time.Since(began)
		if allowed || !room || try == maxRetries || c.budget > 0 && spent > c.budget/2 {
			return allowed, stamp, nil
		}
		select {
		case <-time.After(rand.N(min(spent, 10*time.Millisecond) + 1)):
		case <-ctx.Done():
			return false, stamp, c.failed(ctx, asks[0].Key.Event, ctx.Err())
		}
		stamp = c.now()
	}
}

// try takes every demand, in the order of their keys, or none. room tells of a
// denial that there is room now.
func (c *Counter) try(ctx context.Context, demands []Demand, asks []Ask, stamp, deadline time.Time, n int64) (allowed, room bool, err error) {
	order := make([]int, len(demands))
	for i := range order {
		order[i] = i
	}
	// All callers in one order: in chance order racers shoot each other down.
	slices.SortFunc(order, func(a, b int) int { return slices.Compare(demands[a].Key, demands[b].Key) })
	taken := make([]ticket, 0, len(order))
	back := func() {
		for _, t := range taken {
			c.takeBack(ctx, t.key, stamp, n, t.slots, nil)
		}
	}
	for k, i := range order {
		t := ticket{survey: survey{c: c, key: string(demands[i].Key), stamp: stamp, deadline: deadline, windows: demands[i].Windows}, n: n}
		if c.taker != nil {
			allowed, err = t.step(ctx, demands[i:i+1])
		} else {
			allowed, err = t.take(ctx)
		}
		if err != nil {
			back()
			return false, false, c.failed(ctx, asks[i].Key.Event, err)
		}
		if allowed {
			taken = append(taken, t)
			continue
		}
		back()
		room = t.room
		for _, j := range order[k+1:] {
			// What the others say makes the verdict whole. Without an answer
			// it speaks of those that were asked.
			if ok, err := c.look(ctx, &demands[j], stamp, c.deadline(), n, true); err != nil || !ok {
				room = false
			}
		}
		return false, room, nil
	}
	return true, false, nil
}

// ticket is one key of one try.
type ticket struct {
	survey
	n     int64
	slots []Slot
	room  bool // of a denial: all hits taken back, there is room
}

// step takes by the store's own atomic step, where that cannot hold all keys.
func (t *ticket) step(ctx context.Context, demand []Demand) (bool, error) {
	c := t.c
	taking := Taking{Now: t.stamp, Deadline: t.deadline, Ladder: c.plan.ladder, TTLs: c.ttls,
		Slack: time.Duration(c.plan.left), N: t.n, Demands: demand}
	if err := c.taker.Take(ctx, &taking); err != nil {
		return false, err
	}
	if taking.Allowed {
		t.slots = c.answered(t.stamp.UnixNano())
		if late := c.late(t.stamp); late != nil {
			c.takeBack(ctx, t.key, t.stamp, t.n, t.slots, nil)
			return false, late
		}
	}
	return taking.Allowed, nil
}

// take takes by ticket.
func (t *ticket) take(ctx context.Context) (bool, error) {
	c, label := t.c, t.stamp.UnixNano()
	limits := make(Limits, len(t.windows))
	for i, w := range t.windows {
		limits[i] = w.Limit
	}
	reach, err := c.plan.reaches(nil, limits)
	if err != nil {
		return false, err
	}

	// 1: add, and read beside it what is settled.
	var early tiers.Cover
	t.covers = make([]tiers.Cover, len(reach))
	for i, r := range reach {
		t.covers[i] = c.plan.settled(nil, label, r)
		early = append(early, t.covers[i]...)
	}
	op := &Op{Key: t.key, Ladder: c.plan.ladder, Now: t.stamp, Deadline: t.deadline, N: t.n, Add: c.slots(label), Read: spansOf(early)}
	err = c.store.Do(ctx, op)
	t.slots = op.Add
	if err != nil {
		return false, t.undo(ctx, err)
	}
	t.known = op.Read

	// 2: all additions are confirmed. Within the budget?
	if late := c.late(t.stamp); late != nil {
		return false, t.undo(ctx, late)
	}

	// 3: read what was not settled, as far as another clock may be by now.
	now := label + int64(c.elapsed(t.stamp))
	var rest tiers.Cover
	for i, r := range reach {
		first := len(rest)
		rest = c.plan.unsettled(rest, label, now, r)
		// The own bucket stands between what is left of it and what is right.
		own := tiers.Run{Width: t.slots[r.ticket].Width, First: t.slots[r.ticket].Index, N: 1}
		for _, run := range rest[first:] {
			if own.N > 0 && run.First > own.First {
				t.covers[i] = append(t.covers[i], own)
				own.N = 0
			}
			t.covers[i] = append(t.covers[i], run)
		}
		if own.N > 0 {
			t.covers[i] = append(t.covers[i], own)
		}
	}
	if len(rest) > 0 {
		if err := t.fetch(ctx, rest); err != nil {
			return false, t.undo(ctx, err)
		}
		if late := c.late(t.stamp); late != nil {
			return false, t.undo(ctx, late)
		}
	}

	// 4: judge.
	t.own(t.slots)
	if t.judge() {
		t.newest(label, reach)
		return true, nil
	}
	t.refuse(ctx, now, reach)
	return false, nil
}

// own puts the counts of the slots, without this call's own hits, before what
// was read.
func (t *ticket) own(slots []Slot) {
	mine := make([]Span, len(slots))
	for i, slot := range slots {
		mine[i] = Span{Width: slot.Width, First: slot.Index, Counts: []int64{slot.Count - t.n}}
	}
	t.known = append(mine, t.known...)
}

// judge counts, and tells whether there is room in all windows.
func (t *ticket) judge() bool {
	fits := true
	for i := range t.windows {
		w := &t.windows[i]
		w.Count = t.count(i)
		fits = fits && plus(w.Count, t.n) <= w.Max
	}
	return fits
}

// newest writes Newest of an admitted call: its own bucket, or what a clock
// ahead has hit beyond the ticket's.
func (t *ticket) newest(label int64, reach []reach) {
	for i, r := range reach {
		w := &t.windows[i]
		width := t.c.plan.ladder.At(r.fine).Width
		w.Newest = tiers.Bucket{Width: width, Index: tiers.Index(label, width)}
		last := t.covers[i][len(t.covers[i])-1]
		for j := last.First; j < last.First+last.N; j++ {
			if n, _ := t.at(last.Width, j); n > 0 && j > tiers.Index(label, last.Width) {
				w.Newest = t.last(tiers.Bucket{Width: last.Width, Index: j}, r.fine)
			}
		}
	}
}

// undo takes back what was answered, and hands err on.
func (t *ticket) undo(ctx context.Context, err error) error {
	t.c.takeBack(ctx, t.key, t.stamp, t.n, t.slots, nil)
	return err
}

// refuse takes the hits back, and finds out from the answers whether there is
// room now, and if not when there will be.
func (t *ticket) refuse(ctx context.Context, now int64, reach []reach) {
	c, label := t.c, t.stamp.UnixNano()
	recent := make([]tiers.Run, len(reach))
	wanted := t.answer(t.n, nil) // a guess at what will decide, read by the way
	for i, r := range reach {
		width := c.plan.ladder.At(r.fine).Width
		first, last := tiers.Index(label-c.plan.settle, width), tiers.Index(now+c.plan.right, width)
		first = max(first, last-maxRecent+1)
		recent[i] = tiers.Run{Width: width, First: first, N: last - first + 1}
		wanted = append(wanted, recent[i])
	}
	op, err := c.takeBack(ctx, t.key, t.stamp, t.n, t.slots, spansOf(wanted))
	if err != nil {
		return // the verdict stays as coarse as it is
	}
	race := c.inFlight.Load() > 1
	for i := range op.Add {
		op.Add[i].Count += t.n // own takes it off again
		race = race || op.Add[i].Count != t.slots[i].Count
	}
	t.known = append(t.known, op.Read...)
	t.own(op.Add)
	t.room = t.judge()
	// Counts above Max are hits that came by Add or under another limit, and
	// stay; or, in a race, callers of the last moments who will be taken back
	// as well, and whom nobody must wait for.
	surplus := make([]int64, len(reach))
	if race {
		for i, run := range recent {
			w := &t.windows[i]
			for j := range run.N {
				n, _ := t.at(run.Width, run.First+j)
				surplus[i] = plus(surplus[i], n)
			}
			surplus[i] = min(surplus[i], max(0, w.Count-w.Max))
		}
	}
	t.deadline = c.deadline()
	t.refine(context.WithoutCancel(ctx), t.n, surplus)
}

// maxRecent bounds the buckets that are read to tell other callers in flight
// from hits that will stay.
const maxRecent = 64

// lookAll is what a try would answer, from reading alone. With details it reads
// on until the answer is exact also for calls that it allows.
func (c *Counter) lookAll(ctx context.Context, demands []Demand, asks []Ask, stamp, deadline time.Time, n int64, details bool) (bool, error) {
	allowed := true
	for i := range demands {
		ok, err := c.look(ctx, &demands[i], stamp, deadline, n, details)
		if err != nil {
			return false, c.failed(ctx, asks[i].Key.Event, err)
		}
		allowed = allowed && ok
	}
	return allowed, nil
}

func (c *Counter) look(ctx context.Context, d *Demand, stamp, deadline time.Time, n int64, details bool) (bool, error) {
	s := survey{c: c, key: string(d.Key), stamp: stamp, deadline: deadline, windows: d.Windows, covers: make([]tiers.Cover, len(d.Windows))}
	var all tiers.Cover
	for i, w := range d.Windows {
		s.covers[i] = c.plan.whole(nil, stamp.UnixNano(), reach{per: int64(w.Per), fine: w.Finest, top: w.Decision, ticket: w.Decision})
		all = append(all, s.covers[i]...)
	}
	if err := s.fetch(ctx, all); err != nil {
		return false, err
	}
	allowed := true
	for i := range s.windows {
		w := &s.windows[i]
		w.Count = s.count(i)
		allowed = allowed && plus(w.Count, n) <= w.Max
	}
	if details || !allowed {
		s.refine(ctx, n, nil)
	}
	return allowed, nil
}

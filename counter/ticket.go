package counter

import (
	"context"

	"github.com/abacus-go/abacus/tiers"
)

// The ticket protocol, for stores that can only add and read. An atomic
// increment returns a number, and that number is a place in a queue. What is
// read when, plan says; why it holds, docs/design.md; the numbers of the steps
// are those of that page.

// ticket is one key of one try.
type ticket struct {
	survey
	n     int64
	slots []Slot
	room  bool // of a denial: all hits taken back, there is room
}

// take takes by ticket.
func (t *ticket) take(ctx context.Context) (bool, error) {
	c, label := t.c, t.stamp.UnixNano()

	// 1: add, and read beside it what is settled.
	var early tiers.Cover
	reach := t.reaches()
	t.covers = make([]tiers.Cover, len(reach))
	for i, r := range reach {
		t.covers[i] = c.plan.settled(nil, label, r)
		early = append(early, t.covers[i]...)
	}
	op := &Op{Key: t.key, Ladder: c.plan.ladder, Now: t.stamp, Deadline: t.deadline, N: t.n, Add: c.slots(label), Read: spansOf(early), AnyLabel: t.anyLabel}
	err := c.store.Do(ctx, op)
	t.slots = op.Add
	if err != nil {
		return false, t.undo(ctx, err)
	}
	t.known = op.Read

	// 2: all additions are confirmed. In time?
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
		own := tiers.Run{Width: t.slots[r.top].Width, First: t.slots[r.top].Index, N: 1}
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

// undo takes back what was answered, and hands err on. Of a try that was late
// and is taken back, nothing is left, and it may be made again; of one whose
// taking back failed that cannot be said.
func (t *ticket) undo(ctx context.Context, err error) error {
	if _, failed := t.c.takeBack(ctx, t.key, t.stamp, t.grace, t.n, t.slots, nil); failed != nil {
		return failed
	}
	return err
}

// refuse takes the hits back, and finds out from the answers whether there is
// room now, and if not when there will be.
func (t *ticket) refuse(ctx context.Context, now int64, reach []reach) {
	c := t.c
	wanted := t.answer(t.n) // a guess at what will decide, read by the way
	wanted = append(wanted, t.young(now)...)
	op, err := c.takeBack(ctx, t.key, t.stamp, t.grace, t.n, t.slots, spansOf(wanted))
	t.deadline = t.grace
	if err != nil {
		// What was counted may be gone in a moment or stay for a day: nothing
		// is known of how old it is.
		t.crowd, t.news = true, make([]int64, len(t.windows))
		for i := range t.windows {
			t.news[i] = t.windows[i].Count
		}
		return
	}
	t.crowd = t.crowd || c.crowded([]byte(t.key), t.stamp)
	for i := range op.Add {
		op.Add[i].Count += t.n // own takes it off again
		t.crowd = t.crowd || op.Add[i].Count != t.slots[i].Count
	}
	t.known = append(t.known, op.Read...)
	t.own(op.Add)
	t.room = t.judge()
	t.weigh()
	t.refine(context.WithoutCancel(ctx), t.n)
}

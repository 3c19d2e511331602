package counter

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// The ticket protocol, for stores that can only add and read. An atomic
// increment returns a number, and that number is a place in a queue. What is
// read when, plan says; why it holds, docs/design.md; the numbers of the steps
// are those of that page.

// ticket is one key of one try.
type ticket struct {
	survey
	slots []backend.Slot
	room  bool // of a denial: all hits taken back, there is room
}

// ticket is number i of the keys of the call, to be taken or looked at. What is
// taken back, and what a refusal asks for, may last until grace.
func (k *call) ticket(i int, grace time.Time) *ticket {
	key, r := &k.req.Keys[i], &k.req
	t := &ticket{survey: survey{c: k.c, grace: grace, n: key.N, windows: key.Windows, bounds: make([]bounds, len(key.Windows)),
		base: backend.Request{Key: string(key.Key), Ladder: key.Ladder, Now: r.Now, Deadline: r.Deadline, AnyLabel: r.AnyLabel}}}
	for j, limit := range k.asks[i].Limits {
		t.bounds[j] = k.c.plan.boundsOf(limit.Per, key.Windows[j].Finest)
	}
	return t
}

// take takes by ticket.
func (t *ticket) take(ctx context.Context) (bool, error) {
	c, label := t.c, t.label()

	// 1: add, and read beside it what is settled.
	var early tiers.Cover
	t.covers = make([]tiers.Cover, len(t.bounds))
	for i, b := range t.bounds {
		t.covers[i] = c.plan.settled(nil, label, b)
		early = append(early, t.covers[i]...)
	}
	r := t.base
	r.N, r.Add, r.Read = t.n, c.slots(label), spansOf(early)
	err := c.store.Do(ctx, &r)
	t.slots = r.Add
	if err != nil {
		return false, t.undo(ctx, err)
	}
	t.known = r.Read

	// 2: all additions are confirmed. In time?
	if late := c.late(t.base.Now); late != nil {
		return false, t.undo(ctx, late)
	}

	// 3: read what was not settled, as far as another clock may be by now.
	now := label + int64(c.elapsed(t.base.Now))
	if rest := t.complete(label, now); len(rest) > 0 {
		if err := t.fetch(ctx, rest); err != nil {
			return false, t.undo(ctx, err)
		}
		if late := c.late(t.base.Now); late != nil {
			return false, t.undo(ctx, late)
		}
	}

	// 4: judge.
	t.own(t.slots)
	if t.judge() {
		t.newest(label)
		return true, nil
	}
	t.refuse(ctx, now)
	return false, nil
}

// complete puts the label's own buckets into the covers, and behind the settled
// part those that were not settled, which it returns.
func (t *ticket) complete(label, now int64) (rest tiers.Cover) {
	for i, b := range t.bounds {
		first := len(rest)
		rest = t.c.plan.unsettled(rest, label, now, b)
		// The own bucket stands between what is left of it and what is right.
		own := tiers.Run{Width: t.slots[b.top].Width, First: t.slots[b.top].Index, N: 1}
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
	return rest
}

// own puts the counts of the slots, without this call's own hits, before what
// was read.
func (t *ticket) own(slots []backend.Slot) {
	mine := make([]backend.Span, len(slots))
	for i, slot := range slots {
		mine[i] = backend.Span{Width: slot.Width, First: slot.Index, Counts: []int64{slot.Count - t.n}}
	}
	t.known = append(mine, t.known...)
}

// judge counts, and tells whether there is room in all windows.
func (t *ticket) judge() bool {
	for i := range t.windows {
		t.windows[i].Count = t.count(i)
	}
	return t.fits()
}

// newest writes Newest of an admitted call: its own bucket, or what a clock
// ahead has hit beyond the ticket's.
func (t *ticket) newest(label int64) {
	for i, b := range t.bounds {
		w := &t.windows[i]
		w.Newest = t.c.plan.bucketAt(label, b.fine)
		last := t.covers[i][len(t.covers[i])-1]
		for j := last.First; j < last.First+last.N; j++ {
			if n, _ := t.at(last.Width, j); n > 0 && j > tiers.Index(label, last.Width) {
				w.Newest = t.last(tiers.Bucket{Width: last.Width, Index: j}, b.fine)
			}
		}
	}
}

// undo takes back what was answered, and hands err on. Of a try that was late
// and is taken back, nothing is left, and it may be made again; of one whose
// taking back failed that cannot be said.
func (t *ticket) undo(ctx context.Context, err error) error {
	if failed := t.takeBack(ctx); failed != nil {
		return failed
	}
	return err
}

// takeBack takes back all that was added.
func (t *ticket) takeBack(ctx context.Context) error {
	_, err := t.c.takeBack(ctx, t.base, t.grace, t.n, t.slots, nil)
	return err
}

// refuse takes the hits back, and finds out from the answers whether there is
// room now, and if not when there will be.
func (t *ticket) refuse(ctx context.Context, now int64) {
	c := t.c
	wanted := t.answer() // a guess at what will decide, read by the way
	wanted = append(wanted, t.pendingRuns(now)...)
	back, err := c.takeBack(ctx, t.base, t.grace, t.n, t.slots, spansOf(wanted))
	t.base.Deadline = t.grace
	if err != nil {
		// What was counted may be gone in a moment or stay for a day: nothing
		// is known of how old it is.
		t.contended, t.pendingCounts = true, make([]int64, len(t.windows))
		for i := range t.windows {
			t.pendingCounts[i] = t.windows[i].Count
		}
		return
	}
	t.contended = t.contended || c.contended([]byte(t.base.Key), t.label())
	for i := range back.Add {
		back.Add[i].Count += t.n // own takes it off again
		t.contended = t.contended || back.Add[i].Count != t.slots[i].Count
	}
	t.known = append(t.known, back.Read...)
	t.own(back.Add)
	t.room = t.judge()
	t.countPending()
	t.refine(context.WithoutCancel(ctx))
}

// late is an error if a try that was labelled at stamp has lasted longer than
// Settle. The wall clock counts as well as the monotonic one: the one stands
// still while a machine sleeps, the other may have been stepped.
func (c *Counter) late(stamp time.Time) error {
	if c.settle == 0 {
		return nil
	}
	if spent := c.elapsed(stamp); spent > c.settle {
		return &lateError{spent, c.settle}
	}
	return nil
}

// lateError is the error of a try that was confirmed too late to count.
type lateError struct{ spent, settle time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("confirmed after %s, a try may last %s", e.spent, e.settle)
}

func (c *Counter) elapsed(stamp time.Time) time.Duration {
	now := c.now()
	return max(now.Sub(stamp), now.Round(0).Sub(stamp.Round(0)))
}

// slots are the buckets that hold the label.
func (c *Counter) slots(label int64) []backend.Slot {
	slots := make([]backend.Slot, c.plan.ladder.Len())
	for i := range slots {
		slots[i] = backend.Slot{Bucket: c.plan.bucketAt(label, i), TTL: c.ttls[i]}
	}
	return slots
}

// answered are the slots of an addition at the label that is known to have been
// made.
func (c *Counter) answered(label int64) []backend.Slot {
	slots := c.slots(label)
	for i := range slots {
		slots[i].Count = 1
	}
	return slots
}

// takeBack takes n back from the slots whose addition was answered, by the
// deadline, and reads what is in read by the way; base is the request that the
// hits were added by. The caller's context does not stop it: a visitor who hangs
// up would leave his hit behind. It is not tried again.
func (c *Counter) takeBack(ctx context.Context, base backend.Request, deadline time.Time, n int64, slots []backend.Slot, read []backend.Span) (*backend.Request, error) {
	r := &base
	r.Deadline, r.N, r.Add, r.Read, r.AnyLabel = deadline, -n, nil, read, true
	for _, slot := range slots {
		if slot.Count > 0 {
			slot.Count = 0
			r.Add = append(r.Add, slot)
		}
	}
	if len(r.Add) == 0 && len(read) == 0 {
		return r, nil
	}
	err := c.store.Do(context.WithoutCancel(ctx), r)
	if err != nil && len(r.Add) > 0 {
		c.stats.takingBackFailed.Add(1)
	}
	return r, err
}

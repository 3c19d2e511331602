package counter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// The ticket protocol serves stores that can only add and read. An atomic
// increment returns a number, and the number is a place in a queue. plan
// chooses the buckets to read; docs/design.md proves the bound, and has the
// numbers of the steps.

// ticket is the part of a try that concerns one key.
type ticket struct {
	survey
	call       *call
	soft       bool
	slots      []backend.Slot
	coarse     []bool    // coarse[i]: covers[i] begins with a coarse bucket, and not yet with the exact edge
	tight      bool      // a coarse cover was above Max
	read       time.Time // time.Now when the first trip began
	remembered bool      // some counts are remembered: upper bounds, by which no call is denied
	room       bool      // denied, but with all hits taken back there is room
}

// ticket returns a ticket for key i of the call, to be taken or looked at.
// Takings back, and the requests after a refusal, may last until grace.
func (k *call) ticket(i int, grace time.Time) *ticket {
	key, r, c := &k.req.Keys[i], &k.req, k.keys[i].on
	t := &ticket{call: k, soft: key.Soft, survey: survey{c: c, grace: grace, n: key.N, windows: key.Windows, bounds: make([]bounds, len(key.Windows)),
		base: backend.Request{Key: string(key.Key), Ladder: key.Ladder, Now: r.Now, Deadline: r.Deadline, AnyLabel: r.AnyLabel}}}
	for j, limit := range k.keys[i].limits {
		t.bounds[j] = c.plan.boundsOf(limit.Per, key.Windows[j].Finest)
	}
	return t
}

// take takes by ticket. Of no hits the windows are looked at, without a ticket.
func (t *ticket) take(ctx context.Context) (bool, error) {
	if t.n == 0 {
		err := t.look(ctx, true)
		return err == nil && t.fits(), err
	}
	c, label := t.c, t.label()
	exact := c.exact || t.call.mode == charging

	// 1: add, and read the settled buckets in the same trip. Their left edges are
	// coarse at first, unless the numbers must be exact, or a coarse cover of the
	// key was above Max a moment ago.
	t.read = time.Now()
	memory := &nothingSettled
	if !exact {
		memory = c.settled.recall(t.base.Key, t.base.Now)
	}
	settled := t.begin(label, !exact && !memory.tight)
	r := t.base
	r.N, r.Add, r.Read = t.n, c.slots(label), spansOf(unknown(memory.spans, settled))
	reads := len(r.Read)
	if c.ordered.Load() {
		r.Read = append(r.Read, spansOf(t.early(label))...)
	}
	err := c.store.Do(ctx, &r)
	t.slots = r.Add
	if err != nil {
		return false, t.undo(ctx, err)
	}
	if len(r.Read) > 0 && r.Ordered != c.ordered.Load() {
		c.ordered.Store(r.Ordered)
	}
	if !r.Ordered {
		r.Read = r.Read[:reads]
	}
	if t.known, t.remembered = append(r.Read, memory.spans...), memory.spans != nil; t.remembered {
		c.stats.guesses.Add(1)
	}

	// 2: all additions are confirmed. In time?
	if late := t.late(); late != nil {
		return false, t.undo(ctx, late)
	}

	// 3: read the unsettled buckets, as far as another clock may be by now, and
	// the exact edges that can make room.
	t.own(t.slots)
	now := label + int64(c.elapsed(t.base.Now))
	rest := t.complete(label, now)
	for {
		edges, hopeless := t.edges()
		if rest = unknown(t.known, append(rest, edges...)); hopeless || len(rest) == 0 {
			break
		}
		if err := t.fetch(ctx, rest); err != nil {
			return false, t.undo(ctx, err)
		}
		if late := t.late(); late != nil {
			return false, t.undo(ctx, late)
		}
	}
	if reads > 0 || t.tight {
		t.remember(label, settled, memory)
	}

	// 4: judge.
	if t.judge() {
		t.newest(label)
		return true, nil
	}
	return false, t.refuse(ctx, now)
}

// begin puts the settled parts into the covers, with coarse or with exact left
// edges, and returns their runs.
func (t *ticket) begin(label int64, coarse bool) (settled tiers.Cover) {
	t.covers, t.coarse = make([]tiers.Cover, len(t.bounds)), make([]bool, len(t.bounds))
	for i, b := range t.bounds {
		if t.coarse[i] = coarse; coarse {
			b = b.coarse()
		}
		t.covers[i] = t.c.plan.settled(nil, label, b)
		settled = append(settled, t.covers[i]...)
	}
	return settled
}

// maxEarly bounds the unsettled buckets that are read in the first trip.
const maxEarly = 64

// early returns the unsettled buckets that a try in time can need, if they are
// few. A store that reads after adding is asked for them in the first trip.
func (t *ticket) early(label int64) (runs tiers.Cover) {
	for _, b := range t.bounds {
		runs = t.c.plan.unsettled(runs, label, label+t.c.plan.settle, b)
	}
	if runs.Reads() > maxEarly {
		return nil
	}
	return runs
}

// edges puts the exact edge, which is returned, into each coarse cover above
// Max. No edge can make room for a hopeless call: a count is above Max without
// the bucket that the edge would replace. A hopeless call must not read on,
// since its hits make other calls hopeless.
func (t *ticket) edges() (edges tiers.Cover, hopeless bool) {
	for i := range t.windows {
		count, most := plus(t.count(i), t.n), t.windows[i].Max
		if count <= most {
			continue
		}
		if !t.coarse[i] {
			return nil, true
		}
		t.tight = true
		oldest := t.at(t.covers[i][0].Width, t.covers[i][0].First)
		if count-oldest > most {
			return nil, true
		}
		edges = append(edges, t.sharpen(i)...)
	}
	return edges, false
}

// sharpen puts the exact edge, which is returned, into a coarse cover, in place
// of the oldest bucket. The edge of an empty bucket is empty.
func (t *ticket) sharpen(i int) tiers.Cover {
	if !t.coarse[i] {
		return nil
	}
	t.coarse[i] = false
	var edge tiers.Cover
	rest := t.covers[i]
	if oldest := t.at(rest[0].Width, rest[0].First); oldest > 0 {
		edge = t.c.plan.edge(nil, t.label(), t.bounds[i])
	}
	if rest[0].First, rest[0].N = rest[0].First+1, rest[0].N-1; rest[0].N == 0 {
		rest = rest[1:]
	}
	t.covers[i] = append(edge[:len(edge):len(edge)], rest...)
	return edge
}

// remember keeps for later calls of the key what this call has found out in the
// first trip: the settled buckets, or that coarse covers are above Max.
func (t *ticket) remember(label int64, settled tiers.Cover, memory *settledEntry) {
	c, e := t.c, settledEntry{key: t.base.Key, at: t.base.Now, read: t.read, tight: t.tight}
	lasting := settled.Reads() <= settledBuckets
	for i, b := range t.bounds {
		lasting = lasting && t.coarse[i] && c.plan.lasting(label, b)
	}
	if !lasting && !t.tight || !c.settled.admits(e.key, e.at) {
		return
	}
	if !t.tight {
		if t.remembered {
			e.at, e.read = memory.at, memory.read
		}
		e.spans = spansOf(settled)
		for _, span := range e.spans {
			for j := range span.Counts {
				span.Counts[j] = t.at(span.Width, span.First+int64(j))
			}
		}
	}
	c.settled.put(&e)
}

// complete puts the label's own bucket into the covers, and after the settled
// part the unsettled runs, which are returned.
func (t *ticket) complete(label, now int64) (rest tiers.Cover) {
	for i, b := range t.bounds {
		first := len(rest)
		rest = t.c.plan.unsettled(rest, label, now, b)
		// The own bucket stands between the runs on its left and on its right.
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

// own puts the counts of slots, less the hits of this call, before the counts
// that were read.
func (t *ticket) own(slots []backend.Slot) {
	mine := make([]backend.Span, len(slots))
	for i, slot := range slots {
		mine[i] = backend.Span{Width: slot.Width, First: slot.Index, Counts: []int64{slot.Count - t.n}}
	}
	t.known = append(mine, t.known...)
}

// judge counts the windows, and tells whether all have room.
func (t *ticket) judge() bool {
	for i := range t.windows {
		t.windows[i].Count = t.count(i)
	}
	return t.fits()
}

// newest writes Newest of an admitted call: the call's own bucket, or a later
// bucket that a clock ahead has hit.
func (t *ticket) newest(label int64) {
	for i, b := range t.bounds {
		w := &t.windows[i]
		w.Newest = t.c.plan.bucketAt(label, b.fine)
		last := t.covers[i][len(t.covers[i])-1]
		for j := last.First; j < last.First+last.N; j++ {
			if n := t.at(last.Width, j); n > 0 && j > tiers.Index(label, last.Width) {
				w.Newest = t.last(tiers.Bucket{Width: last.Width, Index: j}, b.fine)
			}
		}
	}
}

// undo takes back the confirmed additions and returns err, so that a late try
// may be repeated. If the taking back fails, hits may be left and undo returns
// that failure: the try must not be repeated.
func (t *ticket) undo(ctx context.Context, err error) error {
	if failed := t.takeBack(ctx); failed != nil {
		return failed
	}
	return err
}

// takeBack takes back all additions.
func (t *ticket) takeBack(ctx context.Context) error {
	_, err := t.c.takeBack(ctx, t.base, t.grace, t.n, t.slots, nil)
	return err
}

// refuse takes the hits back, and finds out from the answers whether there is
// room now, or else when there will be: by exact covers, of buckets that this
// call has read.
func (t *ticket) refuse(ctx context.Context, now int64) error {
	c := t.c
	t.now = now
	t.answer()
	coarse := slices.Clone(t.windows) // the answer, should there be no better
	var wanted tiers.Cover
	for i := range t.covers {
		t.sharpen(i)
		wanted = append(wanted, t.covers[i]...)
	}
	// A guess at the deciding buckets, to read them on the way. The edges do not
	// change them: no edge can make room.
	t.judge()
	t.guess = true
	wanted = append(wanted, t.answer()...)
	t.guess = false
	if t.remembered {
		c.stats.wrongGuesses.Add(1)
		t.known = nil
	}
	wanted = append(unknown(t.known, wanted), t.pendingRuns(now)...)
	back, err := c.takeBack(ctx, t.base, t.grace, t.n, t.slots, spansOf(wanted))
	t.base.Deadline = t.grace
	if err != nil && t.remembered {
		return err
	}
	if err != nil {
		// The counted hits may be taken back soon, or stay for a day: their age
		// is not known.
		copy(t.windows, coarse)
		t.contended, t.pendingCounts = true, make([]int64, len(t.windows))
		for i := range t.windows {
			t.pendingCounts[i] = t.windows[i].Count
		}
		return nil
	}
	t.contended = t.contended || c.contended([]byte(t.base.Key), t.label())
	for i := range back.Add {
		back.Add[i].Count += t.n // own subtracts n again
		t.contended = t.contended || back.Add[i].Count != t.slots[i].Count
	}
	t.known = append(t.known, back.Read...)
	t.own(back.Add)
	t.room = t.judge()
	t.countPending()
	t.refine(context.WithoutCancel(ctx))
	return nil
}

// late returns an error if the try has lasted longer than Settle, by the wall
// clock or by the monotonic clock: the monotonic clock stands still while a
// machine sleeps, the wall clock may have been stepped. Of keys with different
// Settle the shortest counts, since hits of one call are read by both. A charge
// goes on, but not its soft keys, which are taken side by side.
func (t *ticket) late() error {
	settle := t.call.settle
	if settle == 0 {
		return nil
	}
	spent := t.c.elapsed(t.base.Now)
	if spent <= settle {
		return nil
	}
	if t.call.mode == charging && !t.soft {
		raise(t.base.Key)
		t.call.late = true
		return nil
	}
	return &lateError{spent, settle}
}

// lateError is the error of a try that was confirmed later than Settle.
type lateError struct{ spent, settle time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("a try was confirmed after %s, want within Config.Settle, %s", e.spent, e.settle)
}

func (c *Counter) elapsed(stamp time.Time) time.Duration {
	now := c.now()
	return max(now.Sub(stamp), now.Round(0).Sub(stamp.Round(0)))
}

// slots returns the buckets that hold the label.
func (c *Counter) slots(label int64) []backend.Slot {
	slots := make([]backend.Slot, c.plan.ladder.Len())
	for i := range slots {
		slots[i] = backend.Slot{Bucket: c.plan.bucketAt(label, i), TTL: c.ttls[i]}
	}
	return slots
}

// answered returns the slots of a confirmed addition at the label.
func (c *Counter) answered(label int64) []backend.Slot {
	slots := c.slots(label)
	for i := range slots {
		slots[i].Count = 1
	}
	return slots
}

// takeBack takes n back from the slots with a confirmed addition, by the
// deadline, and reads the spans of read in the same trip. base is the request
// of the addition. The context of the caller does not stop a taking back: a
// visitor who hangs up would leave hits behind. A taking back is not repeated.
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

package ticket

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// Try takes every key of a call, in an order that all callers share, or none. A call
// that is not allowed then, or has failed, goes on with [Protocol.Rounds].
func (p *Protocol) Try(ctx context.Context, c *Call) (f Finding, err error) {
	order := c.Order()
	c.chargedLast(order)
	taken := make([]*survey, 0, len(order))
	times := max(1, c.Times)
	for i, d := range order {
		s := p.survey(c, d)
		s.times = times
		if f, err = s.take(ctx); errors.Is(err, backend.ErrMaxCount) {
			// The bucket would exceed MaxCount: hits of other calls may have filled it, and
			// may be undone by now.
			if f, err = s.look(ctx, true, false); f.Allowed {
				f = Finding{room: true}
			}
		}
		switch {
		case err != nil:
			if failed := takeBackAll(ctx, taken); failed != nil {
				err = failed // hits were left behind: the try must not be repeated
			}
			return Finding{}, &KeyError{d, err}
		case !f.Allowed:
			return p.refused(ctx, c, f, taken, order[i+1:])
		}
		times, taken = s.fitting(), append(taken, s)
	}
	late := c.Charge && p.late(c) != nil
	if c.Times > 1 {
		p.lessen(ctx, c, taken, times)
	}
	for _, s := range taken {
		p.Confirmed(s.request.Key, s.plan, c.Now, s.key.N)
	}
	if len(order) < len(c.Keys) {
		p.judgeSoft(ctx, c)
	}
	if !c.Charge {
		p.memory.Record(c, true, false, false)
	}
	return Finding{Allowed: true, Late: late}, nil
}

// take takes a key: by an atomic step of a store that has none for all keys of the
// call, or else by ticket, in the numbered steps of docs/design.md. An atomic increment
// returns a number, and the number is a place in a queue. The Plan chooses the buckets
// to read. A Peek, and a take of no hits by ticket, only read the windows.
func (s *survey) take(ctx context.Context) (Finding, error) {
	switch {
	case s.call.Peek, s.key.N == 0 && s.p.atomic == nil:
		return s.look(ctx, true, false)
	case s.p.atomic != nil:
		return s.step(ctx)
	}
	t := s.begin() // 1: add, and read the settled buckets in the same trip
	err := s.p.store.Do(ctx, &t.Request)
	s.added = t.Add
	if err = s.confirm(ctx, err); err == nil { // 2: all is answered, in time; otherwise take back
		err = s.complete(ctx, t) // 3: read the unsettled buckets, and the exact edges that can make room
	}
	if err != nil {
		return Finding{}, err
	}
	allowed := s.judge() // 4: all counts are at most Max
	s.remember(t)
	if !allowed {
		return s.refuse(ctx, t) // 5: take back, and find out when there is room
	}
	s.newest()
	return Finding{Allowed: true}, nil
}

// trip is the first trip of a try.
type trip struct {
	backend.Request
	began   time.Time     // on the machine's clock
	covers  tiers.Cover   // the settled buckets of all windows, coarse or exact
	coarse  bool          // the covers begin with whole buckets of the ticket tier
	settled int           // spans of Read with settled buckets; the other spans are unsettled
	memory  *settledEntry // remembered buckets: upper bounds, by which no call is denied
}

// begin is step 1: the additions, and the settled buckets next to them. The left edges
// of the covers are coarse at first, unless the numbers must be exact, or a coarse
// cover of the key was above Max a moment ago.
func (s *survey) begin() *trip {
	t := &trip{Request: s.request, began: time.Now(), memory: &nothingSettled}
	if !s.call.Exact {
		t.memory = s.p.settled.recall(t.Key, t.Now)
		t.coarse = !t.memory.tight
	}
	for i := range s.windows {
		w := &s.windows[i]
		b := w.bounds
		if w.coarse = t.coarse && !w.calendar; w.coarse {
			b = b.coarse()
		}
		w.cover = s.plan.settled(nil, s.label(), b)
		t.covers = append(t.covers, w.cover...)
	}
	t.N, t.Add, t.Read = s.hits(), s.plan.Slots(s.label(), 0), spansOf(t.memory.counts.lacks(t.covers))
	t.settled = len(t.Read)
	if s.p.ordered.Load() {
		// The store reads after adding: it is asked for the unsettled buckets that a try
		// in time can need, if they are few.
		var early tiers.Cover
		for i := range s.windows {
			early = s.plan.unsettled(early, s.label(), s.label()+s.plan.settle, s.windows[i].bounds)
		}
		if early.Reads() <= maxEarly {
			t.Read = append(t.Read, spansOf(early)...)
		}
	}
	return t
}

// maxEarly bounds the unsettled buckets that are read in the first trip.
const maxEarly = 64

// confirm is step 2, after each trip of a try, which has ended with err. Without an
// error, and in time, the try goes on. Otherwise confirm takes back the confirmed
// additions, and a try that was late may be repeated. If the undo fails, hits may
// be left, and its error is returned: the try must not be repeated. A Charge goes on
// when late, but not its soft keys.
func (s *survey) confirm(ctx context.Context, err error) error {
	if err == nil && (!s.call.Charge || s.key.Soft) {
		err = s.p.late(s.call)
	}
	if err != nil {
		if failed := s.takeBack(ctx); failed != nil {
			return failed
		}
	}
	return err
}

// late returns an error if a try has lasted longer than Settle.
func (p *Protocol) late(c *Call) error {
	if settle := c.Settle(); settle > 0 {
		if spent := p.Elapsed(c.Now); spent > settle {
			return &lateError{spent, settle}
		}
	}
	return nil
}

// lateError is the error of a try that was confirmed later than Settle.
type lateError struct{ spent, settle time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("a try was confirmed after %s, want within Config.Settle, %s", e.spent, e.settle)
}

// complete is step 3: the unsettled buckets, as far as another clock may be by now,
// and the exact edges of the covers above Max. No edge can make room for a hopeless
// call, whose hits make other calls hopeless: such a call reads nothing more.
func (s *survey) complete(ctx context.Context, t *trip) error {
	if len(t.Read) > 0 && t.Ordered != s.p.ordered.Load() {
		s.p.ordered.Store(t.Ordered)
	}
	if !t.Ordered {
		t.Read = t.Read[:t.settled]
	}
	if t.remembered() {
		s.p.Guesses.Add(1)
	}
	s.known = append(Counts(t.Read), t.memory.counts...)
	s.tickets(t.Add)
	s.now = s.label() + int64(s.p.Elapsed(t.Now))
	var rest tiers.Cover
	for i := range s.windows {
		w := &s.windows[i]
		// The label's own bucket, for which the ticket stands, and the unsettled runs
		// on both sides touch: they are one run.
		own, first := t.Add[w.top], len(rest)
		rest = s.plan.unsettled(rest, s.label(), s.now, w.bounds)
		open := tiers.Run{Width: own.Width, First: own.Index, N: 1}
		for _, run := range rest[first:] {
			open.First, open.N = min(open.First, run.First), open.N+run.N
		}
		w.cover = append(w.cover, open)
	}
	for {
		edges, hopeless := s.edges()
		if !hopeless && t.remembered() && s.fitting() < s.times { // upper bounds would keep too few
			s.known, t.memory = s.known[:len(t.Add)+len(t.Read)], &nothingSettled
			for i := range s.windows {
				edges = append(edges, s.windows[i].cover...)
			}
		}
		if rest = s.known.lacks(append(rest, edges...)); hopeless || len(rest) == 0 {
			return nil
		}
		if err := s.confirm(ctx, s.read(ctx, rest)); err != nil {
			return err
		}
	}
}

// remembered reports whether some counts are remembered.
func (t *trip) remembered() bool { return t.memory.counts != nil }

// tickets puts the counts of slots, less the hits of this call, before the counts
// that were read.
func (s *survey) tickets(slots []backend.Slot) {
	tickets := make(Counts, len(slots), len(slots)+len(s.known))
	for i, slot := range slots {
		tickets[i] = backend.Span{Width: slot.Width, First: slot.Index, Counts: []int64{slot.Count - s.hits()}}
	}
	s.known = append(tickets, s.known...)
}

// edges puts the exact edge, which is returned, into each coarse cover above
// Max. The call is hopeless if a count is above Max without the bucket that the edge
// would replace.
func (s *survey) edges() (edges tiers.Cover, hopeless bool) {
	for i := range s.windows {
		w := &s.windows[i]
		w.Count = s.known.Sum(w.cover)
		excess, full := Excess(w.Window, s.key.N), Excess(w.Window, s.hits()) <= 0
		switch {
		case full, excess <= 0 && !w.coarse:
		case !w.coarse || excess > s.known.At(w.cover[0].Width, w.cover[0].First):
			return nil, true
		default:
			edges = append(edges, s.sharpen(w)...)
		}
	}
	return edges, false
}

// sharpen puts the exact edge, which is returned, into a coarse cover, in place
// of the oldest bucket. The edge of an empty bucket is empty.
func (s *survey) sharpen(w *window) (edge tiers.Cover) {
	if !w.coarse {
		return nil
	}
	w.coarse = false
	rest := w.cover
	if s.known.At(rest[0].Width, rest[0].First) > 0 {
		edge = s.plan.edge(nil, s.label(), w.bounds)
	}
	if rest[0].First, rest[0].N = rest[0].First+1, rest[0].N-1; rest[0].N == 0 {
		rest = rest[1:]
	}
	w.cover = append(edge[:len(edge):len(edge)], rest...)
	return edge
}

// remember keeps for later calls of the key what this call has found out in the
// first trip: the settled buckets, or that a coarse cover is above Max.
func (s *survey) remember(t *trip) {
	if !t.coarse {
		return
	}
	tight, lasting := false, t.settled > 0 && t.covers.Reads() <= settledBuckets
	for i := range s.windows {
		w := &s.windows[i]
		tight = tight || !w.coarse && !w.calendar || Excess(w.Window, s.key.N) > 0
		lasting = lasting && s.plan.lasting(s.label(), w.bounds)
	}
	if !lasting && !tight || !s.p.settled.admits(t.Key, t.Now) {
		return
	}
	e := &settledEntry{key: t.Key, at: t.Now, read: t.began, tight: tight}
	if !tight {
		if t.remembered() {
			e.at, e.read = t.memory.at, t.memory.read
		}
		e.counts = spansOf(t.covers)
		for _, span := range e.counts {
			for i := range span.Counts {
				span.Counts[i] = s.known.At(span.Width, span.First+int64(i))
			}
		}
	}
	s.p.settled.put(e)
}

// newest writes Newest of an admitted call: the call's own bucket, or a later
// bucket that a clock ahead has hit.
func (s *survey) newest() {
	for i := range s.windows {
		w := &s.windows[i]
		w.Newest = s.plan.bucketAt(s.label(), w.fine)
		open, last := w.cover[len(w.cover)-1], s.plan.bucketAt(s.label(), w.top)
		for i := last.Index + 1; i < open.First+open.N; i++ {
			if last.Index = i; s.known.At(last.Width, i) > 0 {
				w.Newest = s.plan.last(last, w.fine)
			}
		}
	}
}

// refuse is step 5: it takes the hits back, and finds out from the answers whether
// there is room now, or else when there will be: by exact covers, of buckets that
// this call has read.
func (s *survey) refuse(ctx context.Context, t *trip) (Finding, error) {
	s.answer(false)
	coarse := make([]backend.Window, len(s.windows)) // the answer, should there be no better
	var wanted tiers.Cover
	for i := range s.windows {
		w := &s.windows[i]
		coarse[i] = *w.Window
		s.sharpen(w)
		wanted = append(wanted, w.cover...)
	}
	// A guess at the deciding buckets, to read them on the way. The edges do not
	// change them: no edge can make room.
	s.judge()
	guess, _ := s.answer(true)
	if t.remembered() {
		s.p.WrongGuesses.Add(1)
		s.known = nil
	}
	wanted = append(s.known.lacks(append(wanted, guess...)), s.youngRuns()...)
	back, err := s.p.TakeBack(ctx, s.request, s.call.Grace, s.hits(), s.added, spansOf(wanted))
	s.request.Deadline = s.call.Grace
	switch {
	case err != nil && t.remembered():
		return Finding{}, err
	case err != nil:
		// The counted hits may be undone soon, or stay for a day: their age is not
		// known.
		for i := range s.windows {
			*s.windows[i].Window, s.windows[i].young = coarse[i], coarse[i].Count
		}
		return s.find(true, false), nil
	}
	contended := s.p.memory.Contended([]byte(s.request.Key), s.label())
	for i := range back.Add {
		back.Add[i].Count += s.hits() // tickets subtracts them again
		contended = contended || back.Add[i].Count != s.added[i].Count
	}
	s.known = append(s.known, back.Read...)
	s.tickets(back.Add)
	room := s.judge()
	s.countYoung(contended)
	if shrank := s.refine(context.WithoutCancel(ctx)); !room {
		return s.find(contended, shrank), nil
	}
	return Finding{room: true, contended: contended}, nil
}

// takeBack takes back all additions.
func (s *survey) takeBack(ctx context.Context) error {
	_, err := s.p.TakeBack(ctx, s.request, s.call.Grace, s.hits(), s.added, nil)
	return err
}

// hits is the number of hits that a try adds.
func (s *survey) hits() int64 { return s.key.N * s.times }

// fitting returns how often N of the key has room, at most as often as it was added.
func (s *survey) fitting() int64 {
	r := backend.TakeRequest{Keys: s.keys, Times: s.times}
	return r.Fitting()
}

// lessen undoes what the keys of an admitted call have more than a number of times. The
// tickets of what is kept stay where they are, and other calls count the rest until it is
// undone, so no one waits for the answer but the caller. If there is none, hits stay that
// no one has, as after any undo that fails.
func (p *Protocol) lessen(ctx context.Context, c *Call, taken []*survey, times int64) {
	SideBySide(len(taken), func(i int) {
		if s := taken[i]; s.times > times && s.key.N > 0 {
			_, _ = p.TakeBack(ctx, s.request, c.Grace, s.key.N*(s.times-times), s.added, nil)
		}
	})
	c.Took(times)
}

// Took notes how often N was taken, and makes N the hits of each key.
func (c *Call) Took(times int64) {
	c.Taken = times
	for i := range c.Keys {
		c.Keys[i].N *= times
	}
}

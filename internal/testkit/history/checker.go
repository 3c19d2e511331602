package history

import (
	"slices"
	"sort"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// Checker checks a growing history, and forgets calls too old to matter. Call hands
// over every call and Fault every fault; Advance checks. A Checker is not for use
// by several goroutines.
type Checker struct {
	*Report

	cfg     Config
	keys    map[string]*key
	takes   map[uint64]*record // admitted Takes that may still be refunded
	waiting []*record          // calls that Advance has not looked at
	faults  []Fault
	losses  []Fault // the latest that lose, for keys to come
	found   [5]int  // breaks by rule
}

// New makes a Checker that writes its findings into a Report, together with other
// Checkers.
func New(cfg Config, report *Report) *Checker {
	return &Checker{Report: report, cfg: cfg, keys: map[string]*key{}, takes: map[uint64]*record{}}
}

// key is the state of a key in a Checker.
type key struct {
	name    string
	calls   []*hit // that add
	forgets []*hit
	losses  []Fault // that lose counts of the key
	tainted []span  // where a clock beyond the skew can still be felt
	lines   map[counter.Limit]*line
	longest time.Duration // window that was asked for
	last    int64         // end of the latest call
}

// span is a time from one instant to another, both included.
type span struct{ from, to int64 }

func (c *Checker) key(name string) *key {
	k := c.keys[name]
	if k == nil {
		k = &key{name: name, lines: map[counter.Limit]*line{}}
		for i := range c.losses {
			k.suffer(&c.losses[i])
		}
		c.keys[name] = k
	}
	return k
}

// Fault tells c of a fault.
func (c *Checker) Fault(f Fault) {
	if f.Severs || f.Keys == nil {
		c.faults = append(c.faults, f) // a loss of some counts disturbs no call
	}
	if f.Loses == Nothing {
		return
	}
	c.losses = append(c.losses, f)
	for _, k := range c.keys {
		if !k.suffer(&f) || f.Loses == Everything {
			continue
		}
		for _, h := range k.calls {
			c.lose(k, h)
		}
	}
}

// suffer notes f if f is a loss of counts of k.
func (k *key) suffer(f *Fault) bool {
	if f.Keys != nil && !f.Keys(k.name) {
		return false
	}
	k.losses = append(k.losses, *f)
	return true
}

// lose writes into h what the losses so far may have done to h, and to its Refund
// and its Forgets.
func (c *Checker) lose(k *key, h *hit) {
	for i := range k.losses {
		f := &k.losses[i]
		lo, hi := h.labels()
		if f.Loses == Latest && h.Began <= f.To && c.end(h.Call) >= f.Since || f.Loses == Bucket && lo < f.Bucket[1] && hi >= f.Bucket[0] {
			h.lost, h.void = min(h.lost, f.From), true
		}
	}
	if h.refund != nil && c.undone(k, h.refund) {
		h.back = far
	}
	h.erased = far
	for _, f := range k.forgets {
		c.forget(k, h, f)
	}
}

// undone reports whether a loss may have undone a Refund or a Forget on k.
func (c *Checker) undone(k *key, call *Call) bool {
	for i := range k.losses {
		switch f := &k.losses[i]; {
		case call.Began > f.To:
		case f.Loses == Moved && call.Kind == Forget, f.Loses == Latest && c.end(call) >= f.Since:
			return true
		}
	}
	return false
}

// Call hands a call to c. The calls may come in any order, but a Refund comes after
// its Take.
func (c *Checker) Call(call *Call) {
	r := &record{Call: call, gone: far, back: far}
	c.Report.count(call)
	c.waiting = append(c.waiting, r)
	for _, ask := range call.Asks {
		k := c.key(ask.Key)
		k.last = max(k.last, call.Ended)
		for _, l := range ask.Limits {
			k.longest = max(k.longest, c.length(l))
		}
		if call.Beyond {
			k.tainted = append(k.tainted, span{call.Began, call.Ended})
		}
		h := newHit(r)
		switch {
		case r.adds():
			c.lose(k, h)
			k.calls = append(k.calls, h)
		case call.Kind == Forget:
			k.forgets = append(k.forgets, h)
			for _, earlier := range k.calls {
				c.forget(k, earlier, h)
			}
		}
	}
	switch {
	case r.admitted():
		c.takes[call.ID] = r
	case call.Kind == Refund:
		if take := c.takes[call.Of]; take != nil {
			take.gone, take.refund = min(take.gone, call.Began), call
			if call.Outcome == Done && !slices.ContainsFunc(take.Asks, func(a Ask) bool { return c.undone(c.key(a.Key), call) }) {
				take.back = min(take.back, call.Ended)
			}
		}
	}
}

// forget writes into h the possible effect of the Forget f. A hit under way at that
// moment can be half forgotten.
func (c *Checker) forget(k *key, h, f *hit) {
	end := c.end(f.Call)
	// A Forget is remembered by its label, or by the label's bucket: a hit of the
	// same time looks like a forgotten hit.
	coarsest := c.cfg.Ladder.At(c.cfg.Ladder.Len() - 1).Width
	h.marked = h.marked || h.Began-int64(coarsest+2*c.cfg.Skew) <= end
	if h.Began > end {
		return
	}
	h.forgotten = min(h.forgotten, f.Began)
	if c.undone(k, f.Call) {
		h.void = true
	} else if f.Outcome == Done && h.Ended < f.Began {
		h.erased = min(h.erased, f.Ended)
	}
}

// Advance checks all calls that ended before upTo. No call or fault that began
// before upTo may be missing.
func (c *Checker) Advance(upTo int64) {
	sort.Slice(c.waiting, func(i, j int) bool { return c.waiting[i].Ended < c.waiting[j].Ended })
	n := sort.Search(len(c.waiting), func(i int) bool { return c.waiting[i].Ended >= upTo })
	now := c.waiting[:n]
	for _, r := range now {
		switch {
		case r.admitted():
			c.label(r)
			c.over(r)
			c.sees(r)
		case r.Kind == Peek && (r.Outcome == Done || r.Outcome == Denied), r.Kind == Count && r.Outcome == Done:
			c.sees(r)
		}
		if r.Outcome == Denied {
			c.reason(r)
		}
	}
	c.waiting = slices.Delete(c.waiting, 0, n)
	c.drop(upTo)
}

// label is rule 1.
func (c *Checker) label(r *record) {
	c.Report.Labels++
	if r.Label < r.Lo || r.Label > r.Hi || r.True < r.Began || r.True > r.Ended {
		c.Report.Mislabelled++
		c.find(1, r.Asks[0].Key, counter.Limit{}, r, "the label is not a reading of the caller's clock between call and return")
	}
}

// length is the time for which a hit matters to a limit.
func (c *Checker) length(l counter.Limit) time.Duration {
	if l.Period.IsZero() {
		return l.Per
	}
	return c.cfg.Lives
}

// start is the least label in the window of a limit at a label.
func start(l counter.Limit, label int64) int64 {
	if l.Period.IsZero() {
		return label - int64(l.Per)
	}
	from, _ := l.Period.Span(label)
	return from
}

// reach is the time before a call in which an event can matter to a window of
// length per: the bucket at the window's edge, clocks that are apart, and a late
// store.
func (c *Checker) reach(per time.Duration) int64 {
	return int64(per+c.widest(per)+2*c.cfg.Skew+2*c.cfg.Settle+c.cfg.Late+c.cfg.Remember) + int64(time.Second)
}

// widest is the width of the coarsest bucket that is read for a window.
func (c *Checker) widest(per time.Duration) time.Duration {
	return c.cfg.Ladder.At(max(0, c.cfg.Ladder.Decision(per))).Width
}

// finest is the width of the bucket that a window's edge stands in.
func (c *Checker) finest(per time.Duration) time.Duration {
	fine, err := c.cfg.Ladder.Finest(per)
	if err != nil {
		return c.widest(per)
	}
	return c.cfg.Ladder.At(fine).Width
}

// taint reports whether a clock beyond the skew can be felt by a call at k that
// ended at the instant, in a window of length per: such a clock can make a store
// drop what others still need, for as long as the ladder keeps buckets.
func (c *Checker) taint(k *key, at int64, per time.Duration) bool {
	keep := c.cfg.Ladder.At(c.cfg.Ladder.Len() - 1).Keep
	for _, s := range k.tainted {
		if s.from <= at && at <= s.to+c.reach(max(per, min(keep, k.longest))) {
			return true
		}
	}
	return false
}

// end returns the instant at which the store had executed all requests of a call.
func (c *Checker) end(call *Call) int64 {
	if call.Outcome == Failed || call.Outcome == Open {
		return call.Ended + int64(c.cfg.Late)
	}
	return call.Ended
}

// halves bounds the hits of k that may be missing for a taking back, between two
// instants, of what was not there any more: a Refund of a hit that a store lost,
// or, on a store without an atomic step, a call under way at a Forget or at a loss.
// Either takes from the buckets of its own additions, where later hits may stand now.
func (c *Checker) halves(k *key, from, to int64) (n int64) {
	for _, h := range k.calls {
		back := h.refund
		if back != nil && (back.Began > to || c.end(back) < from) {
			back = nil
		}
		if h.void && back != nil || c.cfg.Ticket && c.halved(k, h.Call, back, from, to) {
			n += h.N
		}
	}
	return n
}

// halved reports whether a call, or its Refund, was under way at a Forget of k or at a
// loss of all counts, between two instants.
func (c *Checker) halved(k *key, call, refund *Call, from, to int64) bool {
	meets := func(begin, end int64) bool {
		within := func(call *Call) bool { return call != nil && call.Began <= end && begin <= c.end(call) }
		return begin <= to && end >= from && (within(call) || within(refund))
	}
	for _, f := range k.forgets {
		if meets(f.Began, c.end(f.Call)) {
			return true
		}
	}
	for i := range k.losses {
		if f := &k.losses[i]; (f.Loses == Everything || f.Loses == Moved) && meets(f.From, f.To) {
			return true
		}
	}
	return false
}

// lost counts the losses of counts in a span of time: losses of all counts, and
// losses of some hits.
func (k *key) lost(from, to int64) (all, some int64) {
	for i := range k.losses {
		switch f := &k.losses[i]; {
		case f.From > to || from > f.To:
		case f.Loses == Latest, f.Loses == Bucket && f.Bucket[1] > from:
			some++
		case f.Loses == Bucket:
		default:
			all++
		}
	}
	return all, some
}

// drop forgets what no call after upTo can need.
func (c *Checker) drop(upTo int64) {
	var longest time.Duration
	for name, k := range c.keys {
		reach := 2 * c.reach(k.longest)
		longest = max(longest, k.longest)
		if k.last < upTo-reach {
			delete(c.keys, name)
			continue
		}
		k.calls = dropBefore(k.calls, upTo-reach)
		k.forgets = dropBefore(k.forgets, upTo-reach)
		k.losses = slices.DeleteFunc(k.losses, func(f Fault) bool { return f.To < upTo-2*reach })
		k.tainted = slices.DeleteFunc(k.tainted, func(s span) bool { return s.to < upTo-2*reach })
		for _, l := range k.lines {
			l.drop(upTo - reach)
		}
	}
	reach := 2 * c.reach(longest)
	c.faults = slices.DeleteFunc(c.faults, func(f Fault) bool { return f.To < upTo-2*reach })
	// A key of which no call is known has none that began before upTo.
	coarsest := c.cfg.Ladder.At(c.cfg.Ladder.Len() - 1).Width
	c.losses = slices.DeleteFunc(c.losses, func(f Fault) bool { return f.To < upTo-int64(coarsest+c.cfg.Late) })
	for id, r := range c.takes {
		if r.Ended < upTo-reach {
			delete(c.takes, id)
		}
	}
}

func dropBefore(all []*hit, instant int64) []*hit {
	return slices.DeleteFunc(all, func(h *hit) bool { return h.Ended < instant })
}

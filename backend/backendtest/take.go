package backendtest

import (
	"context"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// demand is a key of a step, with its limits.
type demand struct {
	key    string
	limits counter.Limits

	n      int64        // in place of the other keys' n, if above zero; below zero: a look
	ladder tiers.Ladder // in place of the other keys' ladder, if it has tiers
	soft   bool
}

// taking is the request that a Counter makes of demands.
func (s *subject) taking(l tiers.Ladder, now time.Time, n int64, skew time.Duration, demands ...demand) *backend.TakeRequest {
	r := &backend.TakeRequest{Now: now, Allowed: n%2 == 0}
	for _, d := range demands {
		out := backend.TakeKey{Key: []byte(s.key(d.key)), N: n, Ladder: l, Soft: d.soft, Fits: n%2 == 1}
		if d.n != 0 {
			out.N = max(0, d.n)
		}
		if d.ladder.Len() > 0 {
			out.Ladder = d.ladder
		}
		for _, tier := range out.Ladder.Tiers() {
			out.TTLs = append(out.TTLs, ttl(tier, skew))
		}
		for _, limit := range d.limits {
			finest, err := out.Ladder.Finest(limit.Window())
			if err != nil {
				panic(err)
			}
			dirt := tiers.Bucket{Width: garbage, Index: garbage}
			w := backend.Window{Max: limit.Max, Reach: limit.Per + skew, Finest: finest, Period: limit.Period, Count: garbage, FreedBy: dirt, Newest: dirt}
			if !limit.Period.IsZero() {
				start, _ := limit.Period.Span(now.UnixNano())
				w.Reach = time.Duration(now.UnixNano() - start)
			}
			out.Windows = append(out.Windows, w)
		}
		r.Keys = append(r.Keys, out)
	}
	return r
}

// take is Take, with all the time in the world, by a caller whose clock stands
// still, as in do. An answer that the model has not stops the case.
func (s *subject) take(t *backend.TakeRequest) error {
	t.Deadline = time.Now().Add(enough)
	err := s.call(t.Now, &t.AnyLabel, func() error { return s.taker.Take(context.Background(), t) })
	if err == nil && s.model != nil {
		must(s.model.Take(t))
	}
	return err
}

func allOrNothing(s *subject) {
	full := demand{key: "full", limits: counter.Limits{{Max: 3, Per: time.Hour}}}
	must(s.take(s.taking(dayLadder, noon, 3, 0, full)))
	for i, row := range []struct {
		n      int64
		peek   bool
		limits string
	}{
		{1, false, "5/m, 5/h, 0/d"},
		{1, false, "0/m, 5/h, 5/d"},
		{1, false, "5/m, 0/h, 5/d"},
		{6, false, "7/m, 6/h, 5/d"},
		{1, true, "5/m, 5/h, 5/d"},
		{1, true, "5/m, 5/h, 0/d"},
		{5, false, "5/m, 5/h, 5/d"},
		{1, false, "5/m, 5/h, 5/d"},
		{1, false, "6/d"},
		{1, true, "6/d"},
		{4, false, "10/m"},
		{backend.MaxCount - 10, true, "9007199254740991/d"},
		{backend.MaxCount - 9, true, "9007199254740991/d"},
	} {
		step := s.taking(dayLadder, noon, row.n, 0, demand{key: "k", limits: counter.MustLimits(row.limits)})
		step.Peek = row.peek
		during(func() {
			must(s.take(step))
			s.get(dayLadder, "k", noon, noon)
		}, "row %d: %d of %s, peek %v, allowed %v", i, row.n, row.limits, row.peek, step.Allowed)
	}
	// The last of three keys has no room: the first two are not touched.
	free := []demand{{key: "free", limits: counter.MustLimits("5/m")}, {key: "free2", limits: counter.MustLimits("5/m, 5/h")}}
	for _, demands := range [][]demand{append(free[:2:2], full), free} {
		step := s.taking(dayLadder, noon, 1, 0, demands...)
		if !s.taker.Together(step.Keys) {
			return
		}
		must(s.take(step))
		for _, d := range append(free[:2:2], full) {
			during(func() { s.get(dayLadder, d.key, noon, noon) }, "a step of %d keys, allowed %v", len(step.Keys), step.Allowed)
		}
	}
}

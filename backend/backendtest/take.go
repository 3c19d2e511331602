package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

var takes = []check{
	{
		name: "a step is all or nothing",
		rule: "if all windows have room for N, and it is no Peek, Take adds N to all tiers of every demand; otherwise it writes nothing",
		take: true,
		run:  allOrNothing,
	},
	{
		name: "steps against a model",
		rule: "Take: Count, Leaves, Newest and Allowed as documented; additions and takings back by Do count like its own",
		take: true,
		run:  againstModel,
	},
	{
		name: "a window is open to the right",
		rule: "the sum of the buckets from the one that holds Now-Reach on, without an upper end",
		take: true,
		run:  edges,
	},
	{
		name: "racing steps",
		rule: "all of a step is atomic",
		take: true,
		run:  racingSteps,
	},
}

// demand is a key of a step, with its limits.
type demand struct {
	key    string
	limits counter.Limits

	n      int64        // in place of the other keys' n, if above zero
	ladder tiers.Ladder // in place of the other keys' ladder, if it has tiers
	soft   bool
}

// taking is the request that a Counter makes of demands.
func (s *subject) taking(l tiers.Ladder, now time.Time, n int64, skew time.Duration, demands ...demand) *backend.TakeRequest {
	r := &backend.TakeRequest{Now: now, Allowed: n%2 == 0}
	for _, d := range demands {
		out := backend.TakeKey{Key: []byte(s.key(d.key)), N: n, Ladder: l, Soft: d.soft, Fits: n%2 == 1}
		if d.n > 0 {
			out.N = d.n
		}
		if d.ladder.Len() > 0 {
			out.Ladder = d.ladder
		}
		for _, tier := range out.Ladder.Tiers() {
			out.TTLs = append(out.TTLs, ttl(tier, skew))
		}
		for _, limit := range d.limits {
			finest, err := out.Ladder.Finest(limit.Per)
			if err != nil {
				panic(err)
			}
			dirt := tiers.Bucket{Width: garbage, Index: garbage}
			out.Windows = append(out.Windows, backend.Window{Max: limit.Max, Reach: limit.Per + skew, Finest: finest, Count: garbage, FreedBy: dirt, Newest: dirt})
		}
		r.Keys = append(r.Keys, out)
	}
	return r
}

// take is Take, with all the time in the world, by a caller whose clock stands
// still, as in do.
func (s *subject) take(t *backend.TakeRequest) error {
	t.Deadline = time.Now().Add(enough)
	err := s.taker.Take(context.Background(), t)
	if errors.Is(err, backend.ErrStaleLabel) && !t.AnyLabel {
		t.AnyLabel = true
		err = s.taker.Take(context.Background(), t)
		t.AnyLabel = false
	}
	return err
}

func allOrNothing(s *subject) {
	full := demand{key: "full", limits: counter.Limits{{Max: 3, Per: time.Hour}}}
	must(s.take(s.taking(dayLadder, noon, 3, 0, full)))
	for i, row := range []struct {
		n       int64
		peek    bool
		limits  string
		allowed bool
	}{
		{1, false, "5/m, 5/h, 0/d", false},
		{1, false, "0/m, 5/h, 5/d", false},
		{1, false, "5/m, 0/h, 5/d", false},
		{6, false, "7/m, 6/h, 5/d", false},
		{1, true, "5/m, 5/h, 5/d", true},
		{1, true, "5/m, 5/h, 0/d", false},
		{5, false, "5/m, 5/h, 5/d", true},
		{1, false, "5/m, 5/h, 5/d", false},
		{1, false, "6/d", true},
		{1, true, "6/d", false},
		{4, false, "10/m", true},
		{backend.MaxCount - 10, true, "9007199254740991/d", true},
		{backend.MaxCount - 9, true, "9007199254740991/d", false},
	} {
		before := s.get(dayLadder, "k", noon, noon)
		step := s.taking(dayLadder, noon, row.n, 0, demand{key: "k", limits: counter.MustLimits(row.limits)})
		step.Peek = row.peek
		must(s.take(step))
		if step.Allowed != row.allowed {
			failf("row %d: %d of %s with %d there: allowed %v", i, row.n, row.limits, before[0], step.Allowed)
		}
		want := before[0]
		if row.allowed && !row.peek {
			want += row.n
		}
		during(func() { s.expect(dayLadder, "k", noon, noon, want) }, "row %d: %d of %s, peek %v, allowed %v", i, row.n, row.limits, row.peek, row.allowed)
	}
	s.lastKeyIsFull(full)
	s.expect(dayLadder, "full", noon, noon, 3)
}

// lastKeyIsFull takes of three keys, the last of which has no room: the first two are
// not touched.
func (s *subject) lastKeyIsFull(full demand) {
	free := []demand{{key: "free", limits: counter.MustLimits("5/m")}, {key: "free2", limits: counter.MustLimits("5/m, 5/h")}}
	three, two := s.taking(dayLadder, noon, 1, 0, append(free, full)...), s.taking(dayLadder, noon, 1, 0, free...)
	if !s.taker.Together(three.Keys) {
		return
	}
	for _, row := range []struct {
		step    *backend.TakeRequest
		allowed bool
		counts  int64
	}{{three, false, 0}, {two, true, 1}} {
		must(s.take(row.step))
		if row.step.Allowed != row.allowed {
			failf("two keys with room, of %d: allowed %v", len(row.step.Keys), row.step.Allowed)
		}
		for _, d := range free {
			during(func() { s.expect(dayLadder, d.key, noon, noon, row.counts) }, "of %d keys", len(row.step.Keys))
		}
	}
}

// edges puts a hit on either side of the ends of a window, to the bucket.
func edges(s *subject) {
	for i, slack := range []time.Duration{0, 300 * time.Millisecond, 2 * time.Second} {
		for j, back := range []time.Duration{0, time.Second - 1, time.Second, time.Minute} {
			key := fmt.Sprint(i, "-", j)
			now := noon.Add(back)
			// A window of a minute begins with the second that holds this.
			edge := now.Add(-time.Minute - slack).Truncate(time.Second)
			for _, hit := range []struct {
				at time.Time
				n  int64
			}{{edge.Add(-1), 1}, {edge, 10}, {edge.Add(time.Second), 100}, {now, 1000}, {now.Add(slack), 10000}} {
				s.add(dayLadder, key, hit.at, hit.n)
			}
			for _, peek := range []bool{true, false} {
				step := s.taking(dayLadder, now, 1, slack, demand{key: key, limits: counter.Limits{{Max: backend.MaxCount, Per: time.Minute}}})
				step.Peek, step.Exact = peek, true
				must(s.take(step))
				if got := step.Keys[0].Windows[0].Count; got != 11110 || !step.Allowed {
					failf("slack %s, peek %v: the window of a minute at %v counts %d, want 11110", slack, peek, now, got)
				}
			}
		}
	}
}

func racingSteps(s *subject) {
	const racers, places, rounds = 32, 7, 60
	for round := range rounds {
		keys := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		var allowed atomic.Int64
		together(racers, func(i int) {
			demands := []demand{{key: keys[i%2], limits: counter.Limits{{Max: places, Per: time.Hour}, {Max: 50, Per: time.Minute}}}, {key: keys[1-i%2], limits: counter.Limits{{Max: places, Per: time.Minute}}}}
			step := s.taking(dayLadder, noon, 1, 0, demands...)
			if !s.taker.Together(step.Keys) {
				demands[0].key = keys[0]
				step = s.taking(dayLadder, noon, 1, 0, demands[0])
			}
			must(s.take(step))
			if step.Allowed {
				allowed.Add(1)
			}
		})
		if n := allowed.Load(); n != places {
			failf("%d racers, %d of %d places taken", racers, n, places)
		}
		s.expect(dayLadder, keys[0], noon, noon, places)
	}
}

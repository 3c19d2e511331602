package backendtest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/internal/testkit/script"
	"github.com/abacus-go/abacus/tiers"
)

// sequence is random steps, additions, takings back and readings of a few keys, each
// answer held to the model.
type sequence struct {
	*subject
	ladders []tiers.Ladder // of keys 0, 1 and 2
	slack   time.Duration
	clock   time.Time
	added   []addition // not taken back yet
	said    []string   // what was done, for who has to look for the mistake
}

// steps is a sequence in which time goes on by every step.
type steps struct {
	sequence
	script.Steps
}

type addition struct {
	key int
	at  time.Time
	n   int64
}

func againstModel(s *subject) {
	for i, ladders := range some(s, [][]tiers.Ladder{
		{dayLadder},
		{fineLadder},
		{manyKeeps},
		{parse.Ladder("1s:1m, 1h:7d")}, // the fine tier is dropped long before a coarse bucket is full
		{parse.Ladder("10s:1d")},
		{parse.Ladder("1s:20s, 5s:1m, 1m:10m, 1h:10h, 1d:10d")},
		{parse.Ladder("1ms:20s, 10ms:20s, 100ms:20s, 1s:20s, 10s:200s, 100s:2000s, 1000s:20000s, 10000s:20000s")},
		{dayLadder, fineLadder, parse.Ladder("10s:1d")},
	}) {
		for j, slack := range []time.Duration{0, 150 * time.Millisecond, 5 * time.Second} {
			own := s.with(oracle.NewStore())
			own.prefix += fmt.Sprint(i, "-", j, "-")
			q := &steps{sequence: sequence{subject: own, ladders: slices.Repeat(ladders, 3)[:3], slack: slack, clock: noon}}
			q.run(500 / s.thrift)
		}
	}
}

func (q *steps) run(n int) {
	q.Steps = script.NewSteps(q.rand, q.clock, q.ladders...)
	after(&q.said, func() {
		for range n {
			during(q.next, "on ladders %s with slack %s", q.ladders, q.slack)
		}
	})
	// At the end, all buckets that were ever hit.
	for key, l := range q.ladders {
		var spans []backend.Span
		for b := range q.model.Keys[q.key(fmt.Sprint(key))] {
			spans = append(spans, span(b.Width, b.Index, 1))
		}
		if len(spans) > 0 {
			during(func() { q.read(l, fmt.Sprint(key), q.clock, spans...) }, "at the end")
		}
	}
}

func (q *sequence) say(format string, args ...any) {
	q.said = append(q.said, fmt.Sprintf(format, args...))
}

func (q *steps) weight() int64 {
	if q.rand.IntN(12) == 0 {
		return 1 + q.rand.Int64N(1<<20)
	}
	return 1 + q.rand.Int64N(4)
}

// time goes on, and now and then back; a label is late by up to the slack.
func (q *steps) time() time.Time {
	q.clock = time.Unix(0, q.Next(q.clock.UnixNano()))
	if q.rand.IntN(64) == 0 { // the clock is set back
		q.clock = q.clock.Add(-time.Duration(q.rand.Int64N(int64(q.Window()))))
	}
	return q.clock.Add(-time.Duration(q.rand.Int64N(int64(q.slack) + 1)))
}

func (q *steps) next() {
	at, key := q.time(), q.rand.IntN(len(q.ladders))
	switch q.rand.IntN(10) {
	case 0, 1:
		q.add(key, at, q.weight())
	case 2:
		q.takeBack(at, math.MaxInt64)
	case 3:
		q.look(key, at)
	default:
		demands := q.demands(key)
		step := q.taking(q.ladders[key], at, q.weight(), q.slack, demands...)
		step.Peek, step.Exact = q.rand.IntN(5) == 0, q.rand.IntN(2) == 0
		if !q.taker.Together(step.Keys) {
			step.Keys, demands = step.Keys[:1], demands[:1]
		}
		if !slices.ContainsFunc(step.Keys, func(k backend.TakeKey) bool { return k.Soft }) {
			step.Times, step.Taken = q.rand.Int64N(8)*q.rand.Int64N(2), garbage
		}
		q.say("%s take, peek %v, times %d", at.Sub(noon), step.Peek, step.Times)
		for i, k := range step.Keys {
			q.say("\t%s %d under %s soft %v", demands[i].key, k.N, demands[i].limits, k.Soft)
		}
		must(q.take(step))
		q.look(key, at)
	}
}

// demands are random demands of a key, and mostly of no other.
func (q *steps) demands(key int) (demands []demand) {
	for i := range 1 + q.rand.IntN(2)*q.rand.IntN(len(q.ladders)) {
		k := (key + i) % len(q.ladders)
		d := demand{key: fmt.Sprint(k), n: q.weight(), ladder: q.ladders[k], soft: q.rand.IntN(4) == 0}
		for range 1 + q.rand.IntN(3) {
			limit := q.Limit(d.n + q.rand.Int64N(20))
			if q.rand.IntN(4) == 0 {
				limit.Max = backend.MaxCount
			}
			d.limits = append(d.limits, limit)
		}
		if q.rand.IntN(8) == 0 {
			d.n = -1 // a look
		}
		demands = append(demands, d)
	}
	return demands
}

// change adds n to the buckets of a key that hold at, by a caller whose clock is at now.
func (q *sequence) change(key int, now, at time.Time, n int64) bool {
	op := q.request(q.ladders[key], fmt.Sprint(key), at, n)
	op.Now, op.Add = now, chain(q.ladders[key], at, q.slack)
	return answered(q.do(op))
}

func (q *sequence) add(key int, at time.Time, n int64) {
	q.say("%s add %d %d", at.Sub(noon), key, n)
	if q.change(key, at, at, n) {
		q.added = append(q.added, addition{key, at, n})
	}
}

// takeBack takes back one of the additions, unless it is older than a time.
func (q *sequence) takeBack(now time.Time, oldest time.Duration) {
	if len(q.added) == 0 {
		return
	}
	i := q.rand.IntN(len(q.added))
	a := q.added[i]
	if now.Sub(a.at) >= oldest {
		return
	}
	q.added = slices.Delete(q.added, i, i+1)
	q.say("%s take back %d %d of %s", now.Sub(noon), a.key, a.n, a.at.Sub(noon))
	q.change(a.key, now, a.at, -a.n)
}

// look reads what is around at, in every tier.
func (q *steps) look(key int, at time.Time) {
	var spans []backend.Span
	for _, b := range q.ladders[key].Buckets(at) {
		spans = append(spans, span(b.Width, b.Index-5, 8))
	}
	q.read(q.ladders[key], fmt.Sprint(key), at, spans...)
}

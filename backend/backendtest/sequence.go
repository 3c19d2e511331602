package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/tiers"
)

// sequence is random steps, additions, takings back and readings of a few keys, each
// answer held to the model.
type sequence struct {
	*subject
	ladders []tiers.Ladder // of keys 0, 1 and 2
	slack   time.Duration
	clock   time.Time
	spans   []time.Duration // that windows may have
	periods []tiers.Period  // that windows may have
	added   []addition      // by Do, not taken back yet
	said    []string        // what was done, for who has to look for the mistake
}

type addition struct {
	key int
	at  time.Time
	n   int64
}

func againstModel(s *subject) {
	for i, ladders := range [][]tiers.Ladder{
		{dayLadder},
		{fineLadder},
		{manyKeeps},
		{parse.Ladder("1s:1m, 1h:7d")}, // the fine tier is dropped long before a coarse bucket is full
		{parse.Ladder("10s:1d")},
		{parse.Ladder("1s:20s, 5s:1m, 1m:10m, 1h:10h, 1d:10d")},
		{parse.Ladder("1ms:20s, 10ms:20s, 100ms:20s, 1s:20s, 10s:200s, 100s:2000s, 1000s:20000s, 10000s:20000s")},
		{dayLadder, fineLadder, parse.Ladder("10s:1d")},
	} {
		for j, slack := range []time.Duration{0, 150 * time.Millisecond, 5 * time.Second} {
			own := s.with(oracle.NewStore())
			own.prefix += fmt.Sprint(i, "-", j, "-")
			q := &sequence{subject: own, ladders: slices.Repeat(ladders, 3)[:3], slack: slack, clock: noon}
			q.run(500 / s.thrift)
		}
	}
}

func (q *sequence) run(n int) {
	for _, w := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 5 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
		if !slices.ContainsFunc(q.ladders, func(l tiers.Ladder) bool { _, err := l.Finest(w); return err != nil }) {
			q.spans = append(q.spans, w)
		}
	}
	for _, limit := range counter.MustLimits("1 per day in UTC, 1 per week in UTC, 1 per day in Asia/Kolkata") {
		if !slices.ContainsFunc(q.ladders, func(l tiers.Ladder) bool { return (counter.Limits{limit}).Check(l) != nil }) {
			q.periods = append(q.periods, limit.Period)
		}
	}
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

func (q *sequence) weight() int64 {
	if q.rand.IntN(12) == 0 {
		return 1 + q.rand.Int64N(1<<20)
	}
	return 1 + q.rand.Int64N(4)
}

// time goes on in steps of every size, and now and then back; a label is late
// by up to the slack.
func (q *sequence) time() time.Time {
	switch r := q.rand; r.IntN(16) {
	case 0, 1: // to an edge, or near it
		w := q.ladders[0].At(r.IntN(q.ladders[0].Len())).Width
		next := time.Unix(0, (tiers.Index(q.clock.UnixNano(), w)+1)*int64(w))
		if next = next.Add(time.Duration(r.IntN(3)-1) * time.Duration(r.IntN(2)*int(time.Millisecond))); next.After(q.clock) {
			q.clock = next
		}
	case 2: // out of a window, or nearly
		q.clock = q.clock.Add(q.spans[r.IntN(len(q.spans))] - time.Duration(r.IntN(2))*time.Second)
	case 3, 4:
		q.clock = q.clock.Add(time.Duration(r.Int64N(int64(q.spans[r.IntN(len(q.spans))]/4 + 1))))
	case 5, 6, 7, 8:
		q.clock = q.clock.Add(time.Duration(r.Int64N(int64(2 * time.Second))))
	case 9:
		if r.IntN(4) == 0 { // the clock is set back
			q.clock = q.clock.Add(-time.Duration(r.Int64N(int64(q.spans[r.IntN(len(q.spans))]))))
		}
	}
	return q.clock.Add(-time.Duration(q.rand.Int64N(int64(q.slack) + 1)))
}

func (q *sequence) next() {
	at, key := q.time(), q.rand.IntN(len(q.ladders))
	switch q.rand.IntN(10) {
	case 0, 1:
		n := q.weight()
		q.say("%d add %d %d", at.UnixNano(), key, n)
		q.added = append(q.added, addition{key, at, n})
		q.change(key, at, at, n)
	case 2:
		if len(q.added) == 0 {
			return
		}
		i := q.rand.IntN(len(q.added))
		a := q.added[i]
		q.added = slices.Delete(q.added, i, i+1)
		q.say("%d take back %d %d of %d", at.UnixNano(), a.key, a.n, a.at.UnixNano())
		q.change(a.key, at, a.at, -a.n)
	case 3:
		q.look(key, at)
	default:
		demands := q.demands(key)
		step := q.taking(q.ladders[key], at, q.weight(), q.slack, demands...)
		step.Peek, step.Exact = q.rand.IntN(5) == 0, q.rand.IntN(2) == 0
		if !q.taker.Together(step.Keys) {
			step.Keys, demands = step.Keys[:1], demands[:1]
		}
		q.say("%d take, peek %v", at.UnixNano(), step.Peek)
		for i, k := range step.Keys {
			q.say("\t%s %d under %s soft %v", demands[i].key, k.N, demands[i].limits, k.Soft)
		}
		must(q.take(step))
		q.look(key, at)
	}
}

// demands are random demands of a key, and mostly of no other.
func (q *sequence) demands(key int) (demands []demand) {
	for i := range 1 + q.rand.IntN(2)*q.rand.IntN(len(q.ladders)) {
		k := (key + i) % len(q.ladders)
		d := demand{key: fmt.Sprint(k), n: q.weight(), ladder: q.ladders[k], soft: q.rand.IntN(4) == 0}
		for range 1 + q.rand.IntN(3) {
			limit := counter.Limit{Max: d.n + q.rand.Int64N(20), Per: q.spans[q.rand.IntN(len(q.spans))]}
			if n := len(q.periods); n > 0 && q.rand.IntN(3) == 0 {
				limit.Per, limit.Period = 0, q.periods[q.rand.IntN(n)]
			}
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
func (q *sequence) change(key int, now, at time.Time, n int64) {
	op := q.request(q.ladders[key], fmt.Sprint(key), at, n)
	op.Now, op.Add = now, chain(q.ladders[key], at, q.slack)
	must(q.do(op))
}

// look reads what is around at, in every tier.
func (q *sequence) look(key int, at time.Time) {
	var spans []backend.Span
	for _, b := range q.ladders[key].Buckets(at) {
		spans = append(spans, span(b.Width, b.Index-5, 8))
	}
	q.read(q.ladders[key], fmt.Sprint(key), at, spans...)
}

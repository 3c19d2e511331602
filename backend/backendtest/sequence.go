package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// sequence is random steps, additions, takings back and readings of a few keys,
// on one ladder, each answer held to a model.
type sequence struct {
	*subject
	name   string
	ladder tiers.Ladder
	slack  time.Duration
	model  *oracle.Store
	clock  time.Time
	keys   []string
	spans  []time.Duration // that windows may have
	added  []addition      // by Do, not taken back yet
	said   []string        // what was done, for who has to look for the mistake
}

type addition struct {
	key string
	at  time.Time
	n   int64
}

func againstModel(s *subject) {
	for i, l := range []tiers.Ladder{
		dayLadder,
		fineLadder,
		manyKeeps,
		mustLadder("1s:1m, 1h:7d"), // the fine tier is dropped long before a coarse bucket is full
		mustLadder("10s:1d"),
		mustLadder("1s:20s, 5s:1m, 1m:10m, 1h:10h, 1d:10d"),
		mustLadder("1ms:20s, 10ms:20s, 100ms:20s, 1s:20s, 10s:200s, 100s:2000s, 1000s:20000s, 10000s:20000s"),
	} {
		for j, slack := range []time.Duration{0, 150 * time.Millisecond, 5 * time.Second} {
			q := &sequence{subject: s, name: fmt.Sprint(i, "-", j, "-"), ladder: l, slack: slack, model: oracle.NewStore(), clock: noon}
			q.run(500 / s.thrift)
		}
	}
}

func (q *sequence) run(n int) {
	for i := range 3 {
		q.keys = append(q.keys, fmt.Sprint(q.name, i))
	}
	for _, w := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 5 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
		if _, err := q.ladder.Finest(w); err == nil {
			q.spans = append(q.spans, w)
		}
	}
	after(&q.said, func() {
		for range n {
			during(q.next, "on ladder %s with slack %s", q.ladder, q.slack)
		}
	})
	q.audit()
}

func (q *sequence) say(format string, args ...any) {
	q.said = append(q.said, fmt.Sprintf(format, args...))
}

func (q *sequence) pick() string { return q.keys[q.rand.IntN(len(q.keys))] }

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
		w := q.ladder.At(r.IntN(q.ladder.Len())).Width
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
	at := q.time()
	switch q.rand.IntN(10) {
	case 0, 1:
		q.addition(q.pick(), at, q.weight())
		return
	case 2:
		if len(q.added) == 0 {
			return
		}
		i := q.rand.IntN(len(q.added))
		a := q.added[i]
		q.added = slices.Delete(q.added, i, i+1)
		q.takeBack(a, at)
		return
	case 3:
		q.look(q.pick(), at)
		return
	}
	n := q.weight()
	step := q.taking(q.ladder, at, n, q.slack, q.demands(n)...)
	step.Peek, step.Exact = q.rand.IntN(5) == 0, q.rand.IntN(2) == 0
	if !q.taker.Together(step.Keys) {
		step.Keys = step.Keys[:1]
	}
	said := fmt.Sprintf("%d take n=%d peek=%v", at.UnixNano(), n, step.Peek)
	for _, d := range step.Keys {
		said += fmt.Sprintf(" %s", d.Key[len(q.key("")):])
		for _, w := range d.Windows {
			said += fmt.Sprintf(" %d/%s", w.Max, w.Reach)
		}
	}
	q.say("%s", said)
	must(q.take(step))
	must(q.model.Take(step))
	q.look(string(step.Keys[0].Key[len(q.key("")):]), at)
}

func (q *sequence) demands(n int64) []demand {
	var demands []demand
	first := q.rand.IntN(len(q.keys))
	for i := range 1 + q.rand.IntN(2)*q.rand.IntN(len(q.keys)) {
		d := demand{key: q.keys[(first+i)%len(q.keys)]}
		for range 1 + q.rand.IntN(3) {
			limit := counter.Limit{Max: n + q.rand.Int64N(20), Per: q.spans[q.rand.IntN(len(q.spans))]}
			if q.rand.IntN(4) == 0 {
				limit.Max = backend.MaxCount
			}
			d.limits = append(d.limits, limit)
		}
		demands = append(demands, d)
	}
	return demands
}

func (q *sequence) addition(key string, at time.Time, n int64) {
	q.say("%d add %s %d", at.UnixNano(), key, n)
	op := &backend.Request{Key: q.key(key), Ladder: q.ladder, Now: at, N: n, Add: chain(q.ladder, at, q.slack)}
	q.added = append(q.added, addition{key, at, n})
	q.both(op)
}

func (q *sequence) takeBack(a addition, now time.Time) {
	q.say("%d take back %s %d of %d", now.UnixNano(), a.key, a.n, a.at.UnixNano())
	op := &backend.Request{Key: q.key(a.key), Ladder: q.ladder, Now: now, N: -a.n, Add: chain(q.ladder, a.at, q.slack)}
	q.both(op)
}

// both does op on the store and on the model.
func (q *sequence) both(op *backend.Request) {
	must(q.do(op))
	must(q.model.Do(op))
}

// look reads what is around at, in every tier.
func (q *sequence) look(key string, at time.Time) {
	op := &backend.Request{Key: q.key(key), Ladder: q.ladder, Now: at}
	for _, b := range q.ladder.Buckets(at) {
		op.Read = append(op.Read, span(b.Width, b.Index-5, 8))
	}
	q.both(op)
}

// audit reads all buckets that were ever hit.
func (q *sequence) audit() {
	for _, key := range q.keys {
		op := &backend.Request{Key: q.key(key), Ladder: q.ladder, Now: q.clock}
		for b := range q.model.Keys[op.Key] {
			op.Read = append(op.Read, span(b.Width, b.Index, 1))
		}
		if len(op.Read) == 0 {
			continue
		}
		during(func() { q.both(op) }, "at the end")
	}
}

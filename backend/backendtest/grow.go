package backendtest

import (
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

var growStart = noon.Add(-8 * time.Hour)

// grow makes keys of thousands of buckets: sparse, dense, and dense and then sparse
// again. A store may keep a large key in another way than a small key. Goroutines
// hit side by side, so some are at work during the change.
func grow(s *subject) {
	dense := func(n int, step time.Duration, from time.Time) []time.Time {
		hits := make([]time.Time, n)
		for i := range hits {
			hits[i] = from.Add(time.Duration(i) * step)
		}
		return hits
	}
	for _, g := range some(s, []*growth{
		{key: "day", ladder: dayLadder, spans: []time.Duration{10 * time.Second, time.Minute, time.Hour, 5 * time.Hour, 24 * time.Hour}, phases: [][]time.Time{
			dense(60, 47*time.Second, growStart),
			dense(8_000/min(8, s.thrift), time.Second, growStart.Add(time.Hour)), // every second of two hours and more
			dense(100, 59*time.Second, growStart.Add(4*time.Hour)),
		}},
		{key: "tenths", ladder: fineLadder, spans: []time.Duration{500 * time.Millisecond, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour}, phases: [][]time.Time{
			dense(5_000/min(8, s.thrift), 100*time.Millisecond, growStart), // six hundred in each of eight minutes
			dense(60, 13*time.Second, growStart.Add(9*time.Minute)),
		}},
		{key: "one-minute", ladder: dayLadder, spans: []time.Duration{time.Second, time.Minute, time.Hour}, phases: [][]time.Time{
			dense(3_000/min(8, s.thrift), 20*time.Millisecond, growStart.Truncate(time.Minute)), // fifty in each second
		}},
	}) {
		g.subject = s.with(oracle.NewStore())
		during(func() { g.run() }, "key %q", g.key)
	}
}

type growth struct {
	*subject
	key    string
	ladder tiers.Ladder
	spans  []time.Duration // of windows
	phases [][]time.Time   // instants to hit
	mu     sync.Mutex      // guards the model
	newest time.Time
}

func (g *growth) run() {
	for i, hits := range g.phases {
		// In parts, to look at the key at many sizes.
		for len(hits) > 0 {
			part := hits[:min(len(hits), len(g.phases[i])/4+1)]
			g.hit(part, 1)
			during(func() { g.look() }, "phase %d, %d buckets", i, len(g.model.Keys[g.subject.key(g.key)]))
			hits = hits[len(part):]
		}
	}
	// Half of it is taken back, and what is left is exact.
	for _, hits := range g.phases {
		g.hit(hits[:len(hits)/2], -1)
	}
	during(func() { g.look() }, "half taken back")
}

// hit adds to the instants, from eight goroutines; every hit has a weight by
// its place, the same for adding and taking back.
func (g *growth) hit(instants []time.Time, sign int64) {
	const callers = 8
	crowd := g.with(nil)
	together(callers, func(c int) {
		for i := c; i < len(instants); i += callers {
			at := instants[i]
			n := sign * (1 + at.UnixNano()/int64(100*time.Millisecond)%3)
			crowd.add(g.ladder, g.key, at, n)
			g.mu.Lock()
			g.model.Count(g.request(g.ladder, g.key, at, n))
			if at.After(g.newest) {
				g.newest = at
			}
			g.mu.Unlock()
		}
	})
}

// look reads every bucket, and has windows counted by a Taker: with several Max, so
// that little must leave, a part, and nearly all; the first takes a hit.
func (g *growth) look() {
	var spans []backend.Span
	for _, t := range g.ladder.Tiers() {
		first := tiers.Index(growStart.Add(-time.Minute).UnixNano(), t.Width)
		spans = append(spans, span(t.Width, first, int(tiers.Index(g.newest.UnixNano(), t.Width)-first)+2))
	}
	g.read(g.ladder, g.key, g.newest, spans...)
	if g.taker == nil {
		return
	}
	for _, per := range g.spans {
		width := g.ladder.At(value(g.ladder.Finest(per))).Width
		sum, _, _ := g.model.Window(g.subject.key(g.key), width, tiers.Index(g.newest.Add(-per).UnixNano(), width))
		for _, max := range []int64{sum + 1, sum + 1, sum, sum - sum/100, sum / 2, 1} {
			if max < 1 {
				continue
			}
			step := g.taking(g.ladder, g.newest, 1, 0, demand{key: g.key, limits: counter.Limits{{Max: max, Per: per}}})
			step.Peek, step.Exact = max != sum+1, true
			must(g.take(step))
		}
	}
}

package backendtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/promise"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/internal/testkit/script"
	"github.com/abacus-go/abacus/tiers"
)

func scripts(s *subject) {
	each, allowed := max(1, 12/s.thrift), 0
	clocks := []struct{ skew, settle time.Duration }{{3 * time.Second, enough}, {100 * time.Millisecond, 10 * time.Second}, {-1, -1}}
	for name, r := range script.Once() {
		if _, err := r.Play(s.Store, freshPrefix()); err != nil {
			failf("%s, which once failed: %w\n%s", name, err, r)
		}
	}
	for _, kind := range some(s, []struct {
		ladder  string
		scripts int
	}{
		{"1s:1d, 1m:1d, 1h:1d", each},
		{"100ms:1m, 1s:1h, 1m:1d, 1h:7d, 1d:7d", each},
		{"1m:1d, 1h:1d", each},
		{"10s:1h", each},
		{"10s:1d", max(1, each/8)}, // reads 8,641 buckets for a window
		{"1s:1m, 1h:7d", each},
		{"1s:10s, 10s:10m, 10m:1d", each},
		{"1m:1d, 1h:30d", each},
		{"1s:1h, 1m:1d, 1h:30d", each},
		{"1s:1h, 15m:32d, 1h:32d, 1d:32d", each}, // limits by the calendar, in most zones
		{"1h:8d, 1d:31d", each},
	}) {
		for i := range kind.scripts {
			clock := clocks[i%len(clocks)]
			r := script.Random(s.rand, parse.Ladder(kind.ladder), clock.skew, clock.settle, 80)
			answers := value(r.Try(func(r script.Script) ([]script.Answer, error) { return r.Play(s.Store, freshPrefix()) }))
			for _, a := range answers {
				if a.Verdict.Allowed {
					allowed++
				}
			}
		}
	}
	if allowed < 20*each {
		failf("%d calls admitted in all scripts", allowed)
	}
}

// herd is a race of four Counters whose clocks are apart by the skew, away from the
// ends of their minute: each round begins at noon. No try is late on a slow machine.
func herd(s *subject) {
	var began atomic.Int64
	made := 0
	on := &promise.Subject{
		Counter: func(l tiers.Ladder, _ bool) (*counter.Counter, error) {
			ahead := time.Duration(made%4) * 100 * time.Millisecond / 3
			made++
			return s.counter("h", counter.Config{Ladder: l, Skew: 100 * time.Millisecond, Settle: 5 * time.Second, Patience: enough, Now: func() time.Time {
				return noon.Add(ahead + time.Since(time.Unix(0, began.Load())))
			}}), nil
		},
		Round: func(context.Context) error {
			began.Store(time.Now().UnixNano())
			return nil
		},
	}
	for _, c := range some(s, []promise.Case{
		promise.Herd(counter.MustLimits("7/d"), 1, 4, 60/s.thrift),
		promise.Herd(counter.MustLimits("7/m, 9/h, 8/d"), 1, 4, 60/s.thrift),
		promise.Herd(counter.MustLimits("7/m, 8/d"), 2, 4, 50/s.thrift),
	}) {
		keeps(c, on)
	}
}

// keeps tries a case of package promise, in which no call may fail.
func keeps(c promise.Case, on *promise.Subject) {
	f := value(c.Try(context.Background(), on))
	if f.Failed > 0 {
		failf("%d of %d calls failed: %w", f.Failed, f.Calls, f.Last)
	}
	if f.Broken != "" {
		failf("%s. %s", f.Seen, f.Broken)
	}
}

// promised runs a case of package promise: by a clock that stands at noon, or by the
// clock of the world.
func promised(c promise.Case, world bool) func(*subject) {
	return func(s *subject) {
		cfg, reach := counter.Config{Skew: -1, Settle: enough, Patience: enough, Now: func() time.Time { return noon }}, time.Duration(0)
		if world {
			cfg.Now, cfg.Settle = nil, 2*time.Second // buckets outlive a caller that stands still with its label
		}
		if world && s.taker == nil {
			cfg.Settle, reach = counter.DefaultSettle, counter.DefaultSettle // on a busy machine a try by ticket lasts
		}
		keeps(c, &promise.Subject{Patience: enough, Reach: reach, Counter: func(l tiers.Ladder, _ bool) (*counter.Counter, error) {
			cfg := cfg
			cfg.Ladder = l
			return s.counter("p", cfg), nil
		}})
	}
}

// hangUp has callers that give up at any moment; callers that do not are never too
// many, and never wrong about their own hits.
func hangUp(s *subject) {
	const callers, calls, places = 12, 30, 150
	now := noon
	c := s.counter("u", counter.Config{Skew: 100 * time.Millisecond, Patience: 20 * time.Second, Now: func() time.Time { return now }})
	key, limits := counter.Key{Event: "e", Feature: "f"}, counter.Limits{{Max: places, Per: time.Hour}}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if v, err := c.Take(gone, key, 1, limits); !errors.Is(err, context.Canceled) || v.Allowed {
		failf("a context that is done: allowed %v, %v", v.Allowed, err)
	}
	if n, err := c.Count(context.Background(), key, time.Hour); err != nil || n.High != 0 {
		failf("a context that is done: %+v were counted, %w", n, err)
	}
	var admitted, failed atomic.Int64
	together(callers, func(i int) {
		r := rand.New(rand.NewPCG(s.seed, uint64(i)))
		for j := range calls {
			ctx, cancel := context.WithCancel(context.Background())
			if j%2 == 0 {
				time.AfterFunc(time.Duration(r.Int64N(int64(400*time.Microsecond))), cancel)
			}
			before := admitted.Load()
			v, err := c.Take(ctx, key, 1, limits)
			cancel()
			if n, err := c.Count(context.Background(), key, time.Hour); err != nil || n.High < before {
				failf("%d admitted, and %d are counted, %w", before, n.High, err)
			}
			switch {
			case err != nil && (j%2 == 1 || !errors.Is(err, context.Canceled)):
				must(err)
			case err != nil:
				failed.Add(1)
			case v.Allowed:
				admitted.Add(1)
			}
		}
	})
	n := value(c.Count(context.Background(), key, time.Hour))
	if a, f := admitted.Load(), failed.Load(); a > places || n.High < a || n.High > a+f {
		failf("%d admitted of %d places, %d given up, and %d are counted", a, places, f, n.High)
	}
}

package backendtest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// roundsVariable makes the races of a suite longer than a test run has time
// for: so many rounds each.
const roundsVariable = "BACKENDTEST_ROUNDS"

// roundsOf is the number of rounds of a race: usual, unless the environment says
// otherwise.
func roundsOf(usual int) int {
	if n, err := strconv.Atoi(os.Getenv(roundsVariable)); err == nil && n > 0 {
		return n
	}
	return max(1, usual/thrift())
}

// differ has callers with different limits and a different patience race for the
// only place of a limit that all share.
func differ(s *subject) {
	callers := []struct {
		limits  counter.Limits
		timeout time.Duration
	}{
		{counter.MustLimits("1/d"), 10 * time.Second},
		{counter.MustLimits("10/m, 1/d"), 20 * time.Second},
		{counter.MustLimits("5/h, 1/d"), 5 * time.Second},
	}
	counters := make([]*counter.Counter, len(callers))
	for i := range callers {
		now := noon
		c := s.counter("d", counter.Config{Skew: 100 * time.Millisecond, Patience: callers[i].timeout, Now: func() time.Time { return now }})
		counters[i] = c
	}
	rounds := roundsOf(500)
	for round := range rounds {
		key := counter.Key{Event: "differ", Feature: fmt.Sprint(round)}
		var admitted atomic.Int64
		together(2+round%2, func(i int) {
			i = (i + round) % len(callers)
			v, err := counters[i].Take(context.Background(), key, 1, callers[i].limits)
			if v.Allowed {
				admitted.Add(1)
			}
			must(err)
		})
		if n := admitted.Load(); n != 1 {
			failf("round %d of %d: %d admitted under 1/d by callers with different limits, want 1", round, rounds, n)
		}
	}
}

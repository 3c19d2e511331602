package backendtest

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/parse"
)

func years(s *subject) {
	for _, year := range []int{1701, 1965, 1969, 1971, 2037, 2038, 2040, 2106, 2249} {
		now := time.Date(year, 1, 19, 3, 14, 0, 0, time.UTC)
		key := counter.Key{Event: "y", Feature: fmt.Sprint(year)}
		c := s.counter("y", counter.Config{Ladder: parse.Ladder("1s:1d, 1m:366d, 1d:366d"), Skew: -1, Settle: -1, Patience: -1, Now: func() time.Time { return now }})
		for i, step := range []struct {
			forward time.Duration
			n       int64
			limits  string
			allowed bool
			retry   time.Duration
			count   int64 // of the last 366 days
		}{
			{0, 3, "5/m, 9/366d", true, 0, 3},
			{10 * time.Second, 3, "5/m, 9/366d", false, 51 * time.Second, 3},
			{51 * time.Second, 3, "5/m, 9/366d", true, 0, 6},
			{time.Minute, 4, "5/m, 9/366d", false, 366*24*time.Hour - 2*time.Minute, 6},
			{time.Minute, 3, "5/m, 9/366d", true, 0, 9},
			{30 * 24 * time.Hour, 1, "5/m, 9/366d", false, 336*24*time.Hour - 3*time.Minute, 9},
			{0, 1, "5/m, 1 per month in UTC", true, 0, 10},
			{0, 1, "5/m, 1 per day in UTC", false, 20*time.Hour + 42*time.Minute, 10},
		} {
			now = now.Add(step.forward)
			v, err := c.Take(context.Background(), key, step.n, counter.MustLimits(step.limits))
			if err != nil {
				failf("the year %d: %w", year, err)
			}
			// The end of a minute and of a second, to a bucket.
			if v.Allowed != step.allowed || v.RetryAfter < step.retry || v.RetryAfter > step.retry+time.Minute+time.Second {
				failf("the year %d, step %d: allowed %v, retry after %s, want %v and %s", year, i, v.Allowed, v.RetryAfter, step.allowed, step.retry)
			}
			n := value(c.Count(context.Background(), key, 366*24*time.Hour))
			if n.High != step.count {
				failf("the year %d, step %d: counts %+v, want %d", year, i, n, step.count)
			}
		}
	}
}

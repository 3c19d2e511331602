package check

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

const (
	boundaryCallers = 8
	longestBoundary = 6 * time.Second
)

var boundaryLimit = counter.Limit{Max: 2, Per: time.Second}

// hit is an admitted call. It counts for an instant between the first and the
// last time that the counter has read its clock for it.
type hit struct{ first, last time.Time }

// clock is a counter's clock, for one call after the other.
type clock struct{ hit }

func (c *clock) now() time.Time {
	c.last = time.Now()
	if c.first.IsZero() {
		c.first = c.last
	}
	return c.last
}

// boundary has callers try without a pause under a limit of a second, for some
// seconds of true time, and looks for a window that holds too many.
func (r *run) boundary(ctx context.Context) (Result, error) {
	result := Result{Name: "boundary", Promise: "no window over Max", Status: OK}
	all, clocks := make([]*counter.Counter, boundaryCallers), make([]clock, boundaryCallers)
	for i := range all {
		var err error
		if all[i], err = r.counter(tiers.For(boundaryLimit.Per), func(cfg *counter.Config) { cfg.Now = clocks[i].now }); err != nil {
			return result, err
		}
	}
	// Two windows as the counter takes them, the second time with room again.
	slack := counter.DefaultSkew + r.cfg.Timeout
	if r.local() {
		slack = 0
	}
	spent := min(2*(boundaryLimit.Per+slack)+500*time.Millisecond, longestBoundary)
	until, cancel := context.WithTimeout(ctx, spent)
	defer cancel()
	var mu sync.Mutex
	var hits []hit
	var calls, failed int
	var first error
	var wait sync.WaitGroup
	for i, c := range all {
		wait.Go(func() {
			for until.Err() == nil {
				clocks[i].hit = hit{}
				v, err := c.Take(ctx, counter.Key{Event: "boundary", Feature: "one"}, 1, counter.Limits{boundaryLimit})
				mu.Lock()
				calls++
				switch {
				case err != nil:
					failed++
					first = err
				case v.Allowed:
					hits = append(hits, clocks[i].hit)
				}
				mu.Unlock()
				select {
				case <-until.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	wait.Wait()
	most := fullest(hits, boundaryLimit.Per)
	result.Seen = fmt.Sprintf("%s, %d callers, %s: %d admitted, %d in any second",
		boundaryLimit, boundaryCallers, dur.Format(spent.Round(100*time.Millisecond)), len(hits), most)
	switch {
	case most > int(boundaryLimit.Max):
		result.Status, result.Means = Failed, "Promise 2 is broken: limits do not hold on this store."
	case failed == calls:
		return result, first
	case failed > 0:
		result.Status, result.Means = Warning, r.late(failed, calls, first)+"\n"+raiseTimeout
	case len(hits) < int(boundaryLimit.Max):
		result.Status, result.Means = Failed, "Callers were denied though there was room."
	}
	return result, nil
}

// fullest is how many hits fit into one window of length per, each wherever it
// may have counted.
func fullest(hits []hit, per time.Duration) int {
	most := 0
	for _, oldest := range hits {
		n := 0
		for _, h := range hits {
			if !h.last.Before(oldest.last) && h.first.Sub(oldest.last) < per {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

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

// boundary has callers try without a pause under a limit of a second, for some
// seconds of true time, and looks for a window that holds too many.
func (r *run) boundary(ctx context.Context) (Result, error) {
	result := Result{Name: "boundary", Promise: "no window over Max", Status: OK}
	all, err := r.counters(boundaryCallers, tiers.For(boundaryLimit.Per))
	if err != nil {
		return result, err
	}
	// Two windows as the counter takes them, the second time with room again.
	reach := boundaryLimit.Per
	if !r.local() {
		reach += counter.DefaultSkew + r.settle()
	}
	spent := min(2*reach+500*time.Millisecond, longestBoundary)
	until, cancel := context.WithTimeout(ctx, spent)
	defer cancel()
	var mu sync.Mutex
	var hits []time.Time // the instants by which they were counted
	var f failures
	var wait sync.WaitGroup
	for _, c := range all {
		wait.Go(func() {
			for until.Err() == nil {
				v, err := take(ctx, c, counter.Key{Event: "boundary", Feature: "one"}, 1, counter.Limits{boundaryLimit})
				mu.Lock()
				if f.add(err); v.Allowed {
					hits = append(hits, v.At())
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
	case f.all():
		return result, f.last
	case f.failed > 0:
		f.warn(r, &result)
	case len(hits) < int(boundaryLimit.Max):
		result.Status, result.Means = Failed, "Callers were denied though there was room."
	}
	return result, nil
}

// fullest is the number of hits in the fullest window of length per.
func fullest(hits []time.Time, per time.Duration) int {
	most := 0
	for _, oldest := range hits {
		n := 0
		for _, h := range hits {
			if !h.Before(oldest) && h.Sub(oldest) < per {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

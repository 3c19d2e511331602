package check

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

const (
	racers = 40
	places = 7
	rounds = 5
)

// herd lets many callers race for few places.
func (r *run) herd(ctx context.Context) (Result, error) {
	result := Result{Name: "herd", Promise: "exactly Max in a race", Status: OK}
	limits := counter.Limits{{Max: places, Per: 24 * time.Hour}}
	var told []string
	var over, under, failed int
	var first error
	for round := range rounds + 1 {
		all, err := r.counters(racers, tiers.Default)
		if err != nil {
			return result, err
		}
		key := counter.Key{Event: "herd", Feature: fmt.Sprint("round ", round)}
		admitted, errs := race(ctx, all, key, limits)
		if round == 0 {
			continue // it makes the connections
		}
		for _, err := range errs {
			if err != nil {
				failed++
				first = err
			}
		}
		if admitted > places {
			over++
		}
		if admitted < places {
			under++
		}
		told = append(told, fmt.Sprint(admitted))
	}
	result.Seen = fmt.Sprintf("%d racers for %d places, %d rounds: %s admitted", racers, places, rounds, strings.Join(told, " "))
	switch {
	case over > 0:
		result.Status, result.Means = Failed, "Promise 2 is broken: limits do not hold on this store."
	case failed == racers*rounds:
		return result, first
	case failed > 0:
		result.Status, result.Means = Warning, r.late(failed, racers*rounds, first)+"\n"+raiseTimeout
	case under > 0:
		result.Status, result.Means = Failed, "Callers were denied though there was room."
	}
	return result, nil
}

// race lets each counter take one of the same key at the same time.
func race(ctx context.Context, all []*counter.Counter, key counter.Key, limits counter.Limits) (admitted int, errs []error) {
	errs = make([]error, len(all))
	allowed := make([]bool, len(all))
	start := make(chan struct{})
	var wait sync.WaitGroup
	for i, c := range all {
		wait.Go(func() {
			<-start
			v, err := c.Take(ctx, key, 1, limits)
			allowed[i], errs[i] = v.Allowed, err
		})
	}
	close(start)
	wait.Wait()
	for _, ok := range allowed {
		if ok {
			admitted++
		}
	}
	return admitted, errs
}

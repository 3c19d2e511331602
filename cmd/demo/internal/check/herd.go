package check

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
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
	var over, under int
	var f failures
	for round := range rounds + 1 {
		all, err := r.counters(racers, tiers.Default)
		if err != nil {
			return result, err
		}
		key := counter.Key{Event: "herd", Feature: fmt.Sprint("round ", round)}
		if err := r.awayFromTheHour(ctx); err != nil {
			return result, err
		}
		admitted, errs := race(ctx, all, key, limits)
		if round == 0 {
			continue // this round makes the connections
		}
		late := f.failed
		for _, err := range errs {
			f.add(err)
		}
		if admitted > places {
			over++
		}
		if admitted < places && f.failed == late { // a call that failed may have kept a place
			under++
		}
		told = append(told, fmt.Sprint(admitted))
	}
	result.Seen = fmt.Sprintf("%d racers for %d places, %d rounds: %s admitted", racers, places, rounds, strings.Join(told, " "))
	switch {
	case over > 0:
		result.Status, result.Means = Failed, "Promise 2 is broken: limits do not hold on this store."
	case under > 0:
		result.Status, result.Means = Failed, "Callers were denied though there was room."
	case f.all():
		return result, f.last
	case f.failed > 0:
		f.warn(r, &result)
	}
	return result, nil
}

// awayFromTheHour waits where racers could find themselves on both sides of the
// end of an hour, the width of the tickets of a day: on a store without an atomic
// step the racers need not get every place then.
func (r *run) awayFromTheHour(ctx context.Context) error {
	const near = 2 * time.Second
	if _, atomic := r.store.Store.(backend.Atomic); atomic {
		return nil
	}
	now := time.Now()
	if now.Add(-near).Truncate(time.Hour).Equal(now.Add(near).Truncate(time.Hour)) {
		return nil
	}
	select {
	case <-time.After(2 * near):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// race has each counter take a hit of the same key at the same time.
func race(ctx context.Context, all []*counter.Counter, key counter.Key, limits counter.Limits) (admitted int, errs []error) {
	errs = make([]error, len(all))
	allowed := make([]bool, len(all))
	start := make(chan struct{})
	var wait sync.WaitGroup
	for i, c := range all {
		wait.Go(func() {
			<-start
			v, err := take(ctx, c, key, 1, limits)
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

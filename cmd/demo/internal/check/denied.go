package check

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

const deniedCalls = 60

// denied fills a key, has it denied many times, and sees whether that took
// anything.
func (r *run) denied(ctx context.Context) (Result, error) {
	const most = 3
	result := Result{Name: "denied", Promise: "denied hits are free", Status: OK}
	key := counter.Key{Event: "denied", Feature: "one"}
	limits := func(max int64) counter.Limits { return counter.Limits{{Max: max, Per: 24 * time.Hour}} }
	c, err := r.counter(tiers.Default)
	if err != nil {
		return result, err
	}
	for i := range most {
		if v, err := c.Take(ctx, key, 1, limits(most)); err != nil || !v.Allowed {
			return result, orUnexpected(err, "hit %d of %d was denied", i+1, most)
		}
	}
	for i := range deniedCalls {
		// A call just like the last would be answered without the store.
		v, err := c.Take(ctx, key, int64(1+i%2), limits(most))
		if err != nil || v.Allowed {
			return result, orUnexpected(err, "hit %d of %d was admitted", most+1, most)
		}
		if v.RetryAfter <= 0 || v.RetryAfter > 25*time.Hour {
			return result, fmt.Errorf("denied, and to come back in %s", v.RetryAfter)
		}
	}
	count, err := c.Count(ctx, key, 24*time.Hour)
	if err != nil {
		return result, err
	}
	// Room for one more is for one more, for others too.
	other, err := r.counter(tiers.Default)
	if err != nil {
		return result, err
	}
	v, err := other.Take(ctx, key, 1, limits(most+1))
	if err != nil {
		return result, err
	}
	result.Seen = fmt.Sprintf("%d admitted, %d denied: %d counted", most, deniedCalls, count.High)
	if count.High != most || count.Low != most || !v.Allowed {
		result.Status, result.Means = Failed, "Promise 3 is broken: who keeps trying is kept out."
	}
	return result, nil
}

// orUnexpected is err, or if there is none what else was wrong.
func orUnexpected(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf(format, args...)
}

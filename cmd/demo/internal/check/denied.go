package check

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

const deniedCalls = 60

// denied fills a key, has the key denied many times, and checks that the denials
// consumed nothing. A late call may have counted: then the check begins anew, with
// another key.
func (r *run) denied(ctx context.Context) (result Result, err error) {
	const tries = 3
	for i := range tries {
		began := time.Now()
		if result, err = r.denyMany(ctx, counter.Key{Event: "denied", Feature: fmt.Sprint("try ", i)}); err == nil || !late(err) {
			break
		}
		if ctx.Err() != nil || time.Since(began) > Patience(r.cfg.Timeout) {
			break
		}
	}
	return result, err
}

func (r *run) denyMany(ctx context.Context, key counter.Key) (Result, error) {
	const most = 3
	result := Result{Name: "denied", Promise: "denied hits are free", Status: OK}
	limits := func(max int64) counter.Limits { return counter.Limits{{Max: max, Per: 24 * time.Hour}} }
	c, err := r.patient(tiers.Default)
	if err != nil {
		return result, err
	}
	for i := range most {
		if v, err := take(ctx, c, key, 1, limits(most)); err != nil || !v.Allowed {
			return result, orUnexpected(err, "hit %d of %d was denied", i+1, most)
		}
	}
	for i := range deniedCalls {
		// A call just like the last would be answered without the store.
		v, err := take(ctx, c, key, int64(1+i%2), limits(most))
		if err != nil || v.Allowed {
			return result, orUnexpected(err, "hit %d of %d was admitted", most+1, most)
		}
		if v.RetryAfter <= 0 || v.RetryAfter > 25*time.Hour {
			return result, fmt.Errorf("a denied call has a RetryAfter of %s, want more than 0s and at most 25h", v.RetryAfter)
		}
	}
	began := time.Now()
	count, err := c.Count(ctx, key, 24*time.Hour)
	if err != nil {
		return result, orSlow(began, err)
	}
	// Another counter sees the same room for one more.
	other, err := r.patient(tiers.Default)
	if err != nil {
		return result, err
	}
	v, err := take(ctx, other, key, 1, limits(most+1))
	if err != nil {
		return result, err
	}
	result.Seen = fmt.Sprintf("%d admitted, %d denied: %d counted", most, deniedCalls, count.High)
	switch {
	case count.High > most:
		result.Status, result.Means = Failed, "Promise 3 is broken: denied hits are counted, and who keeps trying is kept out."
	case count.High < most || count.Low < most:
		result.Status, result.Means = Failed, "Promise 1 is broken: hits that were admitted are not found again, so keys can be admitted more than Max. Read from the server that is written to."
	case !v.Allowed:
		result.Status, result.Means = Failed, "Hit 4 of 4 was denied: there was room, and nothing else was counted."
	}
	return result, nil
}

// take is a Take whose error tells whether the call was late.
func take(ctx context.Context, c *counter.Counter, key counter.Key, n int64, limits counter.Limits) (counter.Verdict, error) {
	began := time.Now()
	v, err := c.Take(ctx, key, n, limits)
	return v, orSlow(began, err)
}

// orUnexpected is err, or if there is none what else was wrong.
func orUnexpected(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf(format, args...)
}

package check

import (
	"context"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/promise"
	"github.com/abacus-go/abacus/tiers"
)

// herd is the race of this check: each racer has a Counter of its own.
var herd = promise.Herd(counter.Limits{{Max: 7, Per: 24 * time.Hour}}, 1, 40, 5)

// promised tries a case that the conformance suite tries as well.
func (r *run) promised(c promise.Case) func(context.Context) (Result, error) {
	return func(ctx context.Context) (Result, error) {
		s := &promise.Subject{
			Counter: func(l tiers.Ladder, patient bool) (*counter.Counter, error) {
				if patient {
					return r.patient(l)
				}
				return r.counter(l)
			},
			Patience: Patience(r.cfg.Timeout),
			Round:    r.awayFromTheHour,
			Judge: func(began time.Time, err error) (bool, error) {
				err = orSlow(began, err)
				return late(err), err
			},
		}
		if !r.local() {
			s.Reach = counter.DefaultSkew + r.settle()
		}
		f, err := c.Try(ctx, s)
		result := Result{Name: c.Name, Promise: c.Promise, Status: OK, Seen: f.Seen}
		switch {
		case err != nil:
			return result, err
		case f.Broken != "":
			result.Status, result.Means = Failed, f.Broken
		case f.All():
			return result, f.Last
		case f.Failed > 0:
			r.warn(&result, f.Failures)
		}
		return result, nil
	}
}

// awayFromTheHour waits where racers could find themselves on both sides of the
// end of an hour, the width of the tickets of a day: there, on a store without an
// atomic step, the promise of every place does not hold.
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

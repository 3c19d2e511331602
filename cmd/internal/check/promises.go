package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
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

// warn makes result a Warning about failed calls.
func (r *run) warn(result *Result, f promise.Failures) {
	result.Status = Warning
	if f.Late < f.Failed {
		result.Means = fmt.Sprintf("%d of %d calls failed: %v", f.Failed, f.Calls, f.Last)
		return
	}
	result.Means = fmt.Sprintf("%d of %d calls were late, --timeout is %s: %v\n%s", f.Failed, f.Calls, dur.Format(r.cfg.Timeout), f.Last, tooSlow)
}

// slowCall is the least duration of a failed call that counts as late, where the
// error does not say so: most of the shortest timeout that callers have.
const slowCall = 40 * time.Millisecond

// orSlow is the error of a call that began at began; a slowError if late.
func orSlow(began time.Time, err error) error {
	if err != nil && time.Since(began) >= slowCall && !refused(err) {
		return slowError{err}
	}
	return err
}

// slowError is an error of a late call, and no server's refusal.
type slowError struct{ error }

func (e slowError) Unwrap() error { return e.error }

// late reports whether err came for want of time. A late error says nothing about
// the counts of the store.
func late(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, new(slowError)) || errors.As(err, new(*gomemcache.ConnectTimeoutError)) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

// refused reports whether err is a server's refusal, however late.
func refused(err error) bool {
	var reply goredis.Error
	return errors.As(err, &reply) || errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "SERVER_ERROR") ||
		strings.Contains(err.Error(), "out of memory")
}

const tooSlow = "A call that is late is an error, never a wrong answer: no promise is broken. The store is busy or far away: give it a server of its own, or callers more time (counter.Config.Patience; here --timeout)."

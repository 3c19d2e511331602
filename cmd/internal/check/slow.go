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

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/promise"
)

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

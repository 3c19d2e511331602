package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/loan"
)

// late is the decision of a caller whose call to the store is still under way.
type late struct {
	keep bool  // the hits, if the store admits them yet
	hits *Hits // admitted in this process; nil: none
}

// inTime asks the store and returns by c.Until, or when the call ends if that is
// zero. A Counter keeps its own Patience, and then takes back late additions, for at
// most its Config.Settle. The caller does not wait for the undo: the call goes
// on in the background, and underWay must be told what the caller has decided. The
// context of the call has the deadline, for the stores' clients; no undo ends
// with the context, and none has its values once the caller has gone. The call is in
// flight until it ends.
func (f *Fallback) inTime(ctx context.Context, c *Call, asks []counter.Ask, v *counter.Verdict) (underWay chan<- late, err error) {
	if c.Until.IsZero() {
		defer f.leave()
		return nil, f.ask(ctx, c.Mode, asks, v)
	}
	type answer struct {
		v    counter.Verdict
		err  error
		late bool // inTime was over: err may be the deadline alone
	}
	lent := loan.Of(ctx)
	defer lent.End()
	inTime, cancel := context.WithDeadline(lent, c.Until)
	defer cancel()
	answers, decided := make(chan answer), make(chan late, 1)
	mode, own := c.Mode, slices.Clone(asks)
	f.calls.Go(func() {
		defer f.leave()
		var a answer
		a.err = f.ask(inTime, mode, own, &a.v)
		a.late = inTime.Err() != nil || errors.Is(a.err, context.DeadlineExceeded)
		select {
		case answers <- a:
		case d := <-decided:
			if a.err == nil && !d.keep {
				// Counted, but no one was told. If the store does not take the hit back,
				// the hit stays until its bucket expires.
				_ = f.store.Refund(context.WithoutCancel(lent), &a.v)
			}
			if d.hits != nil {
				d.hits.land()
			}
		}
	})
	select {
	case a := <-answers:
		if a.err == nil || !a.late || errors.Is(a.err, counter.ErrStore) {
			*v = a.v
			return nil, a.err
		}
		err = lent.Err()
	case <-inTime.Done():
		err, underWay = lent.Err(), decided
	}
	if err == nil {
		err = fmt.Errorf("%w: no answer within Config.DecideWithin of %s", counter.ErrStore, f.within)
	}
	return underWay, named(asks, err)
}

// enter waits for a place among the calls in flight: until the time given, or without
// bound if that is zero, and no longer than ctx. waited reports whether there was none
// at first. A call without a place gets a counter.ErrStore, or the error of ctx.
func (f *Fallback) enter(ctx context.Context, until time.Time) (waited bool, err error) {
	if f.inFlight == nil {
		return false, nil
	}
	select {
	case f.inFlight <- struct{}{}:
		return false, nil
	default:
	}
	var expired <-chan time.Time
	if !until.IsZero() {
		expired = time.After(time.Until(until))
	}
	select {
	case f.inFlight <- struct{}{}:
		f.waited.Add(1)
		return true, nil
	case <-expired:
		f.shed.Add(1)
		return true, fmt.Errorf("%w: %d calls were under way, as many as Config.MaxInFlight, and none ended in time", counter.ErrStore, cap(f.inFlight))
	case <-ctx.Done():
		return true, cmp.Or(ctx.Err(), context.Canceled)
	}
}

// leave gives the place back.
func (f *Fallback) leave() {
	if f.inFlight != nil {
		<-f.inFlight
	}
}

package limiter

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// inFlight bounds the calls to the store that are under way. A call has a turn until
// the end of the call, whether the caller still waits or not. The nil inFlight is
// unbounded.
type inFlight struct {
	free         chan struct{} // a call sends at its beginning, and receives at its end
	waited, shed atomic.Int64
}

func newInFlight(most int) *inFlight {
	if most == 0 {
		return nil
	}
	return &inFlight{free: make(chan struct{}, most)}
}

// take waits for a turn: until the time given, or without bound if that is zero,
// and no longer than ctx. waited tells whether there was none at first. A call
// without a turn gets a counter.ErrStore, or the error of ctx.
func (t *inFlight) take(ctx context.Context, until time.Time) (waited bool, err error) {
	if t == nil {
		return false, nil
	}
	select {
	case t.free <- struct{}{}:
		return false, nil
	default:
	}
	var expired <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case t.free <- struct{}{}:
		t.waited.Add(1)
		return true, nil
	case <-expired:
		t.shed.Add(1)
		return true, fmt.Errorf("%w: %d calls were under way, as many as Config.MaxInFlight, and none ended in time", counter.ErrStore, cap(t.free))
	case <-ctx.Done():
		return true, cmp.Or(ctx.Err(), context.Canceled)
	}
}

func (t *inFlight) end() {
	if t != nil {
		<-t.free
	}
}

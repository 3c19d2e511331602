package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/limiter/fallback"
	"github.com/abacus-go/abacus/limiter/turns"
)

// MaxAdditions bounds [Stats].Additions, at some 300 bytes each. Beyond, no hits of
// a key are admitted locally, unless the local counter has a hit of the key that
// the store has admitted: the additions of such keys are bounded by the buckets
// that the local counter has for them.
const MaxAdditions = fallback.MaxAdditions

// Stats are numbers of a [Limiter] since its creation. All but Waited, Shed,
// Waiting and the last two are of rules that count locally, and zero without Config.Local.
type Stats struct {
	LocalAdmitted int64 // decisions that the local counter admitted
	LocalDenied   int64 // decisions denied by the local counter, or by a denial of the store before the failure
	LocalRefused  int64 // decisions that the local counter could not make, and denied: it lacked hits of a key, was full, or had no room for an addition

	Unmirrored int64   // hits of a key that the store admitted, and that found no room in the local counter
	Lacking    float64 // share of the unknown keys, now, that the local counter cannot decide since it lacks hits: 0 to 1; keys that it knows are not concerned

	Pending   int64 // hits, now: admitted locally, and not yet known to be in the store; growing: the store does not answer
	Additions int64 // that carry the pending hits, now: one for each key and finest bucket; see MaxAdditions
	Carried   int64 // hits that were added to the store after the failure
	Dropped   int64 // hits that were not added, since the store keeps no buckets any more for the time of the hits

	Waited int64 // calls that waited for a turn, and got a turn: see Config.MaxInFlight
	Shed   int64 // calls that waited for a turn in vain, and were decided as if the store had failed

	Waiting int64 // calls of Wait, now, that wait in a queue; growing: more is asked for than the limits admit

	RulesRead    time.Time // of the last RulesRead without an error; zero: none
	RulesRefused string    // the error of the last RulesRead; "" if the rules in force are from their source
}

// Stats returns a snapshot. Its numbers are read one after the other, and may be
// apart by the calls in flight.
func (l *Limiter) Stats() (s Stats) {
	n := l.taker.Stats()
	s.LocalAdmitted, s.LocalDenied, s.LocalRefused = n.Admitted, n.Denied, n.Refused
	s.Unmirrored, s.Lacking = n.Unmirrored, n.Lacking
	s.Pending, s.Additions, s.Carried, s.Dropped = n.Pending, n.Additions, n.Carried, n.Dropped
	s.Waited, s.Shed = n.Waited, n.Shed
	if source := l.source.Load(); source != nil {
		s.RulesRead, s.RulesRefused = source.read, source.refused
	}
	s.Waiting, _ = l.turns.Waiting()
	return s
}

// Check returns nil if the store of the Counter is ready, by
// [counter.Counter.Check], within DecideWithin, and Config.Local lacks no hits. The
// error joins all findings: [errors.Is] finds counter.ErrStore if decisions would
// be left to the rules' OnFailure, and counter.ErrCondition if hits are counted
// while a promise may break.
func (l *Limiter) Check(ctx context.Context) error {
	if l.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = loan.WithTimeout(ctx, l.within)
		defer cancel()
	}
	err := l.counter.Check(ctx)
	l.log.checked(l.counter)
	if l.taker.Lacking() {
		err = errors.Join(err, fmt.Errorf("limiter: Config.Local was full and lacks hits of %.1f%% of the keys that it does not know, want none: a larger store: %w", 100*l.taker.Stats().Lacking, counter.ErrCondition))
	}
	return err
}

// ErrClosed is the error of a call of a [Limiter] after Close.
var ErrClosed = turns.ErrClosed

// Close ends the calls of Wait, which then return [ErrClosed], and carries the hits
// that were admitted locally to the store, as fast as the store answers, until none
// is left or ctx ends. Close returns when no goroutine of l is left: when all calls
// to the store under way have ended, at the latest by their Patience. While the
// store fails only the end of ctx ends a Close with such hits, so give ctx a
// deadline; with a ctx that has ended, nothing more is carried. The error tells the
// number of hits that are not known to be in the store, and wraps the error of ctx.
//
// Only a Limiter with Config.Local needs a Close; all of its calls return
// [ErrClosed] afterwards, and without Config.Local only the calls of Wait. Further
// calls of Close do nothing.
func (l *Limiter) Close(ctx context.Context) error {
	l.turns.Close()
	return l.taker.Close(ctx)
}

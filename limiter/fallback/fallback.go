// Package fallback answers one question: what happens when the store fails, or
// answers late? It stands around the Counter of a Limiter. The asks of a call come in,
// with the Policy of their rules; the Counter's verdict goes out, or one in its place.
//
//   - No call lasts longer than Config.Within. The call to the store goes on without
//     its caller, and is undone when it ends.
//   - No more calls than Config.MaxInFlight are under way.
//   - Without an answer the Policy of the call decides. Under Local, hits are counted in
//     this process, within a bound for all processes that local.go proves.
//   - Hits that were let through without the store are carried to the store when it
//     answers again, in the buckets of their own time: carry.go.
//
// docs/decisions/local-counting.md has the reasons.
package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/inside"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/internal/spent"
)

// Call is a call to the store, without its asks, which stay on the caller's stack.
type Call struct {
	Mode   Mode
	Policy Policy
	Until  time.Time // by which Take returns; zero: Take sets it by Config.Within

	// Rules[i] counts asks[i] in this process, and is nil if that is never done.
	// Rules is nil if no key is counted in this process.
	Rules []*Rule
}

// Mode is the purpose of a Call.
type Mode uint8

// All modes.
const (
	Taking    Mode = iota
	Peeking        // count nothing
	Charging       // count in any case
	Crediting      // give hits back, which the store alone does
)

// Policy is the decision about a Call while the store fails.
type Policy uint8

// All policies.
const (
	Closed Policy = iota // deny
	Open                 // admit
	Local                // count in this process
)

// Origin says who has decided a Call.
type Origin struct {
	Degraded error // the error of a store that has not decided
	Local    bool  // decided in this process, or by a denial of the store before the failure
	Hits     *Hits // in this process; nil: none
}

// Config configures a Fallback. limiter.Config says what the fields mean, and
// package limiter checks them.
type Config struct {
	Within      time.Duration // zero: unbounded
	MaxInFlight int           // zero: unbounded
	Local       *counter.Counter
	Share       float64
}

// Fallback stands in for a Counter. Many goroutines may use it at once.
//
// A call goes to the Counter itself and not to an interface of it: the call, which an
// interface would move to the heap, costs a call of one key half as much again.
type Fallback struct {
	store    *counter.Counter
	within   time.Duration
	local    *local        // nil: no rule counts in this process
	inFlight chan struct{} // a call sends at its beginning, and receives at its end, whether its caller still waits or not; nil: no bound

	waited, shed atomic.Int64
	closing      sync.RWMutex
	closed       bool
	calls        sync.WaitGroup // that Close waits for
}

// New returns a Fallback around c.
func New(c *counter.Counter, cfg Config) *Fallback {
	f := &Fallback{store: c, within: cfg.Within}
	if cfg.MaxInFlight > 0 {
		f.inFlight = make(chan struct{}, cfg.MaxInFlight)
	}
	if cfg.Local != nil {
		f.local = newLocal(c, cfg.Local, cfg.Share)
	}
	return f
}

// Bare reports whether there is nothing around the store for c but its Policy. Such a
// call needs no Recall: the Counter recalls by itself.
func (f *Fallback) Bare(c *Call) bool {
	return f.within == 0 && f.inFlight == nil && c.Rules == nil
}

// Recall returns a denial by the store that is not a second old, or, while the store
// fails, one that holds on. The denial of a call with looks is known only if a look
// denies: otherwise there may be a ban to begin.
func (f *Fallback) Recall(c *Call, asks []counter.Ask, v *counter.Verdict) (_ Origin, known bool) {
	if c.Mode != Taking {
		return Origin{}, false
	}
	if *v, known = recallDenial(f.store, asks, false); known && (!slices.ContainsFunc(asks, isLook) || lookDenies(asks, v)) {
		return Origin{}, true
	}
	*v = counter.Verdict{}
	if c.Rules == nil || c.Policy != Local {
		return Origin{}, false
	}
	failed := f.local.failure.Load()
	if failed == nil || time.Since(failed.at) >= time.Second {
		return Origin{}, false
	}
	if *v, known = f.local.recall(c, asks); known {
		f.local.numbers.denied.Add(1)
	}
	return Origin{Degraded: failed.err, Local: true}, known
}

// Least is the fewest hits that an ask is admitted for.
func Least(a *counter.Ask) int64 {
	if a.UpTo {
		return min(a.N, 1)
	}
	return a.N
}

// isLook reports whether a finds out whether there is a hit at all.
func isLook(a counter.Ask) bool { return a.N == 0 && a.Limits[0].Max == 0 }

// lookDenies reports whether a look denies by v.
func lookDenies(asks []counter.Ask, v *counter.Verdict) bool {
	return slices.ContainsFunc(v.All(), func(s counter.State) bool {
		return s.RetryAfter > 0 && slices.ContainsFunc(asks, func(a counter.Ask) bool { return isLook(a) && a.Key == s.Key })
	})
}

// recall returns a denial of c without the store: by a look, or by an answer of the
// store from before the failure.
func (l *local) recall(c *Call, asks []counter.Ask) (v counter.Verdict, denied bool) {
	if c.Mode == Charging {
		return v, false
	}
	if slices.ContainsFunc(c.Rules, func(r *Rule) bool { return r != nil && r.look }) {
		if v, err := l.peek(c, asks); err == nil && lookDenies(asks, &v) {
			return v, true
		}
	}
	return recallDenial(l.store, asks, true)
}

// peek asks the local counter, and counts nothing.
func (l *local) peek(c *Call, asks []counter.Ask) (counter.Verdict, error) {
	var here []counter.Ask
	for i, rule := range c.Rules {
		if rule != nil {
			ask := rule.ask(asks[i].Key, asks[i].N)
			ask.Charge, ask.UpTo = asks[i].Charge, asks[i].UpTo
			here = append(here, ask)
		}
	}
	return l.here.PeekAll(context.Background(), here...)
}

// recallDenial asks the memory of the store for a denial of an equal call, or for the
// last denial of a key.
func recallDenial(store *counter.Counter, asks []counter.Ask, ofKey bool) (v counter.Verdict, denied bool) {
	own := asksPool.Get().(*[]counter.Ask)
	*own = append((*own)[:0], asks...)
	if ofKey {
		v, denied = inner(store).LastDenial(*own...)
	} else {
		v, denied = inner(store).Recall(*own...)
	}
	clear(*own)
	asksPool.Put(own)
	return v, denied
}

// asksPool has copies of Asks for the methods of an interface: what is given to
// them is on the heap, and the Asks of a call are to stay on its stack.
var asksPool = sync.Pool{New: func() any { return new([]counter.Ask) }}

// Take asks the store once, all or nothing, and writes its verdict, or one in its
// place, into v. There is at least one ask, and Take sets Held of the asks. An error is
// the error of ctx or a mistake of the caller, and v is the zero Verdict.
func (f *Fallback) Take(ctx context.Context, c *Call, asks []counter.Ask, v *counter.Verdict) (Origin, error) {
	if c.Mode == Crediting {
		return Origin{}, f.credit(ctx, asks, v)
	}
	if f.Bare(c) {
		if err := f.ask(ctx, c.Mode, asks, v); err != nil {
			return c.byPolicy(v, nil, err)
		}
		return Origin{}, nil
	}
	if f.within > 0 && c.Until.IsZero() {
		c.Until = time.Now().Add(f.within)
		if before, ok := ctx.(spent.Context); ok {
			c.Until = c.Until.Add(-before.Time)
		}
	}
	waited, err := f.enter(ctx, c.Until)
	if err != nil {
		err = named(asks, err)
	} else if waited {
		if origin, known := f.Recall(c, asks, v); known {
			f.leave()
			return origin, nil
		}
	}
	if c.Rules != nil {
		return f.takeLocally(ctx, c, asks, v, err)
	}
	var underWay chan<- late
	if err == nil {
		underWay, err = f.inTime(ctx, c, asks, v)
	}
	return c.byPolicy(v, underWay, err)
}

// credit gives back the hits of asks. If there are none, it asks what is left.
func (f *Fallback) credit(ctx context.Context, asks []counter.Ask, v *counter.Verdict) (err error) {
	given, ask := slices.Clone(asks), f.store.PeekAll
	for i := range given {
		if given[i].N > 0 {
			given[i].N, ask = -given[i].N, f.store.ChargeAll
		}
	}
	if *v, err = ask(ctx, given...); err != nil {
		return fmt.Errorf("limiter: credit: %w", err)
	}
	return nil
}

// ask asks the store.
func (f *Fallback) ask(ctx context.Context, m Mode, asks []counter.Ask, v *counter.Verdict) (err error) {
	switch ask := &asks[0]; {
	case m == Peeking:
		*v, err = f.store.PeekAll(ctx, asks...)
	case m == Charging:
		*v, err = f.store.ChargeAll(ctx, asks...)
	case len(asks) == 1 && ask.Held == nil && !ask.Soft && !ask.Charge && !ask.UpTo && ask.N > 0:
		*v, err = cmp.Or(ask.On, f.store).Take(ctx, ask.Key, ask.N, ask.Limits)
	default:
		*v, err = f.store.TakeAll(ctx, asks...)
	}
	return err
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
		grow()
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

// grow grows the stack of a new goroutine at once to what a call to a store needs. Growing
// by doubling, with the frames of the call on it, took a tenth of the processor time of a
// call on memcached.
//
//go:noinline
func grow() {
	var room [6 << 10]byte
	runtime.KeepAlive(&room)
}

// late is the decision of a caller whose call to the store is still under way.
type late struct {
	keep bool  // the hits, if the store admits them yet
	hits *Hits // admitted in this process; nil: none
}

// byPolicy completes a call that ended with err, and tells the call that is under
// way: without an answer of the store the Policy decides.
func (c *Call) byPolicy(v *counter.Verdict, underWay chan<- late, err error) (Origin, error) {
	if err == nil {
		return Origin{}, nil
	}
	failed := errors.Is(err, counter.ErrStore)
	keep := failed && c.Policy == Open
	*v = counter.Verdict{Allowed: keep}
	if underWay != nil {
		underWay <- late{keep: keep}
	}
	if !failed {
		return Origin{}, err
	}
	if !keep {
		v.RetryAfter = AfterFailure()
	}
	return Origin{Degraded: err}, nil
}

// Settle has each key of v with n hits count used instead, in the store and in this
// process. done reports whether v can no longer be settled, with an error or without.
func (f *Fallback) Settle(ctx context.Context, v *counter.Verdict, o Origin, n, used int64) (done bool, err error) {
	on := f.store
	if o.Local {
		if on = f.local.here; used > n && o.Hits != nil && f.local.carrier.full(len(o.Hits.keys)) {
			return false, ErrPendingFull
		}
	}
	done, err = inner(on).Settle(ctx, v, n, used)
	if done && o.Hits != nil && (o.Local || err == nil || used < n) {
		err = errors.Join(err, o.Hits.settle(ctx, n, used, err != nil))
	}
	return done, err
}

// Refund gives back the hits of v, in the store and in this process. Hits that wait to
// be carried to the store are not carried. v is unchanged by a counter.ErrSettled.
func (f *Fallback) Refund(ctx context.Context, v *counter.Verdict, o Origin) (err error) {
	given := *v
	if !o.Local {
		err = f.store.Refund(ctx, v)
	} else if err = ctx.Err(); err == nil {
		*v = counter.Verdict{}
	}
	if o.Hits != nil && v.At().IsZero() && !errors.Is(err, counter.ErrSettled) {
		if err = errors.Join(err, o.Hits.refund(ctx)); errors.Is(err, counter.ErrSettled) {
			*v = given
		}
	}
	return err
}

// AfterFailure is the RetryAfter of a denial for a failed store: 0.5 to 1.5
// seconds. Never zero, since callers coming back at once add to the load under
// which the store failed; random, since callers that failed in the same moment
// would otherwise all come back in the same moment.
func AfterFailure() time.Duration {
	return 500*time.Millisecond + rand.N(time.Second)
}

func named(asks []counter.Ask, err error) error {
	return fmt.Errorf("limiter: event %q: %w", asks[0].Key.Event, err)
}

func inner(c *counter.Counter) inside.Counter[counter.Key, counter.Ask, counter.Verdict] {
	return inside.Of(c).(inside.Counter[counter.Key, counter.Ask, counter.Verdict])
}

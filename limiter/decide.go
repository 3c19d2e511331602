package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/internal/spent"
)

// decide is the way of every call. v is the zero Verdict, also after an error.
func (l *Limiter) decide(ctx context.Context, v *Verdict, event string, n int64, features []feature.Feature, m mode) error {
	set := l.rules.Load()
	of := set.events[event]
	if of == nil {
		return set.noRules(event)
	}
	if n < 1 && (n < 0 || m != peeking) || n > counter.MaxCount {
		return fmt.Errorf("limiter: event %q: n is %d, want 1 to %d", event, n, int64(counter.MaxCount))
	}
	for i := range features {
		if err := features[i].Err(); err != nil {
			return fmt.Errorf("limiter: %w, event %q", err, event)
		}
	}
	if err := ctx.Err(); err != nil { // also if there is nothing to ask
		return fmt.Errorf("limiter: event %q: %w", event, err)
	}
	if l.local != nil {
		if !l.calls.begin() {
			return ErrClosed
		}
		defer l.calls.end()
	}
	var began time.Duration
	if l.observe != nil && m != peeking {
		began = time.Since(l.made)
	}
	var room [4]counter.Ask
	q := question{set: set, of: of, event: event, n: n, mode: m, policy: FailOpen}
	if m == opening {
		q.mode = taking
	}
	asks, err := l.asks(ctx, &q, room[:0], features)
	switch {
	case err != nil:
		return err
	case q.missing != "":
		v.Missing, v.RetryAfter = q.missing, counter.Never
	case q.denied:
		v.Override, v.kind, v.RetryAfter = q.override.Override, q.kind, q.override.left(l.counter)
	case len(asks) == 0:
		v.Allowed = true
	default:
		if m == opening {
			q.open = l.opens.begin(asks, n)
		}
		if err := l.askStore(ctx, v, &q, asks); err != nil {
			*v = Verdict{}
			return err
		}
	}
	v.complete(&q)
	if m != peeking {
		l.log.note(v, l.local)
	}
	if l.observe != nil && m != peeking {
		l.observe(v.decision(n, time.Since(l.made)-began, 0))
	}
	return nil
}

// askStore decides asks by the store. A call that was not counted is not open.
func (l *Limiter) askStore(ctx context.Context, v *Verdict, q *question, asks []counter.Ask) error {
	if err := l.judge(ctx, v, q, asks); err != nil {
		q.open.close(false)
		return err
	}
	if l.soften(v, q, asks); v.At().IsZero() {
		q.open.close(false)
		return nil
	}
	if v.Allowed {
		q.open.admit()
	}
	v.open = q.open
	return nil
}

// complete adds to v what is known without the store.
func (v *Verdict) complete(q *question) {
	v.event = q.event
	if q.override != nil && !q.limited && v.Allowed {
		v.Override, v.kind = q.override.Override, q.kind
	}
	if q.soft && v.Allowed && v.Degraded == nil {
		v.Soft = append(softVerdicts(v.Verdict.All()), q.softly...)
	}
	if v.counts = q.counts; v.counts && !q.limited {
		v.free, v.Limit, v.Remaining, v.ResetAfter = true, counter.Limit{}, 0, 0
	}
}

// decision is the argument of Observe for v.
func (v *Verdict) decision(n int64, latency, waited time.Duration) Decision {
	d := Decision{Event: v.event, Kind: v.ruleKind(), Limit: v.Limit, Outcome: v.outcome(), N: n, Latency: latency, Degraded: v.Degraded, Soft: v.Soft, Waited: waited}
	if !v.Allowed {
		d.Key = HiddenKey(v.Key)
	}
	return d
}

// afterFailure is the RetryAfter of a denial for a failed store: 0.5 to 1.5
// seconds. Never zero, since callers coming back at once add to the load under
// which the store failed; random, since callers that failed in the same moment
// would otherwise all come back in the same moment.
func afterFailure() time.Duration {
	return 500*time.Millisecond + rand.N(time.Second)
}

// mode is the purpose of a call.
type mode uint8

const (
	taking   mode = iota
	peeking       // count nothing
	charging      // count in any case
	opening       // take, and leave the hits open
)

// question is a call to the Counter without its keys, and what is known without
// the Counter.
type question struct {
	set    *ruleset
	of     *eventRules // of the event, in set
	event  string
	n      int64
	mode   mode
	open   *open        // the part of the call in the open hits; nil: none
	policy OnFailure    // the strictest of the rules with a key in the call
	rules  []*localRule // rules[i] belongs to key i, and is nil if the key never counts locally; nil if no key does
	bans   []bannable   // keys that can be banned

	missing  string        // the kind without a feature, if its rule denies such a call
	denied   bool          // by override
	override *override     // denies the call, or is the first to exempt a feature; nil: none
	kind     string        // of the feature of override
	limited  bool          // the limits of a key can deny the call
	soft     bool          // the event has soft rules that apply
	counts   bool          // a key is counted without a limit
	softly   []SoftVerdict // of soft rules that deny without a limit
}

// strictest is the policy that decides where rules differ.
func strictest(a, b OnFailure) OnFailure {
	switch {
	case a == FailClosed || b == FailClosed:
		return FailClosed
	case a == FailLocal || b == FailLocal:
		return FailLocal
	}
	return FailOpen
}

// judge asks the store, and lets the rules' policy decide if the store fails.
func (l *Limiter) judge(ctx context.Context, v *Verdict, q *question, asks []counter.Ask) error {
	if l.within == 0 && l.flying == nil && q.rules == nil {
		q.open.ask()
		return l.failed(v, q, nil, l.ask(ctx, v, q, asks, nil))
	}
	if l.recall(v, q, asks) {
		return nil
	}
	q.open.ask()
	var until time.Time
	if l.within > 0 {
		until = time.Now().Add(l.within)
		if c, ok := ctx.(spent.Context); ok {
			until = until.Add(-c.Time)
		}
	}
	waited, err := l.flying.take(ctx, until)
	shed := errors.Is(err, counter.ErrStore)
	if err != nil {
		err = fmt.Errorf("limiter: event %q: %w", q.event, err)
	}
	if err != nil && !shed {
		return err
	}
	if waited && !shed && l.recall(v, q, asks) {
		l.flying.end()
		return nil
	}
	if q.rules == nil && !shed {
		underWay, err := l.askInTime(ctx, v, *q, asks, until)
		return l.failed(v, q, underWay, err)
	}
	return l.judgeLocally(ctx, v, q, asks, until, err)
}

// recall answers a call that is known to be denied, before the call costs
// anything. A denial that begins a ban is known only if the ban is known to have
// begun.
func (l *Limiter) recall(v *Verdict, q *question, asks []counter.Ask) (denied bool) {
	if q.mode != taking {
		return false
	}
	if v.Verdict, denied = recallDenial(l.counter, asks, false); denied {
		v.lookForBans(q)
		if v.Banned || len(q.bans) == 0 {
			return true
		}
		*v, denied = Verdict{}, false
	}
	if q.rules != nil && q.policy == FailLocal {
		if err := l.local.failing(); err != nil {
			if denied = v.bannedHere(q, asks); !denied {
				if v.Verdict, denied = recallDenial(l.counter, asks, true); denied {
					v.lookForBans(q)
					l.beginBansHere(v, q, asks)
				}
			}
			if denied {
				v.local, v.Degraded = true, err
				l.local.numbers.denied.Add(1)
			}
		}
	}
	return denied
}

// ask calls the Counter, waits for the answer, and begins the bans that follow
// from the answer. denied, if not nil, is set to the answer before a ban begins.
func (l *Limiter) ask(ctx context.Context, v *Verdict, q *question, asks []counter.Ask, denied *atomic.Pointer[Verdict]) (err error) {
	switch {
	case q.mode == peeking:
		v.Verdict, err = l.counter.PeekAll(ctx, asks...)
	case q.mode == charging:
		v.Verdict, err = l.counter.ChargeAll(ctx, asks...)
	case len(asks) == 1 && asks[0].Held == nil && !asks[0].Soft:
		ask := &asks[0]
		v.Verdict, err = cmp.Or(ask.On, l.counter).Take(ctx, ask.Key, ask.N, ask.Limits)
	default:
		v.Verdict, err = l.counter.TakeAll(ctx, asks...)
	}
	if err != nil || len(q.bans) == 0 {
		return err
	}
	v.lookForBans(q)
	if !v.Allowed && q.mode == taking {
		if l.soften(v, q, asks); denied != nil {
			answer := *v
			denied.Store(&answer)
		}
		v.beginBans(ctx, q, asks)
	}
	v.rememberBans(q, asks)
	return nil
}

// late is the decision of a caller whose call to the store is still under way.
type late struct {
	keep bool       // the hits, if the store admits them yet
	hits *localHits // admitted locally; nil: none
}

// askInTime calls the Counter and returns by until, or when the call ends if that
// is zero: v is the Counter's verdict, or the error is that the store failed. A Counter
// keeps its own Patience, and then takes back late additions, for at most its
// Config.Settle. The caller does not wait for the taking back: the call goes on
// in the background, and underWay must be told what the caller has decided. The
// context of the call has the limiter's deadline, for the stores' clients; no
// taking back ends with the context, and none has its values once the caller has
// gone. The turn of the call ends with the call.
func (l *Limiter) askInTime(ctx context.Context, v *Verdict, q question, asks []counter.Ask, until time.Time) (underWay chan<- late, err error) {
	if until.IsZero() {
		defer l.flying.end()
		return nil, l.ask(ctx, v, &q, asks, nil)
	}
	type answer struct {
		v    Verdict
		err  error
		late bool // inTime was over: err may be the deadline alone
	}
	lent := loan.Of(ctx)
	defer lent.End()
	inTime, cancel := context.WithDeadline(lent, until)
	defer cancel()
	answers, decided := make(chan answer), make(chan late, 1)
	var denied atomic.Pointer[Verdict]
	own := slices.Clone(asks)
	l.background(func() {
		defer l.flying.end()
		var a answer
		a.err = l.ask(inTime, &a.v, &q, own, &denied)
		a.late = inTime.Err() != nil || errors.Is(a.err, context.DeadlineExceeded)
		select {
		case answers <- a:
		case d := <-decided:
			if a.err == nil && !d.keep {
				// Counted, but nobody was told. If the store does not take the hit back,
				// the hit stays until its bucket expires.
				_ = l.counter.Refund(context.WithoutCancel(lent), &a.v.Verdict)
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
		if answer := denied.Load(); answer != nil { // only the ban is late
			decided <- late{}
			*v = *answer
			return nil, nil
		}
		err, underWay = lent.Err(), decided
	}
	if err == nil {
		err = fmt.Errorf("%w: no answer within Config.DecideWithin of %s", counter.ErrStore, l.within)
	}
	return underWay, fmt.Errorf("limiter: event %q: %w", q.event, err)
}

// background has Close wait for f. The caller is a call that Close waits for.
func (l *Limiter) background(f func()) {
	if l.local == nil {
		go f()
		return
	}
	l.calls.all.Go(f)
}

// failed completes a call that ended with err: without an answer of the store the
// policy decides.
func (l *Limiter) failed(v *Verdict, q *question, underWay chan<- late, err error) error {
	if err == nil {
		return nil
	}
	var d late
	if errors.Is(err, counter.ErrStore) {
		v.Verdict, v.Degraded = counter.Verdict{}, err
		if d.keep = q.policy == FailOpen; d.keep {
			v.Allowed = true
		} else {
			v.RetryAfter = afterFailure()
		}
		err = nil
	}
	if underWay != nil {
		underWay <- d
	}
	return err
}

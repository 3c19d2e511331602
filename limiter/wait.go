package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/internal/spent"
	"github.com/abacus-go/abacus/limiter/fallback"
	"github.com/abacus-go/abacus/limiter/turns"
)

// Errors of Wait and WaitN. Nothing was counted.
var (
	// ErrNever is the error of a call that no wait will admit: n is above the Max
	// of a limit, a feature is missing whose rule has MissingDeny, or an Override
	// denies a feature.
	ErrNever = errors.New("no wait will do")

	// ErrWaitTooLong is the error of a call whose turn would come after the
	// deadline of its context. [errors.Is] also finds context.DeadlineExceeded in
	// ErrWaitTooLong, though the deadline has not passed yet.
	ErrWaitTooLong = turns.ErrTooLong

	// ErrQueueFull is the error of a call that finds Config.MaxWaiting calls of the
	// same keys waiting.
	ErrQueueFull = turns.ErrFull
)

// Wait waits until event may happen once more, and counts a hit under all rules
// of the event, as Allow does. The error is nil if and only if the call was
// admitted. The Verdict next to an error denies: RetryAfter is the time until the
// queue asks the store again, or counter.Never.
//
// Calls with the same keys (the event, and the same features after
// normalization) form a queue, first come first served, whatever their n and
// the limits of the call, see [Under]. The first of the queue asks the
// store; denied, the call sleeps for RetryAfter and a random part of at most
// 3 % more, and asks again. No other call of the queue asks meanwhile. Where an
// answer leaves room for more hits, the next calls ask side by side. A Refund
// of the same keys, and a Forget of any of them, has the first call ask at
// once. The random part costs throughput: a process whose queue is never empty
// gets up to 3 % less than the limits admit. The order holds within a Limiter,
// and not among processes, nor between Wait and Allow, nor among calls that share
// only a part of their keys.
//
// A call whose context has a deadline before the end of the sleep fails at once
// with [ErrWaitTooLong], as in golang.org/x/time/rate, and so does a call behind
// the first, which cannot be served before the first. A call whose context ends
// fails at once with the context's error, and the next call has the place. A call
// that no wait will admit fails with [ErrNever], a call behind too many other
// calls with [ErrQueueFull], and Close ends all waiting calls with [ErrClosed].
// Mistakes of the caller are errors as in Allow.
//
// While the store fails, the rules' OnFailure decides. FailOpen lets all calls of
// the queue through, FailLocal admits in this process, and under FailClosed the
// first call asks again after 0.5 to 1.5 seconds: without a deadline, a call waits
// as long as the store fails.
//
// Config.Observe is called once for each call, with the last decision.
func (l *Limiter) Wait(ctx context.Context, event string, features ...feature.Feature) (Verdict, error) {
	return l.WaitN(ctx, event, 1, features...)
}

// WaitN is Wait for n hits, at least one: all hits count or none. A call of many
// hits is not overtaken by calls of few.
func (l *Limiter) WaitN(ctx context.Context, event string, n int64, features ...feature.Feature) (Verdict, error) {
	return l.wait(ctx, event, n, features, plainly)
}

// WaitOpen is WaitN for hits that the caller may yet refund, as in [Limiter.AllowOpen]:
// Refund or Keep must be called with the Verdict. A call that waits for open hits alone
// asks again after 0.5 to 1.5 seconds, and as soon as they are refunded.
func (l *Limiter) WaitOpen(ctx context.Context, event string, n int64, features ...feature.Feature) (Verdict, error) {
	return l.wait(ctx, event, n, features, leaveOpen)
}

// wait is the way of every call that waits.
func (l *Limiter) wait(ctx context.Context, event string, n int64, features []feature.Feature, by manner) (v Verdict, err error) {
	set := l.rules.Load()
	c, asks, never := set.waitable(ctx, event, n, features)
	if c == nil || never != nil || ctx.Err() != nil {
		if err = l.decide(ctx, &v, event, n, features, fallback.Taking, by); err == nil && !v.Allowed {
			err = never
		}
		return v, err
	}
	lent := loan.Of(ctx)
	defer lent.End()
	began, took := time.Now(), time.Duration(0)
	waiting := &turns.Call[Verdict]{Keys: waitKeys(asks), N: mostHits(asks), Limits: limitsOf(asks)}
	name := turns.Name(waiting.Keys)
	_, ends := ctx.(spent.Turn) // at a ban
	var last Verdict
	waiting.Take = func(ctx context.Context) (turns.Answer[Verdict], error) { // by the rules of the moment
		if now := l.rules.Load(); now != set {
			if c, asks, never = now.waitable(ctx, event, n, features); c == nil || never != nil || turns.Name(waitKeys(asks)) != name {
				return turns.Answer[Verdict]{}, errOtherKeys
			}
			set, waiting.Limits = now, limitsOf(asks)
		}
		asked := time.Now()
		v, err := l.once(ctx, c, asks, by)
		took = time.Since(asked)
		if ends && v.Banned {
			last, err = v, ErrNever
		}
		return turns.Answer[Verdict]{Verdict: v, Allowed: v.Allowed, Room: v.room(), RetryAfter: v.RetryAfter}, err
	}
	answer, err := l.turns.Wait(lent, waiting)
	if err == errOtherKeys {
		return l.wait(ctx, event, n, features, by)
	}
	if v = answer.Verdict; err == ErrNever {
		v = last
	} else {
		v.RetryAfter = answer.RetryAfter
	}
	l.log.note(&v, l.taker)
	if l.observe != nil {
		v.event = event
		l.observe(v.decision(n, took, time.Since(began)-took))
	}
	return v, err
}

// room is the number of hits for which there is room after an admitted call.
func (v *Verdict) room() int64 {
	if v.free || v.outcome() == OutcomeFailedOpen {
		return math.MaxInt64
	}
	return v.Remaining
}

// waitKeys are the keys whose limits can deny a call.
func waitKeys(asks []counter.Ask) (keys []counter.Key) {
	for i := range asks {
		if ask := &asks[i]; !ask.Soft && !ask.Charge && !countsOnly(ask) && !strings.HasPrefix(ask.Key.Feature, banPrefix) {
			keys = append(keys, ask.Key)
		}
	}
	return keys
}

// mostHits is the number of hits of a call for its queue: that of its largest key, and
// at least 1.
func mostHits(asks []counter.Ask) int64 {
	n := int64(1)
	for i := range asks {
		n = max(n, asks[i].N)
	}
	return n
}

// limitsOf are the limits of a call.
func limitsOf(asks []counter.Ask) (limits counter.Limits) {
	for i := range asks {
		limits = append(limits, asks[i].Limits...)
	}
	return limits
}

// errOtherKeys has a waiting call start again: a Replace has changed the call's
// keys or rules.
var errOtherKeys = errors.New("the rules have changed")

// waitable returns a call that can wait for its turn, or never: why no wait helps. A nil
// call without keys, or with an error, AllowN answers at once.
func (set *ruleset) waitable(ctx context.Context, event string, n int64, features []feature.Feature) (c *call, asks []counter.Ask, never error) {
	of, err := set.of(event, features)
	if err != nil || n < 1 || n > counter.MaxCount {
		return nil, nil, nil // an error of AllowN
	}
	c = &call{Call: fallback.Call{Policy: fallback.Open}, of: of, n: n}
	switch asks, err = c.asks(ctx, nil, features); {
	case err != nil:
		return nil, nil, nil // an error of AllowN
	case c.missing != "":
		return nil, nil, fmt.Errorf("limiter: event %q: no feature of kind %q: %w", event, c.missing, ErrNever)
	case c.denied:
		return nil, nil, fmt.Errorf("limiter: event %q: a feature of kind %q is denied by an Override: %w", event, c.kind, ErrNever)
	case !c.limited:
		return nil, nil, nil // AllowN admits
	}
	for _, ask := range asks {
		for _, limit := range ask.Limits {
			if ask.N > limit.Max && !ask.Soft && !ask.Charge {
				return c, asks, fmt.Errorf("limiter: event %q: n is %d, want at most %d under %s by %q: %w", event, ask.N, limit.Max, limit, feature.KindOf(ask.Key.Feature), ErrNever)
			}
		}
	}
	return c, asks, nil
}

// once asks as decide does.
func (l *Limiter) once(ctx context.Context, c *call, asks []counter.Ask, by manner) (v Verdict, err error) {
	if !l.taker.Begin() {
		return v, ErrClosed
	}
	defer l.taker.End()
	c.Until = time.Time{} // of the time before
	if err = l.take(ctx, &v, c, asks, by == leaveOpen); err != nil {
		return Verdict{}, err
	}
	v.complete(c)
	return v, nil
}

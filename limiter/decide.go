package limiter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// Allow decides whether event may happen once more and, if so, counts a hit
// under all rules of the event; a denied call counts under none. Features of a
// kind without a rule are ignored; several features of a kind are all counted,
// and equal features once, under the limits of each.
//
// An error is the caller's mistake (an event without rules, text that is not an
// address) or the caller's context, and comes with a Verdict that denies. A
// denial is not an error. A store that failed is not an error either: the
// rules' OnFailure has decided, and Verdict.Degraded holds the store's error.
func (l *Limiter) Allow(ctx context.Context, event string, features ...feature.Feature) (v Verdict, err error) {
	err = l.decide(ctx, &v, event, 1, features, fallback.Taking, plainly)
	return v, err
}

// AllowN is Allow for n hits, at least one: all hits count or none.
func (l *Limiter) AllowN(ctx context.Context, event string, n int64, features ...feature.Feature) (v Verdict, err error) {
	err = l.decide(ctx, &v, event, n, features, fallback.Taking, plainly)
	return v, err
}

// AllowUpTo is AllowN for as many of n hits as there is room for, at least one, such as
// the mails of a batch: [Verdict.N] is the number admitted, the same for all features.
// RetryAfter is the time until one more hit has room if fewer than n were admitted, and 0
// if all were. [Times] of a feature can only be 0. See counter.Ask.UpTo.
func (l *Limiter) AllowUpTo(ctx context.Context, event string, n int64, features ...feature.Feature) (v Verdict, err error) {
	err = l.decide(ctx, &v, event, n, features, fallback.Taking, upToN)
	return v, err
}

// Charge counts n hits under all rules of the event in any case, and
// reports whether a limit is over with them: for costs that are known only
// afterwards, such as the tokens of an answer. The hits of a Verdict that is not
// Allowed are counted as well, unless its At is the zero time: a feature is missing
// or denied by an Override, or the store has failed. RetryAfter is then the time
// until no limit is over, and Refund gives the hits back. Under FailLocal the hits
// are counted while the store fails. Config.Observe is called. See
// [counter.Counter.Charge].
//
// An n below zero is a credit: the newest -n hits of each feature are given back, soft
// rules included, or as many as there are, whoever counted them, and calls of Wait by
// these features ask again at once. [Times] gives back its own n. The Verdict is that of a
// Peek of 0 afterwards, and cannot be refunded. Nothing is given back if a feature is
// missing or denied by an Override: the Verdict says so. A ban holds on.
//
// A credit goes to the store alone, whatever OnFailure and DecideWithin are: hits in
// Config.Local stay, and a store that fails is an error, after which some hits may have
// been given back. Config.Observe is not called. No receipt protects from a second credit
// for the same hits, nor from a Refund of hits that a credit has given back. An n of 0,
// or beyond [counter.MaxCount] either way, is an error.
func (l *Limiter) Charge(ctx context.Context, event string, n int64, features ...feature.Feature) (v Verdict, err error) {
	if n < 0 {
		return l.credit(ctx, event, n, features)
	}
	err = l.decide(ctx, &v, event, n, features, fallback.Charging, plainly)
	return v, err
}

// credit is Charge with an n below zero.
func (l *Limiter) credit(ctx context.Context, event string, n int64, features []feature.Feature) (v Verdict, err error) {
	if n < -counter.MaxCount { // also the n that has no negative
		return v, fmt.Errorf("limiter: event %q: n is %d, want %d to -1, or 1 to %d", event, n, -int64(counter.MaxCount), int64(counter.MaxCount))
	}
	err = l.decide(ctx, &v, event, -n, features, fallback.Crediting, plainly)
	keys := v.keys()
	l.turns.Freed(func(key counter.Key) bool {
		return slices.Contains(keys, key) || err != nil && key.Event == event // some may have been given back
	})
	return v, err
}

// Peek returns the Verdict that AllowN would return now, and counts nothing. An n
// of 0 asks whether a limit is over now, and how much is left. The Verdict cannot
// be refunded, and Config.Observe is not called. Peek begins no ban, so a denial
// by a limit is not Banned, even if AllowN would begin a ban. RetryAfter counts open
// hits like hits that stay: see [Limiter.AllowOpen].
func (l *Limiter) Peek(ctx context.Context, event string, n int64, features ...feature.Feature) (v Verdict, err error) {
	err = l.decide(ctx, &v, event, n, features, fallback.Peeking, plainly)
	return v, err
}

// AllowOpen is AllowN for hits that the caller may yet refund. The hits are open
// until Refund or Keep is called with the Verdict, and one of them must be called.
// If a call is denied and would not be without the open hits of this Limiter, its
// RetryAfter is random, 0.5 to 1.5 seconds at most, rather than the time until the
// hits leave their windows, and the denial begins no ban. A call that is under way
// counts as open, since it may be admitted and refunded.
func (l *Limiter) AllowOpen(ctx context.Context, event string, n int64, features ...feature.Feature) (v Verdict, err error) {
	err = l.decide(ctx, &v, event, n, features, fallback.Taking, leaveOpen)
	return v, err
}

// manner holds the options of a call that takes hits.
type manner uint8

const (
	plainly   manner = iota
	leaveOpen        // the hits may yet be refunded by their caller
	upToN            // as many hits as have room, at least one
)

// decide is the way of every call. v is the zero Verdict, also after an error. The
// hits of an open call are left open.
func (l *Limiter) decide(ctx context.Context, v *Verdict, event string, n int64, features []feature.Feature, m fallback.Mode, by manner) error {
	of, err := l.rules.Load().of(event, features)
	if err != nil {
		return err
	}
	silent := m == fallback.Peeking || m == fallback.Crediting
	if n < 1 && (n < 0 || m != fallback.Peeking) || n > counter.MaxCount {
		return fmt.Errorf("limiter: event %q: n is %d, want 1 to %d", event, n, int64(counter.MaxCount))
	}
	if err := ctx.Err(); err != nil { // also if there is nothing to ask
		return fmt.Errorf("limiter: event %q: %w", event, err)
	}
	if !l.taker.Begin() {
		return ErrClosed
	}
	defer l.taker.End()
	var began time.Duration
	if l.observe != nil && !silent {
		began = time.Since(l.made)
	}
	var room [4]counter.Ask
	c := call{Call: fallback.Call{Mode: m, Policy: fallback.Open}, of: of, n: n, upTo: by == upToN}
	asks, err := c.asks(ctx, room[:0], features)
	switch {
	case err != nil:
		return err
	case c.missing != "":
		v.Missing, v.RetryAfter = c.missing, counter.Never
	case c.denied:
		v.Override, v.kind, v.RetryAfter = c.override.Override, c.kind, c.left
	case len(asks) == 0:
		v.Allowed = true
	default:
		if m == fallback.Charging && !slices.ContainsFunc(asks, func(a counter.Ask) bool { return a.N > 0 }) {
			c.Mode = fallback.Taking // of no hits, which asks
		}
		if err := l.take(ctx, v, &c, asks, by == leaveOpen); err != nil {
			return err
		}
	}
	v.complete(&c)
	if !silent {
		l.log.note(v, l.taker)
	}
	if l.observe != nil && !silent {
		l.observe(v.decision(c.n, time.Since(l.made)-began, 0))
	}
	return nil
}

// take asks the store, or what stands around it, once, and turns the answer into v. The
// hits of an open call that counts are left open.
func (l *Limiter) take(ctx context.Context, v *Verdict, c *call, asks []counter.Ask, leaveOpen bool) error {
	var own *open
	if leaveOpen {
		own = l.opens.begin(asks)
	}
	var by fallback.Origin
	known := false
	if !l.taker.Bare(&c.Call) {
		by, known = l.taker.Recall(&c.Call, asks, &v.Verdict)
	}
	if !known {
		own.ask()
		var err error
		if by, err = l.taker.Take(ctx, &c.Call, asks, &v.Verdict); err != nil {
			own.close(0)
			*v = Verdict{}
			return err
		}
	}
	v.Degraded, v.local, v.hits = by.Degraded, by.Local, by.Hits
	if len(c.bans) > 0 {
		v.lookForBans(l.maker.slack)
	}
	if !v.Allowed && !v.Banned && c.Mode == fallback.Taking {
		if others := l.opens.others(asks, own); others != nil {
			told := v.RetryAfter
			v.open = others
			v.bind()
			v.RetryAfter = min(v.RetryAfter, told)
		}
	}
	if len(c.bans) > 0 {
		l.ban(ctx, v, c, asks, known)
	}
	if v.At().IsZero() {
		own.close(0)
		return nil
	}
	if v.Allowed {
		own.admit()
	}
	v.open = own
	return nil
}

// Refund gives back the hits that v counted, and empties v: for an event that came
// to nothing, or that counts only if it fails. A Verdict without hits gives nothing
// back, which is no error. Copies of v are refunded once, all together, even if the
// store fails, since the effect of a failed call is unknown. Hits that were counted
// locally are taken out of the local counter, and are not carried to the store.
// Refund takes two calls to the store for every key, all keys side by side, and
// ends within the Counter's Patience. An error is the store's, or of ctx; if ctx
// was over before the first call, v is unchanged.
func (l *Limiter) Refund(ctx context.Context, v *Verdict) error {
	given := *v
	if v.Allowed {
		defer l.turns.Refunded(given.keys)
	}
	err := l.taker.Refund(ctx, &v.Verdict, fallback.Origin{Local: v.local, Hits: v.hits})
	if v.At().IsZero() { // given back
		*v = Verdict{}
		given.open.close(counter.MaxCount)
	}
	if err != nil {
		return fmt.Errorf("limiter: refund: %w", err)
	}
	return nil
}

// Settle has v count used hits instead of the n of its call, under all rules of v, soft
// rules included: for a call that took an estimate, such as of the tokens of an answer.
// Fewer are given back, more are charged now, over a limit or not, and under FailLocal hits
// that were counted locally are carried to the store as settled. A feature that had another
// n, by [Times], keeps its hits.
//
// Afterwards N, Remaining, RetryAfter, ResetAfter, Banned and All are those of the moment,
// and exact if no other call is in flight; Allowed and Soft remain those of the call. Only
// the first Settle or Refund of v and its copies has an effect, and a later Settle is a
// [counter.ErrSettled]. So is the Settle of a call that was denied; if the call was let
// through and counted nothing, as under FailOpen, nothing is done. Config.Observe is not
// called, and no ban begins. For errors see [counter.Counter.Settle]; nothing happens either
// if more hits wait to be carried to the store than have room.
func (l *Limiter) Settle(ctx context.Context, v *Verdict, used int64) error {
	if !l.taker.Begin() {
		return ErrClosed
	}
	defer l.taker.End()
	if v.n > 0 && v.At().IsZero() && used >= 0 && used <= counter.MaxCount {
		return nil
	}
	given, n := *v, cmp.Or(v.n, v.Verdict.N())
	done, err := l.taker.Settle(ctx, &v.Verdict, fallback.Origin{Local: v.local, Hits: v.hits}, n, used)
	if done {
		given.open.close(max(0, n-used))
		if used < n {
			l.turns.Refunded(given.keys)
		}
	}
	if err != nil {
		return fmt.Errorf("limiter: settle: %w", err)
	}
	v.n, v.bans = min(v.n, used), nil
	v.lookForBans(l.maker.slack)
	if v.free {
		v.Limit, v.Remaining, v.RetryAfter, v.ResetAfter = counter.Limit{}, 0, 0, 0
	}
	return nil
}

// Keep ends the time in which the hits of v are open. They can still be refunded.
// Keep has no effect on a Verdict without open hits, or if Keep or Refund was called
// with a copy of v before.
func (l *Limiter) Keep(v *Verdict) { v.open.close(0) }

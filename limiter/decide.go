package limiter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// call is a call as the rules see it: what fallback is told of it, and what is known
// without the store. It is written by asks alone.
type call struct {
	fallback.Call
	of     *eventRules
	event  string
	n      int64      // hits, but for features with hits of their own
	places string     // of the features of the asks: see placeOf
	bans   []bannable // keys that can be banned

	missing  string        // the kind without a feature, if its rule denies such a call
	denied   bool          // by override
	override *override     // denies the call, or is the first to exempt a feature; nil: none
	kind     string        // of the feature of override
	limited  bool          // the limits of a key can deny the call
	charged  bool          // a key is charged, in a call that is no Charge
	soft     bool          // the event has soft rules that apply
	counts   bool          // a key is counted without a limit
	softly   []SoftVerdict // of soft rules that deny without a limit
}

// decide is the way of every call. v is the zero Verdict, also after an error. The
// hits of an open call are left open.
func (l *Limiter) decide(ctx context.Context, v *Verdict, event string, n int64, features []feature.Feature, m fallback.Mode, leaveOpen bool) error {
	set := l.rules.Load()
	of := set.events[event]
	if of == nil {
		return set.noRules(event)
	}
	silent := m == fallback.Peeking || m == fallback.Crediting
	if n < 1 && (n < 0 || m != fallback.Peeking) || n > counter.MaxCount {
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
	if !l.taker.Begin() {
		return ErrClosed
	}
	defer l.taker.End()
	var began time.Duration
	if l.observe != nil && !silent {
		began = time.Since(l.made)
	}
	var room [4]counter.Ask
	c := call{Call: fallback.Call{Mode: m, Policy: fallback.Open}, of: of, event: event, n: n}
	asks, err := l.asks(ctx, &c, room[:0], features)
	switch {
	case err != nil:
		return err
	case c.missing != "":
		v.Missing, v.RetryAfter = c.missing, counter.Never
	case c.denied:
		v.Override, v.kind, v.RetryAfter = c.override.Override, c.kind, c.override.left(l.counter)
	case len(asks) == 0:
		v.Allowed = true
	default:
		if m == fallback.Charging && !slices.ContainsFunc(asks, func(a counter.Ask) bool { return a.N > 0 }) {
			c.Mode = fallback.Taking // of no hits, which asks
		}
		var own *open
		if leaveOpen {
			own = l.opens.begin(asks)
		}
		if err := l.take(ctx, v, &c, asks, own); err != nil {
			return err
		}
	}
	v.complete(&c)
	if !silent {
		l.log.note(v, l.taker)
	}
	if l.observe != nil && !silent {
		l.observe(v.decision(n, time.Since(l.made)-began, 0))
	}
	return nil
}

// take asks the store, or what stands around it, once, and turns the answer into v. own
// are the open hits of the call, or nil. A call that was not counted is not open.
func (l *Limiter) take(ctx context.Context, v *Verdict, c *call, asks []counter.Ask, own *open) error {
	var by fallback.Origin
	known := false
	if !l.taker.Bare(&c.Call) {
		by, known = l.taker.Recall(&c.Call, asks, &v.Verdict)
	}
	if !known {
		own.ask()
		var err error
		if c.Mode == fallback.Crediting {
			err = l.giveBack(ctx, v, asks)
		} else {
			by, err = l.taker.Take(ctx, &c.Call, asks, &v.Verdict)
		}
		if err != nil {
			own.close(false)
			*v = Verdict{}
			return err
		}
	}
	v.Degraded, v.local, v.hits = by.Degraded, by.Local, by.Hits
	if len(c.bans) > 0 {
		l.ban(ctx, v, c, asks, own, known)
	}
	l.soften(v, c, asks, own)
	if v.At().IsZero() {
		own.close(false)
		return nil
	}
	if v.Allowed {
		own.admit()
	}
	v.open = own
	return nil
}

// complete adds to v what is known without the store.
func (v *Verdict) complete(c *call) {
	v.event, v.places = c.event, c.places
	if c.override != nil && !c.limited && !c.charged && v.Allowed {
		v.Override, v.kind = c.override.Override, c.kind
	}
	if c.soft && v.Allowed && v.Degraded == nil {
		v.Soft = append(softVerdicts(v.Verdict.All(), c.places), c.softly...)
	}
	v.counts = c.counts
	switch {
	case c.limited:
	case c.charged && v.Allowed:
		v.bind()
	case v.counts:
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

// strictest is the policy that decides where rules differ.
func strictest(a fallback.Policy, rule OnFailure) fallback.Policy {
	switch {
	case a == fallback.Closed || rule == FailClosed:
		return fallback.Closed
	case a == fallback.Local || rule == FailLocal:
		return fallback.Local
	}
	return fallback.Open
}

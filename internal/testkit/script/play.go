package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
)

// Answer is the result of a call of a script.
type Answer struct {
	Verdict counter.Verdict
	States  []counter.State
	Count   counter.Count
	Series  []counter.Point
	Added   time.Time // label of the hits of an addat that was not refused
	Partly  bool      // the addat met dropped buckets: the hits are in coarser tiers alone
	Refused bool      // a refund or settle of hits that were settled or given back before
}

// Play runs s on a store and holds every answer to the oracle: admission, the wait
// before another try, counts. Play returns the answers, and the first broken
// promise as an error. The keys begin with prefix, as in counter.Config: a store
// that outlives the script needs a fresh prefix for each Play.
func (s Script) Play(store backend.Store, prefix string) ([]Answer, error) {
	var now time.Time
	c, err := counter.New(store, counter.Config{Ladder: s.Ladder, Skew: s.Skew, Settle: s.Settle, Patience: -1, Exact: s.Exact, Prefix: prefix, Now: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	w := world{judge: oracle.Judge{Ladder: s.Ladder, Skew: max(0, s.Skew)}, logs: map[counter.Key]*keyLog{}, settle: s.Settle, shared: prefix != "", denied: map[string]time.Time{}}
	if _, w.atomic = backend.As[backend.Atomic](store); !w.atomic {
		w.judge.Settle = max(0, s.Settle)
	}
	_, w.local = backend.As[backend.Local](store)
	w.exact = s.Exact || w.local
	var answers []Answer
	for i, call := range s.Calls {
		now = s.start().Add(time.Duration(call.At))
		var refunded Call
		if call.ofCall() {
			refunded = s.Calls[call.N]
		}
		a, err := call.do(c, answers, refunded)
		answers = append(answers, a)
		if err == nil {
			err = w.hold(i, call, now, a)
		}
		if err != nil {
			return answers, fmt.Errorf("call %d, %s: %w", i, call, err)
		}
	}
	return answers, nil
}

// asks are the keys of c with N hits each, also of a key that is given twice.
func (c Call) asks() []counter.Ask {
	asks := slices.Clone(c.Asks)
	for i := range asks {
		same := func(a counter.Ask) bool { return a.Key == asks[i].Key }
		if !slices.ContainsFunc(asks[:i], same) {
			asks[i].N = c.N
		}
	}
	return asks
}

// do makes the call; answers holds the answers of the earlier calls, and refunded
// is the call that a refund or settle is about.
func (c Call) do(on *counter.Counter, answers []Answer, refunded Call) (a Answer, err error) {
	ctx := context.Background()
	switch c.Verb {
	case "take":
		a.Verdict, err = on.Take(ctx, c.Asks[0].Key, c.N, c.Asks[0].Limits)
	case "peek":
		if len(c.Asks) > 1 {
			a.Verdict, err = on.PeekAll(ctx, c.asks()...)
			break
		}
		a.Verdict, err = on.Peek(ctx, c.Asks[0].Key, c.N, c.Asks[0].Limits)
	case "charge":
		a.Verdict, err = on.ChargeAll(ctx, c.asks()...)
	case "takeall":
		a.Verdict, err = on.TakeAll(ctx, c.asks()...)
	case "add":
		err = on.Add(ctx, c.Asks[0].Key, c.N)
	case "addat":
		at, stale := on.Config().Now().Add(-c.Back), on.Stats().StaleLabels
		if err = on.AddAt(ctx, c.Asks[0].Key, c.N, at); err == nil {
			a.Added, a.Partly = at, on.Stats().StaleLabels > stale
		} else if errors.Is(err, counter.ErrTooOld) && !errors.Is(err, counter.ErrStore) {
			err = nil
		}
	case "count":
		a.Count, err = on.Count(ctx, c.Asks[0].Key, c.Window)
	case "series":
		now := on.Config().Now()
		a.Series, err = on.Series(ctx, c.Asks[0].Key, now.Add(-c.Back), now.Add(1), c.Window)
	case "refund", "settle":
		if added := answers[c.N].Added; c.Verb == "refund" && !added.IsZero() {
			answers[c.N].Added = time.Time{} // nothing keeps a caller from a second RefundAt
			err = on.RefundAt(ctx, refunded.Asks[0].Key, refunded.N, added)
			break
		}
		a, err = c.spend(on, answers[c.N].Verdict)
	case "forget":
		err = on.Forget(ctx, c.Asks[0].Key)
	default:
		err = fmt.Errorf("no verb %q", c.Verb)
	}
	a.States = a.Verdict.All()
	return a, err
}

// spend refunds or settles v, and it and a copy once more in vain.
func (c Call) spend(on *counter.Counter, v counter.Verdict) (a Answer, err error) {
	ctx, copied, settle := context.Background(), v, c.Verb == "settle"
	if settle {
		err = on.Settle(ctx, &v, c.Used)
	} else {
		err = on.Refund(ctx, &v)
	}
	if a.Refused = errors.Is(err, counter.ErrSettled); a.Refused {
		return a, nil
	} else if err != nil {
		return a, err
	}
	again := []error{on.Refund(ctx, &v), on.Refund(ctx, &copied)}
	if settle {
		a.Verdict, again = v, append(again, on.Settle(ctx, &copied, c.Used+1), on.Settle(ctx, &v, 0))
	}
	for _, err := range again {
		if errors.Is(err, counter.ErrSettled) != settle || !settle && err != nil {
			return a, fmt.Errorf("once more: %w, want ErrSettled: %v", err, settle)
		}
	}
	return a, nil
}

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
	gone    bool      // refunded or settled
	settled counter.Verdict
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
		now = Start.Add(time.Duration(call.At))
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

// settle settles the verdict of a, and a copy of it in vain.
func (a *Answer) settle(on *counter.Counter, used int64) (counter.Verdict, error) {
	for v := a.Verdict; ; v = a.Verdict {
		err, counted := on.Settle(context.Background(), &v, used), a.Verdict.N() > 0
		switch {
		case !counted || !a.gone && err != nil:
			return v, err
		case a.gone && err == nil:
			return v, errors.New("settled twice")
		case a.gone:
			return a.settled, nil
		}
		a.settled, a.gone = v, true
	}
}

// do makes the call; answers holds the answers of the earlier calls, and refunded
// is the call that a refund is about.
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
		at := Start.Add(time.Duration(c.At) - c.Back)
		if err = on.AddAt(ctx, c.Asks[0].Key, c.N, at); err == nil {
			a.Added = at
		} else if errors.Is(err, counter.ErrTooOld) && !errors.Is(err, counter.ErrStore) {
			err = nil
		}
	case "count":
		a.Count, err = on.Count(ctx, c.Asks[0].Key, c.Window)
	case "series":
		now := on.Config().Now()
		a.Series, err = on.Series(ctx, c.Asks[0].Key, now.Add(-c.Back), now.Add(1), c.Window)
	case "refund":
		if added := answers[c.N].Added; !added.IsZero() {
			answers[c.N].Added = time.Time{} // nothing keeps a caller from a second RefundAt
			err = on.RefundAt(ctx, refunded.Asks[0].Key, refunded.N, added)
			break
		}
		v := answers[c.N].Verdict
		copied := v
		if err = on.Refund(ctx, &v); err == nil {
			err = on.Refund(ctx, &v)
		}
		if err == nil {
			err = on.Refund(ctx, &copied) // a copy gives nothing more
		}
		answers[c.N].gone = true
	case "settle":
		a.Verdict, err = answers[c.N].settle(on, c.Used)
	case "forget":
		err = on.Forget(ctx, c.Asks[0].Key)
	default:
		err = fmt.Errorf("no verb %q", c.Verb)
	}
	if err == nil {
		a.States = a.Verdict.All()
	}
	return a, err
}

package counter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/ticket"
)

// call is a Take, a Peek or a Charge, from the beginning to the answer. The
// ticket.Call in it goes to the store and comes back with the answer.
//
// Calls are pooled, and keep their buffers.
type call struct {
	ticket.Call
	c    *Counter
	asks []Ask     // each key once
	keys []callKey // of the asks, in their order, and then of their former ladders; keys[i] is Keys[i]

	ask      [1]Ask // the array behind asks, in a call for a single key
	distinct []Ask  // the array behind asks, in a call for several keys
	receipts *receipts
	used     int // receipts of the block that are given out
}

// mode is the purpose of a call.
type mode uint8

const (
	taking   mode = iota
	peeking       // count nothing
	charging      // count in any case
)

// callKey is a stored key of a call.
type callKey struct {
	on     *Counter // by whose ladder the key is counted
	limits Limits   // that are judged: limits[i] is Windows[i] of the key
	ask    int      // index in call.asks
}

// receipt gives out the receipt of an admitted Verdict.
func (k *call) receipt() (block *receipts, bit uint16) {
	if k.used == receiptsPerBlock {
		k.receipts, k.used = &receipts{owner: k.c}, 0
	}
	k.used++
	return k.receipts, uint16(k.used - 1)
}

// answer answers a call for asks, whose keys are distinct. now is the label, if
// the clock was read already, or the zero time. The Verdict is passed by pointer
// for speed: a Verdict is large.
func (k *call) answer(ctx context.Context, v *Verdict, asks []Ask, m mode, now time.Time) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("counter: event %q: %w", asks[0].Key.Event, err)
	}
	never, err := k.resolve(asks, m)
	if err != nil {
		return err
	}
	protocol := k.c.protocol
	if k.Now = now; now.IsZero() {
		if err := protocol.Relabel(&k.Call); err != nil {
			return k.failed(ctx, err)
		}
	}
	known := never
	if k.c.queues != nil && !never && m != charging {
		queued, denied, err := k.enter(ctx)
		if err != nil {
			return err
		}
		defer k.leave(queued)
		known = denied
	}
	switch k.Grace = k.c.grace(k.Deadline); {
	case known:
	case protocol.OneStep(&k.Call):
		err = protocol.Step(ctx, &k.Call)
	case m == charging:
		err = k.chargeByTicket(ctx)
	case m == peeking || k.c.denied.readFirst(&k.Call):
		err = protocol.Rounds(ctx, &k.Call, true, ticket.Finding{}, nil)
	default:
		found, tried := protocol.Try(ctx, &k.Call)
		if k.Allowed = found.Allowed; !k.Allowed {
			err = protocol.Rounds(ctx, &k.Call, false, found, tried)
		}
	}
	if err != nil {
		return k.failed(ctx, err)
	}
	if m == charging {
		return k.charged(ctx, v)
	}
	v.Allowed = k.Allowed
	v.fill(k)
	if v.Allowed && m == taking {
		v.count(k)
	}
	if k.RetryWithin > 0 {
		v.retryWithin(k.RetryWithin)
	}
	return nil
}

// resolve checks keys and limits, and writes them into the call: keys in
// their stored form, limits as windows of the ladder. If N of an ask is above the
// Max of a limit, the call can never be admitted.
func (k *call) resolve(asks []Ask, m mode) (never bool, err error) {
	k.asks, k.keys, k.Keys, k.Plans, k.Unknown = asks, k.keys[:0], k.Keys[:0], k.Plans[:0], k.Unknown[:0]
	k.Peek, k.Charge, k.AnyLabel, k.Exact, k.Deadline = m == peeking, m == charging, false, k.c.exact || m == charging, k.c.deadline()
	k.Allowed, k.RetryWithin, k.Late = false, 0, false
	enforced, hits := false, m == peeking
	for i := range asks {
		ask := &asks[i]
		if err := ask.check(); err != nil {
			return false, err
		}
		on := ask.On
		if on == nil {
			on = k.c
		} else if on.base != k.c.base {
			return false, fmt.Errorf("counter: event %q: Ask.On is a Counter of another New, want one that With has made of this Counter", ask.Key.Event)
		}
		out, err := k.add(i, on, ask.Limits)
		if err != nil {
			return false, err
		}
		enforced = enforced || !ask.Soft
		hits = hits || ask.N > 0
		never = never || out && !ask.Soft
	}
	switch {
	case !enforced && m == charging:
		return false, fmt.Errorf("counter: event %q: each Ask of a Charge is Soft, want at least one that is not", asks[0].Key.Event)
	case !hits:
		return false, fmt.Errorf("counter: n is 0, want 1 to %d, or a Peek, event %q", int64(MaxCount), asks[0].Key.Event)
	}
	for i := range asks {
		former := k.keys[i].on.former
		if former == nil || asks[i].Soft {
			continue
		}
		out, err := k.add(i, former, former.judged(asks[i].Limits))
		if err != nil {
			return false, err
		}
		never = never || out
	}
	return never, k.checkStored()
}

// checkStored finds a stored key that is in the call twice, by two Counters of
// one ladder.
func (k *call) checkStored() error {
	mixed := len(k.keys) > len(k.asks)
	for i := range k.asks {
		mixed = mixed || k.asks[i].On != nil
	}
	for i := 1; mixed && i < len(k.keys); i++ {
		for j := range i {
			if a, b := &k.Keys[i], &k.Keys[j]; bytes.Equal(a.Key, b.Key) {
				return fmt.Errorf("counter: event %q: a key is asked for by two Counters that both count it by the ladder %q, want one of them", k.asks[k.keys[i].ask].Key.Event, a.Ladder)
			}
		}
	}
	return nil
}

// add adds a key of ask i to the call. never: N is above the Max of a limit.
func (k *call) add(i int, on *Counter, limits Limits) (never bool, err error) {
	ask := &k.asks[i]
	if n := len(k.Keys); n < cap(k.Keys) {
		k.Keys = k.Keys[:n+1] // buffers of earlier calls stay
	} else {
		k.Keys = append(k.Keys, backend.TakeKey{})
	}
	k.keys = append(k.keys, callKey{on: on, limits: limits, ask: i})
	k.Plans, k.Unknown = append(k.Plans, &on.plan), append(k.Unknown, ask.Soft)
	key, maker := &k.Keys[len(k.Keys)-1], &on.keys
	if ask.Soft {
		maker = &on.softKeys
	}
	key.Key, key.N, key.Soft, key.Fits = maker.append(key.Key[:0], ask.Key), ask.N, ask.Soft, false
	key.Ladder, key.TTLs = on.plan.Ladder, on.plan.TTLs
	key.Windows = slices.Grow(key.Windows[:0], len(limits))[:len(limits)]
	for j, limit := range limits {
		w := &key.Windows[j]
		if err := on.plan.Window(w, limit.Max, limit.Per); err != nil {
			return false, fmt.Errorf("counter: event %q, limit %s: %w", ask.Key.Event, limit, err)
		}
		if ask.Held != nil {
			if w.Max -= ask.heldIn(limit); ask.Soft {
				w.Max = max(0, w.Max)
			}
		}
		if k.Charge && !ask.Soft {
			w.Max = MaxCount
		}
		never = never || ask.N > w.Max
	}
	return never, nil
}

// failed names the culprit of err: the clock, the store or ctx.
func (k *call) failed(ctx context.Context, err error) error {
	ask := 0
	if of := (*ticket.KeyError)(nil); errors.As(err, &of) {
		ask, err = k.keys[of.Key].ask, of.Unwrap()
	}
	return callError(ctx, k.asks[ask].Key.Event, err)
}

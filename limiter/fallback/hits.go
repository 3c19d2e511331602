package fallback

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// Hits are a call under rules that count in this process, and later the local hits of
// a Verdict. All copies of the Verdict have the same Hits.
type Hits struct {
	local    *local
	mode     Mode
	keys     []callKey
	set      uint64            // of shards
	here     []counter.Verdict // of the local counter, to refund
	at       time.Time         // label of hits that were admitted here, to be carried; zero: they are in the store
	ended    bool              // no longer under way
	refunded atomic.Bool

	keysRoom [2]callKey
	hereRoom [2]counter.Verdict
}

// callKey is a key of a call.
type callKey struct {
	*localKey
	rule   *Rule
	mark   uint64       // admitted of the localKey when the call began
	n      int64        // hits of the key; 0: it is judged alone
	charge bool         // whatever the limits
	upTo   bool         // n is the most hits, of which as many are taken as have room
	own    *pendingHits // with hits of the call that were admitted here; nil: none
}

// begin begins a call, to be ended by admitted, decide or end. Pending hits are written
// into the asks, to be held against the limits. fits reports whether pending hits alone
// leave room for the call.
func (l *local) begin(c *Call, asks []counter.Ask) (h *Hits, fits bool) {
	h, fits = &Hits{local: l, mode: c.Mode}, true
	for i, rule := range c.Rules {
		if rule.counts() {
			hash, _ := l.shard(asks[i].Key)
			h.set |= 1 << (hash % localShards)
		}
	}
	h.keys = h.keysRoom[:0]
	l.lock(h.set)
	defer l.unlock(h.set)
	for i, rule := range c.Rules {
		if !rule.counts() {
			continue
		}
		k := callKey{localKey: l.key(asks[i].Key, rule.store), rule: rule, n: asks[i].N, charge: asks[i].Charge, upTo: asks[i].UpTo && asks[i].N > 0 && c.Mode == Taking}
		k.mark = k.admitted
		k.calls++
		h.keys = append(h.keys, k)
		asks[i].Held = k.held()
		for j, held := range asks[i].Held {
			most, n := rule.limits[j].Max, Least(&asks[i])
			fits = fits && (n <= most-held || n > most || k.charge || c.Mode == Charging) // above Max the Counter denies by itself
		}
	}
	return h, fits
}

// end ends a call that nothing else has ended: one that let nothing through, or a panic
// of the store.
func (h *Hits) end() {
	if !h.ended {
		h.local.lock(h.set)
		h.leave()
	}
}

// leave forgets that the call is under way, and unlocks its keys.
func (h *Hits) leave() {
	h.ended = true
	for _, k := range h.keys {
		k.calls--
		k.tidy()
	}
	h.local.unlock(h.set)
}

// noteAnswer notes whether the store answers the call.
func (h *Hits) noteAnswer(err error) {
	l := h.local
	switch {
	case errors.Is(err, counter.ErrStore):
		l.failure.Store(&failure{err, time.Now()})
	case err == nil && l.failure.Load() != nil:
		l.failure.Store(nil)
		for _, k := range h.keys {
			l.carrier.answered(&k)
		}
	}
}

// admitted ends a call that the store has admitted by v, and mirrors its hits. The
// store's answer does not know hits that were admitted here since the call began, and
// then the call is judged here as well, unless it is a charge. If the call is denied
// here, or the local counter cannot judge it, the hits are not kept: v is the local
// verdict, and the store has hits to give back.
func (h *Hits) admitted(v *counter.Verdict) (kept bool, err error) {
	l := h.local
	l.lock(h.set)
	defer h.leave()
	h.took(v)
	superseded := slices.ContainsFunc(h.keys, func(k callKey) bool { return k.admitted != k.mark })
	if !superseded || h.mode == Charging {
		h.mirror(v.At())
		return true, nil
	}
	here, err := h.take()
	if err == nil && here.Allowed {
		if here.At().Sub(v.At()) <= l.here.Config().Skew-l.store.Config().Skew && !h.apart(v.At(), here.At()) {
			return true, nil
		}
		_ = l.here.Refund(context.Background(), &here)
		err = errTooLate
	}
	*v = here
	return false, err
}

// took notes how many hits v, which admits the call, has taken.
func (h *Hits) took(v *counter.Verdict) {
	for i := range h.keys {
		if k := &h.keys[i]; k.upTo {
			k.n, k.upTo = v.N(), false
		}
	}
}

// apart reports whether two labels are in two periods of a limit.
func (h *Hits) apart(a, b time.Time) bool {
	for _, k := range h.keys {
		for _, limit := range k.rule.limits {
			if !limit.Period.IsZero() && !endOf(limit, a).Equal(endOf(limit, b)) {
				return true
			}
		}
	}
	return false
}

// mirror adds hits that the store has admitted with a label to the local counter, each
// key by itself: with another label, unless that would be in another period.
func (h *Hits) mirror(at time.Time) {
	h.here = h.hereRoom[:0]
	apart := h.apart(at, h.local.here.Config().Now())
	for _, k := range h.keys {
		if k.n == 0 {
			continue
		}
		switch {
		case !k.enter():
		case apart: // a refund leaves the hits here, in a period that has ended
			if k.rule.here.AddAt(context.Background(), k.key, k.n, at) == nil {
				continue
			}
		default:
			v, err := k.rule.here.Take(context.Background(), k.key, k.n, k.rule.boundless)
			if err == nil && v.Allowed {
				h.here = append(h.here, v)
				continue
			}
		}
		k.lose(k.n)
	}
}

// decide ends a call that the store has not answered, and decides it by v. If the call
// is under way still, the hits are not carried before land.
func (h *Hits) decide(c *Call, asks []counter.Ask, v *counter.Verdict, underWay bool) (err error) {
	l := h.local
	var denied bool
	if *v, denied = l.recall(c, asks); !denied && h.mode == Peeking {
		*v, err = l.peek(c, asks)
	}
	l.lock(h.set)
	defer h.leave()
	if denied || h.mode == Peeking {
		return err
	}
	if l.carrier.full(len(h.keys)) && slices.ContainsFunc(h.keys, callKey.fresh) {
		return ErrPendingFull
	}
	if *v, err = h.take(); err != nil || v.At().IsZero() {
		return err
	}
	h.took(v)
	h.at = v.At()
	for i := range h.keys {
		k := &h.keys[i]
		if k.n == 0 {
			continue
		}
		k.own = k.pend(k.rule.bucket(h.at), h.at, k.n)
		if underWay {
			k.own.late++ // land puts
		} else {
			l.carrier.put(k.localKey)
		}
	}
	return nil
}

// take asks the local counter for the share of each limit, and makes known to the calls
// under way that hits were admitted here. The caller holds the locks.
func (h *Hits) take() (v counter.Verdict, err error) {
	l := h.local
	asks := make([]counter.Ask, 0, len(h.keysRoom))
	for _, k := range h.keys {
		if k.lacks() {
			return v, errIncomplete
		}
		ask := k.rule.ask(k.key, k.n)
		ask.Charge, ask.UpTo = k.charge, k.upTo
		asks = append(asks, ask)
	}
	ask := (*counter.Counter).TakeAll
	if h.mode == Charging {
		ask = (*counter.Counter).ChargeAll
	}
	v, err = ask(l.here, context.Background(), asks...)
	if err == nil && !v.At().IsZero() {
		h.here = append(h.hereRoom[:0], v)
		for _, k := range h.keys {
			k.admitted++
		}
	}
	return v, err
}

// fresh reports whether the local counter has no hit of the key that the store knows.
func (k callKey) fresh() bool {
	if k.n == 0 {
		return false
	}
	n := k.rule.count(k.key)
	for _, p := range k.pending {
		n -= p.n
	}
	return n <= 0
}

// land ends the call to the store that was under way when the hits were admitted
// here: the hits can be carried now.
func (h *Hits) land() {
	h.local.lock(h.set)
	defer h.local.unlock(h.set)
	for _, k := range h.keys {
		if k.own == nil {
			continue
		}
		k.own.late--
		if k.tidy(); k.sendable() != nil {
			h.local.carrier.put(k.localKey)
		}
	}
}

// refund gives the hits back to the local counter. Pending hits are not carried
// any more, and given back by the store where they were carried.
func (h *Hits) refund(ctx context.Context) (err error) {
	if !h.refunded.CompareAndSwap(false, true) {
		return nil
	}
	for i := range h.here {
		err = errors.Join(err, h.local.here.Refund(context.WithoutCancel(ctx), &h.here[i]))
	}
	if errors.Is(err, counter.ErrSettled) { // a copy was
		h.refunded.Store(false)
		return err
	}
	return errors.Join(err, h.recall(ctx, func(n int64) int64 { return n }))
}

// recall gives back hits that were admitted here: so many of a key with n hits. Those
// that wait are not carried any more.
func (h *Hits) recall(ctx context.Context, of func(n int64) int64) error {
	if h.at.IsZero() {
		return nil
	}
	errs := make([]error, len(h.keys))
	var all sync.WaitGroup
	for i, k := range h.keys {
		if k.own == nil || of(k.n) == 0 {
			continue
		}
		if carried := k.withdraw(of(k.n)); carried > 0 {
			all.Go(func() { errs[i] = k.rule.store.RefundAt(ctx, k.key, carried, h.at) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// settle goes on after the Verdict was settled, by the store or here: the hits that are
// mirrored, or wait to be carried, become used of each key with n. failed reports whether
// the local counter has failed.
func (h *Hits) settle(ctx context.Context, n, used int64, failed bool) (err error) {
	for i := range h.here {
		if h.at.IsZero() {
			_, settled := inner(h.local.here).Settle(context.WithoutCancel(ctx), &h.here[i], n, used)
			err, failed = errors.Join(err, settled), failed || settled != nil
		}
	}
	if used > n {
		h.charge(n, used-n, failed)
		return nil
	}
	return errors.Join(err, h.recall(ctx, func(of int64) int64 {
		if of == n {
			return n - used
		}
		return 0
	}))
}

// charge notes that each key with n hits has more: to be carried, if the store has not
// counted them, and missing from the local counter, if that has failed.
func (h *Hits) charge(n, more int64, failed bool) {
	l := h.local
	l.lock(h.set)
	defer l.unlock(h.set)
	now := l.here.Config().Now()
	for i := range h.keys {
		k := &h.keys[i]
		if k.n != n {
			continue
		}
		// Hits of a period that has ended are not in h.here.
		if failed || len(h.here) == 0 && k.rule.here.Add(context.Background(), k.key, more) != nil {
			k.lose(more)
		}
		if !h.at.IsZero() {
			of := l.key(k.key, k.rule.store) // the table may have another by now
			of.pend(k.rule.bucket(now), now, more)
			of.admitted++
			l.carrier.put(of)
		}
	}
}

// withdraw takes n hits out of the pending hits of a key, and returns the hits
// of n that were carried already.
func (k *callKey) withdraw(n int64) (carried int64) {
	s, p := k.shard(), k.own
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := min(n, p.n-p.sending)
	p.n -= waiting
	k.local.numbers.pending.Add(-waiting)
	sent := min(n-waiting, p.sending-p.refunded)
	p.refunded += sent
	k.tidy()
	return n - waiting - sent
}

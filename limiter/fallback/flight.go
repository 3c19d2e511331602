package fallback

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// flight is a call under rules that count in this process.
type flight struct {
	local *local
	mode  Mode
	n     int64
	keys  []flightKey
	set   uint64 // of shards
	room  [2]flightKey
}

type flightKey struct {
	*localKey
	rule *Rule
	mark uint64 // admitted of the localKey when the call began
}

// begin begins a call, which ends with admitted, decide or end. Hits that are
// pending are written into the asks, to be held against the limits. fits reports
// whether pending hits alone leave room for the call.
func (l *local) begin(c *Call, asks []counter.Ask) (t *flight, fits bool) {
	t = &flight{local: l, mode: c.Mode, n: c.N}
	t.keys = t.room[:0]
	for i, rule := range c.Rules {
		if asks[i].Held = nil; rule != nil && !rule.look {
			t.set |= 1 << (l.hash(asks[i].Key) % localShards)
		}
	}
	fits = true
	l.lock(t.set)
	defer l.unlock(t.set)
	for i, rule := range c.Rules {
		if rule == nil || rule.look {
			continue
		}
		k := l.key(asks[i].Key, rule.store)
		k.calls++
		t.keys = append(t.keys, flightKey{k, rule, k.admitted})
		asks[i].Held = k.heldFor(rule)
		for j, held := range asks[i].Held {
			most := rule.limits[j].Max
			fits = fits && (c.N <= most-held || c.N > most || c.Mode == Charging) // above Max the Counter denies by itself
		}
	}
	return t, fits
}

// end ends a call that let nothing through.
func (t *flight) end() {
	t.local.lock(t.set)
	defer t.local.unlock(t.set)
	t.leave()
}

// leave forgets the call; the caller holds the locks.
func (t *flight) leave() {
	for _, k := range t.keys {
		k.calls--
		k.drop()
	}
}

// noteAnswer notes whether the store answers the call.
func (t *flight) noteAnswer(err error) {
	l := t.local
	switch {
	case errors.Is(err, counter.ErrStore):
		l.failure.Store(&failure{err, time.Now()})
	case err == nil && l.failure.Load() != nil:
		l.failure.Store(nil)
		for _, k := range t.keys {
			l.carrier.hurry(inner(k.rule.store).ServerOf(k.key))
		}
	}
}

// admitted ends a call that the store has admitted, and mirrors the hits of the
// call. The store's answer does not know hits that were admitted here since the
// call began, and then the call is judged here as well. A call that is denied
// here, or that the local counter could not judge, has hits in the store to give
// back.
func (t *flight) admitted(stored time.Time) (kept bool, v counter.Verdict, hits *Hits, err error) {
	l := t.local
	l.lock(t.set)
	defer l.unlock(t.set)
	defer t.leave()
	superseded := false // a charge is not judged
	for _, k := range t.keys {
		superseded = superseded || k.admitted != k.mark && !l.trusting && t.mode != Charging
	}
	if !superseded {
		return true, v, t.mirror(), nil
	}
	if v, err = t.take(); err != nil || !v.Allowed {
		return false, v, nil, err
	}
	if v.At().Sub(stored) > l.here.Config().Skew-l.store.Config().Skew {
		_ = l.here.Refund(context.Background(), &v)
		return false, counter.Verdict{}, nil, errTooLate
	}
	t.admit()
	return true, v, t.judged(v), nil
}

// mirror adds hits that the store has admitted to the local counter, each key by
// itself. A key without room is forgotten, and its slot is marked until the hit has
// left all windows. Nothing else marks a slot, so the mark ends when there is room
// again, whatever the traffic.
func (t *flight) mirror() *Hits {
	hits := &Hits{flight: t}
	hits.here = hits.room[:0]
	for _, k := range t.keys {
		if k.enter(k.rule) {
			v, err := k.rule.here.Take(context.Background(), k.key, t.n, k.rule.boundless)
			if err == nil && v.Allowed {
				hits.here = append(hits.here, counted{k.rule.here, v})
				continue
			}
		}
		t.lose(k)
	}
	return hits
}

// judged are the hits of a call that the local counter has judged by v.
func (t *flight) judged(v counter.Verdict) *Hits {
	hits := &Hits{flight: t}
	hits.here = append(hits.room[:0], counted{t.local.here, v})
	return hits
}

// lose notes that the local counter has no room for hits of k.
func (t *flight) lose(k flightKey) {
	l := t.local
	_ = k.rule.here.Forget(context.Background(), k.key) // a local counter in memory does not fail
	until := time.Since(l.began) + k.rule.longest + l.here.Config().Skew
	*k.slot() = max(*k.slot(), until)
	for old := l.lackedUntil.Load(); old < int64(until) && !l.lackedUntil.CompareAndSwap(old, int64(until)); {
		old = l.lackedUntil.Load()
	}
	l.numbers.unmirrored.Add(t.n)
}

// decide ends a call that the store has not answered, and decides it. If the call
// is under way still, the hits are not carried before land.
func (t *flight) decide(c *Call, asks []counter.Ask, v *counter.Verdict, underWay bool) (hits *Hits, err error) {
	l := t.local
	var denied bool
	if *v, denied = l.recall(c, asks); !denied && t.mode == Peeking {
		*v, err = l.peek(c, asks, false)
	}
	l.lock(t.set)
	defer l.unlock(t.set)
	defer t.leave()
	if denied || t.mode == Peeking {
		return nil, err
	}
	if l.carrier.full(len(t.keys)) && t.fresh() {
		return nil, ErrPendingFull
	}
	if *v, err = t.take(); err != nil || v.At().IsZero() {
		return nil, err
	}
	t.admit()
	hits = t.judged(*v)
	hits.pending, hits.at = true, v.At()
	for _, k := range t.keys {
		p := k.pend(k.rule.bucket(hits.at), hits.at, t.n)
		if underWay {
			p.held++ // land puts
		} else {
			l.carrier.put(k.localKey, 0)
		}
	}
	return hits, nil
}

// fresh reports whether a key of the call has no hit in the local counter that the
// store knows.
func (t *flight) fresh() bool {
	for _, k := range t.keys {
		n := k.rule.count(k.key)
		for _, p := range k.pending {
			n -= p.n
		}
		if n <= 0 {
			return true
		}
	}
	return false
}

// admit makes known to the calls under way that hits were admitted here.
func (t *flight) admit() {
	for _, k := range t.keys {
		k.admitted++
	}
}

// take asks the local counter for the share of each limit; the caller holds the
// locks.
func (t *flight) take() (counter.Verdict, error) {
	var room [2]counter.Ask
	asks := room[:0]
	for _, k := range t.keys {
		if k.lacks(k.rule) {
			return counter.Verdict{}, errIncomplete
		}
		asks = append(asks, k.rule.ask(k.key, t.n))
	}
	if t.mode == Charging {
		return t.local.here.ChargeAll(context.Background(), asks...)
	}
	v, err := t.local.here.TakeAll(context.Background(), asks...)
	softenNever(&v, asks)
	return v, err
}

// softenNever replaces a RetryAfter of Never of a call for more than the share, but
// not for more than Max: the store, when it is back, may admit the call.
func softenNever(v *counter.Verdict, asks []counter.Ask) {
	if v.Allowed || v.RetryAfter != counter.Never {
		return
	}
	for i := range asks {
		for _, limit := range asks[i].Limits {
			if asks[i].N > limit.Max {
				return
			}
		}
	}
	v.RetryAfter = AfterFailure()
}

// newcomer begins the Feature of the key that counts the entries of a key into the
// local counter while the slot of the key is marked. A hash follows, and no text of
// the feature.
const newcomer = ":newcomer:"

func (k *localKey) newcomer() counter.Key {
	return counter.Key{Event: k.key.Event, Feature: newcomer + strconv.FormatUint(k.hash, 36)}
}

// enter notes that the key enters the local counter while its slot is marked, and
// reports whether the key may enter.
func (k *localKey) enter(rule *Rule) bool {
	return !k.marked() || rule.count(k.key) > 0 || rule.here.Add(context.Background(), k.newcomer(), 1) == nil
}

// marked reports whether the local counter may lack hits of keys in the slot of k.
// The caller holds the lock of k.
func (k *localKey) marked() bool { return time.Since(k.local.began) < *k.slot() }

// lacks reports whether the local counter may lack hits of k: the slot is marked,
// and k has no hits, or entered so lately that an older hit may have found no room.
// The caller holds the lock of k.
func (k *localKey) lacks(rule *Rule) bool {
	return k.marked() && (rule.count(k.key) == 0 || rule.count(k.newcomer()) > 0)
}

// count is the number of hits of key in the local counter.
func (r *Rule) count(key counter.Key) int64 {
	n, err := r.here.Count(context.Background(), key, r.longest)
	if err != nil {
		return 0
	}
	return n.High
}

// Lacking reports whether the local counter lacks hits of a key now.
func (f *Fallback) Lacking() bool {
	return f.local != nil && time.Since(f.local.began) < time.Duration(f.local.lackedUntil.Load())
}

// lacking is the part of the slots whose keys the local counter may lack hits of.
func (l *local) lacking() float64 {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, until := range s.lacking {
			if time.Since(l.began) < until {
				n++
			}
		}
		s.mu.Unlock()
	}
	return float64(n) / (localShards * slotsOfShard)
}

package limiter

import (
	"context"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// flight is a call under rules that count locally.
type flight struct {
	local *local
	mode  mode
	n     int64
	keys  []flightKey
	set   uint64 // of shards
	room  [2]flightKey
}

type flightKey struct {
	key   counter.Key
	rule  *localRule
	hash  uint64
	state *localKey
	mark  uint64 // state.admitted when the call began
}

// begin begins a call, which ends with admitted, judge or end. Hits that are
// pending are written into asks, to be held against the limits; rules[i] belongs
// to asks[i], and is nil if the rule does not count locally. fits tells whether
// pending hits alone leave room for the call.
func (l *local) begin(q *question, asks []counter.Ask) (f *flight, fits bool) {
	f = &flight{local: l, mode: q.mode, n: q.n}
	f.keys = f.room[:0]
	for i, rule := range q.rules {
		if rule != nil {
			key := flightKey{key: asks[i].Key, rule: rule, hash: l.hash(asks[i].Key)}
			f.keys, f.set = append(f.keys, key), f.set|1<<(key.hash%localShards)
		}
	}
	fits = true
	l.lock(f.set)
	defer l.unlock(f.set)
	next := 0
	for i, rule := range q.rules {
		if rule == nil {
			continue
		}
		k := &f.keys[next]
		next++
		state := l.shard(k.hash).keys[k.key]
		if state != nil {
			asks[i].Held = state.held(rule, l.here.Config().Skew)
			for j, held := range asks[i].Held {
				most := rule.limits[j].Max
				fits = fits && (q.n <= most-held || q.n > most || q.mode == charging) // above Max the Counter denies by itself
			}
		}
		if q.mode == peeking {
			continue
		}
		if state == nil {
			state = &localKey{key: k.key, store: rule.store}
			l.shard(k.hash).keys[k.key] = state
		}
		state.store = rule.store // a Replace may have changed the ladder
		state.calls++
		k.state, k.mark = state, state.admitted
	}
	return f, fits
}

// end ends a call that let nothing through.
func (f *flight) end() {
	f.local.lock(f.set)
	f.leave()
	f.local.unlock(f.set)
}

// leave forgets the call; the caller holds the locks.
func (f *flight) leave() {
	for i := range f.keys {
		if k := &f.keys[i]; k.state != nil {
			k.state.calls--
			f.local.shard(k.hash).drop(k.state)
		}
	}
}

// admitted ends a call that the store has admitted, and mirrors the hits of the
// call. The store's answer does not know hits that were admitted here since the
// call began, and then the call is judged here as well. A call that is denied
// here, or that the local counter could not judge, has hits in the store to give
// back.
func (f *flight) admitted(stored time.Time) (kept bool, v counter.Verdict, hits *localHits, err error) {
	l := f.local
	l.lock(f.set)
	defer l.unlock(f.set)
	defer f.leave()
	superseded := false // a charge is not judged
	for i := range f.keys {
		superseded = superseded || f.keys[i].state.admitted != f.keys[i].mark && !l.trusting && f.mode != charging
	}
	if superseded {
		if v, err = f.take(); err != nil || !v.Allowed {
			return false, v, nil, err
		}
		if v.At().Sub(stored) > l.here.Config().Skew-l.store.Config().Skew {
			_ = l.here.Refund(context.Background(), &v)
			return false, counter.Verdict{}, nil, errTooLate
		}
		f.mark()
		return true, v, &localHits{flight: f, here: v}, nil
	}
	return true, v, f.mirror(), nil
}

// mirror adds hits that the store has admitted to the local counter. If not all
// keys have room, each key is added to by itself. A key without room is forgotten,
// and its slot is marked until the hit has left all windows. Nothing else marks a
// slot, so the mark ends when there is room again, whatever the traffic.
func (f *flight) mirror() *localHits {
	l := f.local
	var enteredBuf [2]bool
	whole, entered := true, enteredBuf[:0]
	for i := range f.keys {
		entered = append(entered, l.enter(&f.keys[i]))
		whole = whole && entered[i]
	}
	var room [2]counter.Ask
	asks := f.asks(room[:0], true)
	hits := &localHits{flight: f}
	if whole {
		if v, err := l.here.TakeAll(context.Background(), asks...); err == nil && v.Allowed {
			hits.here = v
			return hits
		}
	}
	for i := range f.keys {
		k := &f.keys[i]
		if entered[i] {
			if v, err := l.here.TakeAll(context.Background(), asks[i]); err == nil && v.Allowed {
				hits.apart = append(hits.apart, v)
				continue
			}
		}
		_ = k.rule.here.Forget(context.Background(), k.key) // a local counter in memory does not fail
		until := time.Since(l.began) + k.rule.longest + l.here.Config().Skew
		slot := l.shard(k.hash).slot(k.hash)
		*slot = max(*slot, until)
		for old := l.lackedUntil.Load(); old < int64(until) && !l.lackedUntil.CompareAndSwap(old, int64(until)); {
			old = l.lackedUntil.Load()
		}
		l.numbers.unmirrored.Add(f.n)
	}
	return hits
}

// newcomer begins the Feature of the key that counts the entries of a key into the
// local counter while the slot of the key is marked. A hash follows, and no text of
// the feature.
const newcomer = ":newcomer:"

// enter notes that a key enters the local counter while its slot is marked, and
// reports whether the key may enter.
func (l *local) enter(k *flightKey) bool {
	return !l.marked(k) || l.count(k, k.key) > 0 || k.rule.here.Add(context.Background(), l.newcomer(k), 1) == nil
}

func (l *local) newcomer(k *flightKey) counter.Key {
	return counter.Key{Event: k.key.Event, Feature: newcomer + strconv.FormatUint(k.hash, 36)}
}

// marked reports whether the local counter may lack hits of keys in the slot of k.
// The caller holds the lock of k.
func (l *local) marked(k *flightKey) bool {
	return time.Since(l.began) < *l.shard(k.hash).slot(k.hash)
}

// lacks reports whether the local counter may lack hits of k: the slot is marked,
// and k has no hits, or entered so lately that an older hit may have found no room.
// The caller holds the lock of k.
func (l *local) lacks(k *flightKey) bool {
	return l.marked(k) && (l.count(k, k.key) == 0 || l.count(k, l.newcomer(k)) > 0)
}

// count is the number of hits of key, a key of the rule of k, in the local counter.
func (l *local) count(k *flightKey, key counter.Key) int64 {
	n, err := k.rule.here.Count(context.Background(), key, k.rule.longest)
	if err != nil {
		return 0
	}
	return n.High
}

// fresh reports whether a key of the call has no hit in the local counter that the
// store knows.
func (f *flight) fresh() bool {
	for i := range f.keys {
		k := &f.keys[i]
		n := f.local.count(k, k.key)
		for _, p := range k.state.pending {
			n -= p.n
		}
		if n <= 0 {
			return true
		}
	}
	return false
}

// judge ends a call that the store has not answered, and decides it. If the call
// is under way still, the hits are not carried before land.
func (f *flight) judge(underWay bool) (v counter.Verdict, hits *localHits, err error) {
	l := f.local
	l.lock(f.set)
	defer l.unlock(f.set)
	defer f.leave()
	if l.carrier.full(len(f.keys)) && f.fresh() {
		return v, nil, errPendingFull
	}
	if v, err = f.take(); err != nil || v.At().IsZero() {
		return v, nil, err
	}
	f.mark()
	hits = &localHits{flight: f, here: v, at: v.At(), pending: true}
	for i := range f.keys {
		k, bucket := f.keys[i].state, hits.bucket(i)
		p := k.pend(l, bucket, hits.at, f.n)
		if underWay {
			p.held++
		}
		if !underWay { // else land puts
			l.carrier.put(k, 0)
		}
	}
	return v, hits, nil
}

// mark makes known to the calls under way that hits were admitted here.
func (f *flight) mark() {
	for i := range f.keys {
		f.keys[i].state.admitted++
	}
}

// take asks the local counter for the share of each limit; the caller holds the
// locks.
func (f *flight) take() (counter.Verdict, error) {
	for i := range f.keys {
		if f.local.lacks(&f.keys[i]) {
			return counter.Verdict{}, errIncomplete
		}
	}
	var room [2]counter.Ask
	if f.mode == charging {
		return f.local.here.ChargeAll(context.Background(), f.asks(room[:0], false)...)
	}
	v, err := f.local.here.TakeAll(context.Background(), f.asks(room[:0], false)...)
	f.soften(&v)
	return v, err
}

// peek is judge for a call that counts nothing.
func (f *flight) peek() (counter.Verdict, error) {
	var room [2]counter.Ask
	v, err := f.local.here.PeekAll(context.Background(), f.asks(room[:0], false)...)
	f.soften(&v)
	return v, err
}

// soften replaces a RetryAfter of Never of a call for more than the share, but
// not for more than Max: the store, when it is back, may admit the call.
func (f *flight) soften(v *counter.Verdict) {
	if v.Allowed || v.RetryAfter != counter.Never {
		return
	}
	for i := range f.keys {
		for _, limit := range f.keys[i].rule.limits {
			if f.n > limit.Max {
				return
			}
		}
	}
	v.RetryAfter = afterFailure()
}

// asks appends what the local counter is asked.
func (f *flight) asks(asks []counter.Ask, boundless bool) []counter.Ask {
	for i := range f.keys {
		rule := f.keys[i].rule
		ask := counter.Ask{Key: f.keys[i].key, N: f.n, Limits: rule.limits, Held: rule.held, On: rule.here}
		if boundless {
			ask.Limits, ask.Held = rule.boundless, nil
		}
		asks = append(asks, ask)
	}
	return asks
}

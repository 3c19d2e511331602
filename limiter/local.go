package limiter

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// local counts in this process for rules under FailLocal. Its counter holds all
// hits that this Limiter has admitted under these rules: those that the store
// has admitted, which are mirrored, and those that were admitted here while the
// store did not answer, which the carrier adds to the store later. Both stay
// until they have left their windows.
//
// In a window at most Max + (I-1) x ceil(Share x Max) hits are admitted, by I
// such counters on one store, because
//
//   - an admission here finds all earlier hits of this Limiter counted here, and
//     at most ceil(Share x Max) with its own;
//   - a Take on the store is judged with the hits that were admitted here and are
//     not yet in the store: they are held against its limits;
//   - a Take whose answer comes after an admission here that it could not know
//     of is judged here as well.
//
// A Limiter whose last hit in a window was admitted here has at most ceil(Share x
// Max) in the window. Of the other Limiters take the last Take in the order of
// the store, and the Limiter m that sent it: this Take has found all hits of
// these Limiters in the store, and all hits admitted here by m in the store or
// held. So these hits are Max at most, and each other Limiter has admitted
// ceil(Share x Max) here at most. A caller that counts nothing here, and holds
// nothing, counts as a Limiter too: its Take may be the last.
//
// An answer that is judged here keeps the label that the store has given, which is
// older than the judgement, by DecideWithin at most: the windows of the local
// counter reach back for as much longer.
type local struct {
	store, here *counter.Counter
	share       float64
	width       time.Duration // of the finest buckets
	began       time.Time
	seed        maphash.Seed
	shards      [localShards]localShard
	carrier     carrier
	failure     atomic.Pointer[failure]
	trusting    bool // a mistake, for a test: no answer is superseded
	numbers     struct{ admitted, denied, pending, carried, dropped atomic.Int64 }
}

const localShards = 64 // a bit each in a uint64

type localShard struct {
	mu   sync.Mutex
	keys map[counter.Key]*localKey

	// blind[i] is the time since local.began until which the local counter may
	// lack mirrored hits of keys of slot i, since it was full.
	blind [blindSlots]time.Duration
}

const blindSlots = 64

// localKey is a key with calls under way to the store or with pending hits,
// under the lock of its shard.
type localKey struct {
	key      counter.Key
	calls    int            // under way, whose answers have not been judged
	admitted uint64         // number of admissions here since the localKey exists
	pending  []*pendingHits // oldest first
	queued   bool           // the carrier has the key
	due      time.Time      // when the carrier sends the next hits of the key
	tries    int            // failed sends in a row
}

// pendingHits are hits admitted here in one bucket of the finest tier, and not
// yet known to be in the store.
type pendingHits struct {
	bucket   int64
	at       time.Time // the latest label
	since    time.Time // of the last hit, by the machine's clock
	n        int64
	sending  int64 // of n, under way to the store
	refunded int64 // of sending: to give back when the carry is answered
	held     int   // calls under way for hits of the bucket: the store may yet count these hits, and take them back
}

// localRule is a rule in the form that the local counter is asked for.
type localRule struct {
	limits    counter.Limits
	held      []int64        // Max - ceil(Share x Max) of each limit
	boundless counter.Limits // for the mirror
	reach     time.Duration  // of the longest limit
}

func newLocal(store, here *counter.Counter, share float64) *local {
	l := &local{store: store, here: here, share: share, width: here.Ladder().At(0).Width, began: time.Now(), seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].keys = map[counter.Key]*localKey{}
	}
	l.carrier.init(l)
	return l
}

func (l *local) hash(key counter.Key) uint64 { return maphash.Comparable(l.seed, key) }

func (l *local) rule(limits counter.Limits) *localRule {
	r := &localRule{limits: limits, held: make([]int64, len(limits)), boundless: make(counter.Limits, len(limits))}
	for i, limit := range limits {
		r.held[i] = limit.Max - shareOf(l.share, limit.Max)
		r.boundless[i] = counter.Limit{Max: counter.MaxCount, Per: limit.Per}
		r.reach = max(r.reach, limit.Per+l.here.Skew())
	}
	return r
}

// shareOf is ceil(share x max). A product that floating point puts just above a
// whole number is that number.
func shareOf(share float64, max int64) int64 {
	if share == 1 {
		return max
	}
	product := share * float64(max)
	if whole := math.Round(product); math.Abs(product-whole) <= 1e-9*whole {
		return int64(whole)
	}
	return int64(math.Ceil(product))
}

// judgeLocally is judge for a call with rules that count locally. shed is the
// error of a call that got no turn, or nil.
func (l *Limiter) judgeLocally(ctx context.Context, v *Verdict, q *question, asks []counter.Ask, until time.Time, shed error) error {
	if q.rules == nil { // and shed
		return l.failed(v, q, nil, shed)
	}
	f, fits := l.local.begin(q, asks)
	var underWay chan<- late
	err := shed
	switch {
	case shed != nil:
	case !fits:
		l.turns.end()
		err = fmt.Errorf("limiter: event %q: %w", q.event, errNotCarried)
	default:
		v.Verdict, underWay, err = l.askInTime(ctx, *q, asks, until)
		if v.Allowed || v.RetryAfter != counter.Never { // else nobody has asked the store
			l.local.noteAnswer(err)
		}
		if err == nil {
			held := slices.ContainsFunc(asks, func(a counter.Ask) bool { return a.Held != nil })
			if !v.Allowed && held && v.RetryAfter != counter.Never { // a carry under way may be counted twice
				v.RetryAfter = min(v.RetryAfter, afterFailure())
			}
			l.settle(ctx, v, f, q)
			return nil
		}
	}
	policy := q.policy
	if policy == FailOpen && (shed != nil || !fits) { // the store has not failed
		policy = FailLocal
	}
	if policy != FailLocal || !errors.Is(err, counter.ErrStore) {
		f.end()
		return l.failed(v, q, underWay, err)
	}
	v.Degraded = err
	var d late
	v.Verdict, d.hits, err = l.local.decide(q, f, asks, underWay != nil)
	l.told(v, d.hits, err, q.peek)
	if underWay != nil {
		underWay <- d
	}
	return nil
}

// decide decides a call without the store: by a denial that the store gave
// before it failed, or by the local counter.
func (l *local) decide(q *question, f *flight, asks []counter.Ask, underWay bool) (v counter.Verdict, hits *localHits, err error) {
	if v, denied := l.store.LastDenial(q.n, asks...); denied {
		f.end()
		return v, nil, nil
	}
	if q.peek {
		v, err = f.peek()
		return v, nil, err
	}
	return f.judge(underWay)
}

// settle completes a call that the store has answered.
func (l *Limiter) settle(ctx context.Context, v *Verdict, f *flight, q *question) {
	if q.peek || !v.Allowed {
		f.end()
		return
	}
	kept, here, hits, err := f.admitted(v.At())
	if kept {
		v.hits = hits
		return
	}
	stored := v.Verdict
	l.background(func() { _ = l.counter.Refund(context.WithoutCancel(ctx), &stored) })
	v.Verdict, v.Degraded = here, fmt.Errorf("limiter: event %q: %w", q.event, errSuperseded)
	l.told(v, nil, err, false)
}

// told completes a Verdict of the local counter, or of its error, which denies.
func (l *Limiter) told(v *Verdict, hits *localHits, err error, peek bool) {
	if err != nil {
		v.Verdict, v.Degraded = counter.Verdict{RetryAfter: afterFailure()}, fmt.Errorf("%w; Config.Local: %w", v.Degraded, err)
		return
	}
	v.local, v.hits = true, hits
	switch {
	case peek:
	case v.Allowed:
		l.local.numbers.admitted.Add(1)
	default:
		l.local.numbers.denied.Add(1)
	}
}

// noteAnswer notes whether the store answers.
func (l *local) noteAnswer(err error) {
	switch {
	case err == nil:
		if l.failure.Load() != nil {
			l.failure.Store(nil)
			l.carrier.hurry()
		}
	case errors.Is(err, counter.ErrStore):
		l.failure.Store(&failure{err, time.Now()})
	}
}

// failure is the last failure of a store that has not answered since.
type failure struct {
	err error
	at  time.Time
}

// failing is the error of a store that has failed within the last second, and
// not answered since; nil: nothing is known.
func (l *local) failing() error {
	if f := l.failure.Load(); f != nil && time.Since(f.at) < time.Second {
		return f.err
	}
	return nil
}

var (
	errNotCarried  = fmt.Errorf("%w: it lacks hits that this process let through, which leave no room", counter.ErrStore)
	errSuperseded  = fmt.Errorf("%w: it answered after this process had let other hits through, which leave no room", counter.ErrStore)
	errPendingFull = errors.New("too many hits wait to be carried to the store")
	errTooLate     = errors.New("the answer is older than the local counter reaches back")
	errIncomplete  = errors.New("the local counter lacks hits of the key, since it was full")
)

// flight is a call under rules that count locally.
type flight struct {
	local *local
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
	f = &flight{local: l, n: q.n}
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
			asks[i].Held = state.held(rule, l.here.Skew())
			for j, held := range asks[i].Held {
				most := rule.limits[j].Max
				fits = fits && (q.n <= most-held || q.n > most) // above Max the Counter denies by itself
			}
		}
		if q.peek {
			continue
		}
		if state == nil {
			state = &localKey{key: k.key}
			l.shard(k.hash).keys[k.key] = state
		}
		state.calls++
		k.state, k.mark = state, state.admitted
	}
	return f, fits
}

// held are the pending hits in the window of each limit; nil if there are none.
func (k *localKey) held(rule *localRule, skew time.Duration) (held []int64) {
	for _, p := range k.pending {
		age := time.Since(p.since)
		for j, limit := range rule.limits {
			if age > limit.Per+skew {
				continue
			}
			if held == nil {
				held = make([]int64, len(rule.limits))
			}
			held[j] += p.n
		}
	}
	return held
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

// drop forgets a key about which there is nothing to know.
func (s *localShard) drop(k *localKey) {
	if k.calls == 0 && len(k.pending) == 0 && !k.queued {
		delete(s.keys, k.key)
	}
}

// admitted ends a call that the store has admitted, and mirrors its hits. If
// hits were admitted here since the call began, the store's answer does not
// know them, and the call is judged here as well: a call that is denied here,
// or that the local counter could not judge, has hits in the store to give back.
func (f *flight) admitted(stored time.Time) (kept bool, v counter.Verdict, hits *localHits, err error) {
	l := f.local
	l.lock(f.set)
	defer l.unlock(f.set)
	defer f.leave()
	superseded := false
	for i := range f.keys {
		superseded = superseded || f.keys[i].state.admitted != f.keys[i].mark && !l.trusting
	}
	if superseded {
		if v, err = f.take(); err != nil || !v.Allowed {
			return false, v, nil, err
		}
		if v.At().Sub(stored) > l.here.Skew()-l.store.Skew() {
			_ = l.here.Refund(context.Background(), &v)
			return false, counter.Verdict{}, nil, errTooLate
		}
		f.mark()
		return true, v, &localHits{flight: f, here: v}, nil
	}
	var room [2]counter.Ask
	v, err = l.here.TakeAll(context.Background(), f.n, f.asks(room[:0], true)...)
	if err != nil || !v.Allowed {
		f.blind()
		return true, v, nil, nil
	}
	return true, v, &localHits{flight: f, here: v}, nil
}

// judge ends a call that the store has not answered, and decides it. If the call
// is under way still, the hits are not carried before land.
func (f *flight) judge(underWay bool) (v counter.Verdict, hits *localHits, err error) {
	l := f.local
	l.lock(f.set)
	defer l.unlock(f.set)
	defer f.leave()
	if l.carrier.full(len(f.keys)) {
		return v, nil, errPendingFull
	}
	if v, err = f.take(); err != nil || !v.Allowed {
		return v, nil, err
	}
	f.mark()
	hits = &localHits{flight: f, here: v, at: v.At(), pending: true}
	hits.bucket = tiers.Index(hits.at.UnixNano(), l.width)
	for i := range f.keys {
		k := f.keys[i].state
		p := k.find(hits.bucket)
		if p == nil {
			p = &pendingHits{bucket: hits.bucket}
			k.pending = append(k.pending, p)
			l.carrier.entries.Add(1)
		}
		p.n += f.n
		if p.since = time.Now(); hits.at.After(p.at) {
			p.at = hits.at
		}
		if underWay {
			p.held++
		}
		l.numbers.pending.Add(f.n)
		if !underWay { // else land puts
			l.carrier.put(k, 0)
		}
	}
	return v, hits, nil
}

// find returns the pending hits of a bucket.
func (k *localKey) find(bucket int64) *pendingHits {
	for i := len(k.pending) - 1; i >= 0; i-- {
		if k.pending[i].bucket == bucket {
			return k.pending[i]
		}
	}
	return nil
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
		if k := &f.keys[i]; time.Since(f.local.began) < *f.local.shard(k.hash).slot(k.hash) {
			return counter.Verdict{}, errIncomplete
		}
	}
	var room [2]counter.Ask
	v, err := f.local.here.TakeAll(context.Background(), f.n, f.asks(room[:0], false)...)
	f.soften(&v)
	return v, err
}

// peek is judge for a call that counts nothing.
func (f *flight) peek() (counter.Verdict, error) {
	var room [2]counter.Ask
	v, err := f.local.here.PeekAll(context.Background(), f.n, f.asks(room[:0], false)...)
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
		ask := counter.Ask{Key: f.keys[i].key, Limits: f.keys[i].rule.limits, Held: f.keys[i].rule.held}
		if boundless {
			ask.Limits, ask.Held = f.keys[i].rule.boundless, nil
		}
		asks = append(asks, ask)
	}
	return asks
}

// blind remembers that hits of the call are missing in the local counter: until
// they have left their windows, it admits no hits of these keys.
func (f *flight) blind() {
	for i := range f.keys {
		k := &f.keys[i]
		slot := f.local.shard(k.hash).slot(k.hash)
		*slot = max(*slot, time.Since(f.local.began)+k.rule.reach)
	}
}

func (s *localShard) slot(hash uint64) *time.Duration {
	return &s.blind[hash/localShards%blindSlots]
}

// localHits are the hits of a Verdict in the local counter. Copies of the
// Verdict share them.
type localHits struct {
	flight   *flight
	here     counter.Verdict // to refund
	refunded atomic.Bool

	pending bool // admitted here: to be carried
	at      time.Time
	bucket  int64
}

// land ends the call to the store that was under way when its hits were
// admitted here: they can be carried now.
func (h *localHits) land() {
	l := h.flight.local
	for i := range h.flight.keys {
		k := &h.flight.keys[i]
		s := l.shard(k.hash)
		s.mu.Lock()
		state := s.keys[k.key] // there, as long as hits are held
		p := state.find(h.bucket)
		p.held--
		l.tidy(s, state, p)
		if p.n > 0 {
			l.carrier.put(state, 0)
		}
		s.mu.Unlock()
	}
}

// refund gives the hits back to the local counter. Pending hits are not carried
// any more, and given back by the store where they were carried.
func (h *localHits) refund(ctx context.Context) error {
	if !h.refunded.CompareAndSwap(false, true) {
		return nil
	}
	l, n := h.flight.local, h.flight.n
	err := l.here.Refund(context.WithoutCancel(ctx), &h.here)
	if !h.pending {
		return err
	}
	errs := make([]error, len(h.flight.keys))
	var all sync.WaitGroup
	for i := range h.flight.keys {
		k := &h.flight.keys[i]
		if carried := l.withdraw(k, h.bucket, n); carried > 0 {
			all.Go(func() { errs[i] = l.store.RefundAt(ctx, k.key, carried, h.at) })
		}
	}
	all.Wait()
	return errors.Join(append(errs, err)...)
}

// withdraw takes n hits out of the pending hits of a key, and returns the hits
// of n that were carried already.
func (l *local) withdraw(k *flightKey, bucket, n int64) (carried int64) {
	s := l.shard(k.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.keys[k.key]
	if state == nil {
		return n
	}
	p := state.find(bucket)
	if p == nil {
		return n
	}
	waiting := min(n, p.n-p.sending)
	p.n -= waiting
	l.numbers.pending.Add(-waiting)
	sent := min(n-waiting, p.sending-p.refunded)
	p.refunded += sent
	l.tidy(s, state, p)
	return n - waiting - sent
}

// tidy forgets p without hits.
func (l *local) tidy(s *localShard, k *localKey, p *pendingHits) {
	if p.n > 0 || p.held > 0 {
		return
	}
	for i := range k.pending {
		if k.pending[i] == p {
			k.pending = append(k.pending[:i], k.pending[i+1:]...)
			l.carrier.entries.Add(-1)
			break
		}
	}
	s.drop(k)
}

func (l *local) shard(hash uint64) *localShard { return &l.shards[hash%localShards] }

// lock locks the shards of a set, in one order for all callers.
func (l *local) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		l.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (l *local) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		l.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

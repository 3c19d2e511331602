package limiter

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// local counts in this process for rules under FailLocal. The local counter holds
// all hits that the Limiter has admitted under these rules. Hits admitted by the
// store are mirrored. Hits admitted here, while the store did not answer, are
// added to the store later by the carrier. Both stay until the end of their
// windows.
//
// In a window at most Max + (I-1) x ceil(Share x Max) hits are admitted, by I such
// counters on a store, because
//
//   - an admission here finds all earlier hits of this Limiter counted here, and
//     at most ceil(Share x Max) with its own;
//   - a Take on the store is judged with the hits that were admitted here and are
//     not yet in the store: these hits are held against the limits of the Take;
//   - a Take whose answer comes after an admission here, unknown to the answer, is
//     judged here as well.
//
// A Limiter whose last hit in a window was admitted here has at most ceil(Share x
// Max) in the window. Of the other Limiters take the last Take in the order of the
// store, and the Limiter m of this Take. The Take has found all hits of these
// Limiters in the store, and all hits admitted here by m in the store or held. So
// these hits are Max at most, and each other Limiter has admitted ceil(Share x
// Max) here at most. A caller that counts nothing here, and holds nothing, is a
// Limiter too: the last Take may come from such a caller.
//
// An answer that is judged here keeps the label given by the store. The label is
// older than the judgement, by DecideWithin at most: the windows of the local
// counter reach back for as much longer.
type local struct {
	store, here *counter.Counter
	share       float64
	began       time.Time
	seed        maphash.Seed
	shards      [localShards]localShard
	carrier     carrier
	failure     atomic.Pointer[failure]
	trusting    bool         // a mistake, for a test: no answer is superseded
	lackedUntil atomic.Int64 // latest of all localShard.lacking
	numbers     struct{ admitted, denied, refused, unmirrored, pending, carried, dropped atomic.Int64 }
}

// localLadder is the ladder of a rule, here and in the store.
type localLadder struct {
	local       *local
	store, here *counter.Counter
	width       time.Duration // of the finest buckets
	longest     time.Duration // Per of the longest limit that the ladder holds
}

// localRule are limits of a call in the form that the local counter is asked for.
type localRule struct {
	*localLadder
	limits    counter.Limits
	held      []int64        // Max - ceil(Share x Max) of each limit
	boundless counter.Limits // for the mirror
}

func newLocal(store, here *counter.Counter, share float64) *local {
	l := &local{store: store, here: here, share: share, began: time.Now(), seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].keys = map[counter.Key]*localKey{}
	}
	l.carrier.init(l)
	return l
}

// on returns the ladder of a rule, which here counts on.
func (l *local) on(p *prepared, here *counter.Counter) *localLadder {
	ladder := p.Ladder
	return &localLadder{l, p.counter, here, ladder.At(0).Width, ladder.At(ladder.Len() - 1).Keep}
}

func (l *localLadder) rule(limits counter.Limits) *localRule {
	r := &localRule{localLadder: l, limits: limits, held: make([]int64, len(limits)), boundless: make(counter.Limits, len(limits))}
	for i, limit := range limits {
		r.held[i] = limit.Max - shareOf(l.local.share, limit.Max)
		r.boundless[i] = counter.Limit{Max: counter.MaxCount, Per: limit.Per}
	}
	return r
}

// shareOf is ceil(share x max). A product that floating point puts just above a
// whole number is the whole number.
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
		l.flying.end()
		err = fmt.Errorf("limiter: event %q: %w", q.event, errNotCarried)
	default:
		underWay, err = l.askInTime(ctx, v, *q, asks, until)
		if v.Allowed || v.RetryAfter != counter.Never { // else nobody has asked the store
			l.local.noteAnswer(f, err)
		}
		if err == nil {
			held := slices.ContainsFunc(asks, func(a counter.Ask) bool { return a.Held != nil })
			if !v.Allowed && held && !v.Banned && q.mode != charging && v.RetryAfter != counter.Never { // a carry under way may be counted twice
				v.RetryAfter = min(v.RetryAfter, afterFailure())
			}
			l.settle(v, f, q)
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
	if v.bannedHere(q, asks) {
		f.end()
		err = nil
	} else if v.Verdict, d.hits, err = l.local.decide(q, f, asks, underWay != nil); err == nil {
		v.lookForBans(q)
		l.beginBansHere(v, q, asks)
	}
	l.told(v, d.hits, err, q.mode == peeking)
	if underWay != nil {
		underWay <- d
	}
	return nil
}

// decide decides a call without the store: by a denial that the store gave
// before it failed, or by the local counter.
func (l *local) decide(q *question, f *flight, asks []counter.Ask, underWay bool) (v counter.Verdict, hits *localHits, err error) {
	if v, denied := recallDenial(l.store, asks, true); denied && q.mode != charging {
		f.end()
		return v, nil, nil
	}
	if q.mode == peeking {
		v, err = f.peek()
		return v, nil, err
	}
	return f.judge(underWay)
}

// settle completes a call that the store has answered.
func (l *Limiter) settle(v *Verdict, f *flight, q *question) {
	if v.At().IsZero() { // nothing was counted
		f.end()
		return
	}
	kept, here, hits, err := f.admitted(v.At())
	if kept {
		v.hits = hits
		return
	}
	stored := v.Verdict
	l.background(func() { _ = l.counter.Refund(context.Background(), &stored) }) // the caller does not wait: see loan.Context
	v.Verdict, v.Degraded = here, fmt.Errorf("limiter: event %q: %w", q.event, errSuperseded)
	l.told(v, nil, err, false)
}

// told completes a Verdict of the local counter, or of an error of the local
// counter. An error denies.
func (l *Limiter) told(v *Verdict, hits *localHits, err error, peek bool) {
	if err != nil {
		l.local.numbers.refused.Add(1)
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

// incomplete reports whether the local counter lacks hits of a key now.
func (l *local) incomplete() bool {
	return time.Since(l.began) < time.Duration(l.lackedUntil.Load())
}

// lacking is the part of the slots whose keys the local counter may lack hits of.
func (l *local) lacking() float64 {
	if !l.incomplete() {
		return 0
	}
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

// noteAnswer notes whether the store answers a call.
func (l *local) noteAnswer(f *flight, err error) {
	switch {
	case err == nil:
		if l.failure.Load() != nil {
			l.failure.Store(nil)
			for i := range f.keys {
				l.carrier.hurry(inner(f.keys[i].rule.store).ServerOf(f.keys[i].key))
			}
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

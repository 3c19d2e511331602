package fallback

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
	"github.com/abacus-go/abacus/tiers"
)

// local counts in this process for rules under Local. The local counter holds
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
// older than the judgement, by Within at most: the windows of the local counter
// reach back for as much longer.
type local struct {
	store, here *counter.Counter
	share       float64
	seed        maphash.Seed
	shards      [localShards]localShard
	carrier     carrier
	failure     atomic.Pointer[failure]
	lack        lack
	numbers     struct{ admitted, denied, refused, unmirrored, pending, carried, dropped atomic.Int64 }
}

// failure is the last failure of a store that has not answered since.
type failure struct {
	err error
	at  time.Time
}

func newLocal(store, here *counter.Counter, share float64) *local {
	l := &local{store: store, here: here, share: share, seed: maphash.MakeSeed(), lack: lack{began: time.Now()}}
	for i := range l.shards {
		l.shards[i].keys = map[counter.Key]*localKey{}
	}
	l.carrier.lanes = map[string]*lane{}
	l.carrier.ctx, l.carrier.cancel = context.WithCancel(context.Background())
	return l
}

// Ladder is the ladder of a rule, in the store and in this process.
type Ladder struct {
	local       *local
	store, here *counter.Counter
	width       time.Duration // of the finest buckets
	longest     time.Duration // Per of the longest limit that the ladder holds
}

// Rule is limits in the form that the local counter is asked for.
type Rule struct {
	*Ladder
	look      bool // asked of no hits, and not mirrored
	limits    counter.Limits
	held      []int64        // Max - ceil(Share x Max) of each limit
	boundless counter.Limits // a limit that denies nothing, for the mirror
}

// Ladder returns the ladder of a rule that counts on store, and in this process on
// here: Config.Local, or a result of With of it.
func (f *Fallback) Ladder(store, here *counter.Counter) *Ladder {
	ladder := here.Config().Ladder
	return &Ladder{f.local, store, here, ladder.At(0).Width, ladder.At(ladder.Len() - 1).Keep}
}

// bucket is the number of the finest bucket that holds at.
func (l *Ladder) bucket(at time.Time) int64 { return tiers.Index(at.UnixNano(), l.width) }

// Rule returns limits of the ladder, by which keys are counted in this process.
func (l *Ladder) Rule(limits counter.Limits) *Rule {
	r := &Rule{Ladder: l, limits: limits, held: make([]int64, len(limits))}
	r.boundless = counter.Limits{{Max: counter.MaxCount, Per: limits[0].Window()}}
	for i, limit := range limits {
		r.held[i] = limit.Max - shareOf(l.local.share, limit.Max)
	}
	return r
}

// Look returns limits under which a key is looked at in this process, and not counted.
func (l *Ladder) Look(limits counter.Limits) *Rule {
	return &Rule{Ladder: l, look: true, limits: limits}
}

// shareOf is ceil(share x max). A product that floating point puts just above a
// whole number is the whole number.
func shareOf(share float64, max int64) int64 {
	product := share * float64(max)
	if whole := math.Round(product); math.Abs(product-whole) <= 1e-9*whole {
		return int64(whole)
	}
	return int64(math.Ceil(product))
}

// Denies reports whether the limits themselves, and not a Share of them, deny n hits
// of key for now, in this process.
func (r *Rule) Denies(key counter.Key, n int64) bool {
	v, err := r.here.Peek(context.Background(), key, n, r.limits)
	return err == nil && !v.Allowed && v.RetryAfter != counter.Never
}

// counts reports whether r counts hits. The nil Rule does not.
func (r *Rule) counts() bool { return r != nil && !r.look }

// ask returns the question about key for the local counter.
func (r *Rule) ask(key counter.Key, n int64) counter.Ask {
	return counter.Ask{Key: key, N: n, Limits: r.limits, Held: r.held, On: r.here}
}

// takeLocally is Take for a call with rules that count in this process. shed is the
// error of a call that got no place in flight, or nil.
func (f *Fallback) takeLocally(ctx context.Context, c *Call, asks []counter.Ask, v *counter.Verdict, shed error) (Origin, error) {
	l, policy, err := f.local, c.Policy, shed
	h, fits := l.begin(c, asks)
	defer h.end()
	var underWay chan<- late
	if err == nil && !fits {
		f.leave()
		err = named(asks, errNotCarried)
	}
	if err != nil && policy == Open { // the store has not failed
		policy = Local
	}
	if err == nil {
		underWay, err = f.inTime(ctx, c, asks, v)
		if v.Allowed || v.RetryAfter != counter.Never { // else nobody has asked the store
			h.noteAnswer(err)
		}
	}
	switch {
	case err == nil && v.At().IsZero():
		held := slices.ContainsFunc(asks, func(a counter.Ask) bool { return a.Held != nil })
		if !v.Allowed && held && c.Mode != Charging && v.RetryAfter != counter.Never { // a carry under way may be counted twice
			v.RetryAfter = min(v.RetryAfter, AfterFailure())
		}
		return Origin{}, nil
	case err == nil:
		stored := *v
		kept, refusal := h.admitted(v)
		if kept {
			return Origin{Hits: h}, nil
		}
		f.calls.Go(func() { _ = f.store.Refund(context.Background(), &stored) }) // the caller does not wait: see loan.Context
		return l.told(c, asks, v, nil, named(asks, errSuperseded), refusal), nil
	case policy != Local || !errors.Is(err, counter.ErrStore):
		return c.byPolicy(v, underWay, err)
	}
	refusal := h.decide(c, asks, v, underWay != nil)
	if h.at.IsZero() {
		h = nil
	}
	if underWay != nil {
		underWay <- late{hits: h}
	}
	return l.told(c, asks, v, h, err, refusal), nil
}

// told is the Origin of v, a verdict of the local counter for a store that failed, or
// of an error of the local counter, which denies.
func (l *local) told(c *Call, asks []counter.Ask, v *counter.Verdict, hits *Hits, failed, refusal error) Origin {
	if refusal != nil {
		l.numbers.refused.Add(1)
		*v = counter.Verdict{RetryAfter: AfterFailure()}
		return Origin{Degraded: fmt.Errorf("%w; Config.Local: %w", failed, refusal)}
	}
	if !v.Allowed && v.RetryAfter == counter.Never && !c.exceeds(asks) {
		v.RetryAfter = AfterFailure() // above the share alone: the store, when it is back, may admit the call
	}
	switch {
	case c.Mode == Peeking:
	case v.Allowed:
		l.numbers.admitted.Add(1)
	default:
		l.numbers.denied.Add(1)
	}
	return Origin{Degraded: failed, Local: true, Hits: hits}
}

// exceeds reports whether the hits of a key alone are more than a limit of the key.
func (c *Call) exceeds(asks []counter.Ask) bool {
	for i, r := range c.Rules {
		if r.counts() && !asks[i].Charge && slices.ContainsFunc(r.limits, func(l counter.Limit) bool { return Least(&asks[i]) > l.Max }) {
			return true
		}
	}
	return false
}

// Stats are numbers of a Fallback: limiter.Stats says what they mean.
type Stats struct {
	Admitted, Denied, Refused            int64
	Unmirrored                           int64
	Lacking                              float64
	Pending, Additions, Carried, Dropped int64
	Waited, Shed                         int64
}

// Stats returns a snapshot.
func (f *Fallback) Stats() (s Stats) {
	if l := f.local; l != nil {
		n := &l.numbers
		s.Admitted, s.Denied, s.Refused = n.admitted.Load(), n.denied.Load(), n.refused.Load()
		s.Unmirrored, s.Lacking = n.unmirrored.Load(), l.lack.share()
		s.Pending, s.Additions = n.pending.Load(), l.carrier.entries.Load()
		s.Carried, s.Dropped = n.carried.Load(), n.dropped.Load()
	}
	s.Waited, s.Shed = f.waited.Load(), f.shed.Load()
	return s
}

// ErrPendingFull is found in Verdict.Degraded where hits were denied for want of room
// for additions to the store.
var ErrPendingFull = errors.New("too many hits wait to be carried to the store")

var (
	errNotCarried = fmt.Errorf("%w: it lacks hits that this process let through, which leave no room", counter.ErrStore)
	errSuperseded = fmt.Errorf("%w: it answered after this process had let other hits through, which leave no room", counter.ErrStore)
	errTooLate    = errors.New("the answer is older than the local counter reaches back")
	errIncomplete = errors.New("the local counter lacks hits of the key, since it was full")
)

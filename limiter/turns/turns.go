// Package turns answers one question: whose turn is it? It makes the calls of
// limiter.Wait wait for one another, first come first served. A call comes in with its
// keys and a function that takes the hits once, as Allow does; the answer that admits
// the call goes out, or the reason to give up.
//
// Calls with the same keys form a queue, for as long as a call is in the queue. The
// first of a queue takes; denied, it sleeps until the denial ends, and takes again.
// No other call of the queue takes meanwhile. Where an answer leaves room for more
// hits, the next calls take side by side. A queue has no goroutine: the waiting calls
// do its work.
//
// docs/decisions/queues-of-wait.md has the reasons.
package turns

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/loan"
)

// Errors of Wait.
var (
	ErrTooLong = loan.ErrTooLate                 // the turn would come after the deadline of the context
	ErrFull    = errors.New("the queue is full") // too many calls with the same keys wait
	ErrClosed  = errors.New("limiter: the Limiter is closed")
)

// Call is a call that waits for its turn.
type Call[V any] struct {
	Keys   []counter.Key  // that can deny the call, at least one
	N      int64          // hits
	Limits counter.Limits // of all Keys; only Take may change them during Wait

	// Take takes the hits of the call, once, at its turn.
	Take func(ctx context.Context) (Answer[V], error)
}

// Answer is the answer to a Take.
type Answer[V any] struct {
	Verdict    V
	Allowed    bool
	Room       int64         // of an admitted call: hits for which there is room left; math.MaxInt64: for any number
	RetryAfter time.Duration // of a denied call
}

// Queues are all queues of a limiter. New makes Queues. Many goroutines may use them
// at once.
type Queues[V any] struct {
	mu      sync.Mutex
	queues  map[string]*queue[V]
	most    int    // waiting calls of a queue
	entered uint64 // calls
	waiting int64  // calls, of all queues
	closed  bool
	closing chan struct{} // closed by Close
}

// queue has the calls with one set of keys, under the lock of Queues.
//
// Waiting calls are ordered by their entry; a call that takes is outside of the
// order, and returns to its place if denied. The last answer decides about the
// first of the order: no call may take before until, and next to other calls a call
// takes only if room has a place for the call.
type queue[V any] struct {
	name    string
	keys    []counter.Key
	waiting []*waiter[V]
	taking  int64      // hits of the calls that take
	alone   *waiter[V] // takes, and no other call has taken meanwhile
	room    int64      // hits for which there is room beside those of the calls that take
	refund  time.Time  // of the last refund of the keys; zero: none

	// Of the last denial:
	denied Answer[V]
	until  time.Time // zero: not known
	n      int64
	limits counter.Limits
}

// waiter is a call in Wait.
type waiter[V any] struct {
	*Call[V]
	deadline time.Time     // of the context; zero: none
	turn     chan struct{} // of length 1: the state of the queue has changed

	queue  *queue[V]
	number uint64 // of the entry
	takes  bool   // else the call is in queue.waiting
	taken  bool   // has a place in the queue, however long the queue is
	slept  bool
}

// refundEchoes is the time for which a denial may know nothing of a refund: of a
// call under way, or of the Counter's memory, which lasts a second.
const refundEchoes = 2 * time.Second

// New returns Queues of at most so many waiting calls each.
func New[V any](most int) *Queues[V] {
	return &Queues[V]{queues: map[string]*queue[V]{}, most: most, closing: make(chan struct{})}
}

// Wait takes the hits of the call at its turns, until they are admitted. An error is
// that of Take, the error of ctx, or one of the package, and no hits were counted. The
// Answer next to an error is the last denial of the queue, with the time until the
// queue takes again, or the zero Answer.
func (qs *Queues[V]) Wait(ctx context.Context, c *Call[V]) (Answer[V], error) {
	deadline, _ := ctx.Deadline()
	w := qs.enter(c, deadline)
	defer qs.leave(w)
	for {
		if err := qs.awaitTurn(ctx, w); err == ErrClosed {
			return qs.giveUp(w), err
		} else if err != nil {
			return qs.giveUp(w), fmt.Errorf("limiter: event %q: %w", c.Keys[0].Event, err)
		}
		answer, err := c.Take(ctx)
		if err != nil {
			return qs.giveUp(w), err
		}
		if qs.answered(w, &answer); answer.Allowed {
			return answer, nil
		}
	}
}

// Name is equal for equal sets of keys of an event, at least one.
func Name(keys []counter.Key) string {
	byFeature := func(a, b counter.Key) int { return strings.Compare(a.Feature, b.Feature) }
	name := []byte(keys[0].Event)
	for _, k := range slices.Compact(slices.SortedFunc(slices.Values(keys), byFeature)) {
		name = append(binary.AppendUvarint(append(name, 0), uint64(len(k.Feature))), k.Feature...)
	}
	return string(name)
}

// enter puts a call at the end of the queue of its keys.
func (qs *Queues[V]) enter(c *Call[V], deadline time.Time) *waiter[V] {
	name := Name(c.Keys)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.queues[name]
	if q == nil {
		q = &queue[V]{name: name, keys: c.Keys}
		qs.queues[name] = q
	}
	qs.entered++
	w := &waiter[V]{Call: c, deadline: deadline, turn: make(chan struct{}, 1), queue: q, number: qs.entered}
	q.put(w)
	return w
}

// leave removes w, and lets the next call have the place of w.
func (qs *Queues[V]) leave(w *waiter[V]) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := w.queue
	if w.takes {
		q.taking -= w.N
	} else {
		i := slices.Index(q.waiting, w)
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	if w.slept {
		qs.waiting--
	}
	if q.wake(); len(q.waiting) == 0 && q.taking == 0 {
		delete(qs.queues, q.name)
	}
}

// awaitTurn returns nil when w is to take. An error says why w gives up.
func (qs *Queues[V]) awaitTurn(ctx context.Context, w *waiter[V]) error {
	for {
		take, until, err := qs.next(w)
		if take || err != nil {
			return err
		}
		var over <-chan time.Time
		if !until.IsZero() {
			over = time.After(time.Until(until))
		}
		select {
		case <-w.turn:
		case <-over:
		case <-qs.closing:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// next is the next step of w: to take, to give up, or to sleep, until the time
// given if that is not zero.
func (qs *Queues[V]) next(w *waiter[V]) (take bool, until time.Time, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := w.queue
	first := q.waiting[0] == w
	early := first && w.N >= q.n && slices.Equal(w.Limits, q.limits) && time.Now().Before(q.until)
	switch {
	case qs.closed:
		return false, until, ErrClosed
	case (early || !first) && w.deadlineBefore(q.until):
		return false, until, ErrTooLong
	case first && !early && (q.taking == 0 || w.N <= q.room):
		if q.alone = nil; q.taking == 0 {
			q.alone = w
		}
		w.takes, w.taken = true, true
		q.waiting, q.taking, q.room = q.waiting[1:], q.taking+w.N, q.room-w.N
		q.wake()
		return true, until, nil
	case !w.taken && !w.slept && len(q.waiting) > qs.most:
		return false, until, ErrFull
	case early:
		until = q.until
	}
	if !w.slept {
		w.slept = true
		qs.waiting++
	}
	return false, until, nil
}

// answered notes the answer to w. A denied w returns to its place.
func (qs *Queues[V]) answered(w *waiter[V], answer *Answer[V]) {
	now := time.Now()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := w.queue
	if answer.Allowed { // w leaves
		if q.until = (time.Time{}); q.alone == w || answer.Room == math.MaxInt64 {
			q.room = answer.Room
		} else { // the answer may lack hits of calls that were answered first
			q.room = min(q.room, answer.Room)
		}
		return
	}
	retryAfter := answer.RetryAfter
	if now.Sub(q.refund) < refundEchoes {
		retryAfter = min(retryAfter, refundEchoes/2)
	}
	q.denied, q.until, q.n, q.limits = *answer, w.rest(now, retryAfter), w.N, w.Limits
	w.takes, q.taking, q.room = false, q.taking-w.N, 0
	q.put(w)
	for _, other := range q.waiting[1:] {
		if other.deadlineBefore(q.until) {
			other.look()
		}
	}
	q.wake()
}

// rest is the end of a sleep of retryAfter and up to 3 % more. A deadline soon
// after retryAfter makes the random part smaller, and leaves time to take.
func (w *waiter[V]) rest(now time.Time, retryAfter time.Duration) time.Time {
	until, jitter := now.Add(retryAfter), retryAfter*3/100
	if !w.deadline.IsZero() {
		jitter = max(0, min(jitter, w.deadline.Sub(until)/2))
	}
	return until.Add(rand.N(jitter + 1))
}

// giveUp returns the answer to w, a call that was not admitted. A call that gives up
// during a Take may have hits in the store, and gives the hits back.
func (qs *Queues[V]) giveUp(w *waiter[V]) Answer[V] {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.takes {
		w.queue.refund = time.Now()
	}
	answer := w.queue.denied
	answer.RetryAfter = max(0, time.Until(w.queue.until))
	return answer
}

// Refunded lets the first call of the queue with these keys take at once. keys is
// called only if a call is in a queue.
func (qs *Queues[V]) Refunded(keys func() []counter.Key) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if len(qs.queues) == 0 {
		return
	}
	if of := keys(); len(of) > 0 {
		if q := qs.queues[Name(of)]; q != nil {
			q.freed()
		}
	}
}

// Freed lets the first call take at once, in every queue with a key for which is
// reports true.
func (qs *Queues[V]) Freed(is func(counter.Key) bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.queues {
		if slices.ContainsFunc(q.keys, is) {
			q.freed()
		}
	}
}

// Waiting returns the number of calls that wait now, and of all queues.
func (qs *Queues[V]) Waiting() (calls int64, queues int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.waiting, len(qs.queues)
}

// Close ends all waiting calls, with ErrClosed.
func (qs *Queues[V]) Close() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if !qs.closed {
		qs.closed = true
		close(qs.closing)
	}
}

// freed lets the first call take at once.
func (q *queue[V]) freed() {
	q.until, q.refund = time.Time{}, time.Now()
	q.wake()
}

// put puts w in its place.
func (q *queue[V]) put(w *waiter[V]) {
	i, _ := slices.BinarySearchFunc(q.waiting, w.number, func(other *waiter[V], number uint64) int {
		return cmp.Compare(other.number, number)
	})
	q.waiting = slices.Insert(q.waiting, i, w)
}

// wake has the first of the queue look at the queue.
func (q *queue[V]) wake() {
	if len(q.waiting) > 0 {
		q.waiting[0].look()
	}
}

func (w *waiter[V]) deadlineBefore(t time.Time) bool {
	return !w.deadline.IsZero() && w.deadline.Before(t)
}

func (w *waiter[V]) look() {
	select {
	case w.turn <- struct{}{}:
	default: // w will look anyway
	}
}

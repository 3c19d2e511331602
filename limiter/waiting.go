package limiter

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// waits are the queues of calls of Wait, one for each set of keys, for as long
// as a call is in the queue.
type waits struct {
	mu      sync.Mutex
	queues  map[string]*waitQueue
	most    int    // waiting calls of a queue
	entered uint64 // calls
	waiting int64  // calls, of all queues
	closed  bool
	closing chan struct{} // closed by close
}

// waitQueue is the queue of the calls of Wait with one set of keys, under the
// lock of waits.
//
// Waiting calls are ordered by their entry; a call that asks is outside of the
// order, and returns to its place if denied. The last answer decides about the
// first of the order: no call may ask before until, and beside other calls a call
// asks only if room has a place for the call.
type waitQueue struct {
	name    string
	keys    []counter.Key
	waiting []*waiter
	asking  int64          // hits of the calls that ask
	alone   *waiter        // asks, and no other call has asked meanwhile
	room    int64          // hits for which there is room beside those that are asked for
	until   time.Time      // of the last denial; zero: not known
	n       int64          // hits of the last denial
	limits  counter.Limits // of the last denial
	denied  Verdict        // the last denial
	refund  time.Time      // of the last refund of the keys; zero: none
}

// waiter is a call of Wait.
type waiter struct {
	n        int64
	limits   counter.Limits // of all keys; read and changed by the call alone
	deadline time.Time      // of the context; zero: none
	turn     chan struct{}  // of length 1: the state of the queue has changed

	queue  *waitQueue
	number uint64 // of the entry
	asks   bool   // else the call is in queue.waiting
	asked  bool   // has a place in the queue, however long the queue is
	slept  bool
	took   time.Duration // of the last question to the store
}

// refundEchoes is the time for which a denial may know nothing of a refund: of a
// call under way, or of the Counter's memory, which lasts a second.
const refundEchoes = 2 * time.Second

func (ws *waits) init(most int) {
	ws.queues, ws.most, ws.closing = map[string]*waitQueue{}, most, make(chan struct{})
}

// nameOf is the name of the queue of a set of keys, which nameOf sorts.
func nameOf(keys []counter.Key) string {
	slices.SortFunc(keys, func(a, b counter.Key) int { return strings.Compare(a.Feature, b.Feature) })
	name := []byte(keys[0].Event)
	for _, k := range slices.Compact(keys) {
		name = append(binary.AppendUvarint(append(name, 0), uint64(len(k.Feature))), k.Feature...)
	}
	return string(name)
}

// waitKeys are the keys whose limits can deny a call.
func waitKeys(asks []counter.Ask) (keys []counter.Key) {
	for i := range asks {
		if ask := &asks[i]; !ask.Soft && !countsOnly(ask) && !strings.HasPrefix(ask.Key.Feature, banPrefix) {
			keys = append(keys, ask.Key)
		}
	}
	return keys
}

// limitsOf are the limits of a call.
func limitsOf(asks []counter.Ask) (limits counter.Limits) {
	for i := range asks {
		limits = append(limits, asks[i].Limits...)
	}
	return limits
}

// enter puts w at the end of the queue of its keys.
func (ws *waits) enter(w *waiter, asks []counter.Ask) {
	keys := waitKeys(asks)
	name := nameOf(keys)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.queue = ws.queues[name]
	if w.queue == nil {
		w.queue = &waitQueue{name: name, keys: keys}
		ws.queues[name] = w.queue
	}
	ws.entered++
	w.number = ws.entered
	w.queue.put(w)
}

// leave removes w, and lets the next call have the place of w.
func (ws *waits) leave(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := w.queue
	if w.asks {
		q.asking -= w.n
	} else {
		i := slices.Index(q.waiting, w)
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	if w.slept {
		ws.waiting--
	}
	if q.wake(); len(q.waiting) == 0 && q.asking == 0 {
		delete(ws.queues, q.name)
	}
}

// turn returns nil when w is to ask. An error tells why w gives up.
func (ws *waits) turn(ctx context.Context, w *waiter) error {
	for {
		ask, until, err := ws.next(w)
		if ask || err != nil {
			return err
		}
		if err := ws.sleep(ctx, w, until); err != nil {
			return err
		}
	}
}

// next is the next step of w: to ask, to give up, or to sleep, until the time
// given if that is not zero.
func (ws *waits) next(w *waiter) (ask bool, until time.Time, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := w.queue
	first := q.waiting[0] == w
	early := first && w.n >= q.n && slices.Equal(w.limits, q.limits) && time.Now().Before(q.until)
	switch {
	case ws.closed:
		return false, until, ErrClosed
	case (early || !first) && !w.deadline.IsZero() && w.deadline.Before(q.until):
		return false, until, ErrWaitTooLong
	case first && !early && (q.asking == 0 || w.n <= q.room):
		if q.alone = nil; q.asking == 0 {
			q.alone = w
		}
		w.asks, w.asked, q.waiting, q.asking, q.room = true, true, q.waiting[1:], q.asking+w.n, q.room-w.n
		q.wake()
		return true, until, nil
	case !w.asked && !w.slept && len(q.waiting) > ws.most:
		return false, until, ErrQueueFull
	case early:
		until = q.until
	}
	if !w.slept {
		w.slept = true
		ws.waiting++
	}
	return false, until, nil
}

// sleep returns nil when w is to look again.
func (ws *waits) sleep(ctx context.Context, w *waiter, until time.Time) error {
	var over <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-w.turn:
	case <-over:
	case <-ws.closing:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// answered notes the answer to w. A denied w returns to its place.
func (ws *waits) answered(w *waiter, v *Verdict) {
	now := time.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := w.queue
	if v.Allowed { // w leaves
		q.until = time.Time{}
		switch {
		case v.free || v.Outcome() == OutcomeFailedOpen:
			q.room = math.MaxInt64
		case q.alone == w:
			q.room = v.Remaining
		default: // Remaining may lack hits of calls that were answered first
			q.room = min(q.room, v.Remaining)
		}
		return
	}
	retryAfter := v.RetryAfter
	if now.Sub(q.refund) < refundEchoes {
		retryAfter = min(retryAfter, refundEchoes/2)
	}
	q.room, q.until, q.n, q.limits, q.denied = 0, w.rest(now, retryAfter), w.n, w.limits, *v
	w.asks, q.asking = false, q.asking-w.n
	q.put(w)
	for _, other := range q.waiting[1:] {
		if !other.deadline.IsZero() && other.deadline.Before(q.until) {
			other.look()
		}
	}
	q.wake()
}

// rest is the end of a sleep of retryAfter and up to 3 % more. A deadline soon
// after retryAfter makes the random part smaller, and leaves time to ask.
func (w *waiter) rest(now time.Time, retryAfter time.Duration) time.Time {
	until, jitter := now.Add(retryAfter), retryAfter*3/100
	if !w.deadline.IsZero() {
		jitter = max(0, min(jitter, w.deadline.Sub(until)/2))
	}
	return until.Add(rand.N(jitter + 1))
}

// giveUp returns the answer to w, a call that was not admitted: the last denial
// of the queue, or the zero Verdict. A call that gives up during a question may
// have hits in the store, and gives the hits back.
func (ws *waits) giveUp(w *waiter) Verdict {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.asks {
		w.queue.refund = time.Now()
	}
	v := w.queue.denied
	v.RetryAfter = max(0, time.Until(w.queue.until))
	return v
}

// refunded lets the first call with the keys of v ask at once.
func (ws *waits) refunded(v *Verdict) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !v.Allowed || len(ws.queues) == 0 {
		return
	}
	var keys []counter.Key
	for _, s := range v.All() {
		keys = append(keys, s.Key)
	}
	if len(keys) == 0 {
		return
	}
	if q := ws.queues[nameOf(keys)]; q != nil {
		q.refunded()
	}
}

// forgotten lets the first call with any of the keys ask at once.
func (ws *waits) forgotten(keys []ruleKey) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, q := range ws.queues {
		if slices.ContainsFunc(keys, func(k ruleKey) bool { return slices.Contains(q.keys, k.key) }) {
			q.refunded()
		}
	}
}

// replaced lets the first call of each queue ask at once.
func (ws *waits) replaced() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, q := range ws.queues {
		q.refunded()
	}
}

// refunded lets the first call ask at once.
func (q *waitQueue) refunded() {
	q.until, q.refund = time.Time{}, time.Now()
	q.wake()
}

// close ends all waiting calls.
func (ws *waits) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !ws.closed {
		ws.closed = true
		close(ws.closing)
	}
}

// put puts w in its place.
func (q *waitQueue) put(w *waiter) {
	i, _ := slices.BinarySearchFunc(q.waiting, w.number, func(other *waiter, number uint64) int {
		return cmp.Compare(other.number, number)
	})
	q.waiting = slices.Insert(q.waiting, i, w)
}

// wake has the first of the queue look at the queue.
func (q *waitQueue) wake() {
	if len(q.waiting) > 0 {
		q.waiting[0].look()
	}
}

func (w *waiter) look() {
	select {
	case w.turn <- struct{}{}:
	default: // w will look anyway
	}
}

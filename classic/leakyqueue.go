package classic

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// LeakyQueue is the leaky bucket as a queue: requests leave in the order of
// their arrival, Per/Max apart. [LeakyQueue.Wait] gives a request a slot in the
// schedule and returns at the slot's time; a request that would wait for longer
// than length hits take is denied. [LeakyQueue.Take] never waits: a request
// that may leave now is admitted, and any other is denied and gets no slot.
//
// The state is a schedule, the next free slot, in a single value; a caller
// waits by a timer of his own call. So the limiter owns no goroutine and no
// timer, and a queue serves all processes on a Redis: requests arrive in the
// order in which the server hears of them.
//
// Guarantee: slots are Per/Max apart, so in a true window of length Per at most
// Max + 1 requests leave, both ends included. A request of n hits leaves at
// once and moves the next slot n times as far: at most Max + n leave then,
// 2*Max if n is Max. Instants are instants of the schedule; a process that is
// late leaves late, perhaps just before the next request.
//
// Cost: 1 read, and with a slot 1 write; 1 round trip, 1 script, and as much
// again to give a slot back. A state of some 120 bytes a key.
//
// A caller whose context ends during the wait gives back the last slot of the
// queue. Any other slot stays empty: the callers behind know the times of their
// slots, nobody moves up, and a departure is lost. If the store fails at that
// moment, the slot stays empty too. A caller whose clock is behind waits for
// longer.
//
// In the Verdict of Wait, Remaining is the number of further single hits with a
// slot, in the Verdict of Take the number that may leave now; ResetAfter is the
// time until the queue is empty; both as of the moment of the decision.
//
// Source: the leaky bucket of traffic shaping, a finite queue that is served at
// a constant rate, as in A. S. Tanenbaum's Computer Networks. The schedule is
// the schedule of [GCRA].
//
// Prefer LeakyQueue before a service that must not get bursts, such as a
// partner's API, where callers can wait.
type LeakyQueue struct {
	engine[moment]
	longest moment // the longest wait
}

// NewLeakyQueue makes a LeakyQueue from which limit.Max hits leave in
// limit.Per, and in which length hits may wait; with a length of 0 nobody
// waits. An error names the value that is out of bounds: also a Max of 0 or of
// more than one a microsecond, and a length that takes more than 366 days.
func NewLeakyQueue(limit counter.Limit, length int64, store *Store) (*LeakyQueue, error) {
	if err := checkRate(limit, "length", length, store); err != nil {
		return nil, err
	}
	if limit.Max > micros(limit.Per) {
		return nil, fmt.Errorf("classic: limit %s: Max is %d, want at most %d, one hit a microsecond", limit, limit.Max, micros(limit.Per))
	}
	l := &LeakyQueue{longest: rateOf(limit).time(length)}
	// The wait for the last slot, and the time of a request of Max hits in that
	// slot.
	life := l.longest.ceil() + micros(limit.Per)
	l.start("leaky-queue", limit, store, limit.Max, life, &leakyQueue{e: &l.engine, rate: rateOf(limit)})
	return l, nil
}

var _ Measured = (*LeakyQueue)(nil)

// Wait takes a slot in the queue for n hits of key and returns at the time of
// the slot. If the queue is full, Wait denies at once, with the time until
// there will be a slot as RetryAfter. If ctx would end before the slot's time,
// no slot is taken, and the error is [context.DeadlineExceeded]. Other errors
// are the errors of [Limiter].
//
// Wait sleeps real time, so Config.Now should be a clock that runs with real
// time.
func (q *LeakyQueue) Wait(ctx context.Context, key counter.Key, n int64) (counter.Verdict, error) {
	c := call{n: n, patience: q.longest}
	if deadline, is := ctx.Deadline(); is {
		// A slot at the very deadline would leave the outcome to chance.
		if left := (moment{max(0, micros(time.Until(deadline))-1), 0}); q.longest.after(left) {
			c.hurry = &left
		}
	}
	v, err := q.take(ctx, key, &c)
	if err != nil {
		return counter.Verdict{}, err
	}
	slot := moment{c.facts[0], c.facts[1]}
	if !v.Allowed {
		if c.hurry != nil && n <= q.most && !slot.after(moment{c.now + q.longest.us, q.longest.part}) {
			return counter.Verdict{}, q.wrong(key, fmt.Errorf("the wait would be longer: %w", context.DeadlineExceeded))
		}
		return v, nil
	}
	timer := time.NewTimer(duration(slot.ceil()-c.now) - time.Since(c.stamped))
	defer timer.Stop()
	select {
	case <-timer.C:
		return v, nil
	case <-ctx.Done():
		q.leave(ctx, key, &c)
		return counter.Verdict{}, q.wrong(key, ctx.Err())
	}
}

// leave gives back the slot of c, if the slot is the last.
func (q *LeakyQueue) leave(ctx context.Context, key counter.Key, c *call) {
	name := q.base(key)
	slot, next := moment{c.facts[0], c.facts[1]}, moment{c.facts[2], c.facts[3]}
	var cost call
	if q.table != nil {
		q.table.edit(name, func(s *moment) {
			cost.reads++
			if *s == next {
				*s = slot
				cost.writes++
			}
		})
	} else {
		_ = q.store.remote.run(context.WithoutCancel(ctx), leakyQueueLeaveScript, name, &cost,
			slot.us, slot.part, next.us, next.part, q.ttlMillis())
	}
	q.spend(&cost)
}

//go:embed leakyqueue.lua
var leakyQueueLua string

//go:embed leakyqueue_leave.lua
var leakyQueueLeaveLua string

var (
	leakyQueueScript      = newScript(leakyQueueLua)
	leakyQueueLeaveScript = newScript(leakyQueueLeaveLua)
)

// leakyQueue is the rule. A state is the next free departure.
type leakyQueue struct {
	e *engine[moment]
	rate
	single[moment]
}

var _ rule[moment] = (*leakyQueue)(nil)

// patience is the longest wait of c; below zero if c must not be admitted.
func (r *leakyQueue) patience(c *call) moment {
	switch {
	case c.n > r.e.most:
		return moment{-1, 0}
	case c.hurry != nil:
		return *c.hurry
	}
	return c.patience
}

func (r *leakyQueue) step(s *moment, known bool, c *call) {
	c.reads++
	slot := moment{c.now, 0}
	if known {
		slot = r.later(c.now, s.us, s.part)
	}
	c.facts[0], c.facts[1] = slot.us, slot.part
	if c.allowed = !slot.after(r.add(moment{c.now, 0}, r.patience(c))); c.allowed {
		*s = r.add(slot, r.time(c.n))
		c.facts[2], c.facts[3] = s.us, s.part
		c.writes++
	}
}

func (r *leakyQueue) remote(ctx context.Context, to *remote, name string, c *call) error {
	cost, patience := r.time(c.n), r.patience(c)
	return to.run(ctx, leakyQueueScript, name, c, c.now, cost.us, cost.part, patience.us, patience.part, r.max, r.e.ttlMillis())
}

func (r *leakyQueue) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	next := moment{c.facts[0], c.facts[1]}
	if c.allowed {
		next = moment{c.facts[2], c.facts[3]}
	}
	ahead := r.sub(next, moment{c.now, 0})
	free := r.sub(c.patience, ahead)
	if free.us >= 0 {
		remaining = r.hits(free) + 1
	}
	return remaining, r.sub(ahead, c.patience).ceil(), ahead.ceil()
}

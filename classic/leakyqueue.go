package classic

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// LeakyQueue is the leaky bucket as a queue: requests leave one after the other,
// Per/Max apart, in the order in which they came. [LeakyQueue.Wait] gives a
// request its place and returns when it may leave; who would have to wait for
// longer than length hits take is refused. [LeakyQueue.Take] never waits: it
// admits who may leave now, and gives nobody else a place.
//
// What is kept is a schedule, the next free departure, in one value; who waits,
// waits by a timer of his own call. So the limiter owns no goroutine and no
// timer, and one queue serves all processes on a Redis: first come, first served
// is the order in which the server heard of them.
//
// Guarantee: departures are Per/Max apart, so in a true window of length Per at
// most Max + 1 requests leave, both ends included. A request of n hits leaves as
// one and holds up the next for n times as long: at most Max + n leave then, 2*Max
// if n is Max. Instants are those of the schedule; a process that is late leaves
// late, perhaps just before the next one.
//
// Cost: one read, and if it has a place one write; one round trip, one script, and
// the same once more to give a place back. One state of some 120 bytes a key.
//
// A place is given back when the context ends while its owner waits, if it is the
// last one in the queue. Otherwise it stays empty: those behind have been told
// when they leave, nobody moves up, and a departure is lost. If the store fails at
// that moment, the place stays empty too. A caller whose clock is behind waits for
// longer.
//
// Of a Verdict, Remaining is how many single hits more would get a place, or may
// leave now if it was Take; ResetAfter is when the queue is empty; both as they
// were when the place was given.
//
// Source: the leaky bucket of traffic shaping, a finite queue that is served at a
// constant rate, as in A. S. Tanenbaum's Computer Networks. The schedule is that
// of [GCRA].
//
// Prefer it towards something that must not be hit in bursts, such as a partner's
// API, where the one who asks can wait.
type LeakyQueue struct {
	engine[moment]
	longest moment // that anybody waits
}

// NewLeakyQueue makes a LeakyQueue from which limit.Max hits leave in limit.Per,
// and in which length of them may wait; with a length of 0 nobody waits. The error
// names what is out of bounds: also a Max of 0 or of more than one a microsecond,
// and a length that takes more than 366 days.
func NewLeakyQueue(limit counter.Limit, length int64, store *Store) (*LeakyQueue, error) {
	if err := checkRate(limit, "length", length, store); err != nil {
		return nil, err
	}
	if limit.Max > micros(limit.Per) {
		return nil, fmt.Errorf("classic: limit %s: Max is %d, want at most %d, one hit a microsecond", limit, limit.Max, micros(limit.Per))
	}
	l := &LeakyQueue{longest: rateOf(limit).time(length)}
	// The last place, and what a request of Max that leaves then holds up.
	life := l.longest.ceil() + micros(limit.Per)
	l.start("leaky-queue", limit, store, limit.Max, life, &leakyQueue{e: &l.engine, rate: rateOf(limit)})
	return l, nil
}

var _ Measured = (*LeakyQueue)(nil)

// Wait takes a place in the queue for n hits of key and returns when they may
// leave, or at once if the queue is full: a denial, whose RetryAfter is when there
// will be a place. Where ctx would end by the place's turn, none is taken, and the
// error is [context.DeadlineExceeded]. What else is an error says [Limiter].
//
// Wait sleeps real time, so Config.Now should be a clock that runs with it.
func (q *LeakyQueue) Wait(ctx context.Context, key counter.Key, n int64) (counter.Verdict, error) {
	c := call{n: n, patience: q.longest}
	if deadline, is := ctx.Deadline(); is {
		// If its turn and its end came together, chance would decide.
		if left := (moment{max(0, micros(time.Until(deadline))-1), 0}); q.longest.after(left) {
			c.hurry = &left
		}
	}
	v, err := q.take(ctx, key, &c)
	if err != nil {
		return counter.Verdict{}, err
	}
	place := moment{c.facts[0], c.facts[1]}
	if !v.Allowed {
		if c.hurry != nil && n <= q.most && !place.after(moment{c.now + q.longest.us, q.longest.part}) {
			return counter.Verdict{}, q.wrong(key, fmt.Errorf("the wait would be longer: %w", context.DeadlineExceeded))
		}
		return v, nil
	}
	timer := time.NewTimer(duration(place.ceil()-c.now) - time.Since(c.stamped))
	defer timer.Stop()
	select {
	case <-timer.C:
		return v, nil
	case <-ctx.Done():
		q.leave(ctx, key, &c)
		return counter.Verdict{}, q.wrong(key, ctx.Err())
	}
}

// leave gives back the place that c has got, if it is the last one.
func (q *LeakyQueue) leave(ctx context.Context, key counter.Key, c *call) {
	name := q.base(key)
	place, next := moment{c.facts[0], c.facts[1]}, moment{c.facts[2], c.facts[3]}
	var cost call
	if q.table != nil {
		q.table.edit(name, func(s *moment) {
			cost.reads++
			if *s == next {
				*s = place
				cost.writes++
			}
		})
	} else {
		_ = q.store.remote.run(context.WithoutCancel(ctx), leakyQueueLeaveScript, name, &cost,
			place.us, place.part, next.us, next.part, q.ttlMillis())
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

// patience is how long c waits at most; below zero if it must not be admitted.
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
	place := moment{c.now, 0}
	if known {
		place = r.later(c.now, s.us, s.part)
	}
	c.facts[0], c.facts[1] = place.us, place.part
	if c.allowed = !place.after(r.add(moment{c.now, 0}, r.patience(c))); c.allowed {
		*s = r.add(place, r.time(c.n))
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
	room := r.sub(c.patience, ahead)
	if room.us >= 0 {
		remaining = r.hits(room) + 1
	}
	return remaining, r.sub(ahead, c.patience).ceil(), ahead.ceil()
}

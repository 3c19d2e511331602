package limiter

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// carrier adds pending hits to the store, in the buckets of their labels. A carry
// without an answer is sent again: the store may then count the hits twice, and
// never counts less than was let through. Hits without a bucket in the store are
// dropped, since any other label would be wrong.
//
// A key that failed waits longer each time. While no carry is answered the
// carrier sends a few carries a second; a store that is back gets a carry in a
// millisecond from each process, at random moments. The carrier has a goroutine
// while there are pending hits.
type carrier struct {
	local   *local
	entries atomic.Int64 // pendingHits of all keys
	most    int64

	mu      sync.Mutex
	queue   dueQueue
	running bool
	hasty   bool // nobody waits for a turn of the pace any more, but for the process to end
	closed  bool
	sending int
	failed  int // carries in a row
	next    time.Time
	wake    chan struct{}
	ctx     context.Context // done when closed
	cancel  context.CancelFunc
	all     sync.WaitGroup
}

// MaxAdditions bounds [Stats].Additions, at some 300 bytes each. Beyond, no hits of
// a key are admitted locally, unless the local counter has a hit of the key that
// the store has admitted: the additions of such keys are bounded by the buckets
// that the local counter has for them.
const MaxAdditions = 1 << 16

const (
	carryPace                 = time.Millisecond // mean time between carries
	carryWidth                = 8                // carries under way
	firstBackOff, lastBackOff = 100 * time.Millisecond, 2 * time.Second
	failuresInARow            = 3 // before the carrier slows down: of several servers one may be down
)

func (c *carrier) init(l *local) {
	c.local, c.most, c.wake = l, MaxAdditions, make(chan struct{}, 1)
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

// full tells whether there is no room for pending hits of so many keys.
func (c *carrier) full(keys int) bool { return c.entries.Load()+int64(keys) > c.most }

// put has the hits of k carried after a while. The caller holds the lock of k.
func (c *carrier) put(k *localKey, after time.Duration) {
	if k.queued {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	k.queued, k.due = true, time.Now().Add(after)
	heap.Push(&c.queue, k)
	if !c.running {
		c.running = true
		c.all.Go(c.run)
	}
	c.signal()
}

// remove takes k out of the queue. The caller holds the lock of k.
func (c *carrier) remove(k *localKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.queue, k); i >= 0 {
		heap.Remove(&c.queue, i)
		k.queued = false
	}
}

// hurry ends the waiting for a store that has answered another call.
func (c *carrier) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed > 0 {
		c.failed, c.next = 0, time.Time{}
		c.signal()
	}
}

func (c *carrier) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run sends until there is nothing to carry.
func (c *carrier) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		k, wait, more := c.take()
		switch {
		case !more:
			return
		case k != nil:
			c.all.Go(func() { c.carry(k) })
		case wait > 0:
			timer.Reset(wait)
			fallthrough
		default:
			select {
			case <-timer.C:
			case <-c.wake:
			case <-c.ctx.Done():
			}
		}
	}
}

// take returns the next key to send, or the time to wait for the key; zero: for
// an answer.
func (c *carrier) take() (k *localKey, wait time.Duration, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.queue) == 0 && c.sending == 0 {
		c.running = false
		return nil, 0, false
	}
	width := carryWidth
	if c.failed >= failuresInARow {
		width = 1
	}
	if len(c.queue) == 0 || c.sending >= width {
		return nil, 0, true
	}
	now := time.Now()
	if wait = max(c.queue[0].due.Sub(now), c.next.Sub(now)); wait > 0 {
		return nil, wait, true
	}
	c.sending++
	if !c.hasty {
		c.next = now.Add(rand.N(2 * carryPace))
	}
	if c.failed >= failuresInARow {
		c.next = now.Add(backOff(c.failed - failuresInARow))
	}
	return heap.Pop(&c.queue).(*localKey), 0, true
}

// backOff is a random time around firstBackOff, doubled each time, up to
// lastBackOff.
func backOff(times int) time.Duration {
	d := min(firstBackOff<<min(times, 10), lastBackOff)
	return d/2 + rand.N(d)
}

// carry sends the oldest hits of k that can be carried.
func (c *carrier) carry(k *localKey) {
	l := c.local
	s := l.shard(l.hash(k.key))
	s.mu.Lock()
	p := k.sendable()
	var n int64
	var at time.Time
	store := k.store
	if p != nil {
		p.sending = p.n
		n, at = p.n, p.at
	}
	s.mu.Unlock()
	var err error
	if p != nil {
		err = store.AddAt(c.ctx, k.key, n, at)
	}
	gone := err == nil || errors.Is(err, counter.ErrTooOld)

	s.mu.Lock()
	k.queued = false
	var refunded int64
	switch {
	case p == nil:
	case gone:
		refunded = p.refunded
		p.n -= n
		l.numbers.pending.Add(-n)
		if err == nil {
			l.numbers.carried.Add(n)
		} else {
			l.numbers.dropped.Add(n)
		}
		k.tries = 0
	default:
		p.n -= p.refunded
		l.numbers.pending.Add(-p.refunded)
		k.tries++
	}
	if p != nil {
		p.sending, p.refunded = 0, 0
		l.tidy(s, k, p)
	}
	c.answered(p != nil, gone)
	if k.answered != nil {
		close(k.answered)
		k.answered = nil
	}
	if k.sendable() != nil {
		after := time.Duration(0)
		if !gone {
			after = backOff(k.tries - 1)
		}
		c.put(k, after)
	} else {
		s.drop(k)
	}
	s.mu.Unlock()
	if refunded > 0 && err == nil {
		_ = store.RefundAt(c.ctx, k.key, refunded, at) // what is not given back stays until it ages out
	}
}

// sendable returns the oldest hits that no call under way may yet count; nil if
// there are none.
func (k *localKey) sendable() *pendingHits {
	for _, p := range k.pending {
		if p.held == 0 && p.n > 0 {
			return p
		}
	}
	return nil
}

// answered notes the end of a carry.
func (c *carrier) answered(asked, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending--
	switch {
	case !asked:
	case ok:
		if c.failed > 0 { // next is the pace of a store that fails
			c.failed, c.next = 0, time.Time{}
		}
	default:
		c.failed++
	}
	c.signal()
}

// hasten ends the pace and the waiting, for a limiter that closes.
func (c *carrier) hasten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasty, c.failed, c.next = true, 0, time.Time{}
	for _, k := range c.queue { // all equal: still a heap
		k.due = time.Time{}
	}
	c.signal()
}

// close stops the carrier.
func (c *carrier) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
}

// dueQueue is a heap of keys by localKey.due.
type dueQueue []*localKey

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q dueQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *dueQueue) Push(k any)        { *q = append(*q, k.(*localKey)) }
func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	k := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return k
}

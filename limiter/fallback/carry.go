package fallback

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/tiers"
)

// carrier adds pending hits to the store, in the buckets of their labels. A carry
// without an answer is sent again, once the store answers a read: the store may
// then count the hits twice, and never counts less than was let through. Hits
// without a bucket in the store are dropped, since any other label would be wrong.
//
// Each server has a lane, so that a server that is away holds up no other. A lane has
// goroutines while there are hits to carry to its server. A key that failed goes to the
// end of the lane. While no carry of a lane is answered the carrier sends a few of its
// carries a second; a server that is back gets a carry in a millisecond from each
// process, at random moments.
type carrier struct {
	entries atomic.Int64 // pendingHits of all keys

	mu     sync.Mutex
	lanes  map[string]*lane // by server
	hasty  bool             // nobody waits for a turn of the pace any more, but for the process to end
	ctx    context.Context  // done when closed
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// lane carries to a server, under the lock of the carrier.
type lane struct {
	queue   []*localKey
	workers int
	failed  int // carries in a row
	next    time.Time
	wake    chan struct{} // ends a wait for next
}

// MaxAdditions bounds Stats.Additions, at some 300 bytes each. Beyond, no hits of
// a key are admitted locally, unless the local counter has a hit of the key that
// the store has admitted: the additions of such keys are bounded by the buckets
// that the local counter has for them.
const MaxAdditions = 1 << 16

const (
	carryPace                 = time.Millisecond // mean time between carries of a lane
	carryWidth                = 8                // carries under way in a lane
	firstBackOff, lastBackOff = 100 * time.Millisecond, 2 * time.Second
	failuresInARow            = 3 // before a lane slows down
)

// full reports whether there is no room for pending hits of so many keys.
func (c *carrier) full(keys int) bool { return c.entries.Load()+int64(keys) > MaxAdditions }

// put has the hits of k carried. The caller holds the lock of k.
func (c *carrier) put(k *localKey) {
	if k.queued || c.ctx.Err() != nil {
		return
	}
	k.queued = true
	server := inner(k.store).ServerOf(k.key)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[server]
	if l == nil {
		l = &lane{wake: make(chan struct{}, 1)}
		c.lanes[server] = l
	}
	l.queue = append(l.queue, k)
	c.staff(l)
}

// staff has another worker carry, if there is work.
func (c *carrier) staff(l *lane) {
	if l.workers < l.width() && len(l.queue) > 0 {
		l.workers++
		c.all.Go(func() {
			for k := c.take(l); k != nil; k = c.take(l) {
				c.carry(k, l)
			}
		})
	}
}

func (l *lane) width() int {
	if l.failed < failuresInARow {
		return carryWidth
	}
	return 1
}

// take waits for the turn of the next key, and returns nil to end the worker.
func (c *carrier) take(l *lane) (k *localKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if len(l.queue) == 0 || l.workers > l.width() || c.ctx.Err() != nil {
			l.workers--
			return nil
		}
		now := time.Now()
		if wait := l.next.Sub(now); wait > 0 {
			c.mu.Unlock()
			select {
			case <-time.After(wait):
			case <-l.wake:
			case <-c.ctx.Done():
			}
			c.mu.Lock()
			continue
		}
		switch {
		case l.failed >= failuresInARow:
			l.next = now.Add(backOff(l.failed - failuresInARow))
		case !c.hasty:
			l.next = now.Add(rand.N(2 * carryPace))
		}
		k, l.queue = l.queue[0], l.queue[1:]
		c.staff(l)
		return k
	}
}

// backOff is a random time around firstBackOff, doubled each time, up to
// lastBackOff.
func backOff(times int) time.Duration {
	d := min(firstBackOff<<min(times, 10), lastBackOff)
	return d/2 + rand.N(d)
}

// hurry ends the waiting of a lane: the server answers, or is to be asked at once.
func (l *lane) hurry() {
	if l == nil || l.failed == 0 { // next is the pace of a server that is well
		return
	}
	l.failed, l.next = 0, time.Time{}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// answered notes that the server of a key has answered another call.
func (c *carrier) answered(k *callKey) {
	server := inner(k.rule.store).ServerOf(k.key)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lanes[server].hurry()
}

// carry sends the oldest hits of k that can be carried.
func (c *carrier) carry(k *localKey, l *lane) {
	s := k.shard()
	s.mu.Lock()
	p, gone := k.sendable(), false
	if p != nil { // else there is nothing left
		gone = k.send(c, p)
	}
	k.queued = false
	c.mu.Lock()
	switch {
	case p == nil:
		l.next = time.Time{}
	case gone:
		l.hurry()
	default:
		l.failed++
	}
	c.mu.Unlock()
	if k.sendable() != nil {
		c.put(k)
	}
	k.tidy()
	s.mu.Unlock()
}

// send adds the hits of p to the store, and reports whether they are gone: counted, or
// too old for the store. The caller holds the lock of k, which is free during the call.
// Hits that may have been counted before wait until the server answers a read, since
// the answer might be lost again.
func (k *localKey) send(c *carrier, p *pendingHits) (gone bool) {
	s, store, unsure, n, at := k.shard(), k.store, k.unsure, p.n, p.at
	p.sending, k.answered = n, make(chan struct{})
	s.mu.Unlock()
	var err error
	if unsure {
		_, err = store.Count(c.ctx, k.key, max(store.Config().Ladder.At(0).Width, tiers.MinWindow))
	}
	if !errors.Is(err, counter.ErrStore) {
		err = store.AddAt(c.ctx, k.key, n, at)
	}
	s.mu.Lock()
	close(k.answered)
	refunded, numbers := p.refunded, &k.local.numbers
	k.unsure = false
	switch {
	case err == nil:
		numbers.carried.Add(n)
		if refunded > 0 {
			c.all.Go(func() { _ = store.RefundAt(c.ctx, k.key, refunded, at) }) // what is not given back stays until it ages out
		}
	case errors.Is(err, counter.ErrTooOld):
		numbers.dropped.Add(n)
	default:
		n, k.unsure = refunded, true
	}
	p.n -= n
	numbers.pending.Add(-n)
	p.sending, p.refunded, k.answered = 0, 0, nil
	return !k.unsure
}

// Begin has Close wait until End, and reports whether f is open. Without Config.Local
// f is open for ever.
func (f *Fallback) Begin() bool { return f.local == nil || f.begin() }

func (f *Fallback) begin() bool {
	f.closing.RLock()
	defer f.closing.RUnlock()
	if !f.closed {
		f.calls.Add(1)
	}
	return !f.closed
}

// End ends what Begin has begun.
func (f *Fallback) End() {
	if f.local != nil {
		f.calls.Done()
	}
}

// Close is limiter.Limiter.Close.
func (f *Fallback) Close(ctx context.Context) error {
	if f.local == nil {
		return nil
	}
	f.closing.Lock()
	closed := f.closed
	f.closed = true
	f.closing.Unlock()
	if closed {
		return nil
	}
	lent := loan.Of(ctx)
	carrier := &f.local.carrier
	carrier.mu.Lock()
	carrier.hasty = true // else the pace and the waiting would last
	for _, l := range carrier.lanes {
		l.hurry()
	}
	carrier.mu.Unlock()
	stop := context.AfterFunc(lent, carrier.cancel)
	f.calls.Wait() // no one else gives the carrier a first key
	carrier.all.Wait()
	stop()
	carrier.cancel()
	if n := f.local.numbers.pending.Load(); n > 0 {
		return fmt.Errorf("limiter: Close: %d hits that were admitted locally are not known to be in the store: %w", n, lent.Err())
	}
	return nil
}

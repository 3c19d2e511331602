package fallback

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// carrier adds pending hits to the store, in the buckets of their labels. A carry
// without an answer is sent again, once the store answers a read: the store may
// then count the hits twice, and never counts less than was let through. Hits
// without a bucket in the store are dropped, since any other label would be wrong.
//
// A key that failed waits longer each time. Each server has a lane, so that a
// server that is away holds up no other. While no carry of a lane is answered the
// carrier sends a few of its carries a second; a server that is back gets a carry
// in a millisecond from each process, at random moments. The carrier has a
// goroutine while there are pending hits.
type carrier struct {
	local   *local
	entries atomic.Int64 // pendingHits of all keys
	most    int64        // entries

	mu      sync.Mutex
	lanes   map[string]*lane // by server, with keys
	running bool
	hasty   bool // nobody waits for a turn of the pace any more, but for the process to end
	closed  bool
	wake    chan struct{}
	ctx     context.Context // done when closed
	cancel  context.CancelFunc
	all     sync.WaitGroup
}

// lane has the keys of a server, under the lock of the carrier.
type lane struct {
	server  string
	queue   []*localKey // by due
	sending int
	failed  int // carries in a row
	next    time.Time
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

func (c *carrier) init(l *local) {
	c.local, c.most, c.wake, c.lanes = l, MaxAdditions, make(chan struct{}, 1), map[string]*lane{}
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

// full reports whether there is no room for pending hits of so many keys.
func (c *carrier) full(keys int) bool { return c.entries.Load()+int64(keys) > c.most }

// put has the hits of k carried after a while. The caller holds the lock of k.
func (c *carrier) put(k *localKey, after time.Duration) {
	if k.lane != nil {
		return
	}
	server := inner(k.store).ServerOf(k.key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	to := c.lanes[server]
	if to == nil {
		to = &lane{server: server}
		c.lanes[server] = to
	}
	k.lane, k.due = to, time.Now().Add(after)
	i, _ := slices.BinarySearchFunc(to.queue, k, func(a, b *localKey) int { return a.due.Compare(b.due) })
	to.queue = slices.Insert(to.queue, i, k)
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
	if k.lane == nil {
		return
	}
	if i := slices.Index(k.lane.queue, k); i >= 0 {
		k.lane.queue = slices.Delete(k.lane.queue, i, i+1)
		c.leave(k.lane)
		k.lane = nil
	}
}

// leave forgets a lane without keys.
func (c *carrier) leave(l *lane) {
	if len(l.queue) == 0 && l.sending == 0 {
		delete(c.lanes, l.server)
	}
}

// hurry ends the waiting for a server that has answered another call.
func (c *carrier) hurry(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lanes[server]; l != nil && l.failed > 0 {
		l.failed, l.next = 0, time.Time{}
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
	if c.closed || len(c.lanes) == 0 {
		c.running = false
		return nil, 0, false
	}
	now := time.Now()
	for _, l := range c.lanes {
		width := carryWidth
		if l.failed >= failuresInARow {
			width = 1
		}
		if len(l.queue) == 0 || l.sending >= width {
			continue
		}
		if w := max(l.queue[0].due.Sub(now), l.next.Sub(now)); w > 0 {
			if wait == 0 || w < wait {
				wait = w
			}
			continue
		}
		l.sending++
		if !c.hasty {
			l.next = now.Add(rand.N(2 * carryPace))
		}
		if l.failed >= failuresInARow {
			l.next = now.Add(backOff(l.failed - failuresInARow))
		}
		k, l.queue = l.queue[0], l.queue[1:]
		return k, 0, true
	}
	return nil, wait, true
}

// backOff is a random time around firstBackOff, doubled each time, up to
// lastBackOff.
func backOff(times int) time.Duration {
	d := min(firstBackOff<<min(times, 10), lastBackOff)
	return d/2 + rand.N(d)
}

// carry sends the oldest hits of k that can be carried.
func (c *carrier) carry(k *localKey) {
	s := k.shard()
	s.mu.Lock()
	p, store, again := k.sendable(), k.store, k.tries > 0
	var n int64
	var at time.Time
	if p != nil {
		n, at, p.sending = p.n, p.at, p.n
	}
	s.mu.Unlock()
	var err error
	if p != nil {
		err = send(c.ctx, store, k.key, n, at, again)
	}
	gone := err == nil || errors.Is(err, counter.ErrTooOld)

	s.mu.Lock()
	of := k.lane
	k.lane = nil
	var refunded int64
	if p != nil {
		if err == nil {
			refunded = p.refunded
		}
		k.carried(p, err)
	}
	c.answered(of, p != nil, gone)
	if k.answered != nil {
		close(k.answered)
		k.answered = nil
	}
	switch {
	case k.sendable() == nil:
		k.drop()
	case gone:
		c.put(k, 0)
	default:
		c.put(k, backOff(k.tries-1))
	}
	s.mu.Unlock()
	if refunded > 0 {
		_ = store.RefundAt(c.ctx, k.key, refunded, at) // what is not given back stays until it ages out
	}
}

// send adds hits to the store. Hits that are sent again wait until the server answers a
// read: they might be counted again, and the answer be lost again.
func send(ctx context.Context, store *counter.Counter, key counter.Key, n int64, at time.Time, again bool) error {
	if again {
		_, err := store.Count(ctx, key, max(store.Config().Ladder.At(0).Width, tiers.MinWindow))
		if errors.Is(err, counter.ErrStore) {
			return err
		}
	}
	return store.AddAt(ctx, key, n, at)
}

// carried notes what has become of the hits of p that were sent: err is nil or
// ErrTooOld if they are gone, and otherwise they wait for another try.
func (k *localKey) carried(p *pendingHits, err error) {
	numbers, n := &k.local.numbers, p.sending
	switch {
	case err == nil:
		numbers.carried.Add(n)
		k.tries = 0
	case errors.Is(err, counter.ErrTooOld):
		numbers.dropped.Add(n)
		k.tries = 0
	default:
		n = p.refunded
		k.tries++
	}
	p.n -= n
	numbers.pending.Add(-n)
	p.sending, p.refunded = 0, 0
	k.tidy(p)
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
func (c *carrier) answered(l *lane, asked, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.sending--
	switch {
	case !asked:
	case ok:
		if l.failed > 0 { // next is the pace of a server that fails
			l.failed, l.next = 0, time.Time{}
		}
	default:
		l.failed++
	}
	c.leave(l)
	c.signal()
}

// hasten ends the pace and the waiting, for a limiter that closes.
func (c *carrier) hasten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasty = true
	for _, l := range c.lanes {
		l.failed, l.next = 0, time.Time{}
		for _, k := range l.queue { // all equal: still in order
			k.due = time.Time{}
		}
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

package memcache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// maxWorkers is how many requests of one call are under way at once, at most.
const maxWorkers = 16

// Do is described in [counter.Store]. The additions are made one by one: an
// error can leave some of them made, and says which it knows of.
func (s *Store) Do(ctx context.Context, op *counter.Op) error {
	for i := range op.Add {
		op.Add[i].Count = 0
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memcache: %w", err)
	}
	wait := s.timeout
	if !op.Deadline.IsZero() {
		wait = time.Until(op.Deadline)
	}
	if wait <= 0 {
		return fmt.Errorf("memcache: %w before the call", os.ErrDeadlineExceeded)
	}
	if s.closed.Load() {
		return errors.New("memcache: the store is closed")
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	c, err := s.prepare(op)
	if err != nil || c.parts == 0 {
		return err
	}
	return c.end(op, c.run(ctx, timer.C))
}

// call is a [counter.Op] on its way. It holds copies of all that it needs: a
// server that does not answer keeps a part of it at work when Do has returned.
type call struct {
	store *Store
	gate  gate
	where string // to begin errors with: the server, if it is known
	n     int64
	adds  []addition
	reads reads
	parts int // requests: additions first, then chunks of reads
	done  chan struct{}

	mu      sync.Mutex
	next    int   // part to begin
	running int   // parts
	err     error // of the first part that failed
	over    bool  // Do has returned without waiting for all parts
}

// prepare finds the caller's mistakes and copies op.
func (s *Store) prepare(op *counter.Op) (*call, error) {
	if err := checkKey(op.Key); err != nil {
		return nil, err
	}
	c := &call{store: s, n: op.N, done: make(chan struct{})}
	server := ""
	if s.selector != nil {
		server = s.selector.pick(op.Key).name
		c.where = server + ": "
	}
	c.gate = s.gates[server]
	var err error
	if c.adds, err = additions(op); err != nil {
		return nil, err
	}
	if c.reads, err = readsOf(op); err != nil {
		return nil, err
	}
	c.parts = len(c.adds) + c.reads.chunks()
	return c, nil
}

// run begins the parts and waits for them: until all have ended, or until no
// more are begun and those under way have ended, or until time is up.
func (c *call) run(ctx context.Context, expired <-chan time.Time) error {
	for range min(c.parts, maxWorkers) {
		if !c.gate.enter() {
			select {
			case c.gate <- struct{}{}:
			case <-c.done:
				return nil
			case <-expired:
				c.store.refused.Add(1)
				return fmt.Errorf("memcache: %s%w: the most requests, %d, were under way", c.where, os.ErrDeadlineExceeded, cap(c.gate))
			case <-ctx.Done():
				return fmt.Errorf("memcache: %s%w", c.where, ctx.Err())
			}
		}
		go c.work()
	}
	select {
	case <-c.done:
		return nil
	case <-expired:
		return fmt.Errorf("memcache: %s%w, without an answer", c.where, os.ErrDeadlineExceeded)
	case <-ctx.Done():
		return fmt.Errorf("memcache: %s%w", c.where, ctx.Err())
	}
}

// end hands over to the caller what is known. From then on an addition that is
// confirmed is this store's to take back: under the lock each of them falls to
// one side or the other.
func (c *call) end(op *counter.Op, early error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.adds {
		op.Add[i].Count = c.adds[i].count
	}
	c.over = !c.ended()
	switch {
	case c.err != nil:
		return c.err
	case c.over:
		return early
	}
	c.reads.fill(op)
	return nil
}

// ended tells whether nothing is under way any more, nor will be.
func (c *call) ended() bool { return c.running == 0 && (c.next == c.parts || c.err != nil) }

// work does one part after the other. Its goroutine has a token of the gate.
func (c *call) work() {
	defer c.leave()
	for {
		c.mu.Lock()
		if c.over || c.err != nil || c.next == c.parts {
			c.mu.Unlock()
			return
		}
		i := c.next
		c.next++
		c.running++
		c.mu.Unlock()
		err := c.part(i)
		c.mu.Lock()
		c.running--
		if err != nil && c.err == nil {
			c.err = err
		}
		if c.ended() {
			close(c.done)
		}
		c.mu.Unlock()
	}
}

func (c *call) leave() {
	if c.store.closed.Load() && c.store.selector != nil {
		c.store.client.Close() // the connections that have come back since
	}
	c.gate.leave()
}

// part does part i. gomemcache panics on some answers that no memcached gives,
// such as an empty line to an incr.
func (c *call) part(i int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = c.failed("answer", fmt.Errorf("not understood: %v", r))
		}
	}()
	if i < len(c.adds) {
		return c.add(&c.adds[i])
	}
	return c.read(i - len(c.adds))
}

// abandoned tells whether Do has returned.
func (c *call) abandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

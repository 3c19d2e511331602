package memcache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// maxWorkers is how many requests of one call are under way at once, at most.
const maxWorkers = 16

// Do is described in [backend.Store]. The additions are made one by one: an
// error can leave some of them made, and says which it knows of.
func (s *Store) Do(ctx context.Context, op *backend.Request) error {
	for i := range op.Add {
		op.Add[i].Count = 0
	}
	expired, stop, err := s.begin(ctx, op.Deadline)
	if err != nil {
		return s.notSent(op, err)
	}
	defer stop()
	c, err := s.prepare(op)
	if err != nil || c.parts == 0 {
		return err
	}
	return c.end(op, c.run(ctx, expired))
}

// begin returns what tells when the time of a call is up, if it may begin.
func (s *Store) begin(ctx context.Context, deadline time.Time) (expired <-chan time.Time, stop func() bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("memcache: %w", err)
	}
	wait := s.timeout
	if !deadline.IsZero() {
		wait = time.Until(deadline)
	}
	if wait <= 0 {
		return nil, nil, fmt.Errorf("memcache: %w before the call", os.ErrDeadlineExceeded)
	}
	if s.closed.Load() {
		return nil, nil, errors.New("memcache: the store is closed")
	}
	timer := time.NewTimer(wait)
	return timer.C, timer.Stop, nil
}

// notSent counts the takings back that were not even begun.
func (s *Store) notSent(op *backend.Request, err error) error {
	if op.N < 0 {
		s.takingBackFailed.Add(int64(len(op.Add)))
	}
	return err
}

// call is a [backend.Request] on its way, or a step of a Forget. It holds copies of
// all that it needs: a server that does not answer keeps a part of it at work
// when Do has returned.
type call struct {
	store   *Store
	peer    *peer
	n       int64
	adds    []addition
	reads   reads
	parts   int                        // requests: additions first, then chunks of reads
	workers int                        // at most so many parts are under way at once
	part    func(l *link, i int) error // nil for a Do
	done    chan struct{}

	mu      sync.Mutex
	next    int   // part to begin
	running int   // parts that the caller waits for
	err     error // of the first part that failed
	over    bool  // Do has returned
}

func (s *Store) newCall(key string) *call {
	return &call{store: s, peer: s.peerOf(key), workers: maxWorkers, done: make(chan struct{})}
}

// prepare finds the caller's mistakes and copies op.
func (s *Store) prepare(op *backend.Request) (*call, error) {
	if err := checkKey(op.Key); err != nil {
		return nil, err
	}
	c := s.newCall(op.Key)
	c.n = op.N
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
	for i := range min(c.parts, c.workers) {
		if err := c.enter(ctx, expired, i == 0); err != nil {
			if err == errDone {
				return nil
			}
			if i == 0 && c.n < 0 {
				c.store.takingBackFailed.Add(int64(len(c.adds)))
			}
			return err
		}
		go c.work()
	}
	select {
	case <-c.done:
		return nil
	case <-expired:
		return fmt.Errorf("memcache: %s%w, without an answer", c.peer.where, os.ErrDeadlineExceeded)
	case <-ctx.Done():
		return fmt.Errorf("memcache: %s%w", c.peer.where, ctx.Err())
	}
}

// errDone is for run: no more workers are needed.
var errDone = errors.New("done")

// enter gets a token of the gate. The first one of a call that adds waits until
// the server is not silent.
func (c *call) enter(ctx context.Context, expired <-chan time.Time, first bool) error {
	p := c.peer
	for {
		if !p.gate.enter() {
			select {
			case p.gate <- struct{}{}:
			case <-c.done:
				return errDone
			case <-expired:
				c.store.refused.Add(1)
				return fmt.Errorf("memcache: %s%w: the most requests, %d, were under way", p.where, os.ErrDeadlineExceeded, cap(p.gate))
			case <-ctx.Done():
				return fmt.Errorf("memcache: %s%w", p.where, ctx.Err())
			}
		}
		if !first || c.n <= 0 || len(c.adds) == 0 || !p.silence.on.Load() {
			return nil
		}
		p.gate.leave()
		if err := c.awaitSpeech(ctx, expired); err != nil {
			c.store.withheld.Add(1)
			return err
		}
	}
}

func (c *call) awaitSpeech(ctx context.Context, expired <-chan time.Time) error {
	spoken := c.peer.await()
	if spoken == nil {
		return nil
	}
	defer c.peer.silence.leave()
	select {
	case <-spoken:
		return nil
	case <-expired:
		return fmt.Errorf("memcache: %s%w: the server is silent, nothing was sent", c.peer.where, os.ErrDeadlineExceeded)
	case <-ctx.Done():
		return fmt.Errorf("memcache: %s%w: the server is silent, nothing was sent", c.peer.where, ctx.Err())
	}
}

// end hands over to the caller what is known. From then on an addition that is
// confirmed is this store's to take back: under the lock each of them falls to
// one side or the other.
func (c *call) end(op *backend.Request, early error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.adds {
		op.Add[i].Count = c.adds[i].count
	}
	c.over = true
	for i := range c.adds {
		if c.adds[i].under != nil {
			c.heedSilence(&c.adds[i])
		}
	}
	switch {
	case c.err != nil:
		return c.err
	case !c.ended():
		return early
	}
	c.reads.fill(op)
	return nil
}

// result is end for a call without an Op.
func (c *call) result(early error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.err != nil || c.ended() {
		return c.err
	}
	return early
}

// heedSilence is for an addition under way that its call waits for no longer:
// if the server has answered nothing since it was sent, no others are.
func (c *call) heedSilence(a *addition) {
	if c.n > 0 && c.peer.shared == nil && a.sentAfter == c.peer.answers.Load() {
		c.peer.silence.begin()
	}
}

// overdue is asked by a connection when no answer to its addition, or taking
// back, has come within the store's timeout. The call fails, if it has not yet.
// The answer is listened for on, without a token of the gate, which is for what
// somebody waits for; unless there are too many such listeners already.
func (c *call) overdue(l *link) (until time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.under(l)
	if a == nil {
		return time.Time{}, false
	}
	if !a.overdue {
		a.overdue = true
		c.heedSilence(a)
		if c.err == nil {
			c.err = fmt.Errorf("memcache: %s%w, without an answer", c.peer.where, os.ErrDeadlineExceeded)
		}
		c.running--
		if c.ended() {
			close(c.done)
		}
	}
	if !l.listening {
		if !c.peer.listen(l) {
			return time.Time{}, false
		}
		l.listening, l.until = true, time.Now().Add(listenFor)
		c.peer.gate.leave()
	}
	return l.until, time.Now().Before(l.until)
}

func (c *call) under(l *link) *addition {
	for i := range c.adds {
		if c.adds[i].under == l {
			return &c.adds[i]
		}
	}
	return nil
}

// ended tells whether nothing is under way any more that the caller waits for,
// nor will be.
func (c *call) ended() bool {
	return c.running == 0 && (c.next == c.parts || c.err != nil && !c.owes())
}

// owes tells whether something is left to be taken back, which is done whether
// or not anything else fails and whether or not anybody waits.
func (c *call) owes() bool { return c.n < 0 && c.next < len(c.adds) }

// work does one part after the other. Its goroutine has a token of the gate.
func (c *call) work() {
	l := c.peer.borrow()
	defer c.leave(l)
	for {
		c.mu.Lock()
		i := c.next
		if i == c.parts || (c.over || c.err != nil) && !c.owes() {
			c.mu.Unlock()
			return
		}
		c.next++
		c.running++
		c.mu.Unlock()
		err := c.try(l, i)
		c.mu.Lock()
		was := c.ended()
		if i >= len(c.adds) || !c.adds[i].overdue {
			c.running--
		}
		if i < len(c.adds) {
			c.adds[i].under = nil
		}
		if err != nil && c.err == nil {
			c.err = err
		}
		if !was && c.ended() {
			close(c.done)
		}
		c.mu.Unlock()
	}
}

func (c *call) leave(l *link) {
	c.mu.Lock()
	listening := l.listening
	l.listening = false
	c.mu.Unlock()
	c.peer.giveBack(l)
	if !listening {
		c.peer.gate.leave()
	}
}

// try does part i. gomemcache panics on some answers that no memcached gives,
// such as an empty line to an incr.
func (c *call) try(l *link, i int) (err error) {
	defer func() {
		l.call = nil
		if r := recover(); r != nil {
			if l.conn != nil {
				l.conn.Close()
			}
			err = c.failed("answer", fmt.Errorf("not understood: %v", r))
		}
	}()
	if c.part != nil {
		return c.part(l, i)
	}
	return c.request(l, i)
}

// request is part i of a Do.
func (c *call) request(l *link, i int) error {
	if i < len(c.adds) {
		return c.add(l, &c.adds[i])
	}
	return c.read(l, i-len(c.adds))
}

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

// maxWorkers bounds the requests of a call in flight.
const maxWorkers = 16

// Do is described in [backend.Store]. The additions are made one after the other:
// after an error a part of the additions may have been made, and the slots tell
// the confirmed additions.
func (s *Store) Do(ctx context.Context, op *backend.Request) error {
	for i := range op.Add {
		op.Add[i].Count = 0
	}
	op.Ordered = false
	wait, err := s.begin(ctx, op.Deadline)
	if err != nil {
		return s.notSent(op, err)
	}
	if err := checkKey(op.Key); err != nil {
		return err
	}
	deadline := time.Now().Add(wait)
	if t := s.peerOf(op.Key).transport; t != nil && t.fits(op) {
		if err := t.do(ctx, op, deadline); err != errClassic {
			return err
		}
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	expired := timer.C
	c, err := s.prepare(op)
	if err != nil || c.tasks == 0 {
		return err
	}
	return c.finish(op, c.run(ctx, expired))
}

// begin returns a call's time, or the error of a call that must not begin.
func (s *Store) begin(ctx context.Context, deadline time.Time) (wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("memcache: %w", err)
	}
	wait = s.timeout
	if !deadline.IsZero() {
		wait = time.Until(deadline)
	}
	if wait <= 0 {
		return 0, fmt.Errorf("memcache: %w before the call", os.ErrDeadlineExceeded)
	}
	if s.closed.Load() {
		return 0, errClosed
	}
	return wait, nil
}

// takeFrom takes hits from items of a server, without the transport; n is below
// zero. The hits are taken whether or not the caller waits until the end.
func (s *Store) takeFrom(ctx context.Context, p *peer, items []string, n int64, expired <-chan time.Time) (counts []int64, err error) {
	c := &call{store: s, peer: p, n: n, tasks: len(items), workers: maxWorkers, done: make(chan struct{}), adds: make([]addition, len(items))}
	for i := range items {
		c.adds[i].item = items[i]
	}
	early := c.run(ctx, expired)
	c.mu.Lock()
	for i := range c.adds {
		counts = append(counts, c.adds[i].count)
	}
	c.mu.Unlock()
	return counts, c.result(early)
}

// notSent counts takings back that were never begun.
func (s *Store) notSent(op *backend.Request, err error) error {
	if op.N < 0 {
		s.takingBackFailed.Add(int64(len(op.Add)))
	}
	return err
}

// call is a [backend.Request] in progress, or a step of a Forget. The call has
// copies of the request: with a server that does not answer, workers go on
// after Do has returned.
type call struct {
	store   *Store
	peer    *peer
	n       int64
	adds    []addition
	reads   reads
	tasks   int                        // requests: the additions, then the chunks of reads
	workers int                        // bound of the tasks in flight
	task    func(l *link, i int) error // does task i; nil for a Do
	done    chan struct{}

	mu       sync.Mutex
	next     int   // the next task to begin
	running  int   // tasks in flight for which the caller waits
	err      error // of the first task that failed
	returned bool  // Do has returned
}

func (s *Store) newCall(p *peer) *call {
	return &call{store: s, peer: p, workers: maxWorkers, done: make(chan struct{})}
}

// prepare checks op, and copies the parts that a call needs.
func (s *Store) prepare(op *backend.Request) (*call, error) {
	c := s.newCall(s.peerOf(op.Key))
	c.n = op.N
	var err error
	if c.adds, err = additions(op); err != nil {
		return nil, err
	}
	if err = c.reads.merge(op); err != nil {
		return nil, err
	}
	c.reads.name(op.Key)
	c.tasks = len(c.adds) + c.reads.chunks()
	return c, nil
}

// run begins the tasks and waits: until all tasks have ended, or after an error
// until the tasks in flight have ended, or until the time is up.
func (c *call) run(ctx context.Context, expired <-chan time.Time) error {
	if c.mustTakeBack() {
		if !c.peer.undos.enter() {
			c.store.takingBackFailed.Add(int64(len(c.adds)))
			return c.peer.crowded(c.peer.undos)
		}
		go c.undoAll()
	} else if err := c.start(ctx, expired, 0); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-expired:
		return fmt.Errorf("memcache: %s%w, without an answer", c.peer.where, os.ErrDeadlineExceeded)
	case <-ctx.Done():
		return fmt.Errorf("memcache: %s%w", c.peer.where, ended(ctx))
	}
}

// start begins the workers from the given number on.
func (c *call) start(ctx context.Context, expired <-chan time.Time, from int) error {
	for i := from; i < min(c.tasks, c.workers); i++ {
		if err := c.enter(ctx, expired, i == 0); err == errDone {
			return nil
		} else if err != nil {
			return err
		}
		go c.work()
	}
	return nil
}

// undoAll is start for an undo, which waits for tokens longer than its caller.
func (c *call) undoAll() {
	defer c.peer.undos.leave()
	ctx, expired := context.Background(), time.After(listenFor)
	if err := c.enter(ctx, expired, true); err != nil {
		c.store.takingBackFailed.Add(int64(len(c.adds)))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err, c.next = err, c.tasks
		close(c.done)
		return
	}
	go c.work()
	_ = c.start(ctx, expired, 1) // the first worker does what others do not
}

// errDone tells start that no more workers are needed.
var errDone = errors.New("done")

// enter takes a token of the gate. The first worker of a call that adds also
// waits until the server is not silent.
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
				return p.crowded(p.gate)
			case <-ctx.Done():
				return fmt.Errorf("memcache: %s%w", p.where, ended(ctx))
			}
		}
		if !first || c.n <= 0 || len(c.adds) == 0 || !p.silence.on.Load() {
			return nil
		}
		p.gate.leave()
		if err := c.awaitAnswer(ctx, expired); err != nil {
			c.store.withheld.Add(1)
			return err
		}
	}
}

func (c *call) awaitAnswer(ctx context.Context, expired <-chan time.Time) error {
	answered := c.peer.await()
	if answered == nil {
		return nil
	}
	defer c.peer.silence.leave()
	select {
	case <-answered:
		return nil
	case <-expired:
		return fmt.Errorf("memcache: %s%w: the server is silent, nothing was sent", c.peer.where, os.ErrDeadlineExceeded)
	case <-ctx.Done():
		return fmt.Errorf("memcache: %s%w: the server is silent, nothing was sent", c.peer.where, ended(ctx))
	}
}

// finish hands the known results to the caller. From then on the store takes
// back the additions that are confirmed late: under the lock each addition
// falls to the caller or to the store.
func (c *call) finish(op *backend.Request, early error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.adds {
		op.Add[i].Count = c.adds[i].count
	}
	c.returned = true
	for i := range c.adds {
		if c.adds[i].under != nil {
			c.checkSilence(&c.adds[i])
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

// result is finish for a call without a [backend.Request].
func (c *call) result(early error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.returned = true
	if c.err != nil || c.ended() {
		return c.err
	}
	return early
}

// checkSilence declares the server silent if no answer has come since the
// addition a was sent, whose call has stopped waiting.
func (c *call) checkSilence(a *addition) {
	if c.n > 0 && c.peer.shared == nil && a.sentAfter == c.peer.answers.Load() {
		c.peer.silence.begin()
	}
}

// overdue is called by a connection when the answer to an addition, or to a
// taking back, has not come within the timeout. The call fails, unless it has
// failed before. The connection goes on listening, until the store is closed, and
// without a token of the gate unless too many listen already: tokens are for
// requests with a waiting caller.
func (c *call) overdue(l *link) (until time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.under(l)
	if a == nil {
		return time.Time{}, false
	}
	if !a.overdue {
		a.overdue = true
		l.until = time.Now().Add(listenFor)
		c.checkSilence(a)
		if c.err == nil {
			c.err = fmt.Errorf("memcache: %s%w, without an answer", c.peer.where, os.ErrDeadlineExceeded)
		}
		c.running--
		if c.ended() {
			close(c.done)
		}
	}
	keep, ok := c.peer.listen(l)
	if ok && !keep && !l.listening {
		l.listening = true
		c.peer.gate.leave()
	}
	return l.until, ok && time.Now().Before(l.until)
}

func (c *call) under(l *link) *addition {
	for i := range c.adds {
		if c.adds[i].under == l {
			return &c.adds[i]
		}
	}
	return nil
}

// ended tells whether no task that the caller waits for is in flight or to
// come.
func (c *call) ended() bool {
	return c.running == 0 && (c.next == c.tasks || c.err != nil && !c.mustTakeBack())
}

// mustTakeBack tells whether hits remain to be taken back: takings back are
// made whether or not other tasks fail, and whether or not a caller waits.
func (c *call) mustTakeBack() bool { return c.n < 0 && c.next < len(c.adds) }

// work does task after task. The goroutine has a token of the gate. The link is
// given back before the call ends, for the next call to find.
func (c *call) work() {
	l := c.peer.borrow()
	c.mu.Lock()
	for !c.noTask() {
		i := c.next
		c.next++
		c.running++
		c.mu.Unlock()
		err := c.try(l, i)
		c.mu.Lock()
		if err != nil && c.err == nil {
			c.err = err
		}
		if i < len(c.adds) {
			c.adds[i].under = nil
		}
		last := c.noTask()
		if last {
			c.mu.Unlock()
			c.leave(l)
			c.mu.Lock()
		}
		was := c.ended()
		if i >= len(c.adds) || !c.adds[i].overdue {
			c.running--
		}
		if !was && c.ended() {
			close(c.done)
		}
		if last {
			c.mu.Unlock()
			return
		}
	}
	c.mu.Unlock()
	c.leave(l)
}

// noTask tells whether no task remains to be begun.
func (c *call) noTask() bool {
	return c.next == c.tasks || (c.returned || c.err != nil) && !c.mustTakeBack()
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

// try does task i. gomemcache panics on some answers that no memcached gives,
// such as an empty line after an incr.
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
	if c.task != nil {
		return c.task(l, i)
	}
	return c.request(l, i)
}

// request is task i of a Do.
func (c *call) request(l *link, i int) error {
	if i < len(c.adds) {
		return c.add(l, &c.adds[i])
	}
	return c.read(l, i-len(c.adds))
}

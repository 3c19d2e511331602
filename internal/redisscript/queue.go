package redisscript

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bounds of a queue. docs/decisions/pipelines-on-redis.md has the
// cost of others.
const (
	// maxTrips is the number of round trips beside which no call goes alone.
	maxTrips = 2

	// maxCalls and maxBytes bound a pipeline. A server reads 16 kB at a time, executes
	// the calls therein, and turns to the next client. A client with a smaller buffer
	// has shorter pipelines, so that a pipeline is a single write.
	maxCalls = 32
	maxBytes = 16 << 10

	// maxSize is the size of a call in bytes above which the call goes alone.
	maxSize = 2 << 10

	// maxWait is the time after which waiting calls go, whatever else is under way.
	maxWait = time.Millisecond
)

// queue sends calls to a server. A call goes alone while few round trips are under way.
// Otherwise the call waits, and goes in a pipeline with the other waiting calls when a
// round trip has ended, or after maxWait: a connection that has fallen silent holds up
// only the callers whose calls were written to the connection. Each caller returns by
// its own deadline, in the queue and in a pipeline. A queue is used by many goroutines at
// once.
type queue struct {
	server  *Server
	client  *redis.Client
	unheard Unheard
	bytes   int             // of a pipeline
	ctx     context.Context // of all pipelines
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	trips   int // under way; if fewer than maxTrips, no call waits
	waiting []*call
	overdue *time.Timer // sends the calls that have waited for maxWait
	armed   bool        // the timer runs
	closed  bool
}

// Unheard is a function that is told the answer to a call whose caller gave up before
// the answer came: the script, its last argument and the answer. Again runs the script
// on the same keys with another last argument, which undoes the call.
type Unheard func(sc Script, argument []byte, answer any, again func(argument []byte) (any, error))

// againWithin bounds a call that takes back what an unheard call has done.
const againWithin = 5 * time.Second

// Combine makes s combine calls into pipelines, unless s is a Cluster: there each call
// goes alone. Goroutines that send pipelines end with the last call in flight, by its
// deadline, or when the client is closed; [Server.Close] waits for them.
func (s *Server) Combine(unheard Unheard) {
	client, is := s.client.(*redis.Client)
	if !is {
		return
	}
	q := &queue{server: s, client: client, unheard: unheard, bytes: maxBytes}
	for _, buffer := range []int{client.Options().WriteBufferSize, client.Options().PipelineWriteBufferSize} {
		if buffer > 0 {
			q.bytes = min(q.bytes, buffer)
		}
	}
	q.ctx, q.end = context.WithCancel(context.Background())
	q.overdue = time.AfterFunc(time.Hour, q.sendOverdue)
	q.overdue.Stop()
	s.queue = q
}

// Close fails all calls that wait, and returns when no goroutine of s runs. The client
// must have been closed before.
func (s *Server) Close() {
	if s.queue != nil {
		s.queue.close()
	}
}

// States of a call.
const (
	waiting  int32 = iota // not sent
	sent                  // written to a connection, or about to be
	finished              // the caller has the answer, or an error of the pipeline
	left                  // the caller has gone
)

// call is a command in a queue. Only Args, which runs in the goroutine of the pipeline,
// writes asked and unsent.
type call struct {
	*redis.Cmd
	script   Script
	keys     []string
	deadline time.Time
	size     int
	state    atomic.Int32
	done     chan struct{} // closed when the call is answered
	asked    bool          // Args was called
	unsent   bool          // a ping is written instead
	answered bool          // the answer was read, and is no error
}

// SetErr keeps the answer of a call that was answered: if the client cannot read a later
// answer of the pipeline, the client sets the error of all commands without an error.
func (c *call) SetErr(err error) {
	if !c.answered {
		c.answered = err == nil
		c.Cmd.SetErr(err)
	}
}

// NoRetry tells the client not to send the command again.
func (*call) NoRetry() bool { return true }

// ping takes the place of a call whose caller has gone before the call was written.
var ping = []any{"ping"}

// Args returns the words of the command, or a ping if the caller has gone. The client
// calls Args to write the command, which can be long after the start of a pipeline: a
// dial is in between, or the wait for a connection.
func (c *call) Args() []any {
	if !c.asked {
		c.asked, c.unsent = true, !c.state.CompareAndSwap(waiting, sent)
	}
	if c.unsent {
		return ping
	}
	return c.Cmd.Args()
}

// size returns at least the number of bytes of a command.
func size(cmd *redis.Cmd) (bytes int) {
	for _, word := range cmd.Args() {
		bytes += 16
		switch word := word.(type) {
		case string:
			bytes += len(word)
		case []byte:
			bytes += len(word)
		}
	}
	return bytes
}

// process sends a command, and returns the error of the command, or of the context once
// the context has ended.
func (q *queue) process(ctx context.Context, cmd *redis.Cmd, sc Script, keys []string) error {
	size := size(cmd)
	q.mu.Lock()
	if q.trips < maxTrips || size > min(maxSize, q.bytes) || q.closed {
		q.trips++
		q.mu.Unlock()
		defer q.landAlone()
		return q.client.Process(ctx, Once{cmd})
	}
	c := &call{Cmd: cmd, script: sc, keys: keys, size: size, done: make(chan struct{})}
	c.deadline, _ = ctx.Deadline()
	q.waiting = append(q.waiting, c)
	if !q.armed {
		q.armed = true
		q.overdue.Reset(maxWait)
	}
	q.mu.Unlock()
	select {
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
	}
	if c.state.Swap(left) == finished {
		return c.Err()
	}
	return ctx.Err()
}

// landAlone ends the trip of a call that went alone.
func (q *queue) landAlone() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if batch := q.land(); batch != nil {
		q.running.Go(func() { q.fly(batch) })
	}
}

// land ends a trip, and returns the calls of the next, nil if there is none.
func (q *queue) land() []*call {
	if q.trips <= maxTrips {
		if batch := q.take(); batch != nil {
			return batch
		}
	}
	q.trips--
	return nil
}

// take returns the calls of the next pipeline, nil if no call waits.
func (q *queue) take() (batch []*call) {
	bytes := 0
	for i, c := range q.waiting {
		if c.state.Load() == left {
			continue
		}
		if bytes += c.size; len(batch) == maxCalls || bytes > q.bytes {
			q.waiting = append(q.waiting[:0], q.waiting[i:]...)
			return batch
		}
		if batch == nil {
			batch = make([]*call, 0, min(len(q.waiting)-i, maxCalls))
		}
		batch = append(batch, c)
	}
	clear(q.waiting)
	q.waiting = q.waiting[:0]
	return batch
}

// sendOverdue sends all calls that wait, while the trips that are under way last long.
func (q *queue) sendOverdue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = false
	for batch := q.take(); batch != nil; batch = q.take() {
		q.trips++
		q.running.Go(func() { q.fly(batch) })
	}
}

// fly sends calls, and then the calls that wait, until no call waits.
func (q *queue) fly(batch []*call) {
	for batch != nil {
		q.send(batch)
		runtime.Gosched() // callers with answers call again, and fill the next pipeline
		q.mu.Lock()
		batch = q.land()
		q.mu.Unlock()
	}
}

// send sends calls in a pipeline, by the latest of their deadlines, and answers the
// callers.
func (q *queue) send(batch []*call) {
	latest := batch[0].deadline
	commands := make([]redis.Cmder, len(batch))
	for i, c := range batch {
		commands[i] = c
		if c.deadline.After(latest) {
			latest = c.deadline
		}
	}
	ctx, cancel := context.WithDeadline(q.ctx, latest)
	defer cancel()
	pipe := q.client.Pipeline()
	err := pipe.BatchProcess(ctx, commands...)
	if err == nil {
		_, err = pipe.Exec(ctx)
	}
	var unheard []*call
	for _, c := range batch {
		if err != nil && c.Err() == nil && c.Val() == nil {
			c.SetErr(err) // of a hook of the client
		}
		if c.state.Swap(finished) != left {
			close(c.done)
		} else if c.Err() == nil && !c.unsent {
			unheard = append(unheard, c)
		}
	}
	if unheard != nil {
		q.running.Go(func() { // not a trip: other calls do not wait
			for _, c := range unheard {
				q.tell(c)
			}
		})
	}
}

// tell tells the answer to a call whose caller has gone.
func (q *queue) tell(c *call) {
	args := c.Cmd.Args()
	argument, is := args[len(args)-1].([]byte)
	if !is {
		return
	}
	q.unheard(c.script, argument, c.Val(), func(argument []byte) (any, error) {
		ctx, cancel := context.WithTimeout(q.ctx, againWithin)
		defer cancel()
		reply, _, err := q.server.Run(ctx, c.script.Freeing(), c.keys, argument)
		return reply, err
	})
}

// close is [Server.Close].
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	rest := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	q.end()
	q.overdue.Stop()
	for _, c := range rest {
		c.SetErr(redis.ErrClosed)
		if c.state.Swap(finished) != left {
			close(c.done)
		}
	}
	q.running.Wait()
}

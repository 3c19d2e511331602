package redis

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
	// maxTrips is the number of round trips next to which no call goes alone.
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

	// againWithin bounds a call that takes back what an unheard call has done.
	againWithin = 5 * time.Second
)

// queue sends calls to a server. A call goes alone while few round trips are under way.
// Otherwise the call waits, and goes in a pipeline with the other waiting calls when a
// round trip has ended, or after maxWait: a connection that has fallen silent holds up
// only the callers whose calls were written to the connection. Each caller returns by
// its own deadline, in the queue and in a pipeline. Goroutines that send pipelines end with
// the last call in flight, by its deadline, or when the client is closed. A queue is used
// by many goroutines at once.
type queue struct {
	client  redis.UniversalClient
	unheard func(ctx context.Context, c *call) // is told of each call whose caller left before the answer came
	bytes   int                                // of a pipeline; 0: each call goes alone
	ctx     context.Context                    // of all pipelines
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	trips   int // under way; if fewer than maxTrips, no call waits
	waiting []*call
	overdue *time.Timer // sends the calls that have waited for maxWait
	armed   bool        // the timer runs
	closed  bool
}

func newQueue(client redis.UniversalClient, unheard func(context.Context, *call)) *queue {
	q := &queue{client: client, unheard: unheard}
	if single, is := client.(*redis.Client); is {
		q.bytes = maxBytes
		for _, buffer := range []int{single.Options().WriteBufferSize, single.Options().PipelineWriteBufferSize} {
			if buffer > 0 {
				q.bytes = min(q.bytes, buffer)
			}
		}
	}
	q.ctx, q.end = context.WithCancel(context.Background())
	q.overdue = time.AfterFunc(time.Hour, q.sendOverdue)
	q.overdue.Stop()
	return q
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
	program  program
	keys     []string
	argument request
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

// finish gives the caller what c has. It returns false if the caller has gone.
func (c *call) finish() bool {
	if c.state.Swap(finished) == left {
		return false
	}
	close(c.done)
	return true
}

// fits reports whether the answer has the shape of one to c, or to the ping.
func (c *call) fits() bool {
	if c.unsent {
		return c.Val() == "PONG"
	}
	return shapeOf(c.Val()).answers(c.program, len(c.keys), c.argument)
}

// wait returns the answer of a call that has joined the queue, or the error of the context
// once the context has ended.
func (c *call) wait(ctx context.Context) (any, error) {
	select {
	case <-c.done:
		return c.Result()
	case <-ctx.Done():
	}
	if c.state.Swap(left) == finished {
		return c.Result()
	}
	return nil, ctx.Err()
}

// join has a call wait for the next pipeline. q.mu is held.
func (q *queue) join(c *call) {
	q.waiting = append(q.waiting, c)
	if !q.armed { // to set a timer can wake a thread
		q.armed = true
		q.overdue.Reset(maxWait)
	}
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
		q.sendAll(batch)
		runtime.Gosched() // callers with answers call again, and fill the next pipeline
		q.mu.Lock()
		batch = q.land()
		q.mu.Unlock()
	}
}

// sendAll sends calls in a pipeline, by the latest of their deadlines, and answers the
// callers.
func (q *queue) sendAll(batch []*call) {
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
	trusted := true
	for _, c := range batch {
		if err != nil && c.Err() == nil && c.Val() == nil {
			c.SetErr(err) // of a hook of the client
		}
		if failed := c.Err(); failed == redis.Nil || failed == nil && !c.fits() {
			trusted = false
		}
		if !trusted { // an error may be that of another call as well
			c.Cmd.SetErr(errShape)
		}
		if !c.finish() && c.Err() == nil && !c.unsent {
			unheard = append(unheard, c)
		}
	}
	if unheard != nil {
		q.running.Go(func() { // not a trip: other calls do not wait
			for _, c := range unheard {
				ctx, cancel := context.WithTimeout(q.ctx, againWithin)
				q.unheard(ctx, c)
				cancel()
			}
		})
	}
}

// close fails all calls that wait, and returns when no goroutine of q runs. The client
// must have been closed before.
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
		c.finish()
	}
	q.running.Wait()
}

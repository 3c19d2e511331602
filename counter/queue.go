package counter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// lines bound how many calls of one key are under way at a store over a
// network at once. The others wait before they read the clock, so that a crowd
// on one key is a short queue in the process and not a long one at the server,
// where each call would grow too old for its answer. Most of a crowd need no
// trip then: by the time they are let in, the key is known to be denied.
//
// A line is for one key alone: a hot key holds up nobody else's calls. There
// is one while calls of the key are under way.
type queues struct {
	shards [queueShards]queueShard
}

const (
	queueShards = 64
	queueWidth  = 8 // calls of one key under way at once; 1 would be one trip after the other
)

type queueShard struct {
	mu   sync.Mutex
	keys map[string]*queue
	free *queue
	_    [40]byte // a cache line for each
}

// line is the line of one key, under the lock of its part.
type queue struct {
	inFlight int             // calls under way
	waiting  []chan struct{} // of those who wait, first come first; each is closed for whoever is let in
	next     *queue          // in the list of those that are free
}

// errQueue is the error of a call whose patience ended before it was its turn.
var errQueueTimeout = errors.New("too many calls of this key were under way, and none of them was answered in time")

// queue is decide behind the calls of the same keys that came before it, with a
// label that was read after the waiting.
func (k *call) decideQueued(ctx context.Context) (bool, error) {
	c := k.c
	if deadline, ok := ctx.Deadline(); ok && !k.req.Deadline.IsZero() && deadline.Before(k.req.Deadline) {
		k.req.Deadline = deadline
	}
	if k.req.Peek {
		return k.decide(ctx)
	}
	if k.recalled() {
		return false, nil
	}
	order := k.order()
	queued := false
	for i, d := range order {
		waited, err := c.queues.enter(ctx, k.req.Keys[d].Key, k.req.Deadline)
		if err != nil {
			k.leave(order[:i])
			return false, callError(ctx, k.asks[d].Key.Event, err)
		}
		queued = queued || waited
	}
	defer k.leave(order)
	if queued {
		c.stats.waited.Add(1)
		if err := k.relabel(); err != nil {
			return false, err
		}
		if k.recalled() {
			return false, nil
		}
	}
	return k.decide(ctx)
}

func (k *call) leave(entered []int) {
	for _, d := range entered {
		k.c.queues.leave(k.req.Keys[d].Key)
	}
}

// recalled tells whether this very call is remembered as denied.
func (k *call) recalled() bool { return k.c.denied.recall(k.req.Keys, k.label) }

func newQueues() *queues {
	qs := &queues{}
	for i := range qs.shards {
		qs.shards[i].keys = map[string]*queue{}
	}
	return qs
}

func (qs *queues) shard(key []byte) *queueShard {
	h := uint32(2166136261) // FNV-1a
	for _, b := range key {
		h = (h ^ uint32(b)) * 16777619
	}
	return &qs.shards[h%queueShards]
}

// enter lets a call in for the key, after those that came before it. waited
// tells whether it had to wait. It is an error of ctx, or errQueue if the time
// until is over first; then the call is not inside.
func (qs *queues) enter(ctx context.Context, key []byte, until time.Time) (waited bool, err error) {
	shard := qs.shard(key)
	shard.mu.Lock()
	q := shard.keys[string(key)]
	if q == nil {
		if q = shard.free; q == nil {
			q = &queue{}
		} else {
			shard.free, q.next = q.next, nil
		}
		shard.keys[string(key)] = q
	}
	if q.inFlight < queueWidth {
		q.inFlight++
		shard.mu.Unlock()
		return false, nil
	}
	admitted := make(chan struct{})
	q.waiting = append(q.waiting, admitted)
	shard.mu.Unlock()

	var expired <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-admitted:
		return true, nil
	case <-expired:
		err = errQueueTimeout
	case <-ctx.Done():
		err = ctx.Err()
	}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if i := slices.Index(q.waiting, admitted); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return true, err
	}
	return true, nil // it was let in meanwhile
}

// leave lets the next in.
func (qs *queues) leave(key []byte) {
	shard := qs.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	q := shard.keys[string(key)]
	if len(q.waiting) > 0 {
		close(q.waiting[0])
		q.waiting = q.waiting[1:]
		return
	}
	if q.inFlight--; q.inFlight == 0 {
		delete(shard.keys, string(key))
		q.waiting = nil
		q.next, shard.free = shard.free, q
	}
}

// crowded tells whether others are seen to be under way on the key, in this
// process or a moment ago by it.
func (c *Counter) contended(key []byte, label int64) bool {
	return c.queues != nil && (c.queues.contended(key) || c.denied.contended(key, label))
}

// crowded tells whether more than one call of the key is under way or waits.
func (qs *queues) contended(key []byte) bool {
	shard := qs.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	q := shard.keys[string(key)]
	return q != nil && q.inFlight+len(q.waiting) > 1
}

package counter

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// queues bound the calls of a key that are in flight to a store over a network.
// The other calls of the key wait before reading the clock. So a crowd on a key
// is a short queue in this process, rather than a long queue at the server, in
// which each call would grow too old for its answer. Most calls of a crowd need
// no trip then: when admitted from the queue, they find the key remembered as
// denied.
//
// Each key has a queue of its own, for as long as calls of the key are in
// flight: a hot key does not delay the calls of other keys.
type queues struct {
	shards [queueShards]queueShard
}

const (
	queueShards = 64
	queueWidth  = 8 // calls of a key in flight; a width of 1 would allow one trip after the other only
)

type queueShard struct {
	mu   sync.Mutex
	keys map[string]*queue
	free *queue
	_    [40]byte // a cache line per shard
}

// queue is the queue of a key, under the lock of its shard.
type queue struct {
	inFlight int             // calls past the queue
	waiting  []chan struct{} // first come, first served; closed to admit the waiting call
	next     *queue          // in the list of unused queues
}

// errQueueTimeout is the error of a call whose patience ended in the queue.
var errQueueTimeout = fmt.Errorf("%d calls of the key were in flight, and none ended within the patience of this call", queueWidth)

// crowd has the knowledge of this process of the calls of a key: the memory of a
// ticket.Protocol.
type crowd struct {
	*denials
	queues *queues
}

// Contended reports whether calls of other callers are in flight on the key, in
// this process, or were seen by this process a moment ago.
func (m crowd) Contended(key []byte, label int64) bool {
	return m.queues.contended(key) || m.denials.contended(key, label)
}

var queueSeed = maphash.MakeSeed()

func newQueues() *queues {
	qs := &queues{}
	for i := range qs.shards {
		qs.shards[i].keys = map[string]*queue{}
	}
	return qs
}

func (qs *queues) shard(key []byte) *queueShard {
	return &qs.shards[maphash.Bytes(queueSeed, key)%queueShards]
}

// enter admits a call for the key, after the calls that came before. waited
// tells whether the call had to wait. The error is the error of ctx, or
// errQueueTimeout after until; a call with an error is not in flight.
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
		err = cmp.Or(ctx.Err(), context.Canceled)
	}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if i := slices.Index(q.waiting, admitted); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		return true, err
	}
	return true, nil // admitted in the meantime
}

// leave ends a call of the key, and admits the next.
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

// contended tells whether several calls of the key are in flight or wait.
func (qs *queues) contended(key []byte) bool {
	shard := qs.shard(key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	q := shard.keys[string(key)]
	return q != nil && q.inFlight+len(q.waiting) > 1
}

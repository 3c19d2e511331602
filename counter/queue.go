package counter

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
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
	_    [48]byte // a cache line per shard
}

// queue is the queue of a key.
type queue struct {
	calls    int           // in flight or waiting; under the lock of the shard
	inFlight chan struct{} // an element for each call past the queue; the others wait to send, first come, first served
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

// lock locks the shard of the key, and returns it.
func (qs *queues) lock(key []byte) *queueShard {
	shard := &qs.shards[maphash.Bytes(queueSeed, key)%queueShards]
	shard.mu.Lock()
	return shard
}

// count adds n to the calls of the key, and returns its queue. The shard is locked.
func (s *queueShard) count(key []byte, n int) *queue {
	q := s.keys[string(key)]
	if q == nil {
		q = &queue{inFlight: make(chan struct{}, queueWidth)}
		s.keys[string(key)] = q
	}
	if q.calls += n; q.calls == 0 {
		delete(s.keys, string(key))
	}
	return q
}

// enter admits a call for the key, after the calls that came before. waited
// reports whether the call had to wait. The error is the error of ctx, or
// errQueueTimeout after until; a call with an error is not in flight.
func (qs *queues) enter(ctx context.Context, key []byte, until time.Time) (waited bool, err error) {
	shard := qs.lock(key)
	q := shard.count(key, 1)
	shard.mu.Unlock()
	select {
	case q.inFlight <- struct{}{}:
		return false, nil
	default:
	}
	var expired <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case q.inFlight <- struct{}{}:
		return true, nil
	case <-expired:
		err = errQueueTimeout
	case <-ctx.Done():
		err = cmp.Or(ctx.Err(), context.Canceled)
	}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.count(key, -1)
	return true, err
}

// leave ends a call of the key, and admits the next.
func (qs *queues) leave(key []byte) {
	shard := qs.lock(key)
	defer shard.mu.Unlock()
	<-shard.count(key, 0).inFlight
	shard.count(key, -1)
}

// contended reports whether several calls of the key are in flight or wait.
func (qs *queues) contended(key []byte) bool {
	shard := qs.lock(key)
	defer shard.mu.Unlock()
	q := shard.keys[string(key)]
	return q != nil && q.calls > 1
}

package counter

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/abacus-go/abacus/internal/loan"
)

// queues bound the calls of a key that are in flight to a store over a network.
// The other calls of the key wait before reading the clock. So a crowd on a key
// is a short queue in this process, rather than a long queue at the server, in
// which each call would grow too old for its answer. Equal calls that wait go together,
// as a batch: see batch.go. Most calls of a crowd need no trip then: when admitted from
// the queue, they find the key remembered as denied.
//
// Each key has a queue of its own, for as long as calls of the key are in
// flight: a hot key does not delay the calls of other keys.
type queues struct {
	shards [queueShards]queueShard
}

const (
	queueShards = 64
	queueWidth  = 8 // calls of a key in flight; a width of 1 would allow one trip after the other only
	batchWidth  = 2 // of these, next to a batch and after it: fewer and larger batches cost less
)

type queueShard struct {
	mu   sync.Mutex
	keys map[string]*queue
	_    [48]byte // a cache line per shard
}

// queue is the queue of a key, under the lock of its shard.
type queue struct {
	inFlight int       // calls of the store; a batch is one
	waiting  []*waiter // first come, first served
	batched  bool      // a batch has gone: calls that can go together wait for the next
}

// waiter is a call that waits for its turn, or for the answer to its batch. Its fields are
// under the lock of the shard; after done, only the waiter itself uses them.
type waiter struct {
	*call
	turn   chan struct{} // of length 1: the waiter goes alone, or is done
	batch  *batch        // that the waiter has joined; nil: none
	goes   bool          // alone
	answer *answer       // to the batch; nil: not done
	before int64         // hits of the batch that were admitted before those of this call
	lent   *loan.Context // of the caller, if the call may go together with others
}

// errQueueTimeout is the error of a call whose patience ended in the queue.
var errQueueTimeout = errors.New("as many calls of the key were in flight as may be, and none ended within the patience of this call")

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

// enter admits call k for the key, after the calls that came before, or answers it as a
// part of a batch. w is not nil if the call had to wait. The error is the error of ctx, or
// an error after the deadline of k; a call with an error is not in flight.
func (qs *queues) enter(ctx context.Context, k *call, key []byte) (w *waiter, err error) {
	shard := qs.lock(key)
	q := shard.keys[string(key)]
	if q == nil {
		q = &queue{}
		shard.keys[string(key)] = q
	}
	width := queueWidth
	if q.batched && k.joins() {
		width = batchWidth
	}
	if q.inFlight < width && len(q.waiting) == 0 {
		q.inFlight++
		shard.mu.Unlock()
		return nil, nil
	}
	w = &waiter{call: k, turn: make(chan struct{}, 1), lent: loan.Of(ctx)}
	defer w.lent.End()
	q.waiting = append(q.waiting, w)
	shard.mu.Unlock()
	var expired <-chan time.Time
	if !k.Deadline.IsZero() {
		timer := time.NewTimer(time.Until(k.Deadline))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-w.turn:
		return w, nil
	case <-expired:
		err = errQueueTimeout
	case <-ctx.Done():
		err = cmp.Or(ctx.Err(), context.Canceled)
	}
	shard.mu.Lock()
	if w.goes || w.answer != nil {
		shard.mu.Unlock()
		return w, nil // it was its turn: the store keeps the deadline
	}
	b := w.batch
	if b == nil {
		i := slices.Index(q.waiting, w)
		q.waiting = slices.Delete(q.waiting, i, i+1)
		shard.mu.Unlock()
		return w, err
	}
	last := b.lose(w)
	shard.mu.Unlock()
	if last {
		b.cancel()
		<-b.ended // as a lone call would wait for its undo
	}
	if err == errQueueTimeout {
		err = errBatchTimeout
	}
	return w, err
}

// leave ends a call of the key, and admits those that wait and have room, equal calls
// together.
func (qs *queues) leave(key []byte) {
	shard := qs.lock(key)
	defer shard.mu.Unlock()
	q := shard.keys[string(key)]
	for q.inFlight--; len(q.waiting) > 0; q.inFlight++ {
		n := 1
		for n < len(q.waiting) && q.waiting[0].goesWith(q.waiting[n].call) {
			n++
		}
		switch first := q.waiting[0]; {
		case q.inFlight >= queueWidth, n > 1 && q.inFlight >= batchWidth: // of equal calls more will come
			return
		case n > 1:
			q.batched = true
			go newBatch(q.waiting[:n], key).run()
		default:
			first.goes = true
			first.turn <- struct{}{}
		}
		q.waiting = slices.Delete(q.waiting, 0, n)
	}
	if q.inFlight == 0 {
		delete(shard.keys, string(key))
	}
}

// contended reports whether several calls of the key are in flight or wait.
func (qs *queues) contended(key []byte) bool {
	shard := qs.lock(key)
	defer shard.mu.Unlock()
	q := shard.keys[string(key)]
	return q != nil && q.inFlight+len(q.waiting) > 1
}

package memcache

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// exchange is a request on a pipeline, and its answers. An exchange has copies of
// the caller's request, since answers may come after the return of the call.
type exchange struct {
	pool    *sync.Pool // of the Store
	meta    bool       // the server has meta commands
	key     string
	n       int64
	adds    []addition
	runs    []tiers.Run // the buckets that are read
	counts  []int64     // of these, in the same order
	plain   int         // commands whose answers are not understood here
	verb    string      // of the additions or plain commands, in errors
	request []byte      // the commands
	tag     uint64      // of the first addition; the others follow, and the end of the reads

	// Of the goroutine that reads the answers, until the state is finished.
	answered int      // additions that have an answer
	created  bool     // and the next one has half of it
	chunks   int      // multi-gets without their END
	skip     int      // bytes of a long value that are to be passed over
	open     bool     // the answer behind the reads is to come
	must     int      // the count whose item must come; below zero: none
	at       int      // the first count that the next item can belong to
	lines    []string // the last lines of the answers to the plain commands
	found    []found  // in these answers
	readErr  error    // of the first multi-get or item that failed
	readVerb string   // "get bucket 1m29454210"
	err      error    // the connection failed

	state   atomic.Int32
	wake    chan struct{} // a signal: the exchange is finished, or the caller is to read
	timer   *time.Timer
	spoiled bool   // a signal may still come: not to be used again
	sentAt  uint64 // answers of the pipeline when the exchange was queued
	gate    gate   // of which a token is held, nil if none is; under the lock of the pipeline once queued
	late    bool   // undoes late additions
}

// addition is a [backend.Slot] in an exchange.
type addition struct {
	bucket tiers.Bucket
	count  int64 // the Count of the Slot
	made   bool  // n was added, for certain
	noRoom bool  // nothing was changed, since the server has no room
	gone   bool  // nothing was changed, since the item was gone
	err    error
}

// found is an item, or a statistic, in the answer to a plain command.
type found struct {
	name  string
	value []byte
	cas   string // the last field of the item
}

// States of an exchange.
const (
	waiting   = iota // the caller waits
	finished         // answered, or failed: the exchange is the caller's
	abandoned        // the caller has returned: the exchange is the pipeline's
)

func isWaiting(x *exchange) bool   { return x.state.Load() == waiting }
func isAbandoned(x *exchange) bool { return x.state.Load() == abandoned }

// tags counts the tags given to additions.
var tags atomic.Uint64

// newExchanges returns a pool of exchanges. Each Store has a pool of its own: timers
// and channels made in a bubble of testing/synctest cannot leave the bubble.
func newExchanges() *sync.Pool {
	pool := new(sync.Pool)
	pool.New = func() any {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return &exchange{pool: pool, wake: make(chan struct{}, 1), timer: timer}
	}
	return pool
}

// begin empties x, but for its gate, for a request with some additions of n.
func (x *exchange) begin(meta bool, n int64, additions int) {
	clear(x.adds)
	*x = exchange{pool: x.pool, wake: x.wake, timer: x.timer, gate: x.gate,
		adds: x.adds[:0], runs: x.runs[:0], counts: x.counts[:0], request: x.request[:0],
		meta: meta, n: n, tag: tags.Add(uint64(additions)+1) - uint64(additions) - 1}
	switch {
	case meta:
		x.verb = "ma"
	case n < 0:
		x.verb = "decr"
	default:
		x.verb = "incr"
	}
}

// signal wakes the caller of x.
func (x *exchange) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// release gives back the token of x, if it has one, under the lock of the pipeline
// once queued.
func (x *exchange) release() {
	x.gate.leave()
	x.gate = nil
}

// recycle gives back an exchange whose answers have all come, or that was not
// sent.
func (x *exchange) recycle() {
	if !x.spoiled && x.err == nil {
		x.gate = nil
		x.pool.Put(x)
	}
}

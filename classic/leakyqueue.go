package classic

import (
	"fmt"

	"github.com/abacus-go/abacus/counter"
)

// LeakyQueue is the leaky bucket as a queue: requests leave in the order of
// their arrival, Per/Max apart. [LeakyQueue.Wait] gives a request a slot in the
// schedule and returns at the slot's time; a request that would wait for longer
// than length hits take is denied. [LeakyQueue.Take] never waits: a request
// that may leave now is admitted, and any other is denied and gets no slot.
//
// The state is a schedule, the next free slot, in a single value; a caller
// waits by a timer of his own call. So the limiter owns no goroutine and no
// timer, and a queue serves all processes on a Redis: requests arrive in the
// order in which the server hears of them.
//
// Guarantee: slots are Per/Max apart, so in a true window of length Per at most
// Max + 1 requests leave, both ends included. A request of n hits leaves at
// once and moves the next slot n times as far: at most Max + n leave then,
// 2*Max if n is Max. Instants are instants of the schedule; a process that is
// late leaves late, perhaps just before the next request.
//
// Cost: 1 read, and with a slot 1 write; 1 round trip, 1 script, and as much
// again to give a slot back. A state of some 120 bytes a key.
//
// A caller whose context ends during the wait gives back the last slot of the
// queue. Any other slot stays empty: the callers behind know the times of their
// slots, no one moves up, and a departure is lost. If the store fails at that
// moment, the slot stays empty too. A caller whose clock is behind waits for
// longer.
//
// In the Verdict of Wait, Remaining is the number of further single hits with a
// slot, in the Verdict of Take the number that may leave now; ResetAfter is the
// time until the queue is empty; both as of the moment of the decision.
//
// Source: the leaky bucket of traffic shaping, a finite queue that is served at
// a constant rate, as in A. S. Tanenbaum's Computer Networks. The schedule is
// the schedule of [GCRA].
//
// Prefer LeakyQueue before a service that must not get bursts, such as a
// partner's API, where callers can wait.
type LeakyQueue struct{ scheduler }

// NewLeakyQueue makes a LeakyQueue from which limit.Max hits leave in
// limit.Per, and in which length hits may wait; with a length of 0 no one
// waits. An error names the value that is out of bounds: also a Max of 0 or of
// more than one a microsecond, and a length that takes more than 366 days.
func NewLeakyQueue(limit counter.Limit, length int64, store *Store) (*LeakyQueue, error) {
	if err := checkRate(limit, "length", length, store); err != nil {
		return nil, err
	}
	if limit.Max > micros(limit.Per) {
		return nil, fmt.Errorf("classic: limit %s: Max is %d, want at most %d, one hit a microsecond", limit, limit.Max, micros(limit.Per))
	}
	l := &LeakyQueue{}
	l.open("leaky-queue", limit, store, limit.Max, length, 0)
	return l, nil
}

var _ Measured = (*LeakyQueue)(nil)

package counter

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// batch is one call of the store for several equal calls of a key that have waited: for
// the same n under the same limits. It takes n as often as there is room, for so many
// calls at most, and admits the first of them in the order of their arrival. The others
// are the first to wait again, and go with the next batch, so that each is denied by an
// answer of the store about a call for n.
//
// The label is read after the last member has come, and before the first has its
// verdict: it is a label of each of them. A batch has a goroutine of its own, since no
// member is sure to stay, and a context of its own, which ends when the last member has
// left. What was taken for a member that has left goes to the next, or is given back.
type batch struct {
	c        *Counter
	ask      Ask
	key      []byte
	deadline time.Time // the latest of the members; zero: none
	ctx      context.Context
	cancel   context.CancelFunc
	members  []*waiter     // in the order of their arrival, under the lock of the shard
	ended    chan struct{} // closed at the end
}

// answer is the answer to a batch, for each of its members.
type answer struct {
	now     time.Time // the label
	windows []backend.Window
	allowed bool
	taken   int64         // how often n was taken
	within  time.Duration // RetryWithin of the call
	err     error
	panics  any
}

var (
	errBatchTimeout = errors.New("the store has not answered within the patience of this call, which went together with others")
	errNoAnswer     = errors.New("the store has ended the goroutine of the call")
)

// goesWith reports whether o, which waits behind k, may go together with k.
func (k *call) goesWith(o *call) bool {
	return k.joins() && o.joins() && k.c == o.c && k.asks[0].N == o.asks[0].N && bytes.Equal(k.Keys[0].Key, o.Keys[0].Key) &&
		slices.Equal(k.asks[0].Limits, o.asks[0].Limits)
}

// joins reports whether k is a Take of one key by one ladder, and nothing else.
func (k *call) joins() bool {
	a := &k.asks[0]
	return len(k.Keys) == 1 && !a.Soft && !a.Charge && a.Held == nil && k.upTo == 0
}

// newBatch returns the batch of some waiters. The caller holds the lock of their shard.
func newBatch(members []*waiter, key []byte) *batch {
	first := members[0]
	b := &batch{c: first.c, ask: first.asks[0], key: bytes.Clone(key), deadline: first.Deadline, members: slices.Clone(members), ended: make(chan struct{})}
	b.ask.Limits, b.ask.together = slices.Clone(b.ask.Limits), int64(len(members)) // the first may leave, and change its limits
	for _, w := range members {
		w.batch = b
		if w.Deadline.After(b.deadline) {
			b.deadline = w.Deadline
		}
	}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(first.lent))
	return b
}

// lose removes a member that leaves, and reports whether it was the last. The caller holds
// the lock of the shard.
func (b *batch) lose(w *waiter) (last bool) {
	i := slices.Index(b.members, w)
	b.members = slices.Delete(b.members, i, i+1)
	return len(b.members) == 0
}

// run asks the store, and answers the members.
func (b *batch) run() {
	a := &answer{err: errNoAnswer}
	defer func() {
		a.panics = recover()
		b.give(a)
		b.cancel()
		b.c.queues.leave(b.key)
		close(b.ended)
	}()
	k := b.c.calls.Get().(*call) // which a panic does not give back: see Counter.answer
	_, err := k.resolve([]Ask{b.ask}, taking)
	if k.Deadline = b.deadline; err == nil {
		err = b.c.protocol.Relabel(&k.Call)
	}
	if err == nil {
		var decided bool
		if decided, err = k.askStore(b.ctx, taking, b.c.denied.Recall(&k.Call)); !decided {
			found, failure := b.c.protocol.Try(b.ctx, &k.Call)
			err = k.tried(b.ctx, found, failure)
		}
	}
	a.now, a.windows, a.allowed, a.within, a.err = k.Now, slices.Clone(k.Keys[0].Windows), k.Allowed, k.RetryWithin, err
	if err == nil && k.Allowed {
		a.taken = max(1, k.Taken)
	}
	b.c.calls.Put(k)
}

// give gives the members their answers. Those for whom nothing was left wait again. What
// was taken for members that have left is given back before: the goroutine of a batch
// does not outlive its calls.
func (b *batch) give(a *answer) {
	shard := b.c.queues.lock(b.key)
	left := a.taken
	for more := left - int64(len(b.members)); more > 0; more = left - int64(len(b.members)) {
		shard.mu.Unlock()
		b.giveBack(a, more)
		left -= more
		shard.mu.Lock()
	}
	q, admitted := shard.keys[string(b.key)], int64(0)
	var again []*waiter
	for _, w := range b.members {
		w.batch = nil
		if a.taken > 0 && admitted == left {
			again = append(again, w)
			continue
		}
		w.before, w.answer = b.ask.N*admitted, a
		admitted++
		w.turn <- struct{}{}
	}
	q.waiting = slices.Insert(q.waiting, 0, again...)
	shard.mu.Unlock()
}

// giveBack gives n back some times. Without an answer hits stay that no one has, as
// after any undo that fails.
func (b *batch) giveBack(a *answer, times int64) {
	ctx := context.WithoutCancel(b.ctx)
	if r, err := b.c.begin(ctx, b.ask.Key); err == nil {
		_ = b.c.giveBack(ctx, &Ask{Key: b.ask.Key, N: b.ask.N * times}, r, a.now.UnixNano())
	}
}

// answeredBy makes the answer to the batch of w the answer of the store to k: that of a
// call after those of the batch that were admitted before.
func (k *call) answeredBy(ctx context.Context, w *waiter) error {
	a := w.answer
	switch {
	case a.panics != nil:
		panic(a.panics)
	case a.err != nil:
		return k.failed(ctx, a.err)
	}
	k.Now, k.Allowed, k.RetryWithin = a.now, a.allowed, a.within
	windows := k.Keys[0].Windows
	for i := range copy(windows, a.windows) {
		windows[i].Count += w.before
	}
	return nil
}

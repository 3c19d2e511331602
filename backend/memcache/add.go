package memcache

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/backend"
	gomemcache "github.com/bradfitz/gomemcache/memcache"
)

// addition is a [backend.Slot] in a call.
type addition struct {
	item       string
	expiration int32

	// Under the lock of the call:
	count     int64  // the Count of the Slot
	under     *link  // the link in use, nil if the addition is not in flight
	sentAfter uint64 // peer.answers when the addition was sent
	overdue   bool   // the call no longer waits for the answer
}

// additions returns the slots of op.
func additions(op *backend.Request) ([]addition, error) {
	if len(op.Add) == 0 {
		return nil, nil
	}
	if err := checkN(op.N); err != nil {
		return nil, err
	}
	now := time.Now()
	adds := make([]addition, len(op.Add))
	for i := range op.Add {
		slot, a := &op.Add[i], &adds[i]
		if err := checkWidth(slot.Width); err != nil {
			return nil, err
		}
		a.item = itemName(op.Key, slot.Bucket)
		if op.N < 0 {
			continue
		}
		var err error
		if a.expiration, err = expiration(op.Life(slot), now); err != nil {
			return nil, err
		}
	}
	return adds, nil
}

// checkN checks the number to be added.
func checkN(n int64) error {
	if n == 0 || n > backend.MaxCount || n < -backend.MaxCount {
		return fmt.Errorf("memcache: Request.N is %d, want 1 to %d, or the same below zero", n, int64(backend.MaxCount))
	}
	return nil
}

// errHuge is the error of a count that no additions of stores can reach.
var errHuge = fmt.Errorf("held a number of 2^63 or more, want a count of at most %d", int64(backend.MaxCount))

// maxSteps bounds the requests of an addition. Each step beyond the second
// means that the item has come or gone between two requests: a crowd may hit a
// key while several callers forget the key.
const maxSteps = 12

// errVanished is the error of an item that repeatedly disappears before the
// addition: the server has no room, or somebody deletes the item.
var errVanished = fmt.Errorf("the item came and went %d times", maxSteps)

// add makes an addition, or a taking back. A bucket that does not exist costs
// another request. A request without an answer is not repeated.
func (c *call) add(l *link, a *addition) error {
	if c.n < 0 {
		return c.takeBack(l, a)
	}
	if err := l.ready(); err != nil {
		return c.failed("incr", err)
	}
	creating := false
	for range maxSteps {
		if !c.send(l, a) {
			return nil // the call has returned, and nothing was added
		}
		if creating {
			err := l.client.Add(&gomemcache.Item{Key: a.item, Value: strconv.AppendInt(nil, c.n, 10), Expiration: a.expiration})
			if err == nil {
				c.confirm(l, a, c.n)
				return nil
			}
			if err != gomemcache.ErrNotStored {
				c.countUnanswered(l, err)
				return c.failed("add", err)
			}
			creating = false
			continue
		}
		count, err := l.client.Increment(a.item, uint64(c.n))
		if err == nil {
			return c.checkCount(l, a, count)
		}
		if err != gomemcache.ErrCacheMiss {
			c.countUnanswered(l, err)
			return c.failedCounting("incr", a.item, err)
		}
		creating = true
	}
	return c.failedItem("add", a.item, errVanished)
}

// send records that a is in flight on l. It returns false for an addition whose
// call has returned.
func (c *call) send(l *link, a *addition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.returned && c.n > 0 {
		return false
	}
	l.call = c
	a.under, a.sentAfter = l, c.peer.answers.Load()
	return true
}

// countUnanswered counts an addition without an answer.
func (c *call) countUnanswered(l *link, err error) {
	if l.unanswered(err) {
		c.store.unanswered.Add(1)
	}
}

// checkCount checks the answer to an incr: memcached knows no MaxCount, and
// wraps to zero at 2^64.
func (c *call) checkCount(l *link, a *addition, count uint64) error {
	switch {
	case count < uint64(c.n) || count > math.MaxInt64:
		return c.failedItem("incr", a.item, errHuge)
	case count > backend.MaxCount:
		c.undo(l, a)
		return c.failedItem("incr", a.item, fmt.Errorf("would hold %d: %w", count, backend.ErrMaxCount))
	}
	c.confirm(l, a, int64(count))
	return nil
}

// confirm records an addition that was made. If Do has returned, the addition
// is taken back here, since nobody else will do so.
func (c *call) confirm(l *link, a *addition, count int64) {
	s := c.store
	c.mu.Lock()
	late := c.returned
	if late {
		l.until = time.Now().Add(listenFor) // for the answer to the taking back
	} else {
		a.count, a.under = count, nil
	}
	c.mu.Unlock()
	if !late {
		return
	}
	s.lateAdditions.Add(1)
	if c.undo(l, a) {
		s.takenBack.Add(1)
	}
}

// undo takes back the addition of this call, on the same connection.
func (c *call) undo(l *link, a *addition) bool {
	_, err := l.decrement(a.item, uint64(c.n))
	if err != nil {
		c.store.takingBackFailed.Add(1)
	}
	return err == nil
}

// takeBack takes hits from a bucket that exists.
func (c *call) takeBack(l *link, a *addition) error {
	if err := l.ready(); err != nil {
		c.store.takingBackFailed.Add(1)
		return c.failed("decr", err)
	}
	c.send(l, a)
	count, err := l.decrement(a.item, uint64(-c.n))
	if err != nil {
		c.store.takingBackFailed.Add(1)
		return c.failedCounting("decr", a.item, err)
	}
	if count > math.MaxInt64 {
		return c.failedItem("decr", a.item, beyond(count))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.returned {
		a.count = int64(min(count, backend.MaxCount)) // the excess is about to be taken back by other calls
	}
	return nil
}

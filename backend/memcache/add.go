package memcache

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/backend"
	gomemcache "github.com/bradfitz/gomemcache/memcache"
)

// addition is a [backend.Slot] on its way.
type addition struct {
	item       string
	place      place
	index      int64
	expiration int32

	// Under the lock of its call:
	count     int64  // what Do answers
	under     *link  // on which it is under way
	sentAfter uint64 // answers of the server
	overdue   bool   // the call waits no longer for it
}

// additions are the slots of op.
func additions(op *backend.Request) ([]addition, error) {
	if len(op.Add) == 0 {
		return nil, nil
	}
	if op.N == 0 || op.N > backend.MaxCount || op.N < -backend.MaxCount {
		return nil, fmt.Errorf("memcache: %d to add, want 1 to %d, or less than zero", op.N, int64(backend.MaxCount))
	}
	now := time.Now()
	adds := make([]addition, len(op.Add))
	for i := range op.Add {
		slot, a := &op.Add[i], &adds[i]
		if err := checkWidth(slot.Width); err != nil {
			return nil, err
		}
		a.item, a.index = itemName(op.Key, slot.Bucket), slot.Index
		if op.N < 0 {
			continue
		}
		a.place = placeOf(op.Key, slot.Width)
		var err error
		if a.expiration, err = expiration(slot.TTL, now); err != nil {
			return nil, err
		}
	}
	return adds, nil
}

// maxSteps is how many requests an addition may take. Each step beyond the
// second means that the item has come or gone between two requests, as it may
// while a crowd hits a key that several callers forget.
const maxSteps = 12

// errVanished is of an item that comes and goes faster than it can be added to:
// the server has no room, or somebody deletes it.
var errVanished = fmt.Errorf("the item came and went %d times", maxSteps)

// add makes an addition, or a taking back. No step is tried again whose
// answer did not come.
func (c *call) add(l *link, a *addition) error {
	if c.n < 0 {
		return c.takeBack(l, a)
	}
	s := c.store
	creating := !s.seen.has(a.place, a.index)
	verb := "incr"
	if creating {
		verb = "add"
	}
	if err := l.ready(); err != nil {
		return c.failed(verb, err)
	}
	for step := 1; step <= maxSteps; step++ {
		if !c.send(l, a) {
			return nil // nothing was added, and nobody waits for it
		}
		if creating {
			err := l.client.Add(&gomemcache.Item{Key: a.item, Value: strconv.AppendInt(nil, c.n, 10), Expiration: a.expiration})
			if err == nil {
				c.guessed(step)
				c.confirm(l, a, c.n)
				return nil
			}
			if err != gomemcache.ErrNotStored {
				c.unheard(l, err)
				return c.failed("add", err)
			}
			creating = false
			continue
		}
		count, err := l.client.Increment(a.item, uint64(c.n))
		if err == nil {
			c.guessed(step)
			return c.judge(l, a, count)
		}
		if err != gomemcache.ErrCacheMiss {
			c.unheard(l, err)
			return c.failedCounting("incr", a.item, err)
		}
		creating = true
	}
	return c.bad("add", a.item, errVanished)
}

// send takes note that a is under way on l from now on, unless it is an
// addition that nobody waits for any more.
func (c *call) send(l *link, a *addition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over && c.n > 0 {
		return false
	}
	l.call = c
	a.under, a.sentAfter = l, c.peer.answers.Load()
	return true
}

// unheard counts an addition of which nobody knows whether it was made.
func (c *call) unheard(l *link, err error) {
	if l.unanswered(err) {
		c.store.unanswered.Add(1)
	}
}

// judge looks at the answer to an incr, which knows no MaxCount and counts from
// 2^64 on from zero.
func (c *call) judge(l *link, a *addition, count uint64) error {
	switch {
	case count < uint64(c.n) || count > math.MaxInt64:
		return c.bad("incr", a.item, errors.New("held a number beyond all counts, and has wrapped"))
	case count > backend.MaxCount:
		c.undo(l, a)
		return c.bad("incr", a.item, fmt.Errorf("would hold %d: %w", count, backend.ErrMaxCount))
	}
	c.confirm(l, a, int64(count))
	return nil
}

// confirm takes note of an addition that was made. If Do has returned without
// it, nobody else will ever take it back.
func (c *call) confirm(l *link, a *addition, count int64) {
	s := c.store
	s.seen.met(a.place, a.index)
	c.mu.Lock()
	late := c.over
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

// undo takes back what this call has just added, on the same connection.
func (c *call) undo(l *link, a *addition) bool {
	_, err := l.decrement(a.item, uint64(c.n))
	if err != nil {
		c.store.takingBackFailed.Add(1)
	}
	return err == nil
}

func (c *call) guessed(step int) {
	c.store.guesses.Add(1)
	if step == 1 {
		c.store.rightGuesses.Add(1)
	}
}

// takeBack takes from a bucket, if it is there.
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
		return c.bad("decr", a.item, beyond(count))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		a.count = int64(min(count, backend.MaxCount)) // beyond is what others are about to take back
	}
	return nil
}

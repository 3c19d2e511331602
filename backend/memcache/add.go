package memcache

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/counter"
)

// addition is a [counter.Slot] on its way.
type addition struct {
	item       string
	place      place
	index      int64
	expiration int32
	count      int64 // under the lock of its call: what Do answers
}

// additions are the slots of op.
func additions(op *counter.Op) ([]addition, error) {
	if len(op.Add) == 0 {
		return nil, nil
	}
	if op.N == 0 || op.N > counter.MaxCount || op.N < -counter.MaxCount {
		return nil, fmt.Errorf("memcache: %d to add, want 1 to %d, or less than zero", op.N, int64(counter.MaxCount))
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
// second means that the item has come or gone between two requests.
const maxSteps = 4

// errVanished is of an item that comes and goes faster than it can be added to:
// the server has no room, or somebody deletes it.
var errVanished = fmt.Errorf("the item came and went %d times", maxSteps)

// add makes an addition, or a taking back. No step is tried again whose
// answer did not come.
func (c *call) add(a *addition) error {
	if c.n < 0 {
		return c.takeBack(a)
	}
	s := c.store
	creating := !s.seen.has(a.place, a.index)
	for step := 1; step <= maxSteps; step++ {
		if step > 1 && c.abandoned() {
			return nil // nothing was added, and nobody waits for it
		}
		if creating {
			err := s.client.Add(&gomemcache.Item{Key: a.item, Value: strconv.AppendInt(nil, c.n, 10), Expiration: a.expiration})
			if err == nil {
				c.guessed(step)
				c.confirm(a, c.n)
				return nil
			}
			if err != gomemcache.ErrNotStored {
				return c.failed("add", err)
			}
			creating = false
			continue
		}
		count, err := s.client.Increment(a.item, uint64(c.n))
		if err == nil {
			c.guessed(step)
			return c.judge(a, count)
		}
		if err != gomemcache.ErrCacheMiss {
			return c.failedCounting("incr", a.item, err)
		}
		creating = true
	}
	return c.bad("add", a.item, errVanished)
}

// judge looks at the answer to an incr, which knows no MaxCount and counts from
// 2^64 on from zero.
func (c *call) judge(a *addition, count uint64) error {
	switch {
	case count < uint64(c.n):
		return c.bad("incr", a.item, errors.New("held a number beyond all counts, and has wrapped"))
	case count > counter.MaxCount:
		c.store.client.Decrement(a.item, uint64(c.n))
		return c.bad("incr", a.item, fmt.Errorf("would hold %d, which is beyond %d", count, int64(counter.MaxCount)))
	}
	c.confirm(a, int64(count))
	return nil
}

// confirm takes note of an addition that was made. If Do has returned without
// it, nobody else will ever take it back.
func (c *call) confirm(a *addition, count int64) {
	s := c.store
	s.seen.met(a.place, a.index)
	c.mu.Lock()
	late := c.over
	if !late {
		a.count = count
	}
	c.mu.Unlock()
	if !late {
		return
	}
	s.lateAdditions.Add(1)
	if _, err := s.client.Decrement(a.item, uint64(c.n)); err == nil {
		s.takenBack.Add(1)
	}
}

func (c *call) guessed(step int) {
	c.store.guesses.Add(1)
	if step == 1 {
		c.store.rightGuesses.Add(1)
	}
}

// takeBack takes from a bucket, if it is there.
func (c *call) takeBack(a *addition) error {
	count, err := c.store.client.Decrement(a.item, uint64(-c.n))
	switch {
	case err == gomemcache.ErrCacheMiss:
		return nil
	case err != nil:
		return c.failedCounting("decr", a.item, err)
	case count > counter.MaxCount:
		return c.bad("decr", a.item, fmt.Errorf("holds %d, which is beyond %d", count, int64(counter.MaxCount)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		a.count = int64(count)
	}
	return nil
}

package memcache

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/tiers"
)

const (
	// forgetWorkers bounds the requests of a Forget in flight. A low bound lets
	// the server answer other callers in between.
	forgetWorkers = 8

	// forgetStep is the number of items that a step of a Forget looks for.
	forgetStep = 4 * chunkSize
)

// Forget is described in [backend.Store]. Items are searched in the
// coarsest tier first, and in a finer tier only inside coarser buckets with an
// item, even an item with count 0. Then tiers are emptied, finest first and
// oldest bucket first, so that a second Forget finds the items left by a first.
// The label is remembered at the begin and at the end.
//
// An item that has not changed since the read is removed in one step. From other
// items the count read is taken, so no hit from in between is lost. A Forget
// creates no item but a marker. An Erase searches each tier for all items that
// may live, and deletes every item, whatever the value. Without f.Deadline each
// step, of a few thousand items, may last for the timeout of the store.
func (s *Store) Forget(ctx context.Context, f *backend.ForgetRequest) error {
	if err := checkKey(f.Key); err != nil {
		return err
	}
	if len(f.TTLs) != f.Ladder.Len() {
		return fmt.Errorf("memcache: ForgetRequest.TTLs has %d entries, want %d, one for each tier", len(f.TTLs), f.Ladder.Len())
	}
	e := forgetting{store: s, ctx: ctx, deadline: f.Deadline, key: f.Key, peer: s.peerOf(f.Key)}
	name := markerName(f.Key)
	remember := func() error {
		m := marker{f.Latest(), time.Now().Add(f.Remember + time.Second)}
		return e.step(1, func(c *call, l *link, _ int) error { return c.remember(l, name, m) })
	}
	if err := remember(); err != nil {
		return err
	}
	on := map[string]*peer{"": e.peer}
	if f.Erase {
		on = s.peers // before a change of the servers another one may have been the key's
	}
	for _, p := range on {
		there := e
		there.peer = p
		if err := there.empty(f); err != nil {
			return err
		}
	}
	return remember()
}

// empty empties the buckets of the key on a server, or erases its items.
func (e *forgetting) empty(f *backend.ForgetRequest) error {
	ranges := make([][]indexRange, f.Ladder.Len()) // ranges[i] are the buckets of tier i to look at
	for i := len(ranges) - 1; i >= 0; i-- {
		width := f.Ladder.At(i).Width
		if err := checkWidth(width); err != nil {
			return err
		}
		var all []indexRange
		if i < len(ranges)-1 {
			all = refine(ranges[i+1], int64(f.Ladder.At(i+1).Width/width))
		}
		switch {
		case f.Erase:
			all = including(all, lives(f, i))
		case i == len(ranges)-1:
			all = []indexRange{{tiers.Index(f.Now.UnixNano()-int64(f.TTLs[i]), width), newest(f, i)}}
		}
		if ranges[i] = all; i == 0 {
			break // searched while emptied
		}
		var held []indexRange
		if err := e.visit(width, all, func(items []*gomemcache.Item) error {
			for _, item := range items {
				index, err := strconv.ParseInt(item.Key[len(e.key)+len(stemOf(width)):], 10, 64)
				if err != nil {
					return fmt.Errorf("memcache: an item that was not asked for: %w", err)
				}
				held = appendIndex(held, index)
			}
			return nil
		}); err != nil {
			return err
		}
		ranges[i] = held
	}
	empty := e.expire
	if f.Erase {
		empty = e.remove
	}
	for i := range ranges {
		if err := e.visit(f.Ladder.At(i).Width, ranges[i], empty); err != nil {
			return err
		}
	}
	return nil
}

// newest returns the index of the newest bucket of tier i that a caller may have
// hit: the clock of the caller may be ahead of f.Now.
func newest(f *backend.ForgetRequest, i int) int64 {
	tier := f.Ladder.At(i)
	return tiers.Index(f.Now.UnixNano()+int64(f.TTLs[i]-tier.Keep+time.Minute), tier.Width)
}

// lives returns the buckets of tier i whose items may live, whatever the coarser
// tier has: the life of the coarser item may have ended a little earlier, or its
// addition may have failed. An item may be created by a late call, up to
// standstill after the end of its bucket, and lives for the slack of expiration
// after its TTL.
func lives(f *backend.ForgetRequest, i int) indexRange {
	width, ttl := f.Ladder.At(i).Width, f.TTLs[i]
	longest := width + standstill + ttl + slackOf(ttl) + time.Second
	return indexRange{tiers.Index(f.Now.UnixNano()-int64(longest), width), newest(f, i)}
}

// including returns ranges, which are in order, and the rest of r, in order.
func including(ranges []indexRange, r indexRange) (all []indexRange) {
	for _, other := range ranges {
		switch {
		case other.last < r.first:
			all = append(all, other)
			continue
		case other.first > r.last:
			all, r = append(all, r), other
			continue
		}
		r = indexRange{min(r.first, other.first), max(r.last, other.last)}
	}
	return append(all, r)
}

// remove deletes items, whatever they hold, a few in a step: an Erase has no
// deadline, so that each step must end within the timeout of the store.
func (e *forgetting) remove(items []*gomemcache.Item) error {
	for part := range slices.Chunk(items, chunkSize/4) {
		err := e.step(len(part), func(c *call, l *link, i int) error {
			if err := l.ready(); err != nil {
				return c.failed("delete", err)
			}
			if err := l.client.Delete(part[i].Key); err != nil && err != gomemcache.ErrCacheMiss {
				return c.failed("delete", err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// indexRange is a range of buckets of a tier, last included.
type indexRange struct{ first, last int64 }

// refine returns the buckets inside the coarse buckets, each of which holds
// ratio of them, even buckets older than the tier's Keep: the life of an item
// begins at its creation, whatever the label.
func refine(coarse []indexRange, ratio int64) (fine []indexRange) {
	for _, r := range coarse {
		fine = append(fine, indexRange{r.first * ratio, (r.last+1)*ratio - 1})
	}
	return fine
}

func appendIndex(ranges []indexRange, index int64) []indexRange {
	if n := len(ranges); n > 0 && ranges[n-1].last+1 == index {
		ranges[n-1].last = index
		return ranges
	}
	return append(ranges, indexRange{index, index})
}

// stemOf is the part of an item's name between key and index.
func stemOf(width time.Duration) string { return string(appendStem(nil, "", width)) }

// forgetting is a Forget in progress.
type forgetting struct {
	store    *Store
	ctx      context.Context
	deadline time.Time
	key      string
	peer     *peer
}

func (e *forgetting) step(tasks int, task func(c *call, l *link, i int) error) error {
	return e.store.step(e.ctx, e.deadline, e.peer, tasks, task)
}

// visit reads the items of ranges, and calls f with the existing items, some
// thousand at a time and in the order of their buckets.
func (e *forgetting) visit(width time.Duration, ranges []indexRange, f func([]*gomemcache.Item) error) error {
	stem := e.key + stemOf(width)
	var names []string
	flush := func() error {
		found, err := e.read(names)
		names = nil // the last step may still be using the slice
		if err != nil || len(found) == 0 {
			return err
		}
		return f(found)
	}
	for _, r := range ranges {
		for index := r.first; index <= r.last; index++ {
			if names = append(names, stem+strconv.FormatInt(index, 10)); len(names) == forgetStep {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return flush()
}

// read returns the existing items of names.
func (e *forgetting) read(names []string) ([]*gomemcache.Item, error) {
	chunks := slices.Collect(slices.Chunk(names, chunkSize))
	found := make([]map[string]*gomemcache.Item, len(chunks))
	err := e.step(len(chunks), func(c *call, l *link, i int) error {
		if err := l.ready(); err != nil {
			return c.failed("get", err)
		}
		items, err := l.client.GetMulti(chunks[i])
		if err != nil {
			return c.failed("get", err)
		}
		found[i] = items
		return nil
	})
	if err != nil {
		return nil, err
	}
	var items []*gomemcache.Item
	for i, chunk := range chunks {
		for _, name := range chunk {
			if item := found[i][name]; item != nil {
				items = append(items, item)
			}
		}
	}
	return items, nil
}

// expire removes items as they were read.
func (e *forgetting) expire(items []*gomemcache.Item) error {
	return e.step(len(items), func(c *call, l *link, i int) error { return c.expire(l, items[i]) })
}

func (c *call) expire(l *link, item *gomemcache.Item) error {
	count, err := parseCount(item.Value)
	if err != nil {
		return c.failedItem("get", item.Key, err)
	}
	if err := l.ready(); err != nil {
		return c.failed("cas", err)
	}
	// A cas with a negative time to live deletes a known value. The delete of
	// memcached deletes any value.
	switch err := l.cas(&gomemcache.Item{Key: item.Key, Value: []byte("0"), Expiration: -1, CasID: item.CasID}); {
	case err == nil, err == gomemcache.ErrCacheMiss, err == gomemcache.ErrNotStored:
		return nil
	case err != gomemcache.ErrCASConflict && !noRoomToStore(err):
		return c.failed("cas", err)
	}
	// The item has changed, or the server has no room even for an empty value:
	// take the count read, and leave later hits.
	if count == 0 {
		return nil
	}
	if _, err := l.decrement(item.Key, uint64(count)); err != nil {
		return c.failedCounting("decr", item.Key, err)
	}
	return nil
}

// cas is the CompareAndSwap of gomemcache, and keeps the connection if the
// server has no room.
func (l *link) cas(item *gomemcache.Item) error {
	l.keepOpen = true
	err := l.client.CompareAndSwap(item)
	l.keepOpen = false
	if l.conn != nil && !l.conn.inClient && !noRoomToStore(err) {
		l.conn.Close()
	}
	return err
}

func noRoomToStore(err error) bool {
	return err != nil && strings.Contains(err.Error(), `"SERVER_ERROR out of memory`)
}

// step makes some requests to a server, and waits for all.
func (s *Store) step(ctx context.Context, deadline time.Time, p *peer, tasks int, task func(c *call, l *link, i int) error) error {
	wait, err := s.begin(ctx, deadline)
	if err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	c := s.newCall(p)
	c.tasks, c.workers = tasks, forgetWorkers
	c.task = func(l *link, i int) error { return task(c, l, i) }
	return c.result(c.run(ctx, timer.C))
}

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

var _ backend.Forgetter = (*Store)(nil)

const (
	// forgetWorkers is the most requests of a Forget that are under way at once: few
	// enough that the server answers others in between.
	forgetWorkers = 8

	// forgetStep is the number of items that one step of a Forget looks for.
	forgetStep = 4 * chunkSize
)

// Forget is described in [backend.Forgetter]. What is there is looked for in
// the coarsest tier first, and in a finer one only where the coarser has an
// item, even one that counts 0; then the finest tier is emptied first, oldest
// bucket first, and the coarsest last, so that a second Forget finds what a
// first has left. It remembers the instants of its beginning and of its end.
//
// An item goes away if nobody has changed it since it was read, in one step;
// otherwise what was read is taken from it, so that no hit is lost that came in
// between. A Forget makes no items but its mark. Without f.Deadline each step,
// of some thousand items, may take the store's timeout.
func (s *Store) Forget(ctx context.Context, f *backend.ForgetRequest) error {
	if err := checkKey(f.Key); err != nil {
		return err
	}
	if len(f.TTLs) != f.Ladder.Len() {
		return fmt.Errorf("memcache: %d TTLs to forget a key by, want %d", len(f.TTLs), f.Ladder.Len())
	}
	e := emptying{store: s, ctx: ctx, deadline: f.Deadline, key: f.Key}
	name := markName(f.Key)
	remember := func() error {
		m := mark{f.Latest(), time.Now().Add(f.Remember + time.Second)}
		return e.step(1, func(c *call, l *link, _ int) error { return c.remember(l, name, m) })
	}
	if err := remember(); err != nil {
		return err
	}
	rows := make([][]row, f.Ladder.Len()) // rows[i] is where items of tier i may be
	for i := len(rows) - 1; i >= 0; i-- {
		tier := f.Ladder.At(i)
		if err := checkWidth(tier.Width); err != nil {
			return err
		}
		if i == len(rows)-1 {
			// A clock ahead has hit what is ahead of this one.
			now, ahead := f.Now.UnixNano(), f.TTLs[i]-tier.Keep+time.Minute
			rows[i] = []row{{tiers.Index(now-int64(f.TTLs[i]), tier.Width), tiers.Index(now+int64(ahead), tier.Width)}}
		} else {
			rows[i] = within(rows[i+1], int64(f.Ladder.At(i+1).Width/tier.Width))
		}
		if i == 0 {
			break // found when it is emptied
		}
		var held []row
		if err := e.visit(tier.Width, rows[i], func(items []*gomemcache.Item) error {
			for _, item := range items {
				index, err := strconv.ParseInt(item.Key[len(e.key)+len(stemOf(tier.Width)):], 10, 64)
				if err != nil {
					return fmt.Errorf("memcache: an item that was not asked for: %w", err)
				}
				held = appendIndex(held, index)
			}
			return nil
		}); err != nil {
			return err
		}
		rows[i] = held
	}
	for i := range rows {
		if err := e.visit(f.Ladder.At(i).Width, rows[i], e.expire); err != nil {
			return err
		}
	}
	return remember()
}

// row is buckets of one tier: first to last.
type row struct{ first, last int64 }

// within is the buckets inside those of coarse, each of which holds ratio of
// them. Those that the tier's Keep is over for are among them: an item lives from
// when it was made, whatever its label.
func within(coarse []row, ratio int64) (fine []row) {
	for _, r := range coarse {
		fine = append(fine, row{r.first * ratio, (r.last+1)*ratio - 1})
	}
	return fine
}

func appendIndex(rows []row, index int64) []row {
	if n := len(rows); n > 0 && rows[n-1].last+1 == index {
		rows[n-1].last = index
		return rows
	}
	return append(rows, row{index, index})
}

// stemOf is the part between key and index in the name of an item.
func stemOf(width time.Duration) string { return string(appendStem(nil, "", width)) }

// emptying is a Forget under way.
type emptying struct {
	store    *Store
	ctx      context.Context
	deadline time.Time
	key      string
}

func (e *emptying) step(parts int, part func(c *call, l *link, i int) error) error {
	return e.store.step(e.ctx, e.deadline, e.key, parts, part)
}

// visit reads the items of rows, and calls f with those that are there, some
// thousand at a time and in the order of their buckets.
func (e *emptying) visit(width time.Duration, rows []row, f func([]*gomemcache.Item) error) error {
	stem := e.key + stemOf(width)
	var names []string
	flush := func() error {
		found, err := e.read(names)
		names = nil // the last step may still use them
		if err != nil || len(found) == 0 {
			return err
		}
		return f(found)
	}
	for _, r := range rows {
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

// read returns the items of these names that are there.
func (e *emptying) read(names []string) ([]*gomemcache.Item, error) {
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

// expire takes away what was read.
func (e *emptying) expire(items []*gomemcache.Item) error {
	return e.step(len(items), func(c *call, l *link, i int) error { return c.expire(l, items[i]) })
}

func (c *call) expire(l *link, item *gomemcache.Item) error {
	count, err := parseCount(item.Value)
	if err != nil {
		return c.bad("get", item.Key, err)
	}
	if err := l.ready(); err != nil {
		return c.failed("cas", err)
	}
	// A cas with a time to live below zero is a delete that knows what it
	// deletes, which memcached's delete does not.
	switch err := l.cas(&gomemcache.Item{Key: item.Key, Value: []byte("0"), Expiration: -1, CasID: item.CasID}); {
	case err == nil, err == gomemcache.ErrCacheMiss, err == gomemcache.ErrNotStored:
		return nil
	case err != gomemcache.ErrCASConflict && !noRoomToStore(err):
		return c.failed("cas", err)
	}
	// Somebody else has changed it, or there is no room to put even nothing in
	// its place: what was read goes, what came since stays.
	if count == 0 {
		return nil
	}
	if _, err := l.decrement(item.Key, uint64(count)); err != nil {
		return c.failedCounting("decr", item.Key, err)
	}
	return nil
}

// cas is gomemcache's, and keeps the connection where the server has no room.
func (l *link) cas(item *gomemcache.Item) error {
	l.keep = true
	err := l.client.CompareAndSwap(item)
	l.keep = false
	if l.conn != nil && !l.conn.handed && !noRoomToStore(err) {
		l.conn.Close()
	}
	return err
}

func noRoomToStore(err error) bool {
	return err != nil && strings.Contains(err.Error(), `"SERVER_ERROR out of memory`)
}

// step makes some requests to the server of key, and waits for them.
func (s *Store) step(ctx context.Context, deadline time.Time, key string, parts int, part func(c *call, l *link, i int) error) error {
	expired, stop, err := s.begin(ctx, deadline)
	if err != nil {
		return err
	}
	defer stop()
	c := s.newCall(key)
	c.parts, c.workers = parts, forgetWorkers
	c.part = func(l *link, i int) error { return part(c, l, i) }
	return c.result(c.run(ctx, expired))
}

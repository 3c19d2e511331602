package classic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// Memcached makes a store on memcached servers, for [TextbookTiers] alone: the
// other limiters read and write in a single step, and memcached has no such step.
//
// The client's owner closes the client. The client's Timeout bounds each trip to a
// server; Config.Timeout and the context of a call are looked at between trips.
// Items live by the clock of the server, in whole seconds.
func Memcached(client *memcache.Client, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, errors.New("classic: the memcached client is nil, want one of gomemcache")
	}
	return &Store{cfg: cfg, server: &items{client}}, nil
}

// items are the items of memcached servers.
type items struct{ client *memcache.Client }

var _ server = (*items)(nil)

func (m *items) String() string { return "memcached" }

// counts is a multi-get.
func (m *items) counts(_ context.Context, names []string, c *call) ([]int64, error) {
	c.trips++
	c.reads += int64(len(names))
	found, err := m.client.GetMulti(names)
	if err != nil {
		return nil, m.failed(err)
	}
	counts := make([]int64, len(names))
	for i, name := range names {
		item := found[name]
		if item == nil {
			continue
		}
		if counts[i], err = strconv.ParseInt(string(item.Value), 10, 64); err != nil {
			return nil, m.failed(redisscript.ErrForeign)
		}
	}
	return counts, nil
}

// add counts in item after item: incr, and add if there is no item, and incr again
// if another caller has added the item in between.
func (m *items) add(ctx context.Context, n int64, to []counted, c *call) error {
	for _, b := range to {
		if err := ctx.Err(); err != nil {
			return m.failed(err)
		}
		err := memcache.ErrNotStored
		for i := 0; errors.Is(err, memcache.ErrNotStored) && i < 3; i++ {
			c.trips, c.writes = c.trips+1, c.writes+1
			if _, err = m.client.Increment(b.name, uint64(n)); errors.Is(err, memcache.ErrCacheMiss) {
				c.trips, c.writes = c.trips+1, c.writes+1
				err = m.client.Add(&memcache.Item{Key: b.name, Value: strconv.AppendInt(nil, n, 10), Expiration: expiration(b.life)})
			}
		}
		if err != nil {
			return m.failed(err)
		}
	}
	return nil
}

// expiration is the time of life of an item in memcached's terms, at least us
// microseconds: the clock of memcached ticks once a second, and beyond 30 days
// memcached wants a date.
func expiration(us int64) int32 {
	seconds := ceilDiv(us, 1e6) + 2
	if seconds > int64(30*dur.Day/time.Second) {
		seconds += time.Now().Unix()
	}
	return int32(min(seconds, math.MaxInt32))
}

// itemOverhead is the size of an item in bytes without name and value: the header,
// a number for cas, and the ends of both texts.
const itemOverhead = 48 + 8 + 1 + 2

// usage is the size of the items under names, without what a slab rounds up.
func (m *items) usage(_ context.Context, names []string) (sum int64, err error) {
	found, err := m.client.GetMulti(names)
	if err != nil {
		return 0, m.failed(err)
	}
	for name, item := range found {
		sum += itemOverhead + int64(len(name)) + int64(len(item.Value))
	}
	return sum, nil
}

func (m *items) failed(err error) error { return fmt.Errorf("%s: %w", m, err) }

package servers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/classic/internal/server"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// Memcached makes a store on memcached servers, for [classic.TextbookTiers] alone: the
// other limiters read and write in a single step, and memcached has no such step.
//
// The client's owner closes the client. The client's Timeout bounds each trip to a
// server; Config.Timeout and the context of a call are looked at between trips.
// Items live by the clock of the server, in whole seconds.
func Memcached(client *memcache.Client, cfg classic.Config) (*classic.Store, error) {
	if client == nil {
		return nil, errors.New("classic: the memcached client is nil, want one of gomemcache")
	}
	return classic.On(&items{client}, cfg)
}

// items are the items of memcached servers.
type items struct{ client *memcache.Client }

var _ server.Server = (*items)(nil)

func (m *items) String() string { return "memcached" }

// Counts is a multi-get.
func (m *items) Counts(_ context.Context, names []string, cost *server.Cost) ([]int64, error) {
	cost.Trips++
	cost.Reads += int64(len(names))
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

// Add counts in item after item: incr, and add if there is no item, and incr again
// if another caller has added the item in between.
func (m *items) Add(ctx context.Context, n int64, to []server.Counter, cost *server.Cost) error {
	for _, b := range to {
		if err := ctx.Err(); err != nil {
			return m.failed(err)
		}
		err := memcache.ErrNotStored
		for i := 0; errors.Is(err, memcache.ErrNotStored) && i < 3; i++ {
			cost.Trips, cost.Writes = cost.Trips+1, cost.Writes+1
			if _, err = m.client.Increment(b.Name, uint64(n)); errors.Is(err, memcache.ErrCacheMiss) {
				cost.Trips, cost.Writes = cost.Trips+1, cost.Writes+1
				err = m.client.Add(&memcache.Item{Key: b.Name, Value: strconv.AppendInt(nil, n, 10), Expiration: expiration(b.Life)})
			}
		}
		if err != nil {
			return m.failed(err)
		}
	}
	return nil
}

// expiration is the time of life of an item in memcached's terms, at least life:
// the clock of memcached ticks once a second, and beyond 30 days
// memcached wants a date.
func expiration(life time.Duration) int32 {
	seconds := whole(life, time.Second) + 2
	if seconds > int64(30*dur.Day/time.Second) {
		seconds += time.Now().Unix()
	}
	return int32(min(seconds, math.MaxInt32))
}

// itemOverhead is the size of an item in bytes without name and value: the header,
// a number for cas, and the ends of both texts.
const itemOverhead = 48 + 8 + 1 + 2

// Usage is the size of the items under names, without what a slab rounds up.
func (m *items) Usage(_ context.Context, names []string) (sum int64, err error) {
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

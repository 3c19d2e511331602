package compare

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// reserver is a limiter whose requests may wait.
type reserver interface {
	Reserve(ctx context.Context, key counter.Key, n int64) (counter.Verdict, time.Duration, error)
}

// textbook is a candidate of package classic.
func textbook[L classic.Measured](name, worst string, limiter func(counter.Limit, *classic.Store) (L, error)) candidate {
	return candidate{name, "classic", worst, func(_ context.Context, c *Comparison, limit counter.Limit) (*algorithm, error) {
		a := c.at(name != exactLog || c.cfg.Store.Memcached == nil) // where nothing exact can be
		cfg := classic.Config{Now: func() time.Time { return c.now }, Grace: c.grace, Prefix: c.prefix, Timeout: c.cfg.Timeout, MaxKeys: 4 * MaxEvents}
		if a.on == stores.InMemory {
			cfg.Prefix = "" // a name's length is memory
			if c.grace == 0 {
				cfg.Grace = -1 // nobody is behind
			}
		}
		build := func(store *classic.Store, err error) (classic.Measured, error) {
			if err != nil {
				return nil, err
			}
			return limiter(limit, store)
		}
		local, err := build(classic.Memory(cfg))
		if err != nil {
			return nil, err
		}
		measured := local
		// A time to live runs by the server's clock, not the log's. The default's
		// second is a margin for a replay slower than the log.
		cfg.Grace = max(cfg.Grace, classic.DefaultGrace)
		switch a.on {
		case stores.OnRedis:
			measured, err = build(classic.Redis(c.cfg.Store.Redis.Client, cfg))
		case stores.OnMemcached:
			measured, err = build(classic.Memcached(c.cfg.Store.Memcached.Client, cfg))
		}
		a.take = func(ctx context.Context, key counter.Key) (v counter.Verdict, delay time.Duration, err error) {
			if queue, is := measured.(reserver); is {
				return queue.Reserve(ctx, key, 1)
			}
			v, err = measured.Take(ctx, key, 1)
			return v, 0, err
		}
		a.bytes = func(ctx context.Context, key counter.Key, _ []Hit) (int64, error) { return measured.Bytes(ctx, key) }
		if name == textbookTiers && a.on != stores.InMemory {
			// The limiter would look under every possible name, 2.6 million for a window of
			// 30 days: base, the letter of the tier, and the bucket's number.
			a.names = func(_ context.Context, key counter.Key, hits []Hit) ([]string, error) {
				return bucketNames(hits, tiers.Default.Tiers(), limit.Per-tiers.Default.At(0).Keep+cfg.Grace, func(width time.Duration, index int64) string {
					unit := strings.TrimPrefix(dur.Format(width), "1")
					return local.Keys(key)[0] + unit + strconv.FormatInt(index, 10)
				}), nil
			}
		}
		a.cost = func(context.Context, *Log, func(uint32) bool) (classic.Cost, string, error) {
			return measured.Cost(), map[bool]string{true: "states", false: "commands"}[a.on == stores.InMemory], nil
		}
		return a, err
	}}
}

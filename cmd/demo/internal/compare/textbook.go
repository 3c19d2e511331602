package compare

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// textbook is a candidate of package classic.
func textbook[L classic.Measured](name, worst string, limiter func(counter.Limit, *classic.Store) (L, error)) candidate {
	return candidate{name, "classic", worst, func(_ context.Context, c *Comparison, limit counter.Limit) (algorithm, error) {
		cfg := classic.Config{Now: func() time.Time { return c.now }, Grace: c.grace, Prefix: c.prefix, Timeout: c.cfg.Timeout, MaxKeys: 4 * MaxEvents}
		t := &textbookRun{redis: c.cfg.Store.Redis, limit: limit}
		if t.redis == nil {
			cfg.Prefix = "" // a name's length is memory
			if c.grace == 0 {
				cfg.Grace = -1 // nobody is behind
			}
		}
		store, err := classic.Memory(cfg)
		if err != nil {
			return nil, err
		}
		if t.Measured, err = limiter(limit, store); err != nil || t.redis == nil {
			return t, err
		}
		if name == textbookTiers {
			t.local = t.Measured
		}
		// A time to live runs by the server's clock, not the log's. The default's
		// second is a margin for a replay slower than the log.
		cfg.Grace = max(cfg.Grace, classic.DefaultGrace)
		t.grace = cfg.Grace
		if store, err = classic.Redis(t.redis.Client, cfg); err != nil {
			return nil, err
		}
		t.Measured, err = limiter(limit, store)
		return t, err
	}}
}

// textbookRun is a limiter of package classic, at work.
type textbookRun struct {
	classic.Measured
	limit counter.Limit
	redis *stores.Redis // nil in memory
	grace time.Duration
	local classic.Measured // of textbook tiers on Redis: the same in memory, for its names
}

var _ algorithm = (*textbookRun)(nil)

func (t *textbookRun) take(ctx context.Context, key counter.Key) (bool, error) {
	v, err := t.Take(ctx, key, 1)
	return v.Allowed, err
}

// weigh asks the limiter. Textbook tiers on Redis would look under every possible
// name, 2.6 million for a window of 30 days; here the names are known.
func (t *textbookRun) weigh(ctx context.Context, key counter.Key, hits []Hit) (int64, error) {
	if t.local == nil {
		return t.Bytes(ctx, key)
	}
	return usage(ctx, t.redis, t.bucketNames(t.local.Keys(key)[0], hits))
}

// bucketNames lists the names of the buckets still kept after the last of hits:
// base, the letter of the tier, and the bucket's number.
func (t *textbookRun) bucketNames(base string, hits []Hit) (names []string) {
	now := hits[len(hits)-1].At.UnixNano()
	for _, hit := range hits {
		if !hit.Admitted {
			continue
		}
		for letter, width := range map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour} {
			index := tiers.Index(hit.At.UnixNano(), width)
			if (index+1)*int64(width)+int64(t.limit.Per+t.grace) > now {
				names = append(names, base+letter+strconv.FormatInt(index, 10))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (t *textbookRun) account(_ context.Context, a *Algorithm, log *Log, _ func(uint32) bool) error {
	cost, n := t.Cost(), float64(log.Events())
	a.ReadsPerEvent, a.WritesPerEvent, a.TripsPerEvent = float64(cost.Reads)/n, float64(cost.Writes)/n, float64(cost.Trips)/n
	a.BytesMeasured, a.Counted = "estimate of the heap", "states"
	if t.redis != nil {
		a.BytesMeasured, a.Counted = "MEMORY USAGE", "commands"
	}
	return nil
}

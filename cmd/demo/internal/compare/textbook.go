package compare

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// textbook is a candidate of package classic.
func textbook[L classic.Measured](name, worst string, limiter func(counter.Limit, *classic.Store) (L, error)) candidate {
	return candidate{name, "classic", worst, func(_ context.Context, c *Comparison, limit counter.Limit) (algorithm, error) {
		cfg := classic.Config{Now: func() time.Time { return c.now }, Grace: c.grace, Prefix: c.prefix, Timeout: c.cfg.Timeout, MaxKeys: 4 * MaxEvents}
		t := &textbookRun{c: c, limit: limit}
		if name != exactLog || c.cfg.Store.Memcached == nil { // where nothing exact can be
			t.redis, t.memcached = c.cfg.Store.Redis, c.cfg.Store.Memcached
		}
		if t.redis == nil && t.memcached == nil {
			cfg.Prefix = "" // a name's length is memory
			if c.grace == 0 {
				cfg.Grace = -1 // nobody is behind
			}
		}
		store, err := classic.Memory(cfg)
		if err != nil {
			return nil, err
		}
		if t.Measured, err = limiter(limit, store); err != nil || t.redis == nil && t.memcached == nil {
			return t, err
		}
		if name == textbookTiers {
			t.local = t.Measured
		}
		// A time to live runs by the server's clock, not the log's. The default's
		// second is a margin for a replay slower than the log.
		cfg.Grace = max(cfg.Grace, classic.DefaultGrace)
		t.grace = cfg.Grace
		if t.redis != nil {
			store, err = classic.Redis(t.redis.Client, cfg)
		} else {
			store, err = classic.Memcached(t.memcached.Client, cfg)
		}
		if err != nil {
			return nil, err
		}
		t.Measured, err = limiter(limit, store)
		return t, err
	}}
}

// textbookRun is a limiter of package classic, at work.
type textbookRun struct {
	classic.Measured
	c         *Comparison
	limit     counter.Limit
	redis     *stores.Redis     // nil elsewhere
	memcached *stores.Memcached // nil elsewhere
	grace     time.Duration
	local     classic.Measured // of textbook tiers on a server: the same in memory, for its names
}

var _ algorithm = (*textbookRun)(nil)

// reserver is a limiter whose requests may wait.
type reserver interface {
	Reserve(ctx context.Context, key counter.Key, n int64) (counter.Verdict, time.Duration, error)
}

func (t *textbookRun) take(ctx context.Context, key counter.Key) (bool, time.Duration, error) {
	if queue, is := t.Measured.(reserver); is {
		v, delay, err := queue.Reserve(ctx, key, 1)
		return v.Allowed, delay, err
	}
	v, err := t.Take(ctx, key, 1)
	return v.Allowed, 0, err
}

// weigh asks the limiter. Textbook tiers on a server would look under every possible
// name, 2.6 million for a window of 30 days; here the names are known.
func (t *textbookRun) weigh(ctx context.Context, key counter.Key, hits []Hit) (int64, error) {
	if t.local == nil {
		return t.Bytes(ctx, key)
	}
	names := t.bucketNames(t.local.Keys(key)[0], hits)
	if t.memcached != nil {
		return sizes(t.memcached, names)
	}
	return usage(ctx, t.redis, names)
}

// bucketNames lists the names of the buckets still kept after the last of hits:
// base, the letter of the tier, and the bucket's number.
func (t *textbookRun) bucketNames(base string, hits []Hit) (names []string) {
	now := hits[len(hits)-1].At.UnixNano()
	for _, hit := range hits {
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
	cost, n := t.Cost(), float64(log.Events)
	a.ReadsPerEvent, a.WritesPerEvent, a.TripsPerEvent = float64(cost.Reads)/n, float64(cost.Writes)/n, float64(cost.Trips)/n
	a.BytesMeasured, a.Counted = "estimate of the heap", "states"
	if t.redis != nil {
		a.BytesMeasured, a.Counted = "MEMORY USAGE", "commands"
	} else if t.memcached != nil {
		a.BytesMeasured, a.Counted = sizesMeasured, "commands"
	}
	return nil
}

// clean removes the buckets of all hits: a failed call may have counted.
func (t *textbookRun) clean(ctx context.Context, log *Log) error {
	ctx, cancel := stores.Cleaning(ctx)
	defer cancel()
	switch {
	case t.redis != nil:
		_, err := t.redis.Remove(ctx, "*"+t.c.prefix+"*")
		return err
	case t.memcached == nil:
		return nil
	}
	_, err := t.memcached.Remove(ctx, func(yield func(item string) bool) {
		for key := range log.keys {
			base := t.local.Keys(log.keys[key])[0]
			for _, i := range log.of(key) {
				for _, name := range t.bucketNames(base, []Hit{{At: log.at(i)}}) {
					if !yield(name) {
						return
					}
				}
			}
		}
	})
	return err
}

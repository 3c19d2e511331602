package compare

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/classic/servers"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// algorithm is a limiter in a trial, for a single goroutine.
type algorithm struct {
	*Comparison
	on       stores.Kind // where it counts
	measured string      // how its memory is

	// take decides about a hit; an admitted hit happens after a delay.
	take func(ctx context.Context, key counter.Key) (v counter.Verdict, delay time.Duration, err error)

	// names are the names under which a server has a key after all of the key's hits;
	// bytes is the memory of a key where names is nil.
	names func(ctx context.Context, key counter.Key, hits []Hit) ([]string, error)
	bytes func(ctx context.Context, key counter.Key, hits []Hit) (int64, error)

	cost costing
}

// costing is the cost of the whole log, after its last event, and the unit of reads and
// writes. admitted tells the decision about an event.
type costing func(ctx context.Context, log *Log, admitted func(event uint32) bool) (c classic.Cost, counted string, err error)

// at makes an algorithm that counts on the store of the comparison, if it can count
// there.
func (c *Comparison) at(there bool) *algorithm {
	a := &algorithm{Comparison: c}
	if there {
		a.on = c.cfg.Store.Name.Kind
	}
	a.measured = [...]string{"estimate of the heap", "MEMORY USAGE", "the sizes of the items"}[a.on]
	return a
}

// weigh is the number of bytes held by the store for a key, after all of the key's hits.
func (a *algorithm) weigh(ctx context.Context, key counter.Key, hits []Hit) (int64, error) {
	if a.names == nil {
		return a.bytes(ctx, key, hits)
	}
	names, err := a.names(ctx, key, hits)
	switch {
	case err != nil:
		return 0, err
	case a.on == stores.OnRedis:
		return usage(ctx, a.cfg.Store.Redis, names)
	}
	return sizes(a.cfg.Store.Memcached, names)
}

// clean removes from servers what the events of log have left there, also after an
// interrupt. A failed call may have counted: what any hit can have left goes.
func (a *algorithm) clean(ctx context.Context, log *Log) (err error) {
	ctx, cancel := stores.Cleaning(ctx)
	defer cancel()
	switch a.on {
	case stores.OnRedis:
		_, err = a.cfg.Store.Redis.Remove(ctx, "*"+a.prefix+"*")
	case stores.OnMemcached:
		_, err = a.cfg.Store.Memcached.Remove(ctx, func(yield func(item string) bool) {
			for _, e := range log.events {
				names, _ := a.names(ctx, log.keys[e.key], []Hit{{At: time.UnixMicro(e.at)}}) // an error is of the key, which take has refused
				for _, name := range names {
					if !yield(name) {
						return
					}
				}
			}
		})
	}
	return err
}

// bucketNames lists the names of the buckets of hits that have not ended longer ago than
// keep and slack. A replayed log is over before they expire by the server's clock.
func bucketNames(hits []Hit, all []tiers.Tier, slack time.Duration, name func(width time.Duration, index int64) string) (names []string) {
	now := hits[len(hits)-1].At.UnixNano()
	for _, hit := range hits {
		for _, t := range all {
			if index := tiers.Index(hit.At.UnixNano(), t.Width); (index+1)*int64(t.Width)+int64(t.Keep+slack) > now {
				names = append(names, name(t.Width, index))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// candidate is an algorithm that may serve a limit.
type candidate struct {
	name, source, worst string
	open                func(ctx context.Context, c *Comparison, limit counter.Limit) (*algorithm, error)
}

// candidates lists all algorithms for a limit in the order of the report; the
// first is exact.
func candidates(limit counter.Limit) []candidate {
	all := []candidate{
		textbook(exactLog, "N", classic.NewSlidingLog),
		textbook("fixed window", "2N", classic.NewFixedWindow),
		textbook("fixed slots", "2N", classic.NewFixedSlots),
		textbook("first hit window", "2N-1", classic.NewFirstHitWindow),
		textbook("sliding counter", "2N-1", classic.NewSlidingCounter),
		textbook("sliding decay", "2N", classic.NewSlidingDecay),
		textbook("request decay", "2N", classic.NewRequestDecay),
		textbook("token bucket", "2N", unbursting(classic.NewTokenBucket)),
		textbook("GCRA", "2N", unbursting(classic.NewGCRA)),
		textbook("leaky meter", "2N", unbursting(classic.NewLeakyMeter)),
		textbook("leaky queue", "N+1", func(l counter.Limit, s *classic.Store) (*classic.LeakyQueue, error) {
			return classic.NewLeakyQueue(l, l.Max, s)
		}),
		textbook("token shaper", "2N", func(l counter.Limit, s *classic.Store) (*classic.TokenShaper, error) {
			return classic.NewTokenShaper(l, 0, l.Max, s)
		}),
		textbook(textbookTiers, "2N", classic.NewTextbookTiers),
	}
	for _, l := range ladders(limit.Per) {
		all = append(all, onLadder(l))
	}
	return all
}

const (
	exactLog      = "sliding log"
	textbookTiers = "textbook tiers"
)

// unbursting makes limiters with the default burst.
func unbursting[L classic.Measured](limiter func(counter.Limit, int64, *classic.Store) (L, error)) func(counter.Limit, *classic.Store) (L, error) {
	return func(l counter.Limit, s *classic.Store) (L, error) { return limiter(l, 0, s) }
}

// ladders lists the default ladder, coarser ladders, and the ladder fitted to the
// window.
func ladders(per time.Duration) []tiers.Ladder {
	all := []tiers.Ladder{
		tiers.Default,
		must(tiers.New(tiers.Tier{Width: time.Minute, Keep: dur.Day}, tiers.Tier{Width: time.Hour, Keep: dur.Day})),
		must(tiers.New(tiers.Tier{Width: 10 * time.Minute, Keep: dur.Day}, tiers.Tier{Width: time.Hour, Keep: dur.Day})),
	}
	if fit := tiers.For(per); fit.String() != tiers.Default.String() {
		all = append(all, fit)
	}
	return all
}

func must(l tiers.Ladder, err error) tiers.Ladder {
	if err != nil {
		panic(err) // not from input
	}
	return l
}

// reason is the text of err without the package and the limit, both known to the
// reader.
func reason(err error, limit counter.Limit) string {
	text := err.Error()
	for _, known := range []string{"classic: ", "tiers: ", "counter: ", fmt.Sprintf("limit %s: ", limit)} {
		text = strings.TrimPrefix(text, known)
	}
	return text
}

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
				cfg.Grace = -1 // no one is behind
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
			measured, err = build(servers.Redis(c.cfg.Store.Redis.Client, cfg))
		case stores.OnMemcached:
			measured, err = build(servers.Memcached(c.cfg.Store.Memcached.Client, cfg))
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

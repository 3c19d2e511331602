package compare

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// onLadder is the candidate that counts on a ladder of package counter.
func onLadder(l tiers.Ladder) candidate {
	return candidate{"abacus " + l.String(), "abacus", "N", func(ctx context.Context, c *Comparison, limit counter.Limit) (*algorithm, error) {
		if _, err := l.Finest(limit.Per); err != nil {
			return nil, err
		}
		a, limits := c.at(true), counter.Limits{limit}
		on := func(store backend.Store, prefix string) (*counter.Counter, error) {
			return replay.NewCounter(store, l, c.cfg.Skew, prefix, &c.now)
		}
		trips := int64(0)
		store, prefix := backend.Store(memory.New(memory.Config{MaxBuckets: math.MaxInt})), ""
		if a.on != stores.InMemory {
			prefix, store = c.prefix, backend.Wrap(c.cfg.Store.Store, func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error {
				trips++
				return do(ctx)
			})
		}
		count, err := on(store, prefix)
		if err != nil {
			return nil, err
		}
		a.take = func(ctx context.Context, key counter.Key) (counter.Verdict, time.Duration, error) {
			v, err := count.Take(ctx, key, 1, limits)
			return v, 0, err
		}
		if a.cost, err = c.costs(ctx, l, limit, &trips); err != nil {
			return nil, err
		}
		if a.on == stores.InMemory {
			a.measured = "16 bytes a bucket of its store"
			a.bytes, err = scale(c, limits, on)
			return a, err
		}
		var named lastName
		names, err := on(&named, prefix)
		if a.on == stores.OnMemcached {
			names, err = on(struct{ backend.Store }{&named}, prefix) // a counter names a key by its store's way to count
		}
		a.names = func(ctx context.Context, key counter.Key, hits []Hit) ([]string, error) {
			if _, err := names.Peek(ctx, key, 1, limits); err != nil {
				return nil, err
			}
			if a.on == stores.OnRedis {
				return leaves(l, named.key, hits[len(hits)-1].At, 2*c.cfg.Skew), nil
			}
			return bucketNames(hits, l.Tiers(), 2*c.cfg.Skew, func(width time.Duration, index int64) string {
				return stores.ItemName(named.key, width, index)
			}), nil
		}
		return a, err
	}}
}

// costs counts the buckets read by covers and the buckets written by hits; on a Redis
// without other clients, the commands of the scripts.
func (c *Comparison) costs(ctx context.Context, l tiers.Ladder, limit counter.Limit, trips *int64) (_ costing, err error) {
	var before commands
	if c.quiet {
		before, err = commandsOf(ctx, c.cfg.Store.Redis)
	}
	return func(ctx context.Context, log *Log, admitted func(uint32) bool) (cost classic.Cost, counted string, err error) {
		if c.quiet {
			after, err := commandsOf(ctx, c.cfg.Store.Redis)
			// A script unknown to the server is sent twice.
			if n := after.scripts - before.scripts; err != nil || n >= *trips && n <= *trips+8 {
				return classic.Cost{Trips: *trips, Reads: after.reads - before.reads, Writes: after.writes - before.writes}, "commands", err
			}
		}
		cost.Trips = *trips
		for i, e := range log.events {
			cover, err := l.Cover(time.UnixMicro(e.at), limit.Per, c.cfg.Skew)
			if err != nil {
				return cost, "", err
			}
			if cost.Reads += cover.Reads(); admitted(uint32(i)) {
				cost.Writes += int64(l.Len())
			}
		}
		return cost, "buckets", nil
	}, err
}

// scale weighs a key in memory by counting its hits once more on a store without other
// keys, since a store knows only the memory of all keys together.
func scale(c *Comparison, limits counter.Limits, on func(backend.Store, string) (*counter.Counter, error)) (func(context.Context, counter.Key, []Hit) (int64, error), error) {
	const bucketBytes = 16 // of a bucket, the unit of the Stats
	store := memory.New(memory.Config{MaxBuckets: math.MaxInt})
	count, err := on(store, "")
	return func(ctx context.Context, key counter.Key, hits []Hit) (int64, error) {
		before := store.Stats().Buckets
		for _, hit := range hits {
			c.now = hit.At
			if _, err := count.Take(ctx, key, 1, limits); err != nil {
				return 0, err
			}
		}
		return bucketBytes * (store.Stats().Buckets - before), nil
	}, err
}

// leaves lists the names of a key on a Redis at the given time, as docs/storage.md has
// them: a root for each group of tiers that are kept equally long, and leaves of four
// kinds for stretches of time. In a replayed log leaves outlive their stretch; such leaves
// are left out.
func leaves(l tiers.Ladder, key string, at time.Time, skews time.Duration) (names []string) {
	letter := 'P'
	for first, last := 0, 0; first < l.Len(); first, letter = last+1, letter+1 {
		for last = first; last+1 < l.Len() && l.At(last+1).Keep == l.At(first).Keep; {
			last++
		}
		root := "{" + key + "}" + string(letter)
		names = append(names, root)
		fine, coarse := l.At(first), l.At(last)
		stretch := stores.Stretch(fine)
		oldest := at.Add(-coarse.Width - coarse.Keep - skews - stores.Late(fine) - stretch - fine.Width)
		for i := tiers.Index(oldest.UnixNano(), stretch); i <= tiers.Index(at.UnixNano(), stretch); i++ {
			for kind := 1; kind <= 4; kind++ {
				names = append(names, fmt.Sprintf("%s:%d.%d", root, i, kind))
			}
		}
	}
	return names
}

// lastName is a store that notes the name of the key last asked for.
type lastName struct {
	backend.Store
	key string
}

func (n *lastName) Do(_ context.Context, op *backend.Request) error {
	n.key = op.Key
	return nil
}

func (n *lastName) Take(_ context.Context, t *backend.TakeRequest) error {
	n.key = string(t.Keys[0].Key)
	return nil
}

func (*lastName) Together([]backend.TakeKey) bool { return true }

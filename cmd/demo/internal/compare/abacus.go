package compare

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// onLadder is the candidate that counts on a ladder of package counter.
func onLadder(l tiers.Ladder) candidate {
	return candidate{"abacus " + l.String(), "abacus", "N", func(ctx context.Context, c *Comparison, limit counter.Limit) (algorithm, error) {
		if _, err := l.Finest(limit.Per); err != nil {
			return nil, err
		}
		a := &abacusRun{c: c, limits: counter.Limits{limit}, ladder: l, redis: c.cfg.Store.Redis, memcached: c.cfg.Store.Memcached}
		on := func(store backend.Store, prefix string) (*counter.Counter, error) {
			return replay.NewCounter(store, l, c.cfg.Skew, prefix, &c.now)
		}
		var err error
		if a.redis == nil && a.memcached == nil {
			if a.counter, err = on(memory.New(memory.Config{MaxBuckets: math.MaxInt}), ""); err != nil {
				return nil, err
			}
			a.scale = memory.New(memory.Config{MaxBuckets: math.MaxInt})
			a.scaled, err = on(a.scale, "")
			return a, err
		}
		counted := backend.Wrap(c.cfg.Store.Store, func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error {
			a.trips++
			return do(ctx)
		})
		if a.counter, err = on(counted, c.prefix); err != nil {
			return nil, err
		}
		var name backend.Store = &a.name
		if a.memcached != nil {
			name = plain{name} // a counter names a key by its store's way to count
		}
		if a.named, err = on(name, c.prefix); err == nil && c.quiet {
			a.before, err = commandsOf(ctx, a.redis)
		}
		return a, err
	}}
}

// abacusRun is a counter at work.
type abacusRun struct {
	c       *Comparison
	limits  counter.Limits
	ladder  tiers.Ladder
	counter *counter.Counter

	// A key in memory is weighed by counting its hits once more on a store
	// without other keys, since a store knows only the memory of all keys
	// together.
	scale  *memory.Store
	scaled *counter.Counter

	redis     *stores.Redis     // nil elsewhere
	memcached *stores.Memcached // nil elsewhere
	trips     int64
	before    commands         // as c.quiet
	named     *counter.Counter // on name: gives the names under which a key is stored
	name      lastName
}

var _ algorithm = (*abacusRun)(nil)

func (a *abacusRun) take(ctx context.Context, key counter.Key) (bool, time.Duration, error) {
	v, err := a.counter.Take(ctx, key, 1, a.limits)
	return v.Allowed, 0, err
}

// bucketBytes is the cost of a bucket of a memory store, the unit of its Stats.
const bucketBytes = 16

func (a *abacusRun) weigh(ctx context.Context, key counter.Key, hits []Hit) (int64, error) {
	if a.redis != nil {
		return a.stored(ctx, key, hits[len(hits)-1].At)
	}
	if a.memcached != nil {
		return a.items(ctx, key, hits)
	}
	before := a.scale.Stats().Buckets
	for _, hit := range hits {
		a.c.now = hit.At
		if _, err := a.scaled.Take(ctx, key, 1, a.limits); err != nil {
			return 0, err
		}
	}
	return bucketBytes * (a.scale.Stats().Buckets - before), nil
}

// leafKinds is the number of forms of a leaf of backend/redis. The form is the last
// digit of the leaf's name.
const leafKinds = 4

// stored is the memory of a key on a Redis at the given time, by the names in
// docs/storage.md: a root for each group of tiers that are kept equally long, and
// leaves for stretches of time. In a replayed log leaves outlive their stretch;
// such leaves are told by their names and omitted.
func (a *abacusRun) stored(ctx context.Context, key counter.Key, at time.Time) (int64, error) {
	if _, err := a.named.Peek(ctx, key, 1, a.limits); err != nil {
		return 0, err
	}
	var names []string
	all := a.ladder.Tiers()
	letter := 'P'
	for first := 0; first < len(all); letter++ {
		last := first
		for last+1 < len(all) && all[last+1].Keep == all[first].Keep {
			last++
		}
		root := "{" + a.name.key + "}" + string(letter)
		names = append(names, root)
		stretch := stores.Stretch(all[first])
		oldest := at.UnixNano() - int64(all[last].Width+all[last].Keep+2*a.c.cfg.Skew+stores.Late(all[first])+stretch+all[first].Width)
		for i := tiers.Index(oldest, stretch); i <= tiers.Index(at.UnixNano(), stretch); i++ {
			for kind := 1; kind <= leafKinds; kind++ {
				names = append(names, fmt.Sprintf("%s:%d.%d", root, i, kind))
			}
		}
		first = last + 1
	}
	return usage(ctx, a.redis, names)
}

// items is the memory of a key on memcached: an item for each bucket, named as the
// documentation of backend/memcache says. A replayed log is over before the items
// expire; items that would have expired by the log's clock are omitted.
func (a *abacusRun) items(ctx context.Context, key counter.Key, hits []Hit) (int64, error) {
	if _, err := a.named.Peek(ctx, key, 1, a.limits); err != nil {
		return 0, err
	}
	now, names := hits[len(hits)-1].At.UnixNano(), map[string]bool{}
	for _, hit := range hits {
		for _, tier := range a.ladder.Tiers() {
			index := tiers.Index(hit.At.UnixNano(), tier.Width)
			if (index+1)*int64(tier.Width)+int64(tier.Keep+2*a.c.cfg.Skew) > now {
				names[stores.ItemName(a.name.key, tier.Width, index)] = true
			}
		}
	}
	return sizes(a.memcached, slices.Collect(maps.Keys(names)))
}

// clean removes all keys under the prefix, also after an interrupt.
func (a *abacusRun) clean(ctx context.Context, _ *Log) error {
	ctx, cancel := stores.Cleaning(ctx)
	defer cancel()
	_, err := a.c.cfg.Store.Clean(ctx, a.c.prefix)
	return err
}

// account counts the buckets read by covers and the buckets written by hits; on a
// Redis without other clients, the commands of the scripts.
func (a *abacusRun) account(ctx context.Context, out *Algorithm, log *Log, admitted func(uint32) bool) error {
	var reads, writes int64
	for i, e := range log.events {
		cover, err := a.ladder.Cover(time.UnixMicro(e.at), a.limits[0].Per, a.c.cfg.Skew)
		if err != nil {
			return err
		}
		reads += cover.Reads()
		if admitted(uint32(i)) {
			writes += int64(a.ladder.Len())
		}
	}
	out.Counted, out.BytesMeasured = "buckets", "16 bytes a bucket of its store"
	if a.memcached != nil {
		out.BytesMeasured = sizesMeasured
	}
	if a.redis != nil {
		out.BytesMeasured = "MEMORY USAGE"
		if a.c.quiet {
			after, err := commandsOf(ctx, a.redis)
			if err != nil {
				return err
			}
			// A script unknown to the server is sent twice.
			if n := after.scripts - a.before.scripts; n >= a.trips && n <= a.trips+8 {
				out.Counted, reads, writes = "commands", after.reads-a.before.reads, after.writes-a.before.writes
			}
		}
	}
	n := float64(log.Events)
	out.ReadsPerEvent, out.WritesPerEvent, out.TripsPerEvent = float64(reads)/n, float64(writes)/n, float64(a.trips)/n
	return nil
}

// lastName is a store of a single name: the name of the key last asked for.
type lastName struct {
	backend.Store
	key string
}

var _ backend.Atomic = (*lastName)(nil)

func (n *lastName) Do(_ context.Context, op *backend.Request) error {
	n.key = op.Key
	return nil
}

func (n *lastName) Take(_ context.Context, t *backend.TakeRequest) error {
	n.key = string(t.Keys[0].Key)
	return nil
}

func (*lastName) Together([]backend.TakeKey) bool { return true }

// plain is a store without an atomic step.
type plain struct{ backend.Store }

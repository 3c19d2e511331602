package memcache_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// halfPast is far from the boundaries of minutes and hours.
var halfPast = time.Date(2026, 3, 2, 12, 30, 30, 500_000_000, time.UTC)

func newCounter(t testing.TB, store backend.Store, cfg counter.Config) *counter.Counter {
	if cfg.Patience == 0 {
		cfg.Patience = patience
	}
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return halfPast }
	}
	return try.To(counter.New(store, cfg))(t)
}

// 100 callers meet on a full key where one place after the other opens: as many
// are admitted as by a log of every hit, with the promised life of a hit, and never
// more. The long form judges how many: a machine that stands still leaves places empty in
// a round, a store that starves callers in each.
func TestSustainedOverload(t *testing.T) {
	t.Parallel()
	const rounds = 5
	for round := 1; ; round++ {
		admitted, exact, failed, attempts := sustainedOverload(t)
		require.Positive(t, admitted)
		if !long.Asked() || failed <= attempts/100 && admitted >= exact*95/100 {
			return
		}
		require.Less(t, round, rounds, "%d of %d failed, %d admitted, %d by a log", failed, attempts, admitted, exact)
	}
}

func sustainedOverload(t *testing.T) (inAll, exact int, failures, calls int64) {
	const per, timeout, runs = 3 * time.Second, 2 * time.Second, 5 * time.Second
	limits := counter.Limits{{Max: 40, Per: per}}
	key := counter.Key{Event: "login", Feature: "user:x"}
	ladder := tiers.For(per)
	addr := servertest.Memcached(t)
	clock := time.Now
	var counters []*counter.Counter
	for range 4 {
		cfg := counter.Config{Ladder: ladder, Now: func() time.Time { return clock() }, Skew: -1, Patience: timeout}
		counters = append(counters, newCounter(t, newStore(t, memcache.Config{}, addr), cfg))
	}
	// A hit leaves with its bucket.
	leaves := func(hit time.Time) time.Time { return ladder.Buckets(hit)[0].End().Add(per) }
	began := time.Now()
	var full []time.Time
	for i := range limits[0].Max {
		hit := began.Add(-time.Duration(i) * per / 40)
		clock = func() time.Time { return hit }
		require.NoError(t, counters[0].Add(context.Background(), key, 1))
		full = append(full, hit)
	}
	clock = time.Now

	began = time.Now()
	var mu sync.Mutex
	var admitted []time.Time
	var attempts, failed atomic.Int64
	crowd(100, func(i int) {
		for time.Since(began) < runs {
			v, err := counters[i%4].Take(context.Background(), key, 1, limits)
			attempts.Add(1)
			if err != nil { // a slow machine may confirm a try too late
				failed.Add(1)
				if !errors.Is(err, counter.ErrStore) {
					t.Error(err)
				}
			}
			if v.Allowed {
				mu.Lock()
				admitted = append(admitted, v.At())
				mu.Unlock()
			}
			time.Sleep(time.Duration(long.Rounds(20, 5)) * time.Millisecond)
		}
	})

	log := slices.Clone(full)
	slices.SortFunc(log, time.Time.Compare)
	for i := 0; i < len(log) && leaves(log[i]).Before(began.Add(runs)); i++ {
		exact++
		log = append(log, leaves(log[i]))
	}
	t.Logf("%d admitted of %d attempts, %d by a log", len(admitted), attempts.Load(), exact)
	require.Greater(t, exact, 30)
	all := append(full, admitted...)
	slices.SortFunc(all, time.Time.Compare)
	for i := range all {
		in := 0
		for _, hit := range all[:i+1] {
			if all[i].Sub(hit) <= per {
				in++
			}
		}
		require.LessOrEqual(t, in, int(limits[0].Max))
	}
	return len(admitted), exact, failed.Load(), attempts.Load()
}

// Ten minutes of attempts on a full key, by several processes, leave nothing
// behind but the items of the first denial in each process.
func TestAnAttackLeavesNoItems(t *testing.T) {
	ctx := context.Background()
	addr := servertest.Memcached(t)
	now := halfPast
	const processes = 3
	var counters []*counter.Counter
	for range processes {
		counters = append(counters, newCounter(t, newStore(t, memcache.Config{}, addr), counter.Config{Now: func() time.Time { return now }}))
	}
	key, limits := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, counter.MustLimits("5/d")
	require.NoError(t, counters[0].Add(ctx, key, 5))
	items := number(t, stat(t, addr, "curr_items"))
	require.EqualValues(t, 3, items)
	for range 600 {
		now = now.Add(time.Second)
		for _, c := range counters {
			require.False(t, try.To(c.Take(ctx, key, 1, limits))(t).Allowed)
		}
	}
	require.LessOrEqual(t, number(t, stat(t, addr, "curr_items")), items+1, "the second of the first denials")
}

// Racing additions to a missing bucket get different counts.
func TestRacersCreateABucketOnce(t *testing.T) {
	addr := servertest.Memcached(t)
	stores := []*memcache.Store{newStore(t, memcache.Config{}, addr), newStore(t, memcache.Config{}, addr)}
	const racers = 30
	for round := range int64(50) {
		var places [racers + 1]atomic.Int64
		crowd(racers, func(i int) {
			op := adding("k", 1, slot(round))
			if err := stores[i%2].Do(context.Background(), op); err != nil {
				t.Error(err)
				return
			}
			places[op.Add[0].Count].Add(1)
		})
		for place := range racers {
			require.EqualValues(t, 1, places[place+1].Load(), "place %d of round %d", place+1, round)
		}
	}
}

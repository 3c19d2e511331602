package compare

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func onRedis(t testing.TB) *stores.Opened { return opened(t, "redis://"+servertest.Redis(t)) }

// held is the number of keys on a server, whatever their owners.
func held(t testing.TB, store *stores.Opened) int64 {
	return try.To(store.Redis.Client.DBSize(context.Background()).Result())(t)
}

// On a server each algorithm decides as in memory, and leaves no key behind; keys of
// other clients stay.
func TestOnRedis(t *testing.T) {
	store := onRedis(t)
	require.NoError(t, store.Redis.Client.Set(t.Context(), "others", "1", 0).Err())
	here, there := hereAndOn(t, store)
	for i, r := range there {
		require.Equal(t, store.Name.String(), r.Store)
		require.Equal(t, here[i].Curve, r.Curve)
		require.Equal(t, here[i].LeftOut, r.LeftOut)
		for j, a := range r.Algorithms {
			want := here[i].Algorithms[j]
			require.Positive(t, a.WritesPerEvent, a.Name)
			require.Positive(t, a.TripsPerEvent, a.Name)
			want.BytesPerKey, want.BytesWorstKey, want.BytesMeasured, want.Counted = a.BytesPerKey, a.BytesWorstKey, "MEMORY USAGE", "commands"
			want.ReadsPerEvent, want.WritesPerEvent, want.TripsPerEvent, want.NanosPerEvent = a.ReadsPerEvent, a.WritesPerEvent, a.TripsPerEvent, a.NanosPerEvent
			require.Equal(t, want, a)
		}
	}
	require.EqualValues(t, 1, held(t, store))

	g := grownOn(t, store)
	require.Equal(t, exactLog, g.Lines[0].Name)
	require.Greater(t, g.Lines[0].Bytes[1], g.Lines[1].Bytes[1], "of a hundred hits the log is the larger")
	require.EqualValues(t, 1, held(t, store))
}

// grownOn weighs keys of few hits.
func grownOn(t *testing.T, store *stores.Opened) *Growth {
	c, err := New(Config{Limits: counter.MustLimits("5/d"), Store: store, Timeout: 10 * time.Second, Growth: true})
	require.NoError(t, err)
	require.EqualValues(t, 10_000, c.sizes[len(c.sizes)-1])
	c.sizes = []int64{10, 100}
	reports := try.To(c.Run(t.Context(), logOf(t, 0)))(t)
	for _, line := range reports[0].Growth.Lines {
		require.Less(t, line.Bytes[0], line.Bytes[1], line.Name)
		require.Positive(t, line.Bytes[0], line.Name)
	}
	return reports[0].Growth
}

// On memcached there are abacus and the textbook tiers, and the exact log in memory; the
// others are left out.
func TestOnMemcached(t *testing.T) {
	store := opened(t, "memcached://"+servertest.Memcached(t))
	here, there := hereAndOn(t, store)
	for i, r := range there {
		require.Len(t, r.Algorithms, len(here[i].Algorithms)-11)
		require.Equal(t, LeftOut{"fixed window", "the store is memcached, want Memory or Redis, where a limiter reads and writes in one step"}, r.LeftOut[0])
		for _, a := range r.Algorithms {
			want := here[i].named(t, a.Name)
			require.Equal(t, []int64{want.Admitted, want.Differently}, []int64{a.Admitted, a.Differently}, a.Name)
			require.Equal(t, a.Name != exactLog, a.TripsPerEvent > 0, a.Name)
		}
		require.Equal(t, "the sizes of the items", r.named(t, textbookTiers).BytesMeasured)
	}
	g := grownOn(t, store)
	require.Equal(t, onDefault, g.Lines[0].Name, "there is no log on memcached")
	require.Len(t, g.Lines, 4)
	stats := store.Look(t.Context())[0].Facts
	require.Equal(t, "0", stats["curr_items"])
	require.NotEqual(t, "0", stats["total_items"])
}

// hereAndOn compares the same log in memory and on a store.
func hereAndOn(t *testing.T, store *stores.Opened) (here, there []*Report) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	limits := counter.MustLimits("6/10s,5/d")
	log := randomLog(t, rand.New(rand.NewPCG(seed, 0)), limits[1], time.Minute)
	here = compareOn(t, Config{Limits: limits, Store: inMemory(t), Skew: time.Minute}, log)
	there = compareOn(t, Config{Limits: limits, Store: store, Skew: time.Minute}, log)
	for _, r := range there {
		require.NoError(t, r.Broken())
		for _, a := range r.Algorithms {
			require.Positive(t, a.BytesPerKey, a.Name)
			require.Positive(t, a.ReadsPerEvent, a.Name)
		}
	}
	return here, there
}

// The counted commands are the commands sent to the server.
func TestCommandsOnRedis(t *testing.T) {
	var hits []time.Duration
	for i := range 50 {
		hits = append(hits, time.Duration(i)*time.Minute)
	}
	store := onRedis(t)
	r := compareOn(t, Config{Limits: counter.MustLimits("100/d"), Store: store}, logOf(t, hits...))[0]
	bucket := r.named(t, "token bucket")
	require.Equal(t, []float64{1, 1, 1.02}, []float64{bucket.ReadsPerEvent, bucket.WritesPerEvent, bucket.TripsPerEvent}) // and the script once
	abacus := r.named(t, onDefault)
	require.EqualValues(t, 1, abacus.TripsPerEvent)
	require.InDelta(t, 1.2, abacus.ReadsPerEvent, 0.2)  // the head of a single value, and the whole where the value is written anew
	require.InDelta(t, 1.8, abacus.WritesPerEvent, 0.3) // an entry and the head, or both at once

	// Denials are remembered for a second: no trip.
	r = compareOn(t, Config{Limits: counter.MustLimits("1/d"), Store: store}, logOf(t, make([]time.Duration, 10)...))[0]
	require.Equal(t, 0.2, r.named(t, onDefault).TripsPerEvent)
}

// With other clients on a server, the server's counts are not used.
func TestBusyRedis(t *testing.T) {
	store := onRedis(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			store.Redis.Client.Get(ctx, "something")
		}
	}()
	log := logOf(t, 0, time.Minute)
	r := compareOn(t, Config{Limits: counter.MustLimits("5/d"), Store: store}, log)[0]
	stop()
	<-done
	here := compareOn(t, Config{Limits: counter.MustLimits("5/d"), Store: inMemory(t)}, log)[0]
	a, want := r.named(t, onDefault), here.named(t, onDefault)
	require.Equal(t, "buckets", a.Counted)
	require.Equal(t, want.ReadsPerEvent, a.ReadsPerEvent)
	require.Equal(t, want.WritesPerEvent, a.WritesPerEvent)
}

// A server that denies INFO and MEMORY serves a comparison without measures of
// memory.
func TestSilentRedis(t *testing.T) {
	store := onRedis(t)
	require.NoError(t, store.Redis.Client.Do(t.Context(), "ACL", "SETUSER", "default", "-info", "-memory").Err())
	c, err := New(Config{Limits: counter.MustLimits("5/d"), Store: store, Timeout: 10 * time.Second, Growth: true})
	require.NoError(t, err)
	c.sizes = []int64{10}
	reports := try.To(c.Run(t.Context(), logOf(t, 0, time.Minute)))(t)
	r := reports[0]
	require.Nil(t, r.Growth)
	for _, a := range r.Algorithms {
		require.Positive(t, a.Admitted)
		require.Zero(t, a.BytesPerKey)
		require.Equal(t, "not told by the server", a.BytesMeasured)
	}
	require.Equal(t, "buckets", r.named(t, onDefault).Counted)
	require.Zero(t, held(t, store))
}

// After an interrupt or a failure of the server there is an error, and no key is
// left.
func TestInterruptedOnRedis(t *testing.T) {
	store := onRedis(t)
	ctx, cancel := context.WithCancel(t.Context())
	limits := counter.MustLimits("5/m")
	var hits []time.Duration
	for i := range 2000 {
		hits = append(hits, time.Duration(i)*time.Second)
	}
	log, seen := logOf(t, hits...), 0
	c := try.To(New(Config{Limits: limits, Store: store, Timeout: time.Minute, Progress: func(name string, _ int64) {
		if name != "GCRA" {
			return
		}
		if seen++; seen == 2 {
			require.EqualValues(t, 1, held(t, store))
			require.NoError(t, store.Redis.Client.Set(t.Context(), "others", "1", 0).Err())
			cancel()
		}
	}}))(t)
	_, err := c.Run(ctx, log)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, held(t, store))

	require.NoError(t, store.Redis.Client.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1mb").Err())
	c = try.To(New(Config{Limits: limits, Store: store, Timeout: time.Minute}))(t)
	_, err = c.Run(t.Context(), log)
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorContains(t, err, "event 1: ")
	require.ErrorContains(t, err, "OOM")
}

// given runs a candidate on Redis through a log of a single key.
func given(t *testing.T, store *stores.Opened, limit counter.Limit, candidate candidate, log *Log) (*algorithm, []Hit, *Comparison) {
	c := try.To(New(Config{Limits: counter.Limits{limit}, Store: store, Timeout: 10 * time.Second}))(t)
	a := try.To(candidate.open(t.Context(), c, limit))(t)
	tried := &trial{c: c, log: log, limit: limit, decided: make([]uint32, int(log.Events))}
	try.To(tried.decide(t.Context(), a, 0, int(log.Events), 0))(t)
	return a, tried.hits(nil, 0, 0), c
}

// all is the memory of all keys of a comparison.
func all(t *testing.T, store *stores.Opened, prefix string) (bytes int64, names []string) {
	names = try.To(store.Redis.Client.Keys(t.Context(), "*"+prefix+"*").Result())(t)
	bytes = try.To(usage(t.Context(), store.Redis, names))(t)
	return bytes, names
}

// Every stored name of a key is weighed, except names expired by the log's clock.
func TestWeighedOnRedis(t *testing.T) {
	store := onRedis(t)
	key := counter.Key{Event: "signup", Feature: "ada"}
	var hits []time.Duration
	for i := range 1500 {
		hits = append(hits, time.Duration(i)*6*time.Second)
	}
	hour, day := counter.MustLimits("10000/h")[0], counter.MustLimits("10000/d")[0]

	uneven := try.To(tiers.Parse("1s:3h, 1m:1d, 1h:1d"))(t)
	for _, row := range []struct {
		ladder tiers.Ladder
		leaves int // more names than these
	}{{tiers.Default, 2}, {uneven, 3}} { // tiers with different retention are stored apart
		a, decided, c := given(t, store, day, onLadder(row.ladder), logOf(t, hits...))
		sum, names := all(t, store, c.prefix)
		require.Greater(t, len(names), row.leaves, "no leaves")
		require.Equal(t, sum, try.To(a.weigh(t.Context(), key, decided))(t))
	}

	// Three days later the leaves are no longer the key's.
	a, decided, c := given(t, store, day, onLadder(tiers.Default), logOf(t, append(hits, 80*time.Hour)...))
	stale, names := all(t, store, c.prefix)
	require.Greater(t, len(names), 2)
	got := try.To(a.weigh(t.Context(), key, decided))(t)
	require.Positive(t, got)
	require.Less(t, got, stale/4)

	// The limiter looks under every possible name.
	for _, more := range []time.Duration{0, 90 * time.Minute, 3 * time.Hour} {
		a, decided, _ = given(t, store, hour, candidates(hour)[12], logOf(t, append(hits, 9000*time.Second+more)...))
		want := try.To(a.bytes(t.Context(), key, nil))(t)
		got = try.To(a.weigh(t.Context(), key, decided))(t)
		require.Equal(t, want, got, "%s later", more)
	}
}

package memcache_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// memcached stands still for 9 s, and callers come just before the end: their
// hits are stored by a clock that is 9 s slow, and must remain until their
// window is nearly over.
func TestItemsMadeAfterAStandstillLive(t *testing.T) {
	long.Only(t, "17 s of real time")
	t.Parallel()
	const keys, pause = 240, 9 * time.Second
	server := servertest.StartMemcached(t)
	s := newStore(t, memcache.Config{MaxInFlight: 2 * keys}, server.Addr)
	ladder := try.To(tiers.Parse("1s:10s"))(t)
	c := try.To(counter.New(s, counter.Config{Ladder: ladder, Patience: patience}))(t)
	limits := counter.MustLimits("3/10s")
	takes := func(event string, n int64) (at []time.Time) {
		at = make([]time.Time, keys) // of the admitted hits
		crowd(keys, func(i int) {
			v, err := c.Take(context.Background(), counter.Key{Event: event, Feature: fmt.Sprint(i)}, n, limits)
			assert.NoError(t, err)
			at[i] = v.At()
		})
		return at
	}
	takes("another", 1) // connects
	server.Pause()
	time.Sleep(pause)
	resumed := make(chan time.Time)
	go func() {
		time.Sleep(15 * time.Millisecond)
		server.Resume()
		resumed <- time.Now()
	}()
	first := takes("login", 3)
	require.NotContains(t, first, time.Time{})
	time.Sleep(time.Until((<-resumed).Add(8 * time.Second)))
	fourth := 0
	for i, at := range takes("login", 1) {
		if !at.IsZero() && at.Sub(first[i]) < limits[0].Per { // a slow machine comes back later
			fourth++
		}
	}
	require.Zero(t, fourth, "of %d keys admitted a fourth time within ten seconds", keys)
}

// Items of hits of the past live as long as the ladder asks for from the hits on:
// an hour of a day ends a day after its end. A later hit makes none shorter.
func TestItemsOfThePast(t *testing.T) {
	t.Parallel()
	ctx, addr := context.Background(), servertest.Memcached(t)
	client := rawClient(addr)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	theirs := try.To(memcache.NewFromClient(client))(t)
	now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	for name, store := range map[string]backend.Store{"shared": newStore(t, memcache.Config{}, addr), "plain": theirs} {
		c := try.To(counter.New(store, counter.Config{Prefix: name, Patience: patience, Now: func() time.Time { return now }}))(t)
		key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
		require.NoError(t, c.AddAt(ctx, key, 1, now.Add(-20*time.Hour)))
		require.NoError(t, c.Add(ctx, key, 1))
		const slack = 70 // of an item: the clock's ticks, a standstill, Skew and Settle
		item := name + ":13hnD:signup:ip:203.0.113.9|"
		require.InDelta(t, 5*3600+slack/2, left(t, addr, item+"1h492315"), slack)
		require.InDelta(t, 4*3600+60+slack/2, left(t, addr, item+"1m29538930"), slack)
		require.InDelta(t, 4*3600+1+slack/2, left(t, addr, item+"1s1772335833"), slack)
		require.InDelta(t, 25*3600+slack/2, left(t, addr, item+"1h492335"), slack)
	}
}

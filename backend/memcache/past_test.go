package memcache_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

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

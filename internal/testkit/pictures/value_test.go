package main

import (
	"encoding/hex"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// Redis holds the bytes that the picture shows.
func TestRedisHoldsTheDrawnValue(t *testing.T) {
	addr := servertest.Redis(t)
	store, err := redis.Open("redis://"+addr, redis.Config{})
	require.NoError(t, err)
	defer store.Close()
	var now time.Time
	c, err := counter.New(store, counter.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	for _, now = range drawnHits {
		v, err := c.Take(t.Context(), counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, 1, counter.MustLimits("100/d"))
		require.NoError(t, err)
		require.True(t, v.Allowed)
	}
	server := client.NewClient(&client.Options{Addr: addr})
	defer server.Close()
	stored := map[string]string{}
	for _, name := range server.Keys(t.Context(), "*").Val() {
		stored[name] = hex.EncodeToString([]byte(server.Get(t.Context(), name).Val()))
	}
	require.Equal(t, map[string]string{rootName: rootValue, leafName: leafValue}, stored)
}

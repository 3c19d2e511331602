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

// The example of docs/storage.md, item by item: other items are another format,
// see docs/release.md.
func TestStoredAsDocumented(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		ctx, addr := context.Background(), servertest.Memcached(t)
		client := rawClient(addr)
		var store backend.Store = newStore(t, memcache.Config{}, addr)
		if plain {
			store = try.To(memcache.NewFromClient(client))(t)
		}
		now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
		c := newCounter(t, store, counter.Config{Now: func() time.Time { return now }})
		key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
		require.NoError(t, c.Add(ctx, key, 1))
		require.NoError(t, c.Add(ctx, key, 2))
		now = now.Add(2 * time.Second)
		require.NoError(t, c.Add(ctx, key, 1))
		require.Zero(t, add(t, store, "another", -1, 1), "an undo makes no item")
		for name, value := range map[string]string{
			"ab:13hnD:signup:ip:203.0.113.9|1s1772407833": "3",
			"ab:13hnD:signup:ip:203.0.113.9|1s1772407835": "1",
			"ab:13hnD:signup:ip:203.0.113.9|1m29540130":   "4",
			"ab:13hnD:signup:ip:203.0.113.9|1h492335":     "4",
		} {
			item, err := client.Get(name)
			require.NoError(t, err, name)
			require.Equal(t, value, string(item.Value), name)
			require.Zero(t, item.Flags, name)
		}
		require.Equal(t, "4", stat(t, addr, "curr_items"), "and no other item")
		if plain {
			return
		}
		require.NoError(t, c.Forget(ctx, key))
		item := try.To(client.Get("b15ca4bc213a2bb9dmVFIiivVcGy_VJF0ZeROs1UbLgSBvh7egKT5VftHes|forgotten"))(t)
		require.Regexp(t, `^1772407835000000000 \d{10}$`, string(item.Value))
	}
}

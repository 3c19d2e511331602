package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// The first hit of a key that nobody has hit is written without a read, once the process has
// seen such a key; a known key is read first, and a wrong guess costs a read and no hit.
func TestTheFirstHitOfAKey(t *testing.T) {
	addr := servertest.Redis(t)
	client := raw(t, addr)
	now := time.Now() // a hit of the next second would be written otherwise
	cfg := counter.Config{Now: func() time.Time { return now }}
	near, far := newCounter(t, open(t, "redis://"+addr), cfg), newCounter(t, open(t, "redis://"+addr), cfg)
	for i, limits := range []string{"2/d", "2/h, 3/d", "2/m, 3/h, 4/d", "2/m, 3/h, 4/d, 5/2h"} {
		key := func(j int) counter.Key { return counter.Key{Event: fmt.Sprint("first", i), Feature: fmt.Sprint(j)} }
		require.True(t, take(t, far, key(10), 1, limits).Allowed) // guesses that the next is missing too
		for j := range 4 {
			require.NoError(t, client.ConfigResetStat(ctx).Err())
			v := take(t, near, key(j), 1, limits)
			require.True(t, v.Allowed)
			require.EqualValues(t, 1, v.Remaining)
			reads := strings.Contains(client.Info(ctx, "commandstats").Val(), "cmdstat_getrange")
			require.Equal(t, i+j == 0, reads, "key %d under %s", j, limits)
		}
		require.EqualValues(t, 0, take(t, far, key(0), 1, limits).Remaining)
		require.False(t, take(t, far, key(0), 1, limits).Allowed)
		require.NoError(t, client.ConfigResetStat(ctx).Err())
		require.True(t, take(t, near, key(1), 1, limits).Allowed)
		stats := client.Info(ctx, "commandstats").Val()
		require.Contains(t, stats, "cmdstat_getrange")
		require.NotContains(t, stats, "cmdstat_set:")
		require.False(t, take(t, near, key(2), 3, limits).Allowed)
		require.False(t, take(t, near, key(20), 3, limits).Allowed)
		require.EqualValues(t, 1, count(t, near, key(2)))
		require.Zero(t, count(t, near, key(20)))
	}
}

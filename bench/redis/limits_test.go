package redis_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// A limiter that does not count would win every race.
func TestEveryContestantCountsAndRefuses(t *testing.T) {
	b := newBench(t)
	for _, kind := range withPlain {
		t.Run(kind.name, func(t *testing.T) {
			for _, row := range []struct {
				limits string
				room   int
			}{
				{"7/d", 7},
				{"30/m, 20/h, 7/d", 7},
				{"2/m, 20/h, 70/d", 2},
			} {
				c := kind.make(t, b.setting(counter.MustLimits(row.limits)))
				for _, key := range []string{"a", "b"} {
					for i := range row.room {
						require.NoError(t, c.hit(key), "hit %d under %s", i, row.limits)
					}
					require.ErrorIs(t, c.hit(key), errRefused, row.limits)
					require.NoError(t, c.hit(fmt.Sprint("not ", key)))
					for range 3 {
						if err := c.refused(key); err != nil {
							require.ErrorIs(t, err, errRefused)
						}
					}
					require.ErrorIs(t, c.refused(key), errRefused)
				}
			}
		})
	}
	stored := try.To(b.client.Keys(ctx, "*").Result())(t)
	require.NotEmpty(t, stored)
	for _, key := range stored {
		require.Positive(t, try.To(b.client.TTL(ctx, key).Result())(t), "time to live of %s", key)
	}
}

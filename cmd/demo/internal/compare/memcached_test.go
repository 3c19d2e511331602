package compare

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// On memcached abacus and the textbook tiers decide as in memory, are weighed, and
// leave no item behind; the exact log is in memory, and the others are left out.
func TestOnMemcached(t *testing.T) {
	addr := servertest.Memcached(t)
	store := opened(t, "memcached://"+addr)
	seed := rand.Uint64()
	limits := counter.MustLimits("6/10s,5/d")
	log := randomLog(t, rand.New(rand.NewPCG(seed, 0)), limits[1], time.Minute)
	here := compareOn(t, Config{Limits: limits, Store: inMemory(t), Skew: time.Minute}, log)
	there := compareOn(t, Config{Limits: limits, Store: store, Skew: time.Minute}, log)
	for i, r := range there {
		require.NoError(t, r.Broken())
		require.Len(t, r.Algorithms, len(here[i].Algorithms)-11, "the exact log, the tiers, and abacus")
		require.Equal(t, LeftOut{"fixed window", "the store is memcached, want Memory or Redis, where a limiter reads and writes in one step"}, r.LeftOut[0])
		for _, a := range r.Algorithms {
			want := here[i].named(t, a.Name)
			require.Equal(t, want.Admitted, a.Admitted, "seed %d: %s", seed, a.Name)
			require.Equal(t, want.Differently, a.Differently)
			require.Positive(t, a.BytesPerKey, a.Name)
			require.Positive(t, a.ReadsPerEvent, a.Name)
			require.Equal(t, a.Name != exactLog, a.TripsPerEvent > 0, a.Name)
		}
		require.Equal(t, sizesMeasured, r.named(t, textbookTiers).BytesMeasured)
	}
	stats, err := store.Memcached.Stats(t.Context(), addr)
	require.NoError(t, err)
	require.Equal(t, "0", stats["curr_items"])
	require.NotEqual(t, "0", stats["total_items"])
}

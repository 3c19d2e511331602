package memcache_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

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

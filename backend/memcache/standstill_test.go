package memcache_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/tiers"
)

// memcached stands still for 9 s, and callers come just before the end: their
// hits are stored by a clock that is 9 s slow, and must remain until their
// window is nearly over.
func TestItemsMadeAfterAStandstillLive(t *testing.T) {
	t.Parallel()
	const keys, pause = 240, 9 * time.Second
	server := servertest.StartMemcached(t)
	s := newStore(t, memcache.Config{MaxInFlight: 2 * keys}, server.Addr)
	ladder, err := tiers.Parse("1s:10s")
	require.NoError(t, err)
	c, err := counter.New(s, counter.Config{Ladder: ladder, Patience: time.Second})
	require.NoError(t, err)
	limits := counter.MustLimits("3/10s")
	takes := func(event string, n int64) (admitted int64) {
		var all atomic.Int64
		var wg sync.WaitGroup
		for i := range keys {
			wg.Go(func() {
				v, err := c.Take(context.Background(), counter.Key{Event: event, Feature: fmt.Sprint(i)}, n, limits)
				if err != nil {
					t.Error(err)
				}
				if v.Allowed {
					all.Add(1)
				}
			})
		}
		wg.Wait()
		return all.Load()
	}
	takes("another", 1) // connects
	silence(t, server)
	time.Sleep(pause)
	resumed := make(chan time.Time)
	go func() {
		time.Sleep(15 * time.Millisecond)
		server.Resume()
		resumed <- time.Now()
	}()
	require.EqualValues(t, keys, takes("login", 3))
	time.Sleep(time.Until((<-resumed).Add(8 * time.Second)))
	require.Zero(t, takes("login", 1), "of %d keys admitted a fourth time within ten seconds", keys)
}

package memcache_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
			if err != nil {
				t.Error(err)
			}
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

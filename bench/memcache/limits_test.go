package memcache_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
)

// A limiter that does not count would win every race; a limiter that loses hits of
// fresh keys would win the race of fresh keys.
func TestEveryContestantCountsAndRefuses(t *testing.T) {
	b := newBench(t)
	for _, kind := range kinds {
		t.Run(fmt.Sprintf("%s, %d", kind.name, kind.limits), func(t *testing.T) {
			limits := counter.MustLimits("30/m, 20/h, 7/d")[3-kind.limits:]
			c := kind.make(t, b.setting(limits))
			for round := range 20 {
				key := fmt.Sprint("key", round)
				if c.ready != nil {
					require.NoError(t, c.ready(key))
				}
				var admitted atomic.Int64
				var all sync.WaitGroup
				for range 12 {
					all.Go(func() {
						if err := c.hit(key); err == nil {
							admitted.Add(1)
						} else if !errors.Is(err, errRefused) {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if kind.limits == 0 {
					require.EqualValues(t, 12, admitted.Load())
					continue
				}
				require.EqualValues(t, 7, admitted.Load())
				require.ErrorIs(t, c.hit(key), errRefused)
				require.ErrorIs(t, c.refused(key), errRefused)
			}
		})
	}
}

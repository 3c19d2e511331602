//go:build !race

package classic_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/internal/testkit/long"
)

// Bytes agrees with the growth of the heap, to a fifth.
func TestBytesAreHonest(t *testing.T) {
	keys := long.Rounds(250, 2000)
	each(t, func(t *testing.T, k kind) {
		for _, calls := range []int{1, 20} {
			c := clockAt(start)
			l := k.new(t, 100, 24*time.Hour, 100, memory(t, classic.Config{Now: c.now}))
			before := heap()
			for range calls {
				for i := range keys {
					take(t, l, name(i), 1)
				}
				c.add(10 * time.Minute)
			}
			grown := heap() - before
			var told int64
			for i := range keys {
				told += held(t, l, name(i))
			}
			require.Zero(t, held(t, l, name(keys)))
			require.InEpsilon(t, grown, told, 0.2, "%d calls: %d bytes a key, told %d", calls, grown/int64(keys), told/int64(keys))
		}
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

package ticket

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFloodOfKeysIsNotRemembered(t *testing.T) {
	s, now := &settledCache{skew: time.Hour}, time.Now() // the labels stand still meanwhile
	remember := func(key string, now time.Time) bool {
		if !s.admits(key, now) {
			return false
		}
		s.put(&settledEntry{key: key, at: now, read: now, counts: Counts{{Width: time.Hour, Counts: make([]int64, 25)}}})
		return true
	}
	held := func() (n int) {
		for i := range s.slots {
			if s.slots[i].entry.Load() != nil {
				n++
			}
		}
		return n
	}
	for i := range 100_000 {
		require.False(t, remember(fmt.Sprint("once:", i), now))
	}
	require.Zero(t, held())

	require.False(t, remember("hot", now))
	require.True(t, remember("hot", now))
	before := heap()
	entered := 0
	for i := range 40 * settledSlots {
		for range 2 {
			if remember(fmt.Sprint("twice:", i), now) {
				entered++
			}
		}
	}
	require.Equal(t, entered+1, held(), "no key has taken the slot of another")
	require.Equal(t, settledSlots, held())
	require.NotEqual(t, &nothingSettled, s.recall("hot", now))
	t.Logf("%d bytes", heap()-before)
	require.Less(t, heap()-before, int64(5<<20), "bytes of the full cache")

	require.Equal(t, &nothingSettled, s.recall("once:0", now), "the slot is that of another key")
	later := now.Add(settledFor + 1)
	require.Equal(t, &nothingSettled, s.recall("hot", later))
	require.False(t, remember("another", later))
	require.True(t, remember("another", later), "an old entry makes room")
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Counts that were read before a raise are not recalled after it, not even for a moment.
func TestWhatWasReadBeforeARaiseIsNotRecalled(t *testing.T) {
	s, now := &settledCache{skew: time.Hour}, time.Now()
	e := &settledEntry{key: "k", at: now, read: now, counts: Counts{{Width: time.Hour, Counts: []int64{0}}}}
	s.admits("k", now)
	require.True(t, s.admits("k", now))
	time.Sleep(time.Millisecond)
	Raise("k") // an AddAt ends, and returns
	slot, _ := s.slot("k")
	slot.entry.Store(e) // the first line of put, of a Take under way
	require.Equal(t, &nothingSettled, s.recall("k", now), "a Take that begins now goes by the old count")
}

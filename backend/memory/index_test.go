package memory

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Keys of one hash are told apart, of each length at which they are stored in
// another way, and stay findable while keys come and go.
func TestKeysOfOneHash(t *testing.T) {
	table := newTable()
	l := &layout{n: 1}
	var keys []string
	for _, n := range []int{0, 1, 46, 68, 69, 70, 71, 200, 254, 255, 256, 1000} {
		for _, end := range []string{"a", "b"} {
			keys = append(keys, strings.Repeat("x", n)+end, end+strings.Repeat("x", n))
		}
	}
	keys = keys[2:] // n = 0 makes each of its keys twice
	entries := map[string]*entry{}
	for _, key := range keys {
		if entries[key] != nil {
			continue
		}
		require.Nil(t, table.find(7, []byte(key)), "%q", key)
		e := new(entry)
		e.reset([]byte(key), l)
		table.insert(7, e)
		entries[key] = e
	}
	for len(entries) > 0 {
		for key, e := range entries {
			require.Same(t, e, table.find(7, []byte(key)))
			require.Equal(t, key, string(e.key()))
			require.Nil(t, table.find(8, []byte(key)))
		}
		for key, e := range entries {
			table.remove(7, e)
			delete(entries, key)
			require.Nil(t, table.find(7, []byte(key)))
			break
		}
	}
	require.Len(t, table.slots, minSlots)
}

// Times and lengths as large as they come stop at the ends of 63 bits.
func TestEndsOfTime(t *testing.T) {
	const lo, hi = math.MinInt64, math.MaxInt64
	got := []int64{
		cutoff(-100, 10, 1), cutoff(-2, hi, 1), cutoff(-1, hi, 0), cutoff(-100, hi-50, 60), cutoff(lo, 0, 1), cutoff(hi, hi, 1),
		plus(hi-1, 2), plus(1, hi), plus(lo, hi), plus(hi-1, 1),
		stretched(5, 9, 10), stretched(5, 10, 10), stretched(5, 13, 10), stretched(5, hi, lo), stretched(5, 1<<62, 0), stretched(hi, 10, 10),
	}
	require.Equal(t, []int64{-111, never, lo, never, never, -1, hi, hi, -1, hi, 5, 6, 9, hi, hi, hi}, got)
}

package hitlog

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hit is an entry of the brute-force log that Log is compared with.
type hit struct {
	at time.Time
	n  int64
}

type brute []hit

func (b brute) count(from, to time.Time) (n int64) {
	for _, h := range b {
		if !h.at.Before(from) && !h.at.After(to) {
			n += h.n
		}
	}
	return n
}

// worst tries a window that begins at each hit: the fullest window can be
// moved right until it does.
func (b brute) worst(per time.Duration) (n int64) {
	for _, h := range b {
		n = max(n, b.count(h.at, h.at.Add(per)))
	}
	return n
}

func (b *brute) remove(at time.Time, n int64) {
	for i := range *b {
		h := &(*b)[i]
		if n > 0 && h.at.Equal(at) {
			take := min(n, h.n)
			h.n -= take
			n -= take
		}
	}
}

func TestZeroLog(t *testing.T) {
	var l Log
	now := time.Unix(1, 0)
	require.Zero(t, l.Total())
	require.Zero(t, l.Since(now))
	require.Zero(t, l.Count(now, now))
	require.Zero(t, l.Worst(time.Hour))
	l.Reset()
	require.Zero(t, l.Total())
}

func TestEndsAreIncluded(t *testing.T) {
	var l Log
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	l.Add(at(10), 2)
	l.Add(at(20), 3)
	l.Add(at(15), 4) // late
	l.Add(at(15), 1) // the same instant again
	for _, row := range []struct {
		from, to int
		want     int64
	}{
		{10, 20, 10}, {10, 10, 2}, {11, 14, 0}, {11, 15, 5}, {15, 20, 8}, {16, 30, 3}, {0, 9, 0}, {21, 30, 0}, {20, 10, 0},
	} {
		require.Equal(t, row.want, l.Count(at(row.from), at(row.to)), "%d to %d", row.from, row.to)
	}
	require.EqualValues(t, 10, l.Since(at(10)))
	require.EqualValues(t, 8, l.Since(at(10).Add(1)))
	require.EqualValues(t, 10, l.Worst(10*time.Second), "hits exactly per apart are in one window")
	require.EqualValues(t, 8, l.Worst(10*time.Second-1))
	require.EqualValues(t, 5, l.Worst(0))

	l.Remove(at(15), 2)
	require.EqualValues(t, 3, l.Count(at(15), at(15)))
	l.Remove(at(15), 3)
	require.EqualValues(t, 5, l.Total())
	require.EqualValues(t, 3, l.Worst(9*time.Second))
	l.Reset()
	require.Zero(t, l.Worst(time.Hour))
	l.Add(at(5), 1)
	require.EqualValues(t, 1, l.Since(at(0)))
}

func TestMisusePanics(t *testing.T) {
	var l Log
	l.Add(time.Unix(0, 0), 2)
	for want, misuse := range map[string]func(){
		"hitlog: a hit of weight 0":                                       func() { l.Add(time.Unix(1, 0), 0) },
		"hitlog: a refund of weight -1":                                   func() { l.Remove(time.Unix(0, 0), -1) },
		"hitlog: a refund of 3 at 1970-01-01T00:00:00Z, where 2 were hit": func() { l.Remove(time.Unix(0, 0), 3) },
		"hitlog: a refund of 1 at 1970-01-01T00:00:01Z, where 0 were hit": func() { l.Remove(time.Unix(1, 0), 1) },
		"hitlog: a window of -1s":                                         func() { l.Worst(-time.Second) },
	} {
		require.PanicsWithValue(t, want, misuse)
	}
	require.EqualValues(t, 2, l.Total())
}

// Random logs, before and after 1970, late hits and refunds among them, against
// a slice that is searched from end to end.
func TestLogAgainstBruteForce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for round := range 300 {
		var l Log
		var b brute
		name := fmt.Sprintf("seed %d round %d", seed, round)
		clock, step := rnd.Int64N(200)-100, 1+rnd.Int64N(5)
		instant := func() time.Time { return time.Unix(0, clock-rnd.Int64N(20)) }
		for range 60 {
			clock += rnd.Int64N(step)
			switch at, n := instant(), 1+rnd.Int64N(4); {
			case rnd.IntN(4) > 0:
				l.Add(at, n)
				b = append(b, hit{at, n})
			case b.count(at, at) > 0:
				n = 1 + rnd.Int64N(b.count(at, at))
				l.Remove(at, n)
				b.remove(at, n)
			}
			from := instant()
			to := from.Add(time.Duration(rnd.Int64N(30)))
			require.Equal(t, b.count(from, to), l.Count(from, to), name)
			require.Equal(t, b.count(from, time.Unix(0, 1<<40)), l.Since(from), name)
		}
		per := time.Duration(rnd.Int64N(40))
		require.Equal(t, b.worst(per), l.Worst(per), "%s worst %d", name, per)
		require.Equal(t, b.count(time.Unix(0, -1<<40), time.Unix(0, 1<<40)), l.Total(), name)
	}
}

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
// a slice that is searched from end to end. Instants meet often, so both ends of
// windows are hit.
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
			newest, any := l.Newest(from)
			require.Equal(t, any, l.Since(from) > 0, name)
			require.True(t, !any || b.count(newest, newest) > 0 && l.Since(newest.Add(1)) == 0, name)
			if rnd.IntN(100) == 0 {
				l.Reset()
				b = nil
			}
		}
		per := time.Duration(rnd.Int64N(40))
		require.Equal(t, b.worst(per), l.Worst(per), "%s worst %d", name, per)
		require.Equal(t, b.count(time.Unix(0, -1<<40), time.Unix(0, 1<<40)), l.Total(), name)
	}
}

package compare

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
)

var begin = time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC)

// story is hits in milliseconds after begin; denied hits have a minus.
func story(ms ...int64) (hits []Hit) {
	for _, at := range ms {
		admitted := at >= 0
		hits = append(hits, Hit{At: begin.Add(time.Duration(max(at, -at)) * time.Millisecond), Admitted: admitted})
	}
	return hits
}

func TestJudge(t *testing.T) {
	const us = time.Microsecond
	for _, row := range []struct {
		name  string
		limit string
		hits  []Hit
		want  Measures
	}{
		{"nothing", "2/s", nil, Measures{}},
		{"a fixed window's edge: two before it and two after", "2/s", story(990, 999, 1000, 1010),
			Measures{Admitted: 4, Worst: 4, WronglyAdmitted: 2}},
		{"exact: what is too much is denied", "2/s", story(990, 999, -1000, -1010, 1991, -1992, 2000),
			Measures{Admitted: 4, Worst: 2}},
		{"denied with room: a whole window is held against one hit", "2/s", story(10, -20, -999, 1011),
			Measures{Admitted: 2, Worst: 1, WronglyDenied: 2}},
		{"a hit that is exactly Per old still counts", "1/s", story(1, -1001, 1002),
			Measures{Admitted: 2, Worst: 1}},
		{"so to admit then is wrong", "1/s", story(1, 1001), Measures{Admitted: 2, Worst: 2, WronglyAdmitted: 1}},
		{"and to deny a microsecond later", "1/s", []Hit{{At: begin, Admitted: true}, {At: begin.Add(time.Second + us)}},
			Measures{Admitted: 1, Worst: 1, WronglyDenied: 1}},
		{"all at one instant", "2/s", story(5, 5, -5, 5), Measures{Admitted: 3, Worst: 3, WronglyAdmitted: 1}},
		{"a wrong admission counts from then on", "1/s", story(0, 500, -1400, 1501), Measures{Admitted: 3, Worst: 2, WronglyAdmitted: 1}},
		{"a stamp that runs back meets those after it", "1/s", story(900, -100, 1901), Measures{Admitted: 2, Worst: 1}},
		{"and is in their window when it is admitted", "1/s", story(900, 100, -1900), Measures{Admitted: 2, Worst: 2, WronglyAdmitted: 1}},
		{"the fullest window begins anywhere", "9/s", story(0, 900, 950, 1800, 1900, 2900), Measures{Admitted: 6, Worst: 4}},
	} {
		t.Run(row.name, func(t *testing.T) {
			require.Equal(t, row.want, judge(new(oracle.Log), row.hits, counter.MustLimits(row.limit)[0]))
		})
	}
}

// Random histories, judged once more by looking at every pair of hits.
func TestJudgeByPairs(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		limit := counter.Limit{Max: 1 + rnd.Int64N(4), Per: time.Duration(20+rnd.IntN(50)) * time.Millisecond}
		var hits []Hit
		now := int64(0)
		for range rnd.IntN(60) {
			now += rnd.Int64N(30) - 8
			hits = append(hits, Hit{At: begin.Add(time.Duration(now) * time.Millisecond), Admitted: rnd.IntN(3) > 0})
		}
		var want Measures
		for i, hit := range hits {
			var before, window int64
			for j, other := range hits {
				age := hit.At.Sub(other.At)
				if !other.Admitted || age > limit.Per {
					continue
				}
				if j < i {
					before++
				}
				if age >= 0 {
					window++
				}
			}
			switch {
			case hit.Admitted && before >= limit.Max:
				want.WronglyAdmitted++
			case !hit.Admitted && before < limit.Max:
				want.WronglyDenied++
			}
			if hit.Admitted {
				want.Admitted++
				want.Worst = max(want.Worst, window)
			}
		}
		require.Equal(t, want, judge(new(oracle.Log), hits, limit), "seed %d: %s, %v", seed, limit, hits)
	}
}

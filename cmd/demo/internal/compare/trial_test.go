package compare

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
)

// Random histories, stamps that run back included, judged once more by looking at every
// pair of hits: a hit that is exactly Per old still counts.
func TestJudgeByPairs(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		limit := counter.Limit{Max: 1 + rnd.Int64N(4), Per: time.Duration(20+rnd.IntN(50)) * time.Millisecond}
		var hits []Hit
		now := int64(0)
		for range rnd.IntN(60) {
			now += rnd.Int64N(30) - 8
			hits = append(hits, Hit{At: genBegin.Add(time.Duration(now) * time.Millisecond), Admitted: rnd.IntN(3) > 0})
		}
		var want Algorithm
		var worst int64
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
				worst = max(worst, window)
			}
		}
		var got Algorithm
		require.Equal(t, worst, got.judge(new(oracle.Log), hits, limit), "seed %d: %s, %v", seed, limit, hits)
		require.Equal(t, want, got, "seed %d: %s, %v", seed, limit, hits)
	}
}

package envoy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/limitertest"
)

// counts are what a model of the service has counted, by descriptor.
type counts map[string]int64

// modelled is a descriptor of a random request.
type modelled struct {
	key      string
	own      bool // it has hits of its own
	n        int64
	negative bool
}

// limitOf is the limit of a key of the model.
func limitOf(key string) int64 { return map[byte]int64{'a': 3, 'b': 10, 'c': 40}[key[0]] }

// ask answers a request, and whether each descriptor is over and what it has left.
func (c counts) ask(in []modelled) (over bool, overs []bool, left []int64) {
	denied := false
	for _, d := range in {
		if max := limitOf(d.key); !d.negative {
			denied = denied || c[d.key]+d.n > max && (!d.own || d.n == 0)
		}
	}
	before := counts{}
	for _, d := range in {
		before[d.key] = c[d.key]
		if !denied && !d.negative {
			c[d.key] += d.n
		}
	}
	for _, d := range in {
		is := !denied && c[d.key] > limitOf(d.key) || denied && before[d.key]+d.n > limitOf(d.key) && (!d.own || d.n == 0)
		overs, over = append(overs, is), over || is && !d.negative
		left = append(left, max(0, limitOf(d.key)-c[d.key]))
	}
	for _, d := range in {
		if !over && d.negative {
			c[d.key] -= min(c[d.key], d.n)
		}
	}
	return over, overs, left
}

// Random requests are answered as a model of a few lines answers them, which counts all
// descriptors or none.
func TestModel(t *testing.T) {
	rules := domain("")
	for _, key := range []string{"a", "b", "c"} {
		rules += fmt.Sprintf("- {key: %s, rate_limit: {unit: year, requests_per_unit: %d}}\n", key, limitOf(key))
	}
	for seed := range uint64(long.Rounds(20, 500)) {
		d, c, random := setup{rules: rules, clock: &limitertest.Clock{}}.open(t), counts{}, rand.New(rand.NewPCG(seed, 7))
		for call := range 60 {
			request, in := of(), []modelled{}
			request.HitsAddend = random.Uint32N(3)
			for _, i := range random.Perm(6)[:1+random.IntN(3)] { // no descriptor twice
				m := modelled{key: []string{"a1", "a2", "b1", "b2", "c1", "c2"}[i], n: int64(max(1, request.HitsAddend))}
				to := desc(m.key[:1], m.key[1:])
				if m.own = random.IntN(3) == 0; m.own {
					m.n = random.Int64N(5)
					with(to, uint64(m.n))
				}
				if m.n > 0 && random.IntN(6) == 0 {
					m.negative, to.IsNegativeHits = true, true
				}
				in, request.Descriptors = append(in, m), append(request.Descriptors, to)
			}
			answer := d.ask(request)
			over, overs, left := c.ask(in)
			about := fmt.Sprintf("seed %d, call %d: %+v, %s", seed, call, in, short(answer))
			require.Equal(t, over, answer.OverallCode == pb.RateLimitResponse_OVER_LIMIT, about)
			for i, s := range answer.Statuses {
				if in[i].negative {
					require.Nil(t, s.CurrentLimit, about)
					continue
				}
				require.Equal(t, overs[i], s.Code == pb.RateLimitResponse_OVER_LIMIT, about)
				if !overs[i] {
					require.EqualValues(t, left[i], s.LimitRemaining, about)
				}
			}
		}
	}
}

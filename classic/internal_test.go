package classic

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Scripts and Go calculate alike, and rightly, up to the largest numbers there are.
func TestMulDiv(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: servertest.Redis(t), ContextTimeoutEnabled: true})
	defer client.Close()
	r := rand.New(rand.NewPCG(1, 2)) // the same each time
	const most = 1<<45 - 1
	number := func(least int64) int64 {
		n := r.Int64N(most) >> r.IntN(45)
		if r.IntN(10) == 0 {
			n = most - r.Int64N(3)
		}
		return max(least, n)
	}
	type args struct{ a, b, q int64 }
	all := []args{{most, most, most}, {most, most, most - 1}, {0, most, 1}, {1, 1, most}, {most, 1 << 8, most}}
	for range 3000 {
		a := args{number(0), number(0), number(1)}
		if new(big.Int).Div(new(big.Int).Mul(big.NewInt(a.a), big.NewInt(a.b)), big.NewInt(a.q)).BitLen() <= 53 {
			all = append(all, a)
		}
	}
	require.Greater(t, len(all), 1500)
	var flat []any
	for _, a := range all {
		whole, rest := mulDiv(a.a, a.b, a.q)
		w, m := new(big.Int).DivMod(new(big.Int).Mul(big.NewInt(a.a), big.NewInt(a.b)), big.NewInt(a.q), new(big.Int))
		require.Equal(t, w.Int64(), whole, "%+v", a)
		require.Equal(t, m.Int64(), rest, "%+v", a)
		flat = append(flat, a.a, a.b, a.q)
	}
	got := try.To(client.Eval(t.Context(), preludeLua+`
		local t = {}
		for i = 1, #ARGV, 3 do
			t[#t + 1], t[#t + 2] = muldiv(tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
		end
		return t`, nil, flat...).Int64Slice())(t)
	require.Len(t, got, 2*len(all))
	for i, a := range all {
		whole, rest := mulDiv(a.a, a.b, a.q)
		require.Equal(t, []int64{whole, rest}, got[2*i:2*i+2], "%+v", a)
	}
	whole, _ := mulDiv(1<<62, 1<<62, 1)
	require.Positive(t, whole, "too large for a number is the largest")
}

// Redis 7.2 names the key that a user has no right to; the server of these tests
// does not.
func TestAnErrorThatNamesTheKey(t *testing.T) {
	key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	err := &storeError{"gcra", key, errors.New("NOPERM User x has no permissions to access the 'cl:gcra:1m" + tag(key) + "' key")}
	require.EqualError(t, err, `classic: gcra: event "signup": NOPERM User x has no permissions to access the 'cl:gcra:1m{...}' key`)
}

package measure

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestKeysAreDistinct(t *testing.T) {
	keys := try.To(Distinct(70_000))(t)
	seen := map[string]bool{}
	for i := range keys.Len() {
		require.Len(t, keys.At(i), keyLength)
		seen[keys.At(i)] = true
	}
	require.Len(t, seen, 70_000)

	few := try.To(Distinct(10))(t)
	random, hit := few.Random(1000), map[string]int{}
	require.Equal(t, 1000, random.Len())
	for i := range random.Len() {
		hit[random.At(i)]++
	}
	require.Len(t, hit, 10)
	inTurn := few.InTurn(25)
	require.Equal(t, 25, inTurn.Len())
	for i := range inTurn.Len() {
		require.Equal(t, few.At(i%10), inTurn.At(i))
		require.NotZero(t, hit[few.At(i%10)])
	}
}

func TestSeries(t *testing.T) {
	s := Series{30, 10, 20}
	require.EqualValues(t, 20, s.Median())
	require.EqualValues(t, 15, s[1:].Median())
	require.Equal(t, "20.0 (10.0-30.0)", s.Spread())
	require.EqualValues(t, 10, s.Quantile(0.3))
	require.EqualValues(t, 30, s.Quantile(0.99))
	require.EqualValues(t, 30, s.Quantile(1))
	require.Equal(t, Series{3, 2, 1}, s.To(Series{10, 5, 20}))
	require.Equal(t, Series{10, 5, 20}, Fastest(s, Series{10, 5, 40}))
}

func TestEverybodyHasATurnInEachRound(t *testing.T) {
	var order []int
	Turns(3, 3, func(contestant, round int) {
		require.Equal(t, len(order)/3, round)
		order = append(order, contestant)
	})
	require.Equal(t, []int{0, 1, 2, 1, 2, 0, 2, 0, 1}, order)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var again []int
	Uncollected(3, 3, func(contestant, _ int) { again = append(again, contestant) })
	runtime.ReadMemStats(&after)
	require.Equal(t, order, again)
	require.GreaterOrEqual(t, after.NumGC-before.NumGC, uint32(3))
}

func TestTable(t *testing.T) {
	table := Table{Head: []string{"", "us"}}
	table.Row("abacus", Num(9.994))
	table.Row("µ", Num(1234.5))
	table.Row("short")
	var text strings.Builder
	table.write(&text)
	require.Equal(t, strings.TrimPrefix(`
|        |    us |
|--------|------:|
| abacus |  9.99 |
| µ      | 1,235 |
| short  |       |
`, "\n"), text.String())
}

func TestNumbers(t *testing.T) {
	for want, got := range map[string]string{
		"0.00": Num(0), "-1.50": Num(-1.5), "10.0": Num(9.996), "99.9": Num(99.94), "100": Num(99.96),
		"1,000,000": Count(1e6), "-12": Count(-12), "856": Bytes(856), "12.4 k": Bytes(12_400), "19.2 M": Bytes(19.2e6),
	} {
		require.Equal(t, want, got)
	}
}

func TestParallelMakesEveryCall(t *testing.T) {
	for goroutines := 1; goroutines < 8; goroutines++ {
		made := make(chan int, 10)
		_, _, err := Parallel(5, goroutines, func(i int) error { made <- i; return nil })
		require.NoError(t, err)
		close(made)
		var calls []int
		for i := range made {
			calls = append(calls, i)
		}
		slices.Sort(calls)
		require.Equal(t, []int{0, 1, 2, 3, 4}, calls)
	}
	_, _, err := Parallel(5, 2, func(i int) error {
		if i == 4 {
			return errFour
		}
		return nil
	})
	require.ErrorIs(t, err, errFour)
}

var errFour = errors.New("four")

func TestUsage(t *testing.T) {
	before := CPU()
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
		runtime.Gosched()
	}
	require.Greater(t, CPU(), before)
	if runtime.GOOS == "linux" {
		require.Positive(t, Free())
	}
	require.Positive(t, Heap())
}

func TestSharesOfAProfile(t *testing.T) {
	all := shares([]byte(`File: x.test
Showing nodes accounting for 90ms, 90% of 100ms total
      flat  flat%   sum%        cum   cum%
      60ms 60.00% 60.00%       70ms 70.00%  example.org/x.(*table).find (inline)
      30ms 30.00% 90.00%       30ms 30.00%  runtime.mapaccess1
`))
	require.Equal(t, map[string]float64{"example.org/x.(*table).find": 0.6, "runtime.mapaccess1": 0.3}, all)
}

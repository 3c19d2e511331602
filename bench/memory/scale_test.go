package memory_test

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

// Memory for a key while the benchmark runs, all contestants and Go's collector
// together, as measured with a million; and the bound for all keys.
const (
	bytesAKey = 1200
	bound     = 12_000_000_000
)

func TestManyKeys(t *testing.T) {
	rounds, calls := measure.Pick(2, 3, 7), measure.Pick(2_000, 200_000, 500_000)
	sizes := measure.Pick([]int{100, 1_000}, []int{1_000, 10_000, 100_000, 1_000_000}, []int{1_000, 10_000, 100_000, 1_000_000, 10_000_000})
	s := measure.Open(t, "In memory, as keys grow")
	s.Say("One limit of a day, all %s, %d rounds of %s calls on random keys; ns for one call, and the ratio to the fewest keys. Uniformly random keys are the worst case: traffic has favourites. "+
		"\"Bytes a key\" is the heap after a collection.", words.Plural(int64(runtime.NumCPU()), "core"), rounds, measure.Count(int64(calls)))
	for len(sizes) > 2 && measure.Free() >= 0 && measure.Free() < min(bound, int64(sizes[len(sizes)-1])*bytesAKey) {
		s.Say("%s keys were left out: they need %s of memory, and this machine has %s to spare.", measure.Count(int64(sizes[len(sizes)-1])),
			measure.Bytes(float64(sizes[len(sizes)-1]*bytesAKey)), measure.Bytes(float64(measure.Free())))
		sizes = sizes[:len(sizes)-1]
	}
	// Ten million live keys of each contestant, and as much garbage before a
	// collection, would not fit.
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(bound * 9 / 10))

	makers := []struct {
		name string
		make func(counter.Limits) (contestant, error)
	}{{"abacus", newAbacus}, {"go-limiter", newGoLimiter}, {"floor", newFloor}}
	var fields []*field
	var sequences []measure.Keys
	bytes := make([]measure.Series, len(makers))
	for _, n := range sizes {
		keys := try.To(measure.Distinct(n))(t)
		f := newField(t, keys, roomy(1, 100*max(1, int64(calls*(rounds+1)/n)))) // with room for the profile
		before := measure.Heap()
		for i, m := range makers {
			c := try.To(m.make(f.limits))(t)
			f.add(m.name, m.name == "go-limiter", c)
			after := measure.Heap()
			bytes[i] = append(bytes[i], float64(after-before)/float64(n))
			before = after
		}
		fields, sequences = append(fields, f), append(sequences, keys.Random(calls))
	}
	measure.Uncollected(rounds, len(fields)*len(makers), func(i, _ int) {
		fields[i/len(makers)].run(i%len(makers), sequences[i/len(makers)], runtime.NumCPU())
	})
	table := measure.Table{Head: []string{"keys", "abacus, ns", "to the first", "bytes a key", "go-limiter, ns", "to the first", "bytes a key", "floor, ns", "to the first", "bytes a key"}}
	for n, f := range fields {
		f.check()
		row := []string{measure.Count(int64(sizes[n]))}
		for i := range makers {
			row = append(row, f.spread(i), measure.Num(f.ns[i].To(fields[0].ns[i]).Median()), measure.Num(bytes[i][n]))
		}
		table.Row(row...)
	}
	s.Table("", table)
	s.Chart()
	whereTimeGoes(s, fields, sequences)
}

// whereTimeGoes shows the functions of a Take whose share grows with the keys.
func whereTimeGoes(s *measure.Section, fields []*field, sequences []measure.Keys) {
	few, many := 0, len(fields)-1
	var ns [2]map[string]float64
	for i, n := range []int{few, many} {
		f, calls, hits := fields[n], sequences[n], 0
		shares, err := measure.Profile(f.TempDir(), func() error {
			for began := time.Now(); time.Since(began) < measure.Pick(50*time.Millisecond, time.Second, 3*time.Second); {
				if _, _, err := measure.Parallel(calls.Len(), runtime.NumCPU(), func(i int) error { return f.contestants[0].hit(calls.At(i)) }); err != nil {
					return err
				}
				hits += calls.Len()
			}
			return nil
		})
		require.NoError(f, err)
		f.hits[0] += int64(hits)
		// A profile counts the time of each core.
		for name, share := range shares {
			shares[name] = share * f.ns[0].Median() * float64(runtime.NumCPU())
		}
		ns[i] = shares
	}
	names := slices.SortedFunc(maps.Keys(ns[1]), func(a, b string) int {
		return cmp.Or(cmp.Compare(ns[1][b]-ns[0][b], ns[1][a]-ns[0][a]), strings.Compare(a, b))
	})
	table := measure.Table{Head: []string{"function", words.Plural(int64(fields[few].keys.Len()), "key"), words.Plural(int64(fields[many].keys.Len()), "key")}}
	for _, name := range names[:min(8, len(names))] {
		table.Row("`"+strings.TrimPrefix(name, "github.com/abacus-go/abacus/")+"`", measure.Num(ns[0][name]), measure.Num(ns[1][name]))
	}
	s.Table("Where the time of a Take goes", table)
	s.Say("ns of one core for one call, by a profile of this run: the functions that grow most from the fewest keys to the most, each without what it calls.")
}

// past is the number of hits in a key's window before the measurement.
const past = 200

func TestLongWindows(t *testing.T) {
	rounds, calls, n := measure.Pick(2, 3, 7), measure.Pick(2_000, 100_000, 300_000), measure.Pick(10, 1_000, 1_000)
	s := measure.Open(t, "In memory, as windows grow")
	s.Say("%s, one core, %d rounds of %s calls; ns for one call, and the ratio to the minute. Each key has %d hits, evenly spread over its window, and goes on so: a made-up clock "+
		"moves from call to call, and the real one is read as well. The ladder is the one that fits the window, exact to a second. \"Buckets in its cover\" is what a store without running totals would add up.", words.Plural(int64(n), "key"), rounds, measure.Count(int64(calls)), past)
	keys := try.To(measure.Distinct(n))(t)
	before, sequence := keys.InTurn((past+10)*n), keys.InTurn(calls) // in turn: hits are evenly spread
	windows := []time.Duration{time.Minute, time.Hour, day, 7 * day, 30 * day}
	names := []string{"1 minute", "1 hour", "1 day", "7 days", "30 days"}
	ns := make([]measure.Series, len(windows))
	one := make([]*moving, len(windows))
	for i, window := range windows {
		one[i] = newMoving(t, window, window/time.Duration(past*n))
		_, _, err := measure.Parallel(before.Len(), 1, func(call int) error { return one[i].hit(before.At(call)) })
		require.NoError(t, err)
	}
	measure.Uncollected(rounds, len(windows), func(i, _ int) {
		spent, _, err := measure.Parallel(calls, 1, func(call int) error { return one[i].hit(sequence.At(call)) })
		require.NoError(t, err)
		ns[i] = append(ns[i], float64(spent.Nanoseconds())/float64(calls))
	})
	table := measure.Table{Head: []string{"window", "abacus, ns", "to the first", "buckets in its cover", "bytes a key"}}
	for i, window := range windows {
		for k := range n {
			count := try.To(one[i].Count(ctx, counter.Key{Event: "signup", Feature: keys.At(k)}, window))(t)
			require.LessOrEqual(t, count.Low, int64(past))
			require.GreaterOrEqual(t, count.High, int64(past))
		}
		cover := try.To(one[i].Config().Ladder.Cover(one[i].now, window, 0))(t)
		table.Row(names[i], ns[i].Spread(), measure.Num(ns[i].To(ns[0]).Median()), fmt.Sprint(cover.Reads()),
			measure.Count(one[i].store.Stats().Buckets*16/int64(n)))
	}
	s.Table("", table)
	s.Chart()
}

// moving is an abacus on a clock that moves a step at each call.
type moving struct {
	abacus
	now  time.Time
	step time.Duration
}

func newMoving(t *testing.T, window, step time.Duration) *moving {
	m := &moving{now: time.Date(2026, 3, 2, 10, 20, 30, 0, time.UTC), step: step}
	m.limits = counter.Limits{{Max: 1_000_000, Per: window}}
	m.store = memory.New(memory.Config{MaxBuckets: 1 << 30})
	m.Counter = try.To(counter.New(m.store, counter.Config{Ladder: tiers.For(window), Now: func() time.Time {
		_ = time.Now()
		m.now = m.now.Add(m.step)
		return m.now
	}}))(t)
	return m
}

func TestFloodOfFreshKeys(t *testing.T) {
	n := measure.Pick(20_000, 3_000_000, 10_000_000)
	config := memory.Config{MaxBuckets: measure.Pick(1<<15, 0, 0)}
	s := measure.Open(t, "In memory, a flood of fresh keys")
	s.Say("%s keys with one hit each, one core, on a store with the default bound of 256 MB; ns for one call, in three tenths of the flood. The first nearly fills the store; soon after each key is "+
		"refused, or takes the place of the one hit least recently. The heap is that after a collection.", measure.Count(int64(n)))
	table := measure.Table{Head: []string{"when it is full", "first tenth", "third", "last", "last to third", "keys kept", "heap, MB", "admitted", "refused"}}
	keys := try.To(measure.Distinct(n))(t)
	for _, row := range []struct {
		name   string
		policy memory.Policy
	}{{"refuse", memory.Refuse}, {"evict", memory.EvictOldest}} {
		before := measure.Heap()
		config.Full = row.policy
		store := memory.New(config)
		c := try.To(counter.New(store, counter.Config{}))(t)
		limits := counter.MustLimits("100/d")
		admitted, refused := 0, 0
		var ns [10]float64
		for tenth := range ns {
			first, next := tenth*n/10, (tenth+1)*n/10
			start := time.Now()
			for i := first; i < next; i++ {
				if v, err := c.Take(ctx, counter.Key{Event: "signup", Feature: keys.At(i)}, 1, limits); err != nil {
					require.ErrorIs(t, err, memory.ErrFull)
					refused++
				} else if v.Allowed {
					admitted++
				}
			}
			ns[tenth] = float64(time.Since(start).Nanoseconds()) / float64(next-first)
		}
		heap, stats := measure.Heap()-before, store.Stats()
		require.Equal(t, n, admitted+refused)
		require.EqualValues(t, refused, stats.Refused)
		require.EqualValues(t, admitted, int64(stats.Keys)+stats.Evicted)
		if row.policy == memory.EvictOldest {
			require.Zero(t, refused)
		} else {
			require.Zero(t, stats.Evicted)
		}
		table.Row(row.name, measure.Num(ns[0]), measure.Num(ns[2]), measure.Num(ns[9]), measure.Num(ns[9]/ns[2]),
			measure.Count(int64(stats.Keys)), measure.Num(float64(heap)/1e6), measure.Count(int64(admitted)), measure.Count(int64(refused)))
		runtime.KeepAlive(store)
	}
	s.Table("", table)
}

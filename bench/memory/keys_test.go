package memory_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/words"
)

// roomy are limits in the shape of 10/m, 50/h, 100/d, or of 100/d alone, with twice
// the room that the hits of a key need in a minute.
func roomy(n int, hits int64) counter.Limits {
	all := counter.Limits{{Max: 20 * hits, Per: time.Minute}, {Max: 100 * hits, Per: time.Hour}, {Max: 200 * hits, Per: day}}
	return all[len(all)-n:]
}

// field is contestants with the same limits, in one race.
type field struct {
	*testing.T
	names       []string
	peers       []bool
	contestants []contestant
	limits      counter.Limits
	keys        measure.Keys
	hits        []int64            // that each has counted
	mishaps     []*measure.Mishaps // of peers
	began       time.Time

	ns, allocs []measure.Series
}

func newField(t *testing.T, keys measure.Keys, limits counter.Limits) *field {
	return &field{T: t, keys: keys, limits: limits, began: time.Now()}
}

// add lets a further contestant take part, and see every key once.
func (f *field) add(name string, peer bool, c contestant) {
	f.names, f.peers, f.contestants = append(f.names, name), append(f.peers, peer), append(f.contestants, c)
	f.hits, f.mishaps, f.ns, f.allocs = append(f.hits, 0), append(f.mishaps, &measure.Mishaps{}), append(f.ns, nil), append(f.allocs, nil)
	last := len(f.contestants) - 1
	for i := range f.keys.Len() {
		// Each contestant keeps a string of its own, as with the key of a request.
		require.NoError(f, f.hit(last, strings.Clone(f.keys.At(i))), name)
	}
	f.hits[last] = int64(f.keys.Len()) - f.mishaps[last].Failed()
}

// hit is a call of a contestant. A peer that fails, because other callers were in its
// way or whatever it says, ends no race.
func (f *field) hit(i int, key string) error {
	err := f.contestants[i].hit(key)
	if err != nil && f.peers[i] {
		f.mishaps[i].Call(err)
		return nil
	}
	return err
}

// run is one turn of a contestant.
func (f *field) run(i int, calls measure.Keys, cores int) {
	failed := f.mishaps[i].Failed()
	spent, mallocs, err := measure.Parallel(calls.Len(), cores, func(call int) error { return f.hit(i, calls.At(call)) })
	require.NoError(f, err, f.names[i])
	f.ns[i] = append(f.ns[i], float64(spent.Nanoseconds())/float64(calls.Len()))
	f.allocs[i] = append(f.allocs[i], float64(mallocs)/float64(calls.Len()))
	f.hits[i] += int64(calls.Len()) - (f.mishaps[i].Failed() - failed)
}

// spread is the time of a call, with what went wrong.
func (f *field) spread(i int) string { return f.ns[i].Spread() + f.mishaps[i].String() }

// check asks every contestant for the hits of each key. A contestant that did not
// count, or took two keys for the same, was in another race: the row of a peer says so.
func (f *field) check() {
	longest := f.limits[len(f.limits)-1]
	for i, c := range f.contestants {
		var sum int64
		for k := range f.keys.Len() {
			used, err := c.used(f.keys.At(k))
			if err != nil && f.peers[i] {
				f.mishaps[i].Miscount("its count: %v", err)
				continue
			}
			require.NoError(f, err)
			sum += used
		}
		// A token bucket fills up again meanwhile, and reckons in fractions. The
		// bucket of x/time/rate fills up faster if callers overtake each other: an
		// older stamp sets the bucket's clock back, and the time between counts
		// twice.
		refilled := 2*int64(time.Since(f.began).Seconds()*float64(longest.Max)/longest.Per.Seconds()) + 1
		slack := int64(0)
		if f.names[i] == "x/time/rate" || f.names[i] == "throttled" {
			slack = refilled * int64(f.keys.Len())
		}
		if f.peers[i] {
			if sum < f.hits[i]-slack || sum > f.hits[i]+slack {
				f.mishaps[i].Miscount("counted %s of %s hits", measure.Count(sum), measure.Count(f.hits[i]))
			}
			continue
		}
		require.Equal(f, f.hits[i], sum, "%s has counted another number of hits", f.names[i])
		if a, ours := c.(*abacus); ours {
			require.Equal(f, f.keys.Len(), a.store.Stats().Keys, "keys in the store")
		}
	}
}

// fastestPeer has the least of each round.
func (f *field) fastestPeer() measure.Series {
	var peers []measure.Series
	for i, ns := range f.ns {
		if f.peers[i] {
			peers = append(peers, ns)
		}
	}
	return measure.Fastest(peers...)
}

// hasty is a floor that gives up at each third call, and forgets a hit of each ten.
type hasty struct {
	floor
	calls int
}

func (h *hasty) hit(key string) error {
	if h.calls++; h.calls%3 == 0 {
		return fmt.Errorf("%w: busy", errGaveUp)
	}
	if h.calls%10 == 0 {
		return nil
	}
	return h.floor.hit(key)
}

// A peer that gives up under contention, or miscounts, does not end the benchmark: its
// row says so.
func TestAPeerGivesUp(t *testing.T) {
	keys := try.To(measure.Distinct(1))(t)
	f := newField(t, keys, roomy(1, 100))
	f.add("hasty", true, &hasty{floor: floor{counts: map[string]*int64{}}})
	f.run(0, keys.InTurn(30), 1)
	f.check()
	require.Contains(t, f.spread(0), "); 10 calls failed: a call gave up: busy; counted 19 of 21 hits")
}

func TestBesidePeers(t *testing.T) {
	rounds, calls := measure.Pick(2, 3, 9), measure.Pick(2_000, 200_000, 400_000)
	s := measure.Open(t, "In memory, beside other limiters")
	s.Say("%d rounds of %s calls; ns for one call, the median of the rounds and their spread. A call asks all limits: one (shaped as 100/d) or three (10/m, 50/h, 100/d). "+
		"Every call is admitted and counted, except where a row says otherwise: limits have room, and at the end each contestant is asked how many hits every key has. Each peer has a limiter for each limit and "+
		"asks one after the other. Keys are distinct and come in random order. \"To the fastest\" is the median over the rounds of the ratio to the fastest peer of the "+
		"same round and number of limits. \"Admits\" is what a limit of %d was seen to admit in its worst true window, when it was attacked in this run. Garbage is "+
		"collected between rounds, outside of all turns.", rounds, measure.Count(int64(calls)), attacked)
	var list strings.Builder
	for _, kind := range kinds {
		fmt.Fprintf(&list, "- %s: %s.\n", kind.name, kind.how)
	}
	s.Say("%s- floor: read the clock, lock, look the key up in a map, add one. It limits nothing.", list.String())

	admits := map[string]string{"floor": "-"}
	for _, kind := range kinds {
		admits[kind.name] = fmt.Sprint(worstWindow(t, kind.name, kind.make))
	}
	for _, n := range []int{1, measure.Pick(1_000, 100_000, 100_000)} {
		keys := try.To(measure.Distinct(n))(t)
		sequence := keys.Random(calls)
		for _, cores := range []int{1, runtime.NumCPU()} {
			table := measure.Table{Head: []string{"", "1 limit, ns", "to the fastest", "3 limits, ns", "to the fastest", "allocs, 1 and 3", "admits"}}
			before := runtime.GOMAXPROCS(cores)
			one, three := raceOf(t, keys, sequence, 1, rounds, cores), raceOf(t, keys, sequence, 3, rounds, cores)
			runtime.GOMAXPROCS(before)
			for i, name := range one.names {
				row := []string{name, one.spread(i), measure.Num(one.ns[i].To(one.fastestPeer()).Median()), "", "", measure.Num(one.allocs[i].Median()), admits[name]}
				if name != "floor" {
					row[3], row[4] = three.spread(i), measure.Num(three.ns[i].To(three.fastestPeer()).Median())
					row[5] += ", " + measure.Num(three.allocs[i].Median())
				}
				table.Row(row...)
			}
			s.Table(fmt.Sprintf("%s, %s", words.Plural(int64(n), "key"), words.Plural(int64(cores), "core")), table)
		}
	}
}

// raceOf lets all kinds run against each other.
func raceOf(t *testing.T, keys, sequence measure.Keys, limits, rounds, cores int) *field {
	hits := int64(sequence.Len() * (rounds + 1) / keys.Len())
	f := newField(t, keys, roomy(limits, max(1, hits)))
	for _, kind := range kinds {
		c := try.To(kind.make(f.limits))(t)
		f.add(kind.name, kind.peer, c)
	}
	if limits == 1 {
		c := try.To(newFloor(nil))(t)
		f.add("floor", false, c)
	}
	measure.Uncollected(rounds, len(f.contestants), func(i, _ int) { f.run(i, sequence, cores) })
	f.check()
	return f
}

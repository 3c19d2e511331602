package tally

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
)

func newSketch() *sketch {
	s := &sketch{}
	s.init(func(k counter.Key) counter.Key { return k.Redact(nil) })
	return s
}

// Twenty keys with 2,500 denials and more are found behind two million keys with
// one denial each.
func TestMostDeniedAfterAFlood(t *testing.T) {
	s := newSketch()
	want, truth := map[string]bool{}, map[string]int64{}
	for i := range 20 {
		feature := fmt.Sprintf("ip:192.0.2.%d", i)
		want[feature], truth[feature] = true, 2500+100*int64(i)
		for range truth[feature] {
			s.note("signup", "ip", counter.Key{Event: "signup", Feature: feature}, 0)
		}
	}
	text := []byte("ip:10.0.0.0000000")
	for i := range 2_000_000 {
		n := i
		for j := len(text) - 1; j >= len(text)-7; j-- {
			text[j], n = byte('0'+n%10), n/10
		}
		s.note("signup", "ip", counter.Key{Event: "signup", Feature: string(text)}, time.Minute)
	}
	keys, since := s.most(20, time.Minute)
	require.Zero(t, since)
	require.Len(t, keys, 20)
	for _, k := range keys {
		require.True(t, want[k.Feature], "%+v", k)
		delete(want, k.Feature)
		require.Equal(t, [2]int64{truth[k.Feature], truth[k.Feature]}, [2]int64{k.AtLeast, k.AtMost}, "counted from the first on")
	}
	all, _ := s.most(2000, time.Minute)
	require.Len(t, all, sketchShards*shardCounters)
	require.LessOrEqual(t, all[len(all)-1].AtLeast, int64(1))
}

// Random denials, Forgets and hours: a count is within its bounds, and no key
// that has more than the least is left out.
func TestMostDeniedAgainstAnExactCount(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 4 {
		s := newSketch()
		var truth [2]map[counter.Key]int64 // of the hour under way and of the hour before
		truth[0], truth[1] = map[counter.Key]int64{}, map[counter.Key]int64{}
		var instant time.Duration
		features := 100 + rnd.IntN(4000)
		for range 20_000 {
			f := rnd.IntN(features)
			if rnd.IntN(2) == 0 {
				f %= 50
			}
			key := counter.Key{Event: "signup", Feature: fmt.Sprintf("user:%d", f)}
			switch rnd.IntN(4000) {
			case 0:
				hours := 1 + rnd.IntN(2)
				instant = instant.Truncate(time.Hour) + time.Duration(hours)*time.Hour + time.Duration(rnd.IntN(3600))*time.Second
				truth[1] = truth[0]
				if hours > 1 {
					truth[1] = map[counter.Key]int64{}
				}
				truth[0] = map[counter.Key]int64{}
			case 1, 2, 3, 4:
				s.forget(key)
				delete(truth[0], key)
				delete(truth[1], key)
			default:
				s.note("signup", "user", key, instant)
				truth[0][key]++
			}
		}
		keys, since := s.most(1<<20, instant)
		require.Equal(t, max(0, instant.Truncate(time.Hour)-time.Hour), since)
		found := map[counter.Key]bool{}
		var floor int64
		for i := range s.shards {
			floor = max(floor, s.shards[i].now.floor+s.shards[i].last.floor)
		}
		for i, k := range keys {
			key := counter.Key{Event: k.Event, Feature: k.Feature}
			n := truth[0][key] + truth[1][key]
			require.LessOrEqual(t, k.AtLeast, n, "%+v", k)
			require.GreaterOrEqual(t, k.AtMost, n, "%+v", k)
			require.False(t, found[key], "%+v twice", k)
			require.True(t, i == 0 || keys[i-1].AtLeast >= k.AtLeast)
			found[key] = true
		}
		for _, hour := range truth {
			for key := range hour {
				require.True(t, found[key] || truth[0][key]+truth[1][key] <= floor, "%v: %d denials, floor %d", key, truth[0][key]+truth[1][key], floor)
			}
		}
	}
}

func TestMostDeniedByManyAtOnce(t *testing.T) {
	s := newSketch()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for j := range 1000 {
				s.note("signup", "user", counter.Key{Event: "signup", Feature: fmt.Sprintf("user:%d", j%10)}, 0)
				if j%100 == i {
					s.most(3, 0)
				}
			}
		})
	}
	callers.Wait()
	keys, _ := s.most(11, 0)
	require.Len(t, keys, 10)
	for _, k := range keys {
		require.Equal(t, [2]int64{800, 800}, [2]int64{k.AtLeast, k.AtMost})
	}
	require.True(t, slices.IsSortedFunc(keys, func(a, b DeniedKey) int { return strings.Compare(a.Feature, b.Feature) }), "in a fixed order where equal")
}

// BenchmarkDenied is the cost of a denial: of a known key, and of keys that all are
// new and take the counter of another key.
func BenchmarkDenied(b *testing.B) {
	s := newSketch()
	keys := make([]counter.Key, 1<<18)
	for i := range keys {
		keys[i] = counter.Key{Event: "signup", Feature: fmt.Sprintf("ip:10.%d.%d.%d", i>>16, i>>8&255, i&255)}
		s.note("signup", "ip", keys[i], 0)
	}
	for _, known := range []int{1, 500, len(keys)} {
		b.Run(fmt.Sprintf("%d keys", known), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.note("signup", "ip", keys[i%known], 0)
			}
		})
	}
}

func TestADenialIsCountedWithoutAllocation(t *testing.T) {
	s := newSketch()
	keys := make([]counter.Key, 5000)
	for i := range keys {
		keys[i] = counter.Key{Event: "signup", Feature: fmt.Sprintf("user:%06d", i)}
		s.note("signup", "user", keys[i], 0)
	}
	i := 0
	require.Zero(t, testing.AllocsPerRun(2000, func() { s.note("signup", "user", keys[i], 0); i++ }))
}

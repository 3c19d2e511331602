package memory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// peek is a Peek of one window.
func peek(t testing.TB, ladder, key string, now time.Time, limit counter.Limit) *backend.TakeRequest {
	take := taking(t, ladder, key, now, limit)
	take.Peek = true
	return take
}

// Two labels 2.2 s apart come to the lock in the wrong order: the second one's
// window still holds what the first has dropped. To count that as zero would
// admit 3 + 3 within a minute.
func TestALabelBeforeWhatWasDropped(t *testing.T) {
	const ladder = "1s:1m"
	limit := per(3, time.Minute)
	s := New(Config{})
	for range 3 {
		mustTake(t, s, taking(t, ladder, "k", noon, limit))
	}
	ahead, late := noon.Add(62100*time.Millisecond), noon.Add(59900*time.Millisecond)
	mustTake(t, s, taking(t, ladder, "k", ahead, limit))
	before := s.Stats()

	require.ErrorIs(t, s.Take(context.Background(), taking(t, ladder, "k", late, limit)), backend.ErrStaleLabel)
	require.ErrorIs(t, s.Take(context.Background(), peek(t, ladder, "k", late, limit)), backend.ErrStaleLabel)
	both := also(t, taking(t, ladder, "other", late, limit), "k", limit)
	require.ErrorIs(t, s.Take(context.Background(), both), backend.ErrStaleLabel)
	read := func(now time.Time, first int64) *backend.Request {
		return &backend.Request{Key: "k", Ladder: both.Keys[0].Ladder, Now: now, Read: []backend.Span{{Width: time.Second, First: first, Counts: make([]int64, 70)}}}
	}
	require.ErrorIs(t, s.Do(context.Background(), read(late, noon.Unix()-1)), backend.ErrStaleLabel)
	require.NoError(t, s.Do(context.Background(), read(late, noon.Unix()+1)), "it reads nothing of what was dropped")
	require.NoError(t, s.Do(context.Background(), read(ahead, noon.Unix()-1)), "it has expired by this clock")
	add := chain(t, ladder, noon, 1)
	require.ErrorIs(t, s.Do(context.Background(), add), backend.ErrStaleLabel)
	require.Zero(t, add.Add[0].Count)
	require.Equal(t, before, s.Stats())
	requireSound(t, s)

	// A shorter window is not concerned, nor a label that is late by less.
	require.True(t, mustTake(t, s, taking(t, ladder, "k", late, per(3, 30*time.Second))).Allowed)
	require.False(t, mustTake(t, s, taking(t, ladder, "k", ahead.Add(-time.Second), per(2, time.Minute))).Allowed)

	// A clock that was set back goes by the buckets that are there.
	back := taking(t, ladder, "k", late, limit)
	back.AnyLabel = true
	require.EqualValues(t, 2, mustTake(t, s, back).Keys[0].Windows[0].Count)
	back = taking(t, ladder, "k", noon.Add(-time.Hour), limit)
	back.AnyLabel = true
	mustTake(t, s, back)
	requireSound(t, s)
}

// The expiry of dropped buckets outlives an entry that is emptied, or whose
// memory another key takes. Known keys are not concerned.
func TestWhatWasDroppedOutlivesTheEntry(t *testing.T) {
	const ladder = "1s:1m"
	limit := per(3, time.Minute)
	fill := func(s *Store) {
		for range 3 {
			mustTake(t, s, taking(t, ladder, "k", noon, limit))
		}
	}
	late := noon.Add(59900 * time.Millisecond)
	for name, lose := range map[string]func(s *Store){
		"emptied": func(s *Store) {
			ahead := noon.Add(62100 * time.Millisecond)
			mustTake(t, s, taking(t, ladder, "k", ahead, limit))
			require.NoError(t, s.Do(context.Background(), chain(t, ladder, ahead, -1)))
		},
		"reclaimed": func(s *Store) {
			s.max = s.spent.Load()
			mustTake(t, s, taking(t, ladder, "fresh", noon.Add(62100*time.Millisecond), limit))
			require.EqualValues(t, 1, s.Stats().Reclaimed)
		},
	} {
		s := New(Config{Reserve: -1})
		fill(s)
		lose(s)
		require.Nil(t, s.lookup("k"), name)
		require.ErrorIs(t, s.Take(context.Background(), taking(t, ladder, "k", late, limit)), backend.ErrStaleLabel, name)
		require.ErrorIs(t, s.Take(context.Background(), peek(t, ladder, "k", late, limit)), backend.ErrStaleLabel, name)
		read := &backend.Request{Key: "k", Ladder: taking(t, ladder, "k", late).Keys[0].Ladder, Now: late, Read: []backend.Span{{Width: time.Second, First: noon.Unix(), Counts: make([]int64, 1)}}}
		require.ErrorIs(t, s.Do(context.Background(), read), backend.ErrStaleLabel, name)
		s.max = DefaultMaxBuckets
		// The next entry of the key remembers as well.
		mustTake(t, s, taking(t, ladder, "k", noon.Add(63*time.Second), limit))
		require.ErrorIs(t, s.Take(context.Background(), taking(t, ladder, "k", late, limit)), backend.ErrStaleLabel, name)
		requireSound(t, s)
	}

	// A clock that is a day ahead reclaims; keys that are there go on.
	s := storeFor(100, Refuse)
	for i := range 50 {
		mustTake(t, s, taking(t, "1s:1h", fmt.Sprint("old", i), noon, limit))
	}
	for i := range 50 {
		mustTake(t, s, taking(t, "1s:7d", fmt.Sprint("there", i), noon, limit))
	}
	for i := range 50 {
		mustTake(t, s, taking(t, "1s:1h", fmt.Sprint("ahead", i), noon.Add(day), limit))
	}
	require.EqualValues(t, 50, s.Stats().Reclaimed)
	for i := range 50 {
		mustTake(t, s, taking(t, "1s:7d", fmt.Sprint("there", i), noon.Add(time.Millisecond), limit))
	}
}

// A call that is late by up to the grace is never sent round, whatever was
// dropped a moment before.
func TestGrace(t *testing.T) {
	s := New(Config{})
	for i := range 20_000 {
		now := noon.Add(time.Duration(i) * 7 * time.Millisecond)
		for _, label := range []time.Time{now, now.Add(-time.Duration(grace))} {
			take := taking(t, "10ms:100ms, 100ms:1s", "k", label, per(1e6, time.Second), per(1e6, 100*time.Millisecond))
			mustTake(t, s, take)
			require.NoError(t, s.Do(context.Background(), &backend.Request{Key: "k", Ladder: take.Keys[0].Ladder, Now: label, Read: []backend.Span{
				{Width: 100 * time.Millisecond, First: tiers.Index(label.UnixNano(), 100*time.Millisecond) - 50, Counts: make([]int64, 60)}}}))
		}
	}
}

// Taking back a hit that was dropped finds nothing to take: no later hit is in
// a new bucket of the same start.
func TestTakingBackWhatWasDropped(t *testing.T) {
	const ladder = "1s:1m, 1m:1h"
	s := New(Config{})
	require.NoError(t, s.Do(context.Background(), chain(t, ladder, noon, 1)))
	later := noon.Add(63 * time.Second)
	require.NoError(t, s.Do(context.Background(), chain(t, ladder, later, 1)))
	again := chain(t, ladder, noon, 1) // by a caller who stood still
	require.ErrorIs(t, s.Do(context.Background(), again), backend.ErrStaleLabel)
	for _, now := range []time.Time{noon, later} { // whatever the clock of who takes back
		back := chain(t, ladder, noon, -1)
		back.Now = now
		require.NoError(t, s.Do(context.Background(), back))
		require.Zero(t, back.Add[0].Count)
	}
	require.EqualValues(t, 1, mustTake(t, s, peek(t, ladder, "k", later, per(9, time.Minute))).Keys[0].Windows[0].Count)
}

// A step whose windows need nothing that was dropped is stale all the same if the
// label's own second was dropped: made anew, the second would lack its former hit.
func TestATakeIntoADroppedBucket(t *testing.T) {
	const ladder = "1s:1m, 1m:2h"
	s := New(Config{})
	hour := per(9, time.Hour)
	mustTake(t, s, taking(t, ladder, "k", noon, hour))
	mustTake(t, s, taking(t, ladder, "k", noon.Add(10*time.Minute), hour))
	require.ErrorIs(t, s.Take(context.Background(), taking(t, ladder, "k", noon, hour)), backend.ErrStaleLabel)
	require.EqualValues(t, 2, mustTake(t, s, peek(t, ladder, "k", noon, hour)).Keys[0].Windows[0].Count, "a Peek adds nothing")
}

// Random labels, partly of long ago, on a small store that reclaims empty keys:
// every answer agrees with a log of all hits, or is ErrStaleLabel, or ErrFull.
func TestLabelsInAnyOrderInASmallStore(t *testing.T) {
	var (
		mu  sync.Mutex
		all = map[string]int{}
	)
	t.Run("scripts", func(t *testing.T) {
		for range 4 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				outcomes := labelsInAnyOrder(t, 15)
				mu.Lock()
				defer mu.Unlock()
				for what, n := range outcomes {
					all[what] += n
				}
			})
		}
	})
	t.Log(all)
	for _, what := range []string{"exact", "stale", "full"} {
		require.Greater(t, all[what], 100, what)
	}
}

// labelsInAnyOrder plays n scripts, and counts the outcomes of the calls.
func labelsInAnyOrder(t *testing.T, n int) map[string]int {
	outcomes := map[string]int{}
	for range n {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		ladder := []string{"1s:10s", "1s:10s, 10s:10m", "100ms:10s, 1s:1m, 2s:1m, 10s:10m, 1m:1h", "1s:1h, 1m:1h"}[rnd.IntN(4)]
		l, err := tiers.Parse(ladder)
		require.NoError(t, err)
		s := New(Config{MaxBuckets: []int{60, 200, 1000}[rnd.IntN(3)]})
		type bucket struct {
			key string
			tiers.Bucket
		}
		log := map[bucket]int64{}
		newest := noon
		for i := range 600 {
			about := fmt.Sprintf("seed %d, ladder %s, call %d", seed, ladder, i)
			keep := int64(l.At(rnd.IntN(l.Len())).Keep)
			label := newest.Add(time.Duration(rnd.Int64N(keep / 8)))
			switch rnd.IntN(4) {
			case 0:
				label = newest.Add(-time.Duration(rnd.Int64N(2 * keep)))
			case 1:
				label = newest.Add(-time.Duration(rnd.Int64N(grace + 1)))
			}
			key := fmt.Sprint("key", rnd.IntN(12))
			fails := func(err error) bool {
				switch {
				case err == nil:
					outcomes["exact"]++
				case errors.Is(err, backend.ErrStaleLabel):
					outcomes["stale"]++
					require.Greater(t, newest.Sub(label), time.Duration(grace), about)
				default:
					outcomes["full"]++
					require.Equal(t, ErrFull, err, about)
				}
				return err != nil
			}
			switch rnd.IntN(8) {
			case 0: // a reading of all that a window may reach
				op := &backend.Request{Key: key, Ladder: l, Now: label}
				for _, tier := range l.Tiers() {
					op.Read = append(op.Read, backend.Span{Width: tier.Width, First: tiers.Index(label.Add(-tier.Keep).UnixNano(), tier.Width), Counts: make([]int64, 200)})
				}
				if fails(s.Do(context.Background(), op)) {
					break
				}
				for _, span := range op.Read {
					for j, n := range span.Counts {
						b := tiers.Bucket{Width: span.Width, Index: span.First + int64(j)}
						if want := log[bucket{key, b}]; n != want {
							t.Fatalf("%s: bucket %s read as %d, want %d", about, b, n, want)
						}
					}
				}
			case 1, 2:
				op := chain(t, ladder, label, 1+rnd.Int64N(3))
				if op.Key = key; fails(s.Do(context.Background(), op)) {
					break
				}
				for _, slot := range op.Add {
					log[bucket{key, slot.Bucket}] += op.N
					require.Equal(t, log[bucket{key, slot.Bucket}], slot.Count, "%s: bucket %s", about, slot.Bucket)
				}
			case 3:
				f := &backend.ForgetRequest{Key: key, Ladder: l, Now: label, Label: label.UnixNano(), Remember: time.Hour}
				require.NoError(t, s.Forget(context.Background(), f), about)
				for b := range log {
					if b.key == key {
						delete(log, b)
					}
				}
			default:
				take := taking(t, ladder, key, label)
				if rnd.IntN(3) == 0 {
					also(t, take, "other"+key)
				}
				for d := range take.Keys {
					for range 1 + rnd.IntN(2) {
						tier := l.At(rnd.IntN(l.Len()))
						limit := per(1+rnd.Int64N(20), tier.Width+time.Duration(rnd.Int64N(int64(tier.Keep-tier.Width)+1)))
						take.Keys[d].Windows = append(take.Keys[d].Windows, taking(t, ladder, key, label, limit).Keys[0].Windows...)
					}
				}
				take.Peek = rnd.IntN(4) == 0
				if fails(s.Take(context.Background(), take)) {
					break
				}
				for _, d := range take.Keys {
					for _, w := range d.Windows {
						width, sum := l.At(w.Finest).Width, int64(0)
						first := tiers.Index(label.Add(-w.Reach).UnixNano(), width)
						for b, n := range log {
							if b.key == string(d.Key) && b.Width == width && b.Index >= first {
								sum += n
							}
						}
						require.Equal(t, sum, w.Count, "%s: window %s", about, w.Reach)
					}
					if take.Allowed && !take.Peek {
						for _, b := range l.Buckets(label) {
							log[bucket{string(d.Key), b}]++
						}
					}
				}
			}
			requireSound(t, s)
			if label.After(newest) {
				newest = label
			}
		}
	}
	return outcomes
}

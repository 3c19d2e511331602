package memory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/try"
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

	// Once the hit ahead is undone no bucket is newer, and a Quota leaves the label to Take.
	require.NoError(t, s.Do(context.Background(), chain(t, ladder, ahead, -1)))
	d := taking(t, ladder, "", late, limit).Keys[0]
	require.Zero(t, s.Bind(s, &d).Admit("k", 1, late.UnixNano()))
	requireSound(t, s)
}

// A clock that is a day ahead reclaims; keys that are there go on.
func TestKeysGoOnWhereOthersAreReclaimed(t *testing.T) {
	s := storeFor(100, Refuse)
	limit := per(3, time.Minute)
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

// labelsInAnyOrder plays n scripts, and counts the outcomes of the calls. For the model no
// bucket expires, so that its counts are exact.
func labelsInAnyOrder(t *testing.T, n int) map[string]int {
	outcomes := map[string]int{}
	for range n {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		ladder := []string{"1s:10s", "1s:10s, 10s:10m", "100ms:10s, 1s:1m, 2s:1m, 10s:10m, 1m:1h", "1s:1h, 1m:1h"}[rnd.IntN(4)]
		l := try.To(tiers.Parse(ladder))(t)
		s, m, newest := New(Config{MaxBuckets: []int{60, 200, 1000}[rnd.IntN(3)]}), newModel(), noon
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
			key, c := fmt.Sprint("key", rnd.IntN(12)), call{}
			switch rnd.IntN(8) {
			case 0: // a reading of all that a window may reach
				c.op = &backend.Request{Key: key, Ladder: l, Now: label}
				for _, tier := range l.Tiers() {
					c.op.Read = append(c.op.Read, backend.Span{Width: tier.Width, First: tiers.Index(label.Add(-tier.Keep).UnixNano(), tier.Width), Counts: make([]int64, 200)})
				}
			case 1, 2:
				c.op = chain(t, ladder, label, 1+rnd.Int64N(3))
				c.op.Key = key
			case 3:
				require.NoError(t, s.Forget(context.Background(), &backend.ForgetRequest{Key: key, Ladder: l, Now: label, Label: label.UnixNano(), Remember: time.Hour}), about)
				delete(m.Keys, key)
				continue
			default:
				c.take = taking(t, ladder, key, label)
				if rnd.IntN(3) == 0 {
					also(t, c.take, "other"+key)
				}
				for d := range c.take.Keys {
					for range 1 + rnd.IntN(2) {
						tier := l.At(rnd.IntN(l.Len()))
						limit := per(1+rnd.Int64N(20), tier.Width+time.Duration(rnd.Int64N(int64(tier.Keep-tier.Width)+1)))
						c.take.Keys[d].Windows = append(c.take.Keys[d].Windows, taking(t, ladder, key, label, limit).Keys[0].Windows...)
					}
				}
				c.take.Peek = rnd.IntN(4) == 0
			}
			switch err := c.do(s); {
			case err == nil:
				outcomes["exact"]++
				require.NoError(t, c.judge(m, 1000*day), about)
			case errors.Is(err, backend.ErrStaleLabel):
				outcomes["stale"]++
				require.Greater(t, newest.Sub(label), time.Duration(grace), about)
			default:
				outcomes["full"]++
				require.Equal(t, ErrFull, err, about)
			}
			requireSound(t, s)
			if label.After(newest) {
				newest = label
			}
		}
	}
	return outcomes
}

func (c call) do(s *Store) error {
	if c.take != nil {
		return s.Take(context.Background(), c.take)
	}
	return s.Do(context.Background(), c.op)
}

// judge holds the answer of c to the contract, as if its buckets had lived for ttl.
func (c call) judge(m *oracle.Store, ttl time.Duration) error {
	if c.op != nil {
		for i := range c.op.Add {
			c.op.Add[i].TTL = ttl
		}
		return m.Do(c.op)
	}
	for i := range c.take.Keys {
		c.take.Keys[i].TTLs = slices.Repeat([]time.Duration{ttl}, c.take.Keys[i].Ladder.Len())
	}
	return m.Take(c.take)
}

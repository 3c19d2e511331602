package memory

import (
	"context"
	"math"
	"os"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/tiers"
)

func TestErrorsChangeNothing(t *testing.T) {
	s := New(Config{})
	second := tiers.Bucket{Width: time.Second, Index: noon.Unix()}
	mustTake(t, s, taking(t, dayLadder, "k", noon, per(5, day)))
	done, cancel := context.WithCancel(context.Background())
	cancel()
	past := time.Now().Add(-time.Second)
	far := time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
	slots := func(b ...tiers.Bucket) (slots []backend.Slot) {
		for _, b := range b {
			slots = append(slots, backend.Slot{Bucket: b, TTL: day, Count: 9})
		}
		return slots
	}
	for want, op := range map[string]*backend.Request{
		"context canceled":              {Key: "k", Now: noon, N: 1, Add: slots(second)},
		"i/o timeout":                   {Key: "k", Now: noon, N: 1, Add: slots(second), Deadline: past},
		"time 2300":                     {Key: "k", Now: far, N: 1, Add: slots(second)},
		"a bucket of width 0s":          {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{})},
		"a bucket of width -1s":         {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: -time.Second})},
		"bucket 9223372036854775":       {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: time.Second, Index: math.MaxInt64})},
		"bucket 9223372036 of":          {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: time.Second, Index: math.MaxInt64 / int64(time.Second)})},
		"bucket -922337203685477":       {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: time.Second, Index: math.MinInt64})},
		"a span of width -1ns":          {Key: "k", Now: noon, N: 1, Add: slots(second), Read: []backend.Span{{Width: -1}}},
		"TTL -1ns of bucket 1s@2":       {Key: "k", Now: noon, N: 1, Add: []backend.Slot{{Bucket: second, TTL: -1}}},
		"hold 1, 9007199254740991 more": {Key: "k", Now: noon, N: backend.MaxCount, Add: slots(second)},
		"hold 0, 922337203":             {Key: "fresh", Now: noon, N: math.MaxInt64, Add: slots(second)},
	} {
		op.Ladder = tiers.Default
		ctx := context.Background()
		if want == "context canceled" {
			ctx = done
		}
		require.ErrorContains(t, s.Do(ctx, op), want)
		for _, slot := range op.Add {
			require.Zero(t, slot.Count, want)
		}
	}
	require.ErrorIs(t, s.Do(done, &backend.Request{Now: noon}), context.Canceled)
	require.ErrorIs(t, s.Do(context.Background(), &backend.Request{Now: noon, Deadline: past}), os.ErrDeadlineExceeded)
	for want, spoil := range map[string]func(*backend.TakeRequest){
		"i/o timeout":         func(t *backend.TakeRequest) { t.Deadline = past },
		"time 2300":           func(t *backend.TakeRequest) { t.Now = far },
		"n -1":                func(t *backend.TakeRequest) { t.Keys[1].N = -1 },
		"n 9007199254740992,": func(t *backend.TakeRequest) { t.Keys[1].N = backend.MaxCount + 1 },
		"2 TTLs for a ladder": func(t *backend.TakeRequest) { t.Keys[1].TTLs = t.Keys[1].TTLs[:2] },
		"0 TTLs for a ladder": func(t *backend.TakeRequest) { t.Keys[1].Ladder, t.Keys[1].TTLs = tiers.Ladder{}, nil },
		"TTL -1ns":            func(t *backend.TakeRequest) { t.Keys[1].TTLs[1] = -1 },
		"from tier 3":         func(t *backend.TakeRequest) { t.Keys[1].Windows[0].Finest = 3 },
		"from tier -1":        func(t *backend.TakeRequest) { t.Keys[1].Windows[0].Finest = -1 },
		"window of -1ns":      func(t *backend.TakeRequest) { t.Keys[1].Windows[0].Reach = -1 },
		"hold 1, 9007199254740991 more": func(t *backend.TakeRequest) {
			t.Keys = t.Keys[:1]
			t.Keys[0].N = backend.MaxCount
			t.Keys[0].Windows[0].Max = math.MaxInt64
		},
	} {
		take := also(t, taking(t, dayLadder, "k", noon, per(5, day)), "other", per(5, day))
		spoil(take)
		require.ErrorContains(t, s.Take(context.Background(), take), want)
		take.Keys = take.Keys[len(take.Keys)-1:]
		require.ErrorContains(t, s.Take(context.Background(), take), want, want)
	}
	require.ErrorIs(t, s.Take(done, taking(t, dayLadder, "k", noon, per(5, day))), context.Canceled)
	require.Equal(t, 1, s.Stats().Keys)
	require.EqualValues(t, 1, mustTake(t, s, taking(t, dayLadder, "k", noon, per(5, day))).Keys[0].Windows[0].Count)
	last := slots(tiers.Bucket{Width: time.Second, Index: math.MaxInt64/int64(time.Second) - 1})
	require.NoError(t, s.Do(context.Background(), &backend.Request{Key: "last", Ladder: tiers.Default, Now: noon, N: 1, Add: last}))
	requireSound(t, s)
}

// A key has one ladder, and buckets have its widths: what the contract asks for is
// checked, since a wrong answer would be a wrong count.
func TestAnotherLadderIsRefused(t *testing.T) {
	s := New(Config{})
	mustTake(t, s, taking(t, dayLadder, "k", noon, per(5, day)))
	other := taking(t, "1s:1h, 1m:30d", "k", noon, per(5, day))
	require.ErrorContains(t, s.Take(context.Background(), other), "want the same ladder in every call for a key")
	op := chain(t, "1m:1d", noon, 1)
	require.ErrorContains(t, s.Do(context.Background(), op), "the key has buckets of 1s, where the ladder of the call has 1m0s")
	read := &backend.Request{Key: "k", Ladder: tiers.Default, Now: noon, Read: []backend.Span{{Width: 2 * time.Second, Counts: []int64{7}}}}
	require.ErrorContains(t, s.Do(context.Background(), read), `a span of width 2s, want a width of the ladder "1s:1d, 1m:1d, 1h:1d"`)
	require.False(t, read.Ordered)
	require.EqualValues(t, 1, s.count(t, "k", noon))
	requireSound(t, s)
}

// Hits into the past leave out the tiers that are not kept for so long. That makes no
// label stale, and no later hit's life shorter.
func TestTiersThatAreLeftOut(t *testing.T) {
	const ladder = "1s:1h, 1m:1d"
	s := New(Config{})
	past := chain(t, ladder, noon.Add(-5*time.Hour), 2)
	past.Age, past.Add = 5*time.Hour, past.Add[1:]
	require.NoError(t, s.Do(context.Background(), past))
	require.True(t, mustTake(t, s, taking(t, ladder, "k", noon, per(3, day), per(1, time.Hour))).Allowed)
	require.False(t, mustTake(t, s, taking(t, ladder, "k", noon.Add(2*time.Hour), per(3, day))).Allowed)
	require.NoError(t, s.Do(context.Background(), past))
	require.Equal(t, []int64{4}, counts(past))
	last := taking(t, ladder, "k", noon.Add(18*time.Hour), per(5, day))
	require.False(t, mustTake(t, s, last).Allowed)
	require.EqualValues(t, 5, last.Keys[0].Windows[0].Count)
	requireSound(t, s)
}

package memory

import (
	"context"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
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
	slots := func(b ...tiers.Bucket) (slots []counter.Slot) {
		for _, b := range b {
			slots = append(slots, counter.Slot{Bucket: b, TTL: day, Count: 9})
		}
		return slots
	}
	for want, op := range map[string]*counter.Op{
		"context canceled":        {Key: "k", Now: noon, N: 1, Add: slots(second)},
		"i/o timeout":             {Key: "k", Now: noon, N: 1, Add: slots(second), Deadline: past},
		"time 2300":               {Key: "k", Now: far, N: 1, Add: slots(second)},
		"a bucket of width 0s":    {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{})},
		"a bucket of width -1s":   {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: -time.Second})},
		"bucket 9223372036854775": {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: time.Second, Index: math.MaxInt64})},
		"bucket -922337203685477": {Key: "k", Now: noon, N: 1, Add: slots(second, tiers.Bucket{Width: time.Second, Index: math.MinInt64})},
		"a span of width -1ns":    {Key: "k", Now: noon, N: 1, Add: slots(second), Read: []counter.Span{{Width: -1}}},
		"TTL -1ns of bucket 1s@2": {Key: "k", Now: noon, N: 1, Add: []counter.Slot{{Bucket: second, TTL: -1}}},
		"holds 1, with 900719925": {Key: "k", Now: noon, N: counter.MaxCount, Add: slots(tiers.Bucket{Width: time.Hour, Index: 1}, second)},
		"holds 0, with 922337203": {Key: "fresh", Now: noon, N: math.MaxInt64, Add: slots(second)},
	} {
		ctx := context.Background()
		if want == "context canceled" {
			ctx = done
		}
		require.ErrorContains(t, s.Do(ctx, op), want)
		for _, slot := range op.Add {
			require.Zero(t, slot.Count, want)
		}
	}
	require.ErrorIs(t, s.Do(done, &counter.Op{Now: noon}), context.Canceled)
	require.ErrorIs(t, s.Do(context.Background(), &counter.Op{Now: noon, Deadline: past}), os.ErrDeadlineExceeded)
	for want, spoil := range map[string]func(*counter.Taking){
		"i/o timeout":         func(t *counter.Taking) { t.Deadline = past },
		"time 2300":           func(t *counter.Taking) { t.Now = far },
		"n 0":                 func(t *counter.Taking) { t.N = 0 },
		"slack -1ns":          func(t *counter.Taking) { t.Slack = -1 },
		"2 TTLs for a ladder": func(t *counter.Taking) { t.TTLs = t.TTLs[:2] },
		"0 TTLs for a ladder": func(t *counter.Taking) { t.Ladder, t.TTLs = tiers.Ladder{}, nil },
		"TTL -1ns":            func(t *counter.Taking) { t.TTLs[1] = -1 },
		"of tiers 3 to 3":     func(t *counter.Taking) { t.Demands[0].Windows[0].Finest, t.Demands[0].Windows[0].Decision = 3, 3 },
		"of tiers 2 to 1":     func(t *counter.Taking) { t.Demands[0].Windows[0].Finest, t.Demands[0].Windows[0].Decision = 2, 1 },
		"of tiers -1 to 2":    func(t *counter.Taking) { t.Demands[0].Windows[0].Finest = -1 },
		"window -1ns":         func(t *counter.Taking) { t.Demands[0].Windows[0].Per = -1 },
		"holds 1, with 900719925": func(t *counter.Taking) {
			t.N, t.Demands = counter.MaxCount, t.Demands[:1]
			t.Demands[0].Windows[0].Max = math.MaxInt64
		},
		"holds 0, with 922337203": func(t *counter.Taking) {
			t.N, t.Demands = math.MaxInt64, t.Demands[:1]
			t.Demands[0].Windows[0].Max, t.Demands[0].Key = math.MaxInt64, []byte("fresh")
		},
	} {
		take := also(t, taking(t, dayLadder, "k", noon, per(5, day)), "other", per(5, day))
		spoil(take)
		require.ErrorContains(t, s.Take(context.Background(), take), want)
		take.Demands = take.Demands[:1]
		require.ErrorContains(t, s.Take(context.Background(), take), want, want)
	}
	require.ErrorIs(t, s.Take(done, taking(t, dayLadder, "k", noon, per(5, day))), context.Canceled)
	require.Equal(t, 1, s.Stats().Keys)
	require.EqualValues(t, 1, mustTake(t, s, taking(t, dayLadder, "k", noon, per(5, day))).Demands[0].Windows[0].Count)
	requireSound(t, s)
}

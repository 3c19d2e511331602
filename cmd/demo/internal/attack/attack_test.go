package attack

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

func TestAttempts(t *testing.T) {
	attempts := Attempts()
	require.True(t, slices.IsSortedFunc(attempts, time.Time.Compare))
	before, after, drip := 0, 0, 0
	for _, at := range attempts {
		switch d := at.Sub(midnight); {
		case d >= -BurstLen && d < 0:
			before++
		case d >= 0 && d < BurstLen:
			after++
		default:
			require.Zero(t, d%DripEvery)
			drip++
		}
	}
	require.Equal(t, BurstEach, before)
	require.Equal(t, BurstEach, after)
	require.Equal(t, 2*24*6-1, drip, "two days of six an hour, without the first midnight and the last")
}

// The demo's screen tells this outcome: the fixed window lets through twice Max
// within seconds, abacus never more than Max.
func TestOutcome(t *testing.T) {
	fixed, err := Tell(Attempts(), FixedWindow(Limit))
	require.NoError(t, err)
	require.Equal(t, [Days]int64{Limit.Max, Limit.Max, Limit.Max}, fixed.PerDay)
	require.Equal(t, 2*Limit.Max, fixed.Worst)
	require.Equal(t, Limit.Max, fixed.PerHour[23])
	require.Equal(t, Limit.Max, fixed.PerHour[24])

	allow, err := Abacus(memory.New(memory.Config{}))
	require.NoError(t, err)
	ours, err := Tell(Attempts(), allow)
	require.NoError(t, err)
	require.Equal(t, [Days]int64{Limit.Max, 0, Limit.Max}, ours.PerDay)
	require.Equal(t, Limit.Max, ours.Worst)
	require.Equal(t, 2*Limit.Max, ours.Admitted)

	all, err := Tell(Attempts(), Everything)
	require.NoError(t, err)
	require.EqualValues(t, len(Attempts()), all.Admitted)
	require.EqualValues(t, BurstEach, all.PerHour[23])
}

func TestComeBack(t *testing.T) {
	r, err := ComeBack(memory.New(memory.Config{}), Attempts())
	require.NoError(t, err)
	require.Equal(t, midnight.Add(-BurstLen+time.Duration(Limit.Max)*BurstLen/BurstEach), r.Denied)
	// The first attempt's second ends 9 s before midnight, and leaves a day later.
	require.Equal(t, midnight.Add(-BurstLen+time.Second+Limit.Per), r.Denied.Add(r.RetryAfter))
	require.False(t, r.Early)
	require.True(t, r.Then)

	_, err = ComeBack(memory.New(memory.Config{}), Attempts()[:Limit.Max])
	require.ErrorContains(t, err, "none was denied")
}

func TestStoreThatFails(t *testing.T) {
	broken := backend.FromDo(func(context.Context, *backend.Request) error { return errors.New("broken") })
	allow, err := Abacus(broken)
	require.NoError(t, err)
	_, err = Tell(Attempts(), allow)
	require.ErrorIs(t, err, counter.ErrStore)
	_, err = ComeBack(broken, Attempts())
	require.ErrorIs(t, err, counter.ErrStore)
}

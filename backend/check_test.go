package backend_test

import (
	"errors"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"
)

// A clock is compared by the answer that came soonest.
func TestClock(t *testing.T) {
	now := time.Unix(1_772_494_233, 0)
	trips := []time.Duration{9, 8, 2, 7, 9, 9, 9}
	call := 0
	r := backend.CheckRequest{Now: func() time.Time { return now }}
	ahead, within, err := r.Clock(func() (time.Time, time.Duration, error) {
		now = now.Add(trips[call] * time.Millisecond)
		answer := now.Add(trips[call] * time.Second) // far off, where the answer came late
		call++
		return answer, 500 * time.Microsecond, nil
	})
	require.NoError(t, err)
	require.Equal(t, len(trips), call)
	require.Equal(t, 2001*time.Millisecond, ahead)
	require.Equal(t, 1500*time.Microsecond, within)

	// Where the answer itself is coarse, one question is enough.
	call = 0
	_, within, err = r.Clock(func() (time.Time, time.Duration, error) {
		now = now.Add(4 * time.Millisecond)
		call++
		return now, time.Second, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, call)
	require.Equal(t, 1002*time.Millisecond, within)

	lost := errors.New("lost")
	_, _, err = r.Clock(func() (time.Time, time.Duration, error) { return now, 0, lost })
	require.ErrorIs(t, err, lost)
}

// A clock is a finding if it is apart for certain.
func TestFound(t *testing.T) {
	r := backend.CheckRequest{Skew: 100 * time.Millisecond}
	for _, row := range []struct {
		ahead, within time.Duration
		text          string
	}{
		{100 * time.Millisecond, 0, ""},
		{-140 * time.Millisecond, 40 * time.Millisecond, ""},
		{1100 * time.Millisecond, time.Second, ""},
		{141 * time.Millisecond, 40 * time.Millisecond, "clock is 141ms ahead of this process's, give or take 40ms; Config.Skew is 100ms"},
		{-2300 * time.Millisecond, 40 * time.Microsecond, "clock is 2.3s behind this process's, give or take 40µs; Config.Skew is 100ms"},
	} {
		err := r.Found(backend.Server{Ahead: row.ahead, Within: row.within})
		if row.text == "" {
			require.NoError(t, err, "%s, %s", row.ahead, row.within)
			continue
		}
		require.EqualError(t, err, row.text)
		require.ErrorIs(t, err, backend.ErrCondition)
	}
	require.Len(t, r.Servers, 5)
	require.Equal(t, "2.3s behind, give or take 40µs", r.Servers[4].Clock())
	require.Equal(t, "141ms ahead, give or take 40ms", r.Servers[3].Clock())
}

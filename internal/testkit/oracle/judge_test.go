package oracle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/parse"
)

// Two of two were hit at 10.7 s. An exact log lets go of them after 20.7 s; a
// window read in whole seconds when that second has left it; and slack is added
// to the window.
func TestJudge(t *testing.T) {
	limits := counter.MustLimits("2/10s, 100/h")
	ladder := parse.Ladder("1s:10s, 1m:1h")
	var log Log
	log.Add(time.UnixMilli(10_700), 2)
	for _, row := range []struct {
		ms      int64
		slack   time.Duration
		n       int64
		allowed bool
		exact   bool
	}{
		{20_700, 0, 1, false, false},
		{20_701, 0, 1, false, true},
		{20_999, 0, 1, false, true},
		{21_000, 0, 1, true, true},
		{21_000, 0, 2, true, true},
		{21_000, 0, 3, false, false},
		{21_000, 500 * time.Millisecond, 1, false, true},
		{21_500, 500 * time.Millisecond, 1, true, true},
		{5_000, 0, 1, false, false}, // a late call sees what was stamped later
	} {
		j := Judge{Ladder: ladder, Skew: row.slack}
		require.Equal(t, row.allowed, j.Allowed(&log, time.UnixMilli(row.ms), row.n, limits), "%+v", row)
		require.Equal(t, row.exact, j.Exact(&log, time.UnixMilli(row.ms), row.n, limits), "%+v", row)
	}
}

// The longer window binds, whichever stands first.
func TestJudgeWantsRoomUnderEveryLimit(t *testing.T) {
	j := Judge{Ladder: parse.Ladder("1s:1h")}
	var log Log
	log.Add(time.Unix(0, 0), 3)
	for _, limits := range []string{"3/h, 9/s", "9/s, 3/h"} {
		require.False(t, j.Allowed(&log, time.Unix(60, 0), 1, counter.MustLimits(limits)))
		require.False(t, j.Exact(&log, time.Unix(60, 0), 1, counter.MustLimits(limits)))
	}
}

func TestJudgeOfAWindowThatTheLadderLacks(t *testing.T) {
	require.Panics(t, func() {
		Judge{Ladder: parse.Ladder("1s:1h")}.Allowed(&Log{}, time.Unix(0, 0), 1, counter.MustLimits("1/d"))
	})
}

package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
)

// Some commands go by the length of a window.
func TestFlagsByTheCalendar(t *testing.T) {
	const calendar = "9/h, 100 per day in UTC"
	var l Limits
	require.NoError(t, l.UnmarshalText([]byte(calendar)))
	require.Equal(t, calendar, counter.Limits(l).String())
	require.ErrorContains(t, l.UnmarshalText(nil), "want max/window")
	var sliding Sliding
	require.ErrorContains(t, sliding.UnmarshalText([]byte(calendar)), "limit 100 per day in UTC: want limits that slide")
	require.NoError(t, sliding.UnmarshalText([]byte("9/h")))
}

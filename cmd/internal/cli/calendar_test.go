package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands go by the length of a window.
func TestFlagsRefuseLimitsByTheCalendar(t *testing.T) {
	var l Limits
	require.ErrorContains(t, l.UnmarshalText([]byte("9/h, 100 per day in UTC")), "limit 100 per day in UTC: want limits that slide")
	require.NoError(t, l.UnmarshalText([]byte("9/h")))
}

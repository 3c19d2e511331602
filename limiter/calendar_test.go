package limiter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// Rules refuse limits by the calendar, which neither the local counter nor the fields of
// HTTP know.
func TestRulesRefuseLimitsByTheCalendar(t *testing.T) {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	require.NoError(t, err)
	_, err = limiter.New(c, limiter.Config{Rules: []limiter.Rule{{Event: "call", Kind: "user", Limits: counter.MustLimits("9/h, 100 per day in UTC")}}})
	require.ErrorContains(t, err, "Limits has 100 per day in UTC, want limits that slide")
}

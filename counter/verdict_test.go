package counter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// A Verdict in a log is one line without the feature.
func TestVerdictSaysItselfWithoutTheFeature(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }})
	key := counter.Key{Event: "sign\nup", Feature: "email:ada@example.org"}
	take := func(n int64) fmt.Stringer { // a value has String
		v, err := c.Take(context.Background(), key, n, counter.MustLimits("3/m, 9/d"))
		require.NoError(t, err)
		return v
	}
	require.Equal(t, `admitted "sign\nup": 3/m, 1 left`, take(2).String())
	require.Equal(t, `denied "sign\nup": 3/m, 1 left, retry in 1m1s`, take(2).String())
	require.Equal(t, `denied "sign\nup": 3/m, 3 left, no wait will do`, take(4).String())
	require.Equal(t, `admitted "sign\nup": 3/m, 0 left`, fmt.Sprint(take(1)))
	var zero counter.Verdict
	require.Equal(t, "denied", zero.String())
	require.False(t, zero.Allowed)
	require.Empty(t, zero.All())
	require.NoError(t, c.Refund(context.Background(), &zero))
}

//go:build !race

package counter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// A call of three keys with three limits each has one allocation, the rest of its
// Verdict. With the race detector a sync.Pool forgets at random.
func TestTakeAllAllocatesOnce(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	asks := []counter.Ask{
		{Key: signup, N: 1, Limits: limits("900000/m, 900000/h, 900000/d")},
		{Key: counter.Key{Event: "signup", Feature: "mail:a@example.org"}, N: 1, Limits: limits("900000/m, 900000/h, 900000/d")},
		{Key: counter.Key{Event: "signup", Feature: "user:ada"}, N: 1, Limits: limits("900000/m, 900000/h, 900000/d")},
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		if v, err := c.TakeAll(ctx, asks...); err != nil || !v.Allowed {
			t.Error(v, err)
		}
	}), 1.0)
}

// A denial by a single limit in memory allocates nothing.
func TestADenialAllocatesNothing(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	_, err := c.Take(ctx, signup, 1, limits("1/d"))
	require.NoError(t, err)
	few := limits("1/d")
	require.Less(t, testing.AllocsPerRun(1000, func() {
		if v, err := c.Take(ctx, signup, 1, few); err != nil || v.Allowed || v.RetryAfter == 0 {
			t.Error(v, err)
		}
	}), 1.0)
}

package counter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Hits can come into buckets that a Counter remembers as settled: by an AddAt, and by
// a Charge or an Add that is confirmed later than Settle. Every later Take of the
// process finds them, whichever Counter added them.
func TestEveryTakeOfTheProcessFindsHitsInSettledBuckets(t *testing.T) {
	const own, another, exact, laddered = "the Counter", "another Counter", "an exact Counter", "a Counter by With"
	adds := map[string]func(c *counter.Counter, now time.Time) error{
		"AddAt": func(c *counter.Counter, now time.Time) error { return c.AddAt(ctx, signup, 5, now.Add(-2*time.Hour)) },
		"Charge": func(c *counter.Counter, _ time.Time) error {
			_, err := c.Charge(ctx, signup, 5, limits("10/d"))
			return err
		},
		"Add": func(c *counter.Counter, _ time.Time) error { return c.Add(ctx, signup, 5) },
	}
	for name, add := range adds {
		for _, by := range []string{own, another, exact, laddered} {
			t.Run(name+" of "+by, func(t *testing.T) {
				clock := newClock(time.Date(2026, 3, 1, 11, 59, 50, 0, time.UTC))
				store, cfg := newPlainStore(), counter.Config{Now: clock.now, Patience: 20 * time.Second}
				c := newCounter(t, store, cfg)
				adder := c
				switch cfg.Exact = by == exact; by {
				case another, exact:
					adder = newCounter(t, store, cfg)
				case laddered:
					adder = must(c.With(tiers.Default, nil))
				}
				admitted := 0
				take := func(times int) {
					for range times {
						v, err := c.Take(ctx, signup, 1, limits("10/d"))
						require.NoError(t, err)
						if v.Allowed {
							admitted++
						}
					}
				}
				take(3) // the key enters the memory
				clock.forward(9 * time.Second)
				if name != "AddAt" { // begins at 11:59:59, and is executed when the hour is remembered
					store.fault = func(op *backend.Request) (int, int, error) {
						if store.fault = nil; len(op.Add) > 0 {
							clock.forward(3 * time.Second)
							take(2)
						}
						return 0, 0, nil
					}
				}
				if err := add(adder, clock.now()); err != nil {
					require.ErrorIs(t, err, counter.ErrStore) // counted, and late
				}
				clock.forward(time.Second)
				take(20)
				require.LessOrEqual(t, admitted, 5)
			})
		}
	}
}

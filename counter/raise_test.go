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
	type caller func(store *plainStore, cfg counter.Config, own *counter.Counter) *counter.Counter
	own := func(_ *plainStore, _ counter.Config, own *counter.Counter) *counter.Counter { return own }
	another := func(store *plainStore, cfg counter.Config, _ *counter.Counter) *counter.Counter {
		return newCounter(t, store, cfg)
	}
	exact := func(store *plainStore, cfg counter.Config, _ *counter.Counter) *counter.Counter {
		cfg.Exact = true
		return newCounter(t, store, cfg)
	}
	laddered := func(_ *plainStore, _ counter.Config, own *counter.Counter) *counter.Counter {
		c, err := own.With(tiers.Default, nil)
		require.NoError(t, err)
		return c
	}
	addAt := func(c *counter.Counter, now time.Time) error {
		return c.AddAt(ctx, signup, 5, now.Add(-2*time.Hour))
	}
	charge := func(c *counter.Counter, _ time.Time) error {
		_, err := c.Charge(ctx, signup, 5, limits("10/d"))
		return err
	}
	add := func(c *counter.Counter, _ time.Time) error { return c.Add(ctx, signup, 5) }
	for _, row := range []struct {
		name string
		by   caller
		late bool
		add  func(c *counter.Counter, now time.Time) error
	}{
		{"an AddAt", own, false, addAt},
		{"an AddAt of another Counter", another, false, addAt},
		{"an AddAt of an exact Counter", exact, false, addAt},
		{"an AddAt by With", laddered, false, addAt},
		{"a late Charge", own, true, charge},
		{"a late Charge of another Counter", another, true, charge},
		{"a late Charge of an exact Counter", exact, true, charge},
		{"a late Add", own, true, add},
		{"a late Add of another Counter", another, true, add},
	} {
		t.Run(row.name, func(t *testing.T) {
			clock := newClock(time.Date(2026, 3, 1, 11, 59, 50, 0, time.UTC))
			store, cfg := newPlainStore(), counter.Config{Now: clock.now, Patience: 20 * time.Second}
			c := newCounter(t, store, cfg)
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
			if row.late { // begins at 11:59:59, and is executed when the hour is remembered
				store.fault = func(op *backend.Request) (int, int, error) {
					if store.fault = nil; len(op.Add) > 0 {
						clock.forward(3 * time.Second)
						take(2)
					}
					return 0, 0, nil
				}
			}
			if err := row.add(row.by(store, cfg, c), clock.now()); err != nil {
				require.ErrorIs(t, err, counter.ErrStore) // counted, and late
			}
			clock.forward(time.Second)
			take(20)
			require.LessOrEqual(t, admitted, 5)
		})
	}
}

package counter_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
)

// A Take that finds its limits prepared goes by the limits as they are now.
func TestLimitsMayChangeAfterwards(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	changing := limits("5/d")
	for range 2 {
		take(t, c, signup, 1, changing)
	}
	changing[0].Max = 2
	v := take(t, c, signup, 1, changing)
	require.False(t, v.Allowed)
	require.Equal(t, changing[0], v.Limit)
	require.True(t, take(t, c, signup, 3, limits("5/d")).Allowed)
}

// metered is a store with a Take of its own, and the other methods of a memory
// store, Bind among them.
type metered struct {
	*memory.Store
	takes int
}

func (m *metered) Take(ctx context.Context, r *backend.TakeRequest) error {
	m.takes++
	return m.Store.Take(ctx, r)
}

// A store that embeds a memory store sees every call.
func TestStoresAroundMemorySeeEveryCall(t *testing.T) {
	m := &metered{Store: memory.New(memory.Config{})}
	c := newCounter(t, m, counter.Config{})
	for range 10 {
		take(t, c, signup, 1, limits("100/d"))
	}
	require.Equal(t, 10, m.takes)
}

// Every admitted hit can be refunded once, whichever block its receipt is in, by copies of
// its Verdict at the same time.
func TestRefundOfMany(t *testing.T) {
	const callers = 8
	hits := long.Rounds(1200, 6000)
	room := limits("1000000/d, 900000/h")
	key := func(i int) counter.Key { return keyOf(fmt.Sprint(i % 3)) }
	for _, store := range []backend.Store{memory.New(memory.Config{}), newPlainStore()} {
		c := newCounter(t, store, counter.Config{Patience: -1, Settle: -1})
		verdicts := make([]counter.Verdict, callers*hits)
		ticket.SideBySide(callers, func(caller int) {
			for i := caller; i < len(verdicts); i += callers {
				verdicts[i], _ = c.Take(ctx, key(i), 2, room)
			}
		})
		for i := range 3 { // hits of others show a hit that is given back twice
			require.NoError(t, c.Add(ctx, key(i), 10))
		}
		ticket.SideBySide(2*callers, func(caller int) {
			for i := caller / 2; i < len(verdicts); i += callers {
				if v := verdicts[i]; !v.Allowed || c.Refund(ctx, &v) != nil || v != (counter.Verdict{}) {
					t.Error(verdicts[i], v)
				}
			}
		})
		for i := range 3 {
			requireCount(t, c, key(i), 24*time.Hour, 10)
		}
	}
}

// binder is a memory store that counts the limits that it prepares.
type binder struct {
	*memory.Store
	bound int
}

func (b *binder) Bind(_ backend.Store, key *backend.TakeKey) backend.Quota {
	b.bound++
	return b.Store.Bind(b.Store, key)
}

// Limits of users' own are without number, and count like the first. Few of them
// are prepared, and the limits that most calls have stay prepared.
func TestManyLimits(t *testing.T) {
	const users = 20_000
	store := &binder{Store: memory.New(memory.Config{})}
	c := newCounter(t, store, counter.Config{})
	common := limits("1000000/d")
	for i := range int64(users) {
		key := keyOf(fmt.Sprint(i))
		for want := i + 1; want >= i; want-- {
			v := take(t, c, key, 1, counter.Limits{{Max: i + 2, Per: time.Hour}})
			require.True(t, v.Allowed)
			require.Equal(t, want, v.Remaining)
		}
		require.Equal(t, 999_999-i, take(t, c, keyOf("common"), 1, common).Remaining)
	}
	require.Less(t, store.bound, users/20)
	before := store.bound
	for range 10_000 { // one may take a place that was taken, and no more
		take(t, c, keyOf("common"), 1, common)
	}
	require.LessOrEqual(t, store.bound-before, 1)
}

// The short way reads the clock of the bubble, also after an hour without a call.
func TestTheShortWayReadsTheClock(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	thousand := limits("1000/d")
	take := func(t *testing.T) {
		require.Zero(t, time.Since(try.To(c.Take(ctx, counter.Key{Event: "e", Feature: "f"}, 1, thousand))(t).At()))
	}
	synctest.Test(t, func(t *testing.T) {
		for _, pause := range []time.Duration{0, 1, 999_998, 1, 1, time.Millisecond, time.Second, time.Hour, 100 * time.Microsecond} {
			time.Sleep(pause)
			take(t)
			take(t)
		}
	})
}

package counter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/script"
)

// general is a memory store without a short way.
type general struct{ local }

type local interface {
	backend.Atomic
	backend.Local
}

// A script gets the same answers, to the last state, with and without the short
// way of the memory store.
func TestTheShortWayAgrees(t *testing.T) {
	for _, ladder := range ladders(t) {
		for _, skew := range []time.Duration{-1, 150 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, skew %s", ladder, skew), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(seed(t), 3))
				for range scripts(ladder) {
					s := script.Random(r, ladder, skew, -1, 80)
					want, err := s.Play(general{memory.New(memory.Config{})}, "")
					require.NoError(t, err)
					got, err := s.Play(memory.New(memory.Config{}), "")
					require.NoError(t, err)
					for i := range want {
						require.Equal(t, want[i].States, got[i].States, "call %d:\n%s", i, s)
						require.Equal(t, want[i].Verdict.At(), got[i].Verdict.At(), "call %d:\n%s", i, s)
						require.Empty(t, differ(s, want[i], got[i]), "call %d:\n%s", i, s)
						require.Equal(t, want[i].Verdict.ResetAfter, got[i].Verdict.ResetAfter, "call %d:\n%s", i, s)
					}
				}
			})
		}
	}
}

// Features of any bytes and of any length are counted apart, whichever way a Take
// goes.
func TestTakeOfAnyFeature(t *testing.T) {
	for _, secret := range []string{"", "secret"} {
		c := newCounter(t, memory.New(memory.Config{}), counter.Config{Secret: []byte(secret)})
		features := []string{"a b", "a%20b", "a%2520b", "a", "%", "ä", "a:b", strings.Repeat("x", 90), strings.Repeat("x", 91), strings.Repeat("x", 500), "\x00", "{a}"}
		for _, event := range []string{"e", "e:e", "e%3Ae", "ä", strings.Repeat("e", 300)} {
			both := limits("1000/d, 900/h")
			for i, feature := range features {
				key := counter.Key{Event: event, Feature: feature}
				for range i + 1 {
					for range 3 {
						v, err := c.Take(ctx, key, 1, both)
						require.NoError(t, err)
						require.True(t, v.Allowed)
						require.Equal(t, key, v.Key)
					}
					_, err := c.TakeAll(ctx, counter.Ask{Key: key, N: 1, Limits: limits("1000/d"), Held: []int64{0}}) // the general way
					require.NoError(t, err)
				}
			}
			for i, feature := range features {
				count, err := c.Count(ctx, counter.Key{Event: event, Feature: feature}, 24*time.Hour)
				require.NoError(t, err)
				require.EqualValues(t, 4*(i+1), count.High, "%q of %q", event, feature)
				v, err := c.Peek(ctx, counter.Key{Event: event, Feature: feature}, 1, both)
				require.NoError(t, err)
				require.EqualValues(t, 900-4*(i+1)-1, v.Remaining)
			}
		}
	}
}

// The short way has the errors of the general way.
func TestErrorsOfATake(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	for _, row := range []struct {
		event  string
		limits counter.Limits
		want   string
	}{
		{"", limits("1/d"), "counter: Key.Event is empty"},
		{"e", nil, `counter: no limits, want at least one, event "e"`},
		{"e", counter.Limits{{Max: -1, Per: time.Hour}}, "max -1, want 0 to"},
		{"e", limits("1/7d"), `counter: event "e", limit 1/7d: tiers: a window of 7d is longer than any tier`},
	} {
		for range 2 {
			_, err := c.Take(ctx, counter.Key{Event: row.event, Feature: "f"}, 1, row.limits)
			require.ErrorContains(t, err, row.want)
		}
	}
	key, two := counter.Key{Event: "e", Feature: "f"}, limits("2/d")
	_, err := c.Take(ctx, counter.Key{Event: "e"}, 1, two)
	require.EqualError(t, err, `counter: Key.Feature is empty, event "e"`)
	for _, n := range []int64{0, -1, counter.MaxCount + 1} {
		_, err = c.Take(ctx, key, n, two)
		require.ErrorContains(t, err, "counter: n is ")
	}
	v, err := c.Take(ctx, key, 3, two)
	require.NoError(t, err)
	require.False(t, v.Allowed)
	require.Equal(t, counter.Never, v.RetryAfter)
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.Take(done, key, 1, two)
	require.ErrorIs(t, err, context.Canceled)
	count, err := c.Count(ctx, key, time.Hour)
	require.NoError(t, err)
	require.Zero(t, count)
}

// A Take that finds its limits prepared goes by the limits as they are now.
func TestLimitsMayChangeAfterwards(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	key, changing := counter.Key{Event: "e", Feature: "f"}, limits("5/d")
	for range 2 {
		_, err := c.Take(ctx, key, 1, changing)
		require.NoError(t, err)
	}
	changing[0].Max = 2
	v, err := c.Take(ctx, key, 1, changing)
	require.NoError(t, err)
	require.False(t, v.Allowed)
	require.Equal(t, changing[0], v.Limit)
	v, err = c.Take(ctx, key, 3, limits("5/d"))
	require.NoError(t, err)
	require.True(t, v.Allowed)
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

// A store that embeds a memory store sees every call, and so does an Around.
func TestStoresAroundMemorySeeEveryCall(t *testing.T) {
	m := &metered{Store: memory.New(memory.Config{})}
	seen := 0
	wrapped := backend.Wrap(memory.New(memory.Config{}), func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error {
		seen++
		return do(ctx)
	})
	for _, store := range []backend.Store{m, wrapped} {
		c := newCounter(t, store, counter.Config{})
		for range 10 {
			_, err := c.Take(ctx, counter.Key{Event: "e", Feature: "f"}, 1, limits("100/d"))
			require.NoError(t, err)
		}
	}
	require.Equal(t, 10, m.takes)
	require.Equal(t, 10, seen)
}

// Every admitted hit can be refunded once, whichever block its receipt is in.
func TestRefundOfMany(t *testing.T) {
	const callers = 8
	hits := long.Rounds(1200, 6000)
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	room := limits("1000000/d, 900000/h")
	key := func(i int) counter.Key { return counter.Key{Event: "e", Feature: fmt.Sprint("f", i%3)} }
	verdicts := make([][]counter.Verdict, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range hits {
				v, err := c.Take(ctx, key(i), 2, room)
				if err != nil || !v.Allowed {
					t.Error(v, err)
				}
				verdicts[caller] = append(verdicts[caller], v)
			}
		})
	}
	wg.Wait()
	for caller := range callers {
		wg.Go(func() {
			for i := range hits {
				v, copied := verdicts[caller][i], verdicts[caller][i]
				if err := c.Refund(ctx, &v); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					if err := c.Refund(ctx, &copied); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	// Further hits show a hit that was given back twice.
	for i := range 3 * 10 {
		_, err := c.Take(ctx, key(i), 1, room)
		require.NoError(t, err)
	}
	wg.Wait()
	for i := range 3 {
		count, err := c.Count(ctx, key(i), 24*time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, 10, count.High)
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
		key := counter.Key{Event: "e", Feature: fmt.Sprint(i)}
		for want := i + 1; want >= i; want-- {
			v, err := c.Take(ctx, key, 1, counter.Limits{{Max: i + 2, Per: time.Hour}})
			require.NoError(t, err)
			require.True(t, v.Allowed)
			require.Equal(t, want, v.Remaining)
		}
		v, err := c.Take(ctx, counter.Key{Event: "e", Feature: "common"}, 1, common)
		require.NoError(t, err)
		require.Equal(t, 999_999-i, v.Remaining)
	}
	require.Less(t, store.bound, users/20)
	before := store.bound
	for range 10_000 { // one may take a place that was taken, and no more
		_, err := c.Take(ctx, counter.Key{Event: "e", Feature: "common"}, 1, common)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, store.bound-before, 1)
}

// The short way reads the clock of the bubble, also after an hour without a call.
func TestTheShortWayReadsTheClock(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	thousand := limits("1000/d")
	take := func(t *testing.T) {
		v, err := c.Take(ctx, counter.Key{Event: "e", Feature: "f"}, 1, thousand)
		require.NoError(t, err)
		require.Zero(t, time.Since(v.At()))
	}
	synctest.Test(t, func(t *testing.T) {
		for _, pause := range []time.Duration{0, 1, 999_998, 1, 1, time.Millisecond, time.Second, time.Hour, 100 * time.Microsecond} {
			time.Sleep(pause)
			take(t)
			take(t)
		}
	})
}

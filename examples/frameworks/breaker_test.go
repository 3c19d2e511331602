package frameworks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"
)

// withBreaker puts a breaker before a store. After so many failures in a row, calls
// fail at once for the time rest, without a call of the store. Hits are taken back all
// the same: hits that stay deny other callers until the hits age out. A call that the
// caller gave up says nothing of the store.
//
// A breaker must not stand before a rule that fails open: the rule would then admit
// all calls for longer than the store is down.
func withBreaker(store backend.Store, failures uint32, rest time.Duration) backend.Store {
	breaker := gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     rest,
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= failures },
		IsSuccessful: func(err error) bool {
			return backend.Answered(err) || errors.Is(err, context.Canceled)
		},
	})
	return backend.Wrap(store, func(ctx context.Context, trip *backend.Trip, do func(context.Context) error) error {
		if trip.Kind == backend.KindTakeBack {
			return do(ctx)
		}
		_, err := breaker.Execute(func() (struct{}, error) { return struct{}{}, do(ctx) })
		return err
	})
}

func Example_breaker() {
	c, err := counter.New(withBreaker(memory.New(memory.Config{}), 5, time.Second), counter.Config{})
	if err != nil {
		panic(err)
	}
	v, err := c.Take(context.Background(), counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, 1, counter.MustLimits("2/m"))
	fmt.Println(v.Allowed, err)
	// Output: true <nil>
}

// broken is a store that fails, and counts the calls of Take.
type broken struct {
	*memory.Store
	asked int
	err   error
}

func (b *broken) Take(ctx context.Context, r *backend.TakeRequest) error {
	if b.asked++; b.err != nil {
		return b.err
	}
	return b.Store.Take(ctx, r)
}

func TestBreaker(t *testing.T) {
	ctx, key, limits := context.Background(), counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, counter.MustLimits("2/m")
	down := errors.New("connection refused")
	store := &broken{Store: memory.New(memory.Config{}), err: down}
	const rest = 50 * time.Millisecond
	c, err := counter.New(withBreaker(store, 3, rest), counter.Config{})
	require.NoError(t, err)
	require.Zero(t, c.Config().Patience, "the store is in this process still")
	for range 10 {
		_, err := c.Take(ctx, key, 1, limits)
		require.ErrorIs(t, err, counter.ErrStore)
	}
	require.Equal(t, 3, store.asked, "calls that reached a store that is down")
	store.err = nil
	require.Eventually(t, func() bool { v, err := c.Take(ctx, key, 1, limits); return err == nil && v.Allowed }, time.Minute, rest/10)

	// An answer such as ErrMaxCount does not count as a failure.
	store.err = backend.ErrMaxCount
	for range 10 {
		_, _ = c.Take(ctx, key, 1, limits)
	}
	store.err = nil
	v, err := c.Take(ctx, key, 1, limits)
	require.NoError(t, err)
	require.True(t, v.Allowed)
}

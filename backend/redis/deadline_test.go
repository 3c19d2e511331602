package redis

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// A server whose clock is off, or is stepped, refuses nobody: a single call
// at most is sent twice, and afterwards the store's bound on the clock is right.
func TestAServerWhoseClockIsOff(t *testing.T) {
	store := try.To(Open("redis://"+servertest.Redis(t), Config{}))(t)
	defer store.Close()
	s := store.(*sums)
	c := try.To(counter.New(s, counter.Config{Patience: 20 * time.Second}))(t)
	key := counter.Key{Event: "signup", Feature: "user:1"}
	clock := &s.clocks[0]
	calls := 0
	call := func() {
		calls++
		if calls%2 == 0 {
			require.NoError(t, c.Add(context.Background(), key, 1))
			return
		}
		require.True(t, try.To(c.Take(context.Background(), key, 1, counter.MustLimits("100000/d")))(t).Allowed)
	}
	call()
	right := min(clock.least, clock.old)
	for _, step := range []time.Duration{5 * time.Second, -5 * time.Second, 30 * time.Second, time.Hour, -time.Hour, 365 * 24 * time.Hour, -365 * 24 * time.Hour} {
		// The store's bounds on the clock are behind by the step.
		late := s.Stats().TooLate
		clock.mu.Lock()
		clock.least -= step.Microseconds()
		clock.old -= step.Microseconds()
		clock.next = 0 // twenty calls may take less than learnEvery
		clock.mu.Unlock()
		for range 20 {
			call()
		}
		require.LessOrEqual(t, s.Stats().TooLate-late, int64(1), "%s", step)
		if step != 5*time.Second { // within the call's own time
			require.InDelta(t, right, min(clock.least, clock.old), 5e6, "%s", step)
		}
	}
	require.EqualValues(t, calls, try.To(c.Count(context.Background(), key, 24*time.Hour))(t).High)
}

// The bound is the least of the last ten to twenty seconds.
func TestServerTime(t *testing.T) {
	s := serverTime{ends: boundKept.Microseconds()} // as if begun with the process
	s.correct(epoch.Add(time.Second), 10_000_000)   // ahead by 9 s
	require.EqualValues(t, 12_000_000, s.at(epoch.Add(3*time.Second)))
	s.learn(epoch.Add(4*time.Second), 12_900_000)
	require.EqualValues(t, 11_900_000, s.at(epoch.Add(3*time.Second)))
	s.learn(epoch.Add(5*time.Second), 14_100_000) // was under way for longer
	require.EqualValues(t, 11_900_000, s.at(epoch.Add(3*time.Second)))
	s.learn(epoch.Add(16*time.Second), 25_200_000) // another period
	require.EqualValues(t, 11_900_000, s.at(epoch.Add(3*time.Second)))
	s.learn(epoch.Add(30*time.Second), 39_300_000) // and another: the first is no more
	require.EqualValues(t, 12_200_000, s.at(epoch.Add(3*time.Second)))
}

// An answer has the server's time at most once in a millisecond.
func TestServerTimeIsToldNowAndThen(t *testing.T) {
	var s serverTime
	s.begin()
	at := epoch.Add(time.Second)
	for _, step := range []struct {
		after time.Duration
		wants bool
	}{{0, true}, {0, false}, {learnEvery - time.Microsecond, false}, {time.Microsecond, true}, {10 * learnEvery, true}, {time.Microsecond, false}} {
		at = at.Add(step.after)
		require.Equal(t, step.wants, s.wants(at), "%s later", step.after)
	}
}

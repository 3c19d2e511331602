package classic_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// newShaper is a bucket of burst tokens that gains max a second.
func newShaper(t *testing.T, max, burst, length int64, s *classic.Store) *classic.TokenShaper {
	t.Helper()
	l, err := classic.NewTokenShaper(counter.Limit{Max: max, Per: time.Second}, burst, length, s)
	require.NoError(t, err)
	return l
}

// left tells callers, allowed or not, and milliseconds, in the order of their return.
func left(t *testing.T, all []departure) (callers []int, ms []int64, denied int) {
	for _, d := range all {
		require.NoError(t, d.err)
		callers, ms = append(callers, d.caller), append(ms, d.after.Milliseconds())
		if !d.allowed {
			denied++
		}
	}
	return callers, ms, denied
}

// Two tokens at once, three callers who wait, first come first served and none for
// longer than three hits take, and three who are denied at once; after a pause the
// same.
func TestShaperOrderAndDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newShaper(t, 4, 2, 3, memory(t, classic.Config{}))
		for range 2 {
			callers, ms, denied := left(t, wait(t, l, signup, same(ctx, 8)...))
			require.Equal(t, []int{0, 1, 5, 6, 7, 2, 3, 4}, callers)
			require.Equal(t, []int64{0, 0, 0, 0, 0, 250, 500, 750}, ms)
			require.Equal(t, 3, denied)
			time.Sleep(time.Second / 2) // for two tokens
		}
	})
}

// A large request that waits is not overtaken, neither by Wait nor by Take.
func TestShaperIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newShaper(t, 1, 3, 9, memory(t, classic.Config{}))
		require.True(t, take(t, l, signup, 2).Allowed)
		began, large := time.Now(), make(chan time.Duration)
		go func() {
			v, err := l.Wait(ctx, signup, 3)
			require.NoError(t, err)
			require.True(t, v.Allowed)
			large <- time.Since(began)
		}()
		synctest.Wait()
		v := take(t, l, signup, 1)
		require.False(t, v.Allowed, "a token is there, and is spoken for")
		require.Equal(t, 3*time.Second, v.RetryAfter)
		v, delay, err := l.Reserve(ctx, signup, 1)
		require.NoError(t, err)
		require.True(t, v.Allowed)
		require.Equal(t, 3*time.Second, delay)
		require.Equal(t, 2*time.Second, <-large)
		v, err = l.Wait(ctx, signup, 4)
		require.NoError(t, err)
		require.Equal(t, counter.Never, v.RetryAfter, "more than the bucket holds")
	})
}

// A denied caller is told when to come, and then waits for the longest time.
func TestShaperRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newShaper(t, 3, 3, 2, memory(t, classic.Config{})) // a third of a second, which is not whole
		for range 5 {
			v, _, err := l.Reserve(ctx, signup, 1)
			require.NoError(t, err)
			require.True(t, v.Allowed)
		}
		v, _, err := l.Reserve(ctx, signup, 1)
		require.NoError(t, err)
		require.False(t, v.Allowed)
		require.Zero(t, v.Remaining)
		require.Equal(t, 333_334*time.Microsecond, v.RetryAfter)
		time.Sleep(v.RetryAfter)
		v, delay, err := l.Reserve(ctx, signup, 1)
		require.NoError(t, err)
		require.True(t, v.Allowed)
		require.Equal(t, 666_666*time.Microsecond, delay)
	})
}

// Tokens of a caller who hangs up come back if nobody has come since; nobody waits
// past a deadline.
func TestShaperContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newShaper(t, 1, 1, 9, memory(t, classic.Config{}))
		require.True(t, take(t, l, signup, 1).Allowed)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := l.Wait(short, signup, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "at once")
		for _, row := range []struct{ others, next time.Duration }{{0, time.Second}, {1, 3 * time.Second}} {
			hangUp, cancel := context.WithCancel(ctx)
			gone := make(chan error)
			go func() {
				_, err := l.Wait(hangUp, signup, 1)
				gone <- err
			}()
			synctest.Wait()
			for range row.others {
				_, _, err := l.Reserve(ctx, signup, 1)
				require.NoError(t, err)
			}
			cancel()
			require.ErrorIs(t, <-gone, context.Canceled)
			_, delay, err := l.Reserve(ctx, signup, 1)
			require.NoError(t, err)
			require.Equal(t, row.next, delay)
			time.Sleep(delay)
		}
	})
}

// On Redis the same schedule, for all processes.
func TestShaperOnRedis(t *testing.T) {
	addr := servertest.Redis(t)
	c := clockAt(start)
	near, far := newShaper(t, 4, 2, 3, onRedis(t, addr, classic.Config{Now: c.now, Grace: grace})), newShaper(t, 4, 2, 3, onRedis(t, addr, classic.Config{Now: c.now, Grace: grace}))
	var delays []int64
	for i := range 6 {
		v, delay, err := []*classic.TokenShaper{near, far}[i%2].Reserve(ctx, signup, 1)
		require.NoError(t, err)
		require.Equal(t, i < 5, v.Allowed)
		delays = append(delays, delay.Milliseconds())
	}
	require.Equal(t, []int64{0, 0, 250, 500, 750, 0}, delays)
}

package limitertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// Two sign-ups an hour, and the third when the hour is over.
func ExampleNew() {
	t := &testing.T{} // of the test
	lim, clock := limitertest.New(t, limiter.Rule{Event: "signup", Kind: "user", Limits: counter.MustLimits("2/h")})
	ctx, ada := context.Background(), feature.New("user", "ada")
	for range 3 {
		v, _ := lim.Allow(ctx, "signup", ada)
		fmt.Println(v)
		clock.Advance(v.RetryAfter)
	}
	v, _ := lim.Allow(ctx, "signup", ada)
	fmt.Println(v)
	// Output:
	// admitted "signup" by "user": 2/h, 1 left
	// admitted "signup" by "user": 2/h, 0 left
	// over-limit "signup" by "user": 2/h, 0 left, retry in 1h0m1s
	// admitted "signup" by "user": 2/h, 1 left
}

// The next sign-up is denied, whichever of the limits is the narrowest.
func ExampleExhaust() {
	t := &testing.T{} // of the test
	lim, _ := limitertest.New(t, limiter.Rule{Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/h, 20/d")})
	home := feature.IP(netip.MustParseAddr("192.0.2.1"))
	limitertest.Exhaust(t, lim, "signup", home)
	v, _ := lim.Allow(context.Background(), "signup", home)
	fmt.Println(v.Allowed, v.Limit)
	// Output: false 5/h
}

// A store that is down, under an open rule and a closed one.
func ExampleFaults() {
	t := &testing.T{} // of the test
	var faults limitertest.Faults
	lim, _ := limitertest.NewOn(t, faults.Wrap(memory.New(memory.Config{})), limiter.Config{Rules: []limiter.Rule{
		{Event: "signup", Kind: "user", Limits: counter.MustLimits("5/h"), OnFailure: limiter.FailOpen},
		{Event: "login", Kind: "user", Limits: counter.MustLimits("5/h"), OnFailure: limiter.FailClosed},
	}})
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	for _, event := range []string{"signup", "login"} {
		v, _ := lim.Allow(context.Background(), event, feature.New("user", "ada"))
		fmt.Println(v.Allowed, v.Outcome(), v.Degraded)
	}
	faults.Set(limitertest.Fault{})
	v, _ := lim.Allow(context.Background(), "login", feature.New("user", "ada"))
	fmt.Println(v.Allowed, v.Outcome(), v.Degraded)
	// Output:
	// true failed-open counter: event "signup": down
	// false failed-closed counter: event "login": down
	// true admitted <nil>
}

// A Limiter as a program makes it goes by the clock of the bubble.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
		require.NoError(t, err)
		lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h, 20/d", limiter.FailClosed)}})
		require.NoError(t, err)

		v := limitertest.Exhaust(t, lim, "signup", home)
		require.False(t, allow(t, lim, home).Allowed)
		time.Sleep(v.RetryAfter - 1) // takes no time
		require.False(t, allow(t, lim, home).Allowed)
		time.Sleep(time.Nanosecond)
		require.True(t, allow(t, lim, home).Allowed)
	})
}

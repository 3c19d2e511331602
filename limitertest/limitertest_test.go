package limitertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

var (
	ctx     = context.Background()
	errDown = errors.New("down")
	home    = feature.IP(netip.MustParseAddr("192.0.2.1"))
	ada     = feature.New("user", "ada")
)

// by is a rule for signup.
func by(kind, limits string, policy limiter.OnFailure) limiter.Rule {
	return limiter.Rule{Event: "signup", Kind: kind, Limits: counter.MustLimits(limits), OnFailure: policy}
}

func allow(t testing.TB, lim *limiter.Limiter, features ...feature.Feature) limiter.Verdict {
	return try.To(lim.Allow(ctx, "signup", features...))(t)
}

// The Limiter goes by the Clock, to the nanosecond.
func TestTheTestMovesTheClock(t *testing.T) {
	lim, clock := limitertest.New(t, by("ip", "2/h", limiter.FailClosed))
	began := clock.Now()
	require.True(t, allow(t, lim, home).Allowed)
	clock.Advance(20 * time.Minute)
	require.True(t, allow(t, lim, home).Allowed)
	v := allow(t, lim, home)
	require.False(t, v.Allowed)
	clock.Advance(v.RetryAfter - 1)
	require.False(t, allow(t, lim, home).Allowed)
	clock.Advance(1)
	last := allow(t, lim, home)
	require.True(t, last.Allowed, "after RetryAfter")
	require.True(t, last.At().Equal(clock.Now()))
	require.Equal(t, 20*time.Minute+v.RetryAfter, clock.Now().Sub(began))
}

// New takes rules with any windows, also of plans, and makes a local counter for
// rules under FailLocal.
func TestNewTakesAnyRules(t *testing.T) {
	lim, clock := limitertest.New(t, by("ip", "2/100ms, 9/7d", limiter.FailLocal), by("user", "5/h", limiter.FailOpen))
	for _, want := range []string{"2/100ms", "2/100ms", "5/h"} {
		require.Equal(t, want, limitertest.Exhaust(t, lim, "signup", home, ada).Limit.String())
		clock.Advance(time.Second)
	}

	link := by("user", "5/h", limiter.FailClosed)
	link.Plans, link.Else, link.ElseLimits = []counter.Limits{counter.MustLimits("9/d")}, "ip", counter.MustLimits("1/7d")
	lim, _ = limitertest.New(t, link)
	for want, feature := range map[string]feature.Feature{"5/h": ada, "9/d": limiter.Under(feature.New("user", "bob"), link.Plans[0]), "1/7d": home} {
		require.Equal(t, want, limitertest.Exhaust(t, lim, "signup", feature).Limit.String())
	}

	said := failure(func(t testing.TB) { limitertest.New(t, by("", "2/h", limiter.FailOpen)) })
	require.Equal(t, `limitertest: limiter: rule "signup" by "": Config.Rules[0].Kind is empty, want a name such as "ip"`, said)
}

// Whatever the limits, and whatever is left of them, the next call is denied,
// and as Exhaust says.
func TestExhaust(t *testing.T) {
	for _, row := range []struct {
		ip, user string
		before   int
		binds    string
	}{
		{"5/h", "9/h", 0, `"signup" by "ip"`},
		{"5/h", "9/h", 4, `"signup" by "ip"`},
		{"5/h", "9/h", 5, `"signup" by "ip"`},
		{"3/m, 5/h, 100/d", "4/h", 2, `"signup" by "ip"`},
		{"1000000000/d", "4/h, 70000/d", 0, `"signup" by "user"`},
		{"9007199254740991/d", "9007199254740990/d", 0, `"signup" by "user"`},
		{"5/h", "0/d", 0, `"signup" by "user"`},
	} {
		name := fmt.Sprintf("%s and %s after %d", row.ip, row.user, row.before)
		lim, clock := limitertest.New(t, by("ip", row.ip, limiter.FailClosed), by("user", row.user, limiter.FailClosed))
		for range row.before {
			clock.Advance(time.Second)
			require.True(t, allow(t, lim, home, ada).Allowed, name)
		}
		told := limitertest.Exhaust(t, lim, "signup", home, ada)
		v := allow(t, lim, home, ada)
		require.Equal(t, limiter.OutcomeOverLimit, v.Outcome(), name)
		require.Equal(t, row.binds, v.Rule(), name)
		require.Equal(t, v.String(), told.String(), name)
		if v.RetryAfter != counter.Never {
			clock.Advance(v.RetryAfter)
			require.True(t, allow(t, lim, home, ada).Allowed, name)
		}
	}
}

// The denial after Exhaust begins a ban, and a banned caller is exhausted.
func TestExhaustUnderABan(t *testing.T) {
	rule := by("ip", "5/h", limiter.FailClosed)
	rule.Ban = limiter.Bans{24 * time.Hour}
	lim, clock := limitertest.New(t, rule)
	require.False(t, limitertest.Exhaust(t, lim, "signup", home).Banned)
	require.True(t, allow(t, lim, home).Banned)
	clock.Advance(2 * time.Hour)
	require.True(t, limitertest.Exhaust(t, lim, "signup", home).Banned)
}

func TestExhaustTellsWhyNot(t *testing.T) {
	skips := by("ip", "5/h", limiter.FailOpen)
	skips.IfMissing = limiter.MissingSkip
	var faults limitertest.Faults
	lim, _ := limitertest.NewOn(t, faults.Wrap(memory.New(memory.Config{})), limiter.Config{Rules: []limiter.Rule{skips, {Event: "mail", Kind: "email", Limits: counter.MustLimits("5/h")}}})
	for want, try := range map[string]func(t testing.TB){
		`limitertest: Exhaust: limiter: event "logout" has no rules; there are rules for "mail" and "signup"`:                           func(t testing.TB) { limitertest.Exhaust(t, lim, "logout", home) },
		`limitertest: Exhaust: missing "mail" by "email", no wait will do (Degraded: <nil>), want a call that a limit admits or denies`: func(t testing.TB) { limitertest.Exhaust(t, lim, "mail", home) },
		`limitertest: Exhaust: skipped "signup" (Degraded: <nil>), want a call that a limit admits or denies`:                           func(t testing.TB) { limitertest.Exhaust(t, lim, "signup") },
		`limitertest: Exhaust: failed-open "signup" (Degraded: counter: event "signup": down), want a call that a limit admits or denies`: func(t testing.TB) {
			faults.Set(limitertest.Fault{Err: errDown})
			limitertest.Exhaust(t, lim, "signup", home)
		},
	} {
		require.Equal(t, want, failure(try))
		faults.Set(limitertest.Fault{})
	}
	require.Contains(t, failure(func(t testing.TB) { limitertest.Exhaust(t, lim, "mail", feature.Email("x")) }), `limitertest: Exhaust: limiter: `)
}

// failure returns the words with which f fails a test; empty if f does not.
func failure(f func(testing.TB)) string {
	s := &spy{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(s)
	}()
	<-done
	return s.said
}

// spy is a test that is expected to fail.
type spy struct {
	testing.TB
	said string
}

func (s *spy) Helper()        {}
func (s *spy) Cleanup(func()) {}
func (s *spy) Fatalf(format string, args ...any) {
	s.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

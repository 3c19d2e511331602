package limiter_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// A hit counts for the address and for the user, or for neither, and the verdict
// names the kind that binds.
func TestAllOrNothing(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "3/h"), by("user", "2/h")}})
	for i, row := range []struct {
		ip, user  string
		allowed   bool
		kind      string // the limit that binds
		remaining int64
		byIP      int64 // counted afterwards
		byUser    int64
	}{
		{"192.0.2.1", "ada", true, "user", 1, 1, 1},
		{"192.0.2.1", "ada", true, "user", 0, 2, 2},
		{"192.0.2.1", "ada", false, "user", 0, 2, 2},
		{"192.0.2.2", "ada", false, "user", 0, 0, 2},
		{"192.0.2.1", "bob", true, "ip", 0, 3, 1},
		{"192.0.2.1", "bob", false, "ip", 0, 3, 1},
		{"192.0.2.1", "eve", false, "ip", 0, 3, 0},
		{"192.0.2.2", "bob", true, "user", 0, 1, 2},
	} {
		v := allow(t, lim, ip(row.ip), user(row.user))
		require.Equal(t, row.allowed, v.Allowed, "row %d", i)
		require.Equal(t, row.kind, v.Kind(), "row %d", i)
		require.Equal(t, row.kind, feature.KindOf(v.Key.Feature), "row %d", i)
		require.Equal(t, row.remaining, v.Remaining, "row %d", i)
		require.Equal(t, row.byIP, counted(t, c, "ip:"+row.ip), "row %d", i)
		require.Equal(t, row.byUser, counted(t, c, "user:"+row.user), "row %d", i)
		require.Equal(t, !row.allowed, v.RetryAfter > 0, "row %d", i)
		require.Len(t, v.All(), 2, "row %d", i)
		require.NoError(t, v.Degraded)
		require.Empty(t, v.Missing)
	}
}

// Whatever the order of the rules and of the features.
func TestSeveralOfOneKind(t *testing.T) {
	store := newCountingStore()
	c := newCounter(t, store, counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("user", "2/h"), by("ip", "9/h")}})
	home := ip("192.0.2.1")
	require.True(t, allow(t, lim, user("ada"), home, user("bob")).Allowed)
	steps, demands := store.asked()
	require.Equal(t, []int{1, 3}, []int{steps, demands})
	require.True(t, allow(t, lim, user("bob"), home).Allowed)
	v := allow(t, lim, home, user("ada"), user("bob"))
	require.False(t, v.Allowed)
	require.Equal(t, "user:bob", v.Key.Feature)
	require.EqualValues(t, 1, counted(t, c, "user:ada"))
	require.EqualValues(t, 2, counted(t, c, "user:bob"))
	require.EqualValues(t, 2, counted(t, c, "ip:192.0.2.1"))
}

// Features with the same meaning are equal in any spelling: they count once,
// and the verdict has them once.
func TestTheSameFeatureTwice(t *testing.T) {
	r := by("ip", "2/h")
	for i := range 31 {
		r.Limits = append(r.Limits, counter.Limit{Max: 99, Per: time.Duration(61+i) * time.Minute})
	}
	for _, row := range []struct {
		name     string
		rule     limiter.Rule
		features []feature.Feature
		feature  string
	}{
		{"a user", by("user", "2/h"), featuresOf(user("7"), user("7"), user("7")), "user:7"},
		{"one subscriber", by("ip", "2/h"), featuresOf(ip("2001:db8::1"), ip("2001:db8::2")), "ip:2001:db8::/64"},
		{"one mailbox", by("email", "2/h"), featuresOf(feature.Email("ADA@example.org"), feature.Email("ada@EXAMPLE.org")), "email:ada@example.org"},
		{"as many limits as there may be", r, featuresOf(ip("192.0.2.1"), ip("::ffff:192.0.2.1")), "ip:192.0.2.1"},
		{"others between", by("user", "2/h"), featuresOf(user("7"), user("77"), ip("192.0.2.1"), user("7")), "user:7"},
	} {
		c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
		lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{row.rule}})
		for _, want := range []bool{true, true, false} {
			v := allow(t, lim, row.features...)
			require.Equal(t, want, v.Allowed, row.name)
			seen := map[string]int{}
			for _, s := range v.All() {
				seen[fmt.Sprint(s.Key, s.Limit)]++
				require.Equal(t, 1, seen[fmt.Sprint(s.Key, s.Limit)], "%s: %s", row.name, s.Key)
			}
		}
		require.EqualValues(t, 2, counted(t, c, row.feature), row.name)
	}
}

func TestFeaturesThatNoRuleNeedsAreIgnored(t *testing.T) {
	store := newCountingStore()
	lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{by("ip", "2/h")}})
	v := allow(t, lim, user("7"), feature.New("ip:x", "1"), feature.Feature{}, feature.New("", "1"), ip("192.0.2.1"), feature.Email("a@b.org"), feature.New("IP", "1"))
	require.True(t, v.Allowed)
	require.Len(t, v.All(), 1)
	steps, demands := store.asked()
	require.Equal(t, []int{1, 1}, []int{steps, demands})
}

func TestAllowN(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "5/h"), by("user", "9/h")}})
	for _, n := range []int64{0, -1, math.MinInt64, counter.MaxCount + 1} {
		v, err := lim.AllowN(ctx, "signup", n, ip("192.0.2.1"), user("7"))
		require.EqualError(t, err, fmt.Sprintf(`limiter: event "signup": n is %d, want 1 to 9007199254740991`, n))
		require.Equal(t, limiter.Verdict{}, v)
	}
	for i, row := range []struct {
		n       int64
		allowed bool
		never   bool
		counted int64
	}{
		{3, true, false, 3},
		{3, false, false, 3},
		{6, false, true, 3}, // more than the address ever has
		{2, true, false, 5},
		{1, false, false, 5},
		{counter.MaxCount, false, true, 5},
	} {
		v := allowN(t, lim, row.n, ip("192.0.2.1"), user("7"))
		require.Equal(t, row.allowed, v.Allowed, "row %d", i)
		require.Equal(t, row.never, v.RetryAfter == counter.Never, "row %d", i)
		for _, feature := range []string{"ip:192.0.2.1", "user:7"} {
			require.Equal(t, row.counted, counted(t, c, feature), "row %d", i)
		}
	}
}

// Peek says what the next call is told, counts nothing, and cannot be refunded.
func TestPeek(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
	lim := newLimiter(t, c, limiter.Config{Rules: []limiter.Rule{by("ip", "3/h, 9/d"), by("user", "2/h")}})
	features := featuresOf(ip("192.0.2.1"), user("7"))
	for call := range 4 {
		before := counted(t, c, "user:7")
		peeked := peek(t, lim, 1, features...)
		states := peeked.All()
		again := peek(t, lim, 1, features...)
		require.Equal(t, states, again.All(), "call %d", call)
		require.NoError(t, lim.Refund(ctx, &again))
		require.Equal(t, before, counted(t, c, "user:7"))
		v := allow(t, lim, features...)
		require.Equal(t, v.Allowed, peeked.Allowed, "call %d", call)
		require.Equal(t, v.Key, peeked.Key, "call %d", call)
		require.Equal(t, v.Remaining, peeked.Remaining, "call %d", call)
		require.Equal(t, v.RetryAfter, peeked.RetryAfter, "call %d", call)
		require.Equal(t, call < 2, v.Allowed)
	}
	v := peek(t, lim, 3, features...)
	require.Equal(t, counter.Never, v.RetryAfter)
	_, err := lim.Peek(ctx, "signup", -1, features...)
	require.ErrorContains(t, err, "n is -1")
	v = peek(t, lim, 1, user("7"))
	require.Equal(t, "ip", v.Missing)
}

func TestErrorsAreTheCallersAndDeny(t *testing.T) {
	store := newCountingStore()
	lim := newLimiter(t, newCounter(t, store, counter.Config{}), limiter.Config{Rules: []limiter.Rule{
		by("ip", "9/h"), {Event: "login", Kind: "user", Limits: counter.MustLimits("9/h"), IfMissing: limiter.MissingSkip},
	}})
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	expired, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	for _, row := range []struct {
		name     string
		ctx      context.Context
		event    string
		features []feature.Feature
		want     string
		is       error
	}{
		{"an event without rules", ctx, "logout", featuresOf(ip("192.0.2.1")), `limiter: event "logout" has no rules, which "login" and "signup" have`, nil},
		{"no event", ctx, "", featuresOf(ip("192.0.2.1")), `limiter: event "" has no rules, which "login" and "signup" have`, nil},
		{"no address", ctx, "signup", featuresOf(ip("192.0.2.1"), feature.Email("nobody")), `limiter: feature "email" is not an e-mail address, want local-part@domain, event "signup"`, func() error { e := feature.Email("nobody"); return e.Err() }()},
		{"the caller is gone", canceled, "signup", featuresOf(ip("192.0.2.1")), `limiter: event "signup": context canceled`, context.Canceled},
		{"the caller is late", expired, "signup", featuresOf(ip("192.0.2.1")), `limiter: event "signup": context deadline exceeded`, context.DeadlineExceeded},
		{"gone, and nothing to ask", canceled, "login", nil, `limiter: event "login": context canceled`, context.Canceled},
		{"gone, and something missing", canceled, "signup", nil, `limiter: event "signup": context canceled`, context.Canceled},
	} {
		for name, call := range map[string]func() (limiter.Verdict, error){
			"allow":  func() (limiter.Verdict, error) { return lim.Allow(row.ctx, row.event, row.features...) },
			"allowN": func() (limiter.Verdict, error) { return lim.AllowN(row.ctx, row.event, 2, row.features...) },
			"peek":   func() (limiter.Verdict, error) { return lim.Peek(row.ctx, row.event, 1, row.features...) },
		} {
			v, err := call()
			require.EqualError(t, err, row.want, "%s, %s", row.name, name)
			require.NotErrorIs(t, err, counter.ErrStore, row.name)
			require.Equal(t, limiter.Verdict{}, v, "%s, %s", row.name, name)
			if row.is != nil {
				require.ErrorIs(t, err, row.is, row.name)
			}
		}
	}
	steps, _ := store.asked()
	require.Zero(t, steps)
}

func TestTheZeroVerdictDenies(t *testing.T) {
	var v limiter.Verdict
	require.False(t, v.Allowed)
	require.Equal(t, limiter.OutcomeOverLimit, v.Outcome())
	require.Empty(t, v.Kind())
	require.Empty(t, v.All())
	require.NoError(t, onMemory(t, by("ip", "1/h")).Refund(ctx, &v))
}

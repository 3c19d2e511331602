package tally_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
	"github.com/abacus-go/abacus/metrics/tally"
	"github.com/abacus-go/abacus/tiers"
)

var ctx = context.Background()

// observed returns a Limiter by rules on store, and its Tally.
func observed(t testing.TB, store backend.Store, cfg counter.Config, rules ...limiter.Rule) (*limiter.Limiter, *tally.Tally) {
	c := try.To(counter.New(store, cfg))(t)
	numbers := tally.New(c)
	lim := try.To(limiter.New(c, limiter.Config{Rules: rules, Observe: numbers.Observe}))(t)
	return lim, numbers
}

// by is a rule for signup.
func by(kind, limits string) limiter.Rule {
	return limiter.Rule{Event: "signup", Kind: kind, Limits: counter.MustLimits(limits)}
}

func ip(text string) feature.Feature   { return feature.New("ip", text) }
func user(name string) feature.Feature { return feature.New("user", name) }
func key(feature string) counter.Key   { return counter.Key{Event: "signup", Feature: feature} }

// allow asks for a sign-up, which must not fail.
func allow(t testing.TB, lim *limiter.Limiter, features ...feature.Feature) {
	try.To(lim.Allow(ctx, "signup", features...))(t)
}

// All decisions are counted by rule and outcome, and the keys of denials.
func TestTally(t *testing.T) {
	var faults limitertest.Faults
	lim, numbers := observed(t, faults.Wrap(memory.New(memory.Config{})), counter.Config{},
		by("ip", "5/h"),
		by("user", "3/h"),
		limiter.Rule{Event: "search", Kind: "ip", Limits: counter.MustLimits("1/h"), OnFailure: limiter.FailOpen, IfMissing: limiter.MissingSkip},
	)
	home, other := ip("192.0.2.1"), ip("192.0.2.2")
	for range 5 {
		allow(t, lim, home, user("7"))
	}
	for range 4 {
		allow(t, lim, home, user("8"))
	}
	allow(t, lim, home)
	try.To(lim.Peek(ctx, "signup", 1, home, user("7")))(t)
	require.Error(t, try.Err(lim.Allow(ctx, "logout", home)))
	try.To(lim.Allow(ctx, "search", user("7")))(t)
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	try.To(lim.Allow(ctx, "search", other))(t)
	allow(t, lim, other, user("9"))
	faults.Set(limitertest.Fault{})
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	require.ErrorIs(t, try.Err(lim.Wait(short, "signup", other, user("7"))), limiter.ErrWaitTooLong)

	all := numbers.Snapshot(10)
	require.WithinDuration(t, time.Now(), all.Since, time.Minute)
	require.Equal(t, all.Since, all.DeniedSince)
	require.Equal(t, []tally.DecisionCount{
		{Event: "search", Outcome: limiter.OutcomeSkipped, Count: 1},
		{Event: "search", Outcome: limiter.OutcomeFailedOpen, Count: 1},
		{Event: "signup", Outcome: limiter.OutcomeFailedClosed, Count: 1},
		{Event: "signup", Kind: "ip", Outcome: limiter.OutcomeOverLimit, Count: 2},
		{Event: "signup", Kind: "ip", Outcome: limiter.OutcomeAdmitted, Count: 2},
		{Event: "signup", Kind: "user", Outcome: limiter.OutcomeOverLimit, Count: 3},
		{Event: "signup", Kind: "user", Outcome: limiter.OutcomeMissing, Count: 1},
		{Event: "signup", Kind: "user", Outcome: limiter.OutcomeAdmitted, Count: 3},
	}, all.Decisions)
	denied := []tally.DeniedKey{
		{Event: "signup", Kind: "user", Feature: "user:7", AtLeast: 3, AtMost: 3},
		{Event: "signup", Kind: "ip", Feature: "ip:192.0.2.1", AtLeast: 2, AtMost: 2},
	}
	require.Equal(t, denied, all.MostDenied)
	require.Equal(t, denied[:1], numbers.Snapshot(1).MostDenied)
	require.Empty(t, numbers.Snapshot(0).MostDenied)

	require.NoError(t, lim.Forget(ctx, "signup", user("7")))
	require.Equal(t, denied[1:], numbers.Snapshot(10).MostDenied)
	require.NoError(t, lim.Erase(ctx, home))
	require.Empty(t, numbers.Snapshot(10).MostDenied)
}

// Each rule and outcome has a count of its own, however many there are, and of many
// callers at once.
func TestTallyOfManyRules(t *testing.T) {
	_, numbers := observed(t, memory.New(memory.Config{}), counter.Config{}, by("ip", "5/h"))
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 300 {
				for range i%3 + 1 {
					numbers.Observe(limiter.Decision{Event: fmt.Sprintf("event %03d", i), Kind: "ip", Outcome: limiter.Outcome(i % 2)})
				}
			}
		})
	}
	callers.Wait()
	var want []tally.DecisionCount
	for i := range 300 {
		want = append(want, tally.DecisionCount{Event: fmt.Sprintf("event %03d", i), Kind: "ip", Outcome: limiter.Outcome(i % 2), Count: int64(4 * (i%3 + 1))})
	}
	require.Equal(t, want, numbers.Snapshot(0).Decisions)
}

// With a Secret a key is shown as the digest of its stored key, and never as text.
func TestTallyWithASecret(t *testing.T) {
	var stored string
	store := backend.Wrap(memory.New(memory.Config{}), func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error { return do(ctx) })
	keys := &keySpy{Store: store, see: func(key string) { stored = key }}
	long := strings.Repeat("x", 300)
	for _, secret := range []string{"", "of the shop"} {
		lim, numbers := observed(t, keys, counter.Config{Ladder: tiers.Default, Secret: []byte(secret)}, by("user", "0/h"))
		for _, feature := range []string{"ada", long} {
			allow(t, lim, user(feature))
			require.NoError(t, lim.Counter().Add(ctx, key("user:"+feature), 1))
			shown := numbers.Snapshot(10).MostDenied
			require.Len(t, shown, 1)
			require.Equal(t, "user", shown[0].Kind)
			require.Equal(t, key("user:"+feature).Redact([]byte(secret)).Feature, shown[0].Feature)
			require.True(t, strings.HasSuffix(stored, ":"+shown[0].Feature), "stored as %s, shown as %s", stored, shown[0].Feature)
			require.Equal(t, secret == "" && feature == "ada", strings.Contains(shown[0].Feature, feature))
			require.Less(t, len(shown[0].Feature), 50)
			require.NoError(t, lim.Forget(ctx, "signup", user(feature)))
			require.Empty(t, numbers.Snapshot(10).MostDenied)
		}
	}
}

// keySpy is a store that tells the keys of its calls.
type keySpy struct {
	backend.Store
	see func(key string)
}

func (s *keySpy) Do(ctx context.Context, r *backend.Request) error {
	if len(r.Add) > 0 && r.N > 0 {
		s.see(string(r.Key))
	}
	return s.Store.Do(ctx, r)
}

// Denials count for the hour under way and the hour before.
func TestDenialsOfLongAgoAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, numbers := observed(t, memory.New(memory.Config{}), counter.Config{}, by("user", "0/h"))
		began := time.Now()
		deny := func(value string) { allow(t, lim, user(value)) }
		told := func() (features []string) {
			for _, k := range numbers.Snapshot(10).MostDenied {
				features = append(features, k.Feature)
			}
			return features
		}
		deny("a")
		time.Sleep(time.Hour)
		deny("b")
		deny("b")
		require.Equal(t, []string{"user:b", "user:a"}, told())
		require.Equal(t, began, numbers.Snapshot(0).DeniedSince)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"user:b"}, told())
		require.Equal(t, began.Add(time.Hour), numbers.Snapshot(0).DeniedSince)
		deny("c")
		time.Sleep(3 * time.Hour)
		require.Empty(t, told())
		require.Equal(t, int64(4), numbers.Snapshot(0).Decisions[0].Count, "decisions are not forgotten")
	})
}

// BenchmarkObserve is the cost of a decision that was admitted.
func BenchmarkObserve(b *testing.B) {
	_, numbers := observed(b, memory.New(memory.Config{}), counter.Config{}, by("ip", "5/h"))
	d := limiter.Decision{Event: "signup", Kind: "ip", Outcome: limiter.OutcomeAdmitted}
	for b.Loop() {
		numbers.Observe(d)
	}
}

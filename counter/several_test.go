package counter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// The first key of a call does not pay for the second.
func TestTakeAllIsAllOrNothing(t *testing.T) {
	onAll(t, `
		let both 1 signup 5/d; 1 mail 2/h
		take both -> took signup 5/d 4, *mail 2/h 1
		take both -> took signup 5/d 3, *mail 2/h 0
		take both -> no signup 5/d 3, *mail 2/h 0 in 1h0m1s
		count signup 1h -> 2
		# A key given twice is taken once, with the hits and under the limits of both.
		twice: take 1 user 9/d; 1 user 3/h -> took user 9/d 7, *user 3/h 1
		refund twice
		count user 1h -> 0
	`)
}

// The flat fields describe the binding limit, All every limit.
func TestVerdictNamesTheLimitThatBinds(t *testing.T) {
	onAll(t, `
		let one 1 signup 3/m,10/h,4/d,100/d,9/h
		let two 2 signup 3/m,10/h,4/d,100/d,9/h
		take one -> took *signup 3/m 2, signup 10/h 9, signup 4/d 3, signup 100/d 99, signup 9/h 8
		later 10s
		take two -> took *signup 3/m 0, signup 10/h 7, signup 4/d 1, signup 100/d 97, signup 9/h 6
		take one -> no *signup 3/m 0 in 51s, signup 10/h 7, signup 4/d 1, signup 100/d 97, signup 9/h 6
		# Denied by two limits: the limit with the longest wait binds.
		later 55s
		peek one -> yes *signup 3/m 0, signup 10/h 6, signup 4/d 0, signup 100/d 96, signup 9/h 5
		take two -> no signup 3/m 1 in 6s, signup 10/h 7, *signup 4/d 1 in 23h58m56s, signup 100/d 97, signup 9/h 6
		take 8 signup 100/d,7/m -> no signup 100/d 100, *signup 7/m 7 never
		take 1 other 0/d -> no *other 0/d 0 never
		v: take 1 signup 4/d -> took *signup 4/d 0
		other.refund v -> error counter: Refund: the Verdict is of another Counter
	`)
}

// Each key of a call has its own hits and its own ladder.
func TestEachKeyHasItsOwnHitsAndLadder(t *testing.T) {
	onAll(t, `
		let both 1 signup 5/m on=short; 3 tenant 7/d
		take both -> took *signup 5/m 4, tenant 7/d 4
		v: take both -> took signup 5/m 3, *tenant 7/d 1
		take both -> no signup 5/m 3, *tenant 7/d 1 in 24h0m1s
		short.count signup 1m -> 2
		count tenant 1h -> 6
		count signup 1h -> 0
		# Each key gets back its own hits, by any of the Counters.
		short.refund v
		short.count signup 1m -> 1
		count tenant 1h -> 3
		# Hits of a key that is given twice are added, but not to those of another ladder.
		take 1 signup 9/d; 2 signup 9/h; 3 signup 9/m on=short -> took signup 9/d 6, signup 9/h 6, *signup 9/m 5
		count signup 1h -> 3
		short.count signup 1m -> 4
		short.take 1 signup 5/d; 1 tenant 5/m -> error event "e", limit 5/d: tiers: a window of 1d is longer
		take 1 signup 5/m on=short; 3 tenant 7/d; 1 user 5/m on=other -> error counter: event "e": Ask.On is a Counter of another New
		# The hits of a single key on another ladder are given back there.
		one: take 1 user 5/m on=fives -> took *user 5/m 4
		fives.count user 30s -> 1
		refund one
		two: take 1 user 5/m on=fives; 1 user 5/m on=fives -> took *user 5/m 3, *user 5/m 3
		fives.count user 30s -> 2
		refund two
		fives.count user 30s -> 0
	`)
}

// A key with no hits is looked at: next to others in a Take, or by a Peek alone.
func TestNoHits(t *testing.T) {
	onAll(t, `
		let both 1 signup 9/d; 0 ban 0/h
		peek both -> yes signup 9/d 8, *ban 0/h 0
		take both -> took signup 9/d 8, *ban 0/h 0
		count ban 1h -> 0
		add 1 ban
		take both -> no signup 9/d 8, *ban 0/h 0 in 1h0m1s
		peek both -> no signup 9/d 8, *ban 0/h 0 in 1h0m1s
		count signup 1h -> 1
		# Not over at Max, over above.
		add 3 signup
		peek 0 signup 5/d -> yes *signup 5/d 1
		add 1 signup
		peek 0 signup 5/d -> yes *signup 5/d 0
		add 1 signup
		peek 0 signup 5/d -> no *signup 5/d 0 in 24h0m1s
		# No hits at all: a look.
		take 0 signup 9/d; 0 ban 9/h -> yes *signup 9/d 3, ban 9/h 8
		peek 0 signup 9/d; 0 ban 9/h -> yes *signup 9/d 3, ban 9/h 8
		take 0 signup 5/d -> no *signup 5/d 0 in 24h0m1s
		take 0 signup 5/d soft -> yes signup 5/d 5
		charge 0 signup 9/d -> error counter: n is 0, want 1 to 9007199254740991, or a Peek, event "e"
	`)
}

// A soft key denies no one, and counts the hits that it would have admitted.
func TestSoftKeys(t *testing.T) {
	onAll(t, `
		let asks 1 signup 2/d soft; 1 signup 5/d; 1 user 4/d soft
		# The enforced key is the soft key as well, under lower limits.
		take asks -> took signup 2/d 1, *signup 5/d 4, user 4/d 3
		take asks -> took signup 2/d 0, *signup 5/d 3, user 4/d 2
		over: take asks -> took signup 2/d 0 in 24h0m1s, *signup 5/d 2, user 4/d 1
		count signup 1h -> 3
		# Denied by the enforced key: no soft key counts, so it has room for one more.
		take 1 signup 2/d soft; 1 signup 3/d; 1 user 4/d soft -> no
		take asks -> took signup 2/d 0 in 24h0m1s, *signup 5/d 1, user 4/d 0
		take asks -> took signup 2/d 0 in 24h0m1s, *signup 5/d 0, user 4/d 0 in 24h0m1s
		# A refund gives back what was kept: the hit of the user, and none of the soft key that was over.
		refund over
		count signup 1h -> 4
		take asks -> took signup 2/d 0 in 24h0m1s, *signup 5/d 0, user 4/d 0
		# More than the limit of a soft key are hits over it like others.
		take 3 page 2/d soft; 1 tenant 9/d -> took page 2/d 2 never, *tenant 9/d 8
		# Soft keys alone deny nobody, and count what they would admit.
		v: take 1 alone 2/d soft -> took alone 2/d 1
		refund v
		take 1 alone 2/d soft -> took alone 2/d 1
		v: take 1 alone 2/d soft; 1 user 9/d soft -> took alone 2/d 0, user 9/d 4
		refund v
		take 1 alone 2/d soft -> took alone 2/d 0
		v: take 1 user 9/d soft; 1 alone 2/d soft -> took user 9/d 4, alone 2/d 0 in 24h0m1s
		refund v
		take 1 alone 2/d soft -> yes alone 2/d 0 in 24h0m1s
		charge 1 alone 2/d soft -> error counter: event "e": each Ask of a Charge is Soft, want at least one that is not
	`)
}

// A shared soft key denies no one, and its counts are there once its limits are enforced.
func TestSharedSoftKeys(t *testing.T) {
	onAll(t, `
		kept: take 1 page 2/d shared -> took page 2/d 1
		take 1 page 2/d shared -> took page 2/d 0
		take 1 page 2/d shared -> yes page 2/d 0 in 24h0m1s
		count page 1h -> 2
		take 1 page 2/d -> no *page 2/d 0 in 24h0m1s
		refund kept
		take 1 page 2/d -> took *page 2/d 0
		take 1 page 2/d shared; 1 page 5/d -> error both with and without Ask.Charge or Ask.Shared
		take 1 page 2/d shared; 1 page 5/d soft -> took page 2/d 0 in 24h0m1s, page 5/d 4
	`)
}

func requireCount(t *testing.T, c *counter.Counter, key counter.Key, window time.Duration, want int64) {
	require.Equal(t, counter.Count{Low: want, High: want}, try.To(c.Count(ctx, key, window))(t))
}

// A soft key whose store fails fails no call, and is missing in the Verdict.
func TestASoftKeyThatFails(t *testing.T) {
	store := newPlainStore()
	store.fault = func(op *backend.Request) (made, answered int, err error) {
		if strings.Contains(op.Key, "~") {
			return 0, 0, errors.New("down")
		}
		return 0, 0, nil
	}
	c := newCounter(t, store, newClock(noon).config())
	v := try.To(c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("1/d")}, counter.Ask{Key: signup, N: 1, Limits: limits("1/h"), Soft: true}))(t)
	require.True(t, v.Allowed)
	require.Len(t, v.All(), 1)
	require.NoError(t, c.Refund(ctx, &v), "the failed key has nothing to give back")
	requireCount(t, c, signup, time.Hour, 0)
}

// By ticket a charge that was confirmed too late to be seen by others is counted,
// and is not said to be within its limits.
func TestALateChargeIsCounted(t *testing.T) {
	clock := newClock(noon)
	store := newPlainStore()
	store.pause = func() { clock.forward(50 * time.Millisecond) }
	cfg := clock.config()
	cfg.Settle = 100 * time.Millisecond
	c := newCounter(t, store, cfg)
	_, err := c.Charge(ctx, signup, 3, limits("5/d"))
	require.ErrorIs(t, err, counter.ErrStore)
	require.ErrorContains(t, err, "the hits are counted, and were confirmed later than Config.Settle")
	store.pause = nil
	requireCount(t, c, signup, time.Hour, 3)
	store.pause = func() { clock.forward(50 * time.Millisecond) }
	require.False(t, try.To(c.Charge(ctx, signup, 3, limits("5/d")))(t).Allowed, "over in any case")
	store.pause = nil
	requireCount(t, c, signup, time.Hour, 6)
}

// noting notes the keys that Do adds to.
type noting struct {
	backend.Atomic
	mu    sync.Mutex
	added []string
}

func (s *noting) Do(ctx context.Context, r *backend.Request) error {
	if len(r.Add) > 0 {
		s.mu.Lock()
		s.added = append(s.added, r.Key)
		s.mu.Unlock()
	}
	return s.Atomic.Do(ctx, r)
}

// A Verdict in a log is one line without the feature.
func TestVerdictSaysItselfWithoutTheFeature(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }})
	key := counter.Key{Event: "sign\nup", Feature: "email:ada@example.org"}
	take := func(n int64) fmt.Stringer { // a value has String
		return try.To(c.Take(context.Background(), key, n, counter.MustLimits("3/m, 9/d")))(t)
	}
	require.Equal(t, `admitted "sign\nup": 3/m, 1 left`, take(2).String())
	require.Equal(t, `denied "sign\nup": 3/m, 1 left, retry in 1m1s`, take(2).String())
	require.Equal(t, `denied "sign\nup": 3/m, 3 left, no wait will do`, take(4).String())
	require.Equal(t, `admitted "sign\nup": 3/m, 0 left`, fmt.Sprint(take(1)))
	var zero counter.Verdict
	require.Equal(t, "denied", zero.String())
	require.False(t, zero.Allowed)
	require.Empty(t, zero.All())
	require.NoError(t, c.Refund(context.Background(), &zero))
}

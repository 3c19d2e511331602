package counter_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

var (
	ctx    = context.Background()
	signup = counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	noon   = time.Date(2026, 3, 2, 12, 0, 30, 0, time.UTC)
)

// clock is a clock set by tests.
type clock struct{ ns atomic.Int64 }

func newClock(at time.Time) *clock {
	c := &clock{}
	c.ns.Store(at.UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *clock) forward(d time.Duration) { c.ns.Add(int64(d)) }
func (c *clock) config() counter.Config {
	return counter.Config{Now: c.now, Skew: -1, Settle: -1, Patience: -1}
}
func limits(s string) counter.Limits { return counter.MustLimits(s) }
func take(t testing.TB, c *counter.Counter, k counter.Key, n int64, l counter.Limits) counter.Verdict {
	return try.To(c.Take(ctx, k, n, l))(t)
}

func TestConfigNamesTheField(t *testing.T) {
	store := newPlainStore()
	for want, cfg := range map[string]counter.Config{
		"counter: Config.Skew is 2d, want at most 1d":     {Skew: 48 * time.Hour},
		"counter: Config.Settle is 2m, want at most 1m":   {Settle: 2 * time.Minute},
		"counter: Config.Patience is 2m, want at most 1m": {Patience: 2 * time.Minute},
		`counter: Config.Prefix is "a b", want printable`: {Prefix: "a b"},
	} {
		require.ErrorContains(t, try.Err(counter.New(store, cfg)), want)
	}
	for _, none := range []backend.Store{nil, (*memory.Store)(nil)} {
		require.ErrorContains(t, try.Err(counter.New(none, counter.Config{})), "counter: New: store is nil, want a store of buckets", "%T", none)
	}
	c := newCounter(t, store, counter.Config{})
	require.Equal(t, tiers.Default.String(), c.Config().Ladder.String())
}

// A caller's mistake is an error that names the mistake, is no ErrStore, and
// costs no traffic: at the first call, and when limits may be prepared.
func TestMistakesAreTheCallers(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			store := path.store()
			c := newCounter(t, store, newClock(noon).config())
			take := func(key counter.Key, n int64, l counter.Limits) error {
				v, err := c.Take(ctx, key, n, l)
				require.Zero(t, v)
				return err
			}
			series := func(from, to, width time.Duration) error {
				_, err := c.Series(ctx, signup, noon.Add(from), noon.Add(to), width)
				return err
			}
			all := func(asks ...counter.Ask) error {
				_, err := c.TakeAll(ctx, asks...)
				return err
			}
			const day = 24 * time.Hour
			one := limits("1/d")
			for want, call := range map[string]func() error{
				"counter: Key.Event is empty":              func() error { return take(counter.Key{Feature: "x"}, 1, one) },
				`counter: Key.Feature is empty, event "x"`: func() error { return take(counter.Key{Event: "x"}, 1, one) },
				"n is 0":  func() error { return take(signup, 0, one) },
				"n is -1": func() error { _, err := c.Peek(ctx, signup, -1, one); return err },
				"n is 9223372036854775807, want 1 to 9007199254740991": func() error { return take(signup, math.MaxInt64, one) },
				"no limits": func() error { return take(signup, 1, nil) },
				"33 limits": func() error { return take(signup, 1, slices.Repeat(one, 33)) },
				"max -1":    func() error { return take(signup, 1, counter.Limits{{Max: -1, Per: time.Hour}}) },
				"window 0s": func() error { return take(signup, 1, counter.Limits{{Max: 1}}) },
				`event "signup", limit 1/7d: tiers: a window of 7d is longer`: func() error { return take(signup, 1, limits("1/7d")) },
				"no keys": func() error { return all() },
				`no limits, want at least one, event "b"`: func() error {
					return all(counter.Ask{Key: signup, N: 1, Limits: one}, counter.Ask{Key: counter.Key{Event: "b", Feature: "b"}, N: 1})
				},
				`event "": 101 keys, want at most 100`: func() error { return all(make([]counter.Ask, 101)...) },
				"want 1 to":                            func() error { return c.Add(ctx, signup, 0) },
				"counter: Key.Event":                   func() error { return c.Add(ctx, counter.Key{}, 1) },
				"counter: Key.Event i":                 func() error { return c.Forget(ctx, counter.Key{}) },
				"a window of 2d":                       func() error { _, err := c.Count(ctx, signup, 2*day); return err },
				"counter: Series: from is 2026-03-02 12:00:30 +0000 UTC, want before to, which is 2026-03-02 12:00:30 +0000 UTC": func() error {
					return series(0, 0, time.Hour)
				},
				`counter: Series: width is 1.5s, want a multiple of the width of a tier, the ladder is "1s`: func() error {
					return series(-time.Hour, 0, 1500*time.Millisecond)
				},
				"counter: Series: the point at 2026-02-28 12:00:00 +0000 UTC is 2d30s old, and tier 1h is kept for 1d": func() error {
					return series(-2*day, 0, time.Hour)
				},
				"counter: Series: 8640000 points of 1 bucket(s) each, want at most 100000 buckets": func() error { return series(0, 100*day, time.Second) },
			} {
				for range 2 {
					err := call()
					require.ErrorContains(t, err, want)
					require.NotErrorIs(t, err, counter.ErrStore)
					require.NotContains(t, err.Error(), "203.0.113.9", "an error must not tell the feature")
				}
			}
			for range 2 { // n above Max asks no one
				require.Equal(t, counter.Never, try.To(c.Take(ctx, signup, 8, limits("100/d, 7/m")))(t).RetryAfter)
			}
			done, cancel := context.WithCancel(ctx)
			cancel()
			for _, err := range []error{c.Add(done, signup, 1), c.Check(done)} {
				require.ErrorIs(t, err, context.Canceled)
			}
			_, err := c.Take(done, signup, 1, limits("100/d, 7/m"))
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, counter.ErrStore)
			if plain, ok := store.(*plainStore); ok {
				require.Zero(t, plain.trips)
			}
			requireCount(t, c, signup, time.Hour, 0)
			for range 3 {
				try.To(c.Take(ctx, signup, 1, limits("9/d")))(t)
			}
			require.ErrorIs(t, try.Err(c.Take(done, signup, 1, limits("9/d"))), context.Canceled, "of a key that is known, too")
			wild := newCounter(t, path.store(), counter.Config{Now: func() time.Time { return time.Time{} }})
			require.ErrorContains(t, try.Err(wild.Take(ctx, signup, 1, one)), "counter: Config.Now: ")
		})
	}
}

// Check says beforehand what a Take would say.
func TestCheckIsWhatTakeWouldSay(t *testing.T) {
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{})
	require.NoError(t, limits("1/s, 5/90s, 100/d").Check(c.Config().Ladder))
	for want, wrong := range map[string]counter.Limits{
		"no limits":                         nil,
		"max -1":                            {{Max: 1, Per: time.Hour}, {Max: -1, Per: time.Hour}},
		"limit 1/7d: tiers: a window of 7d": {{Max: 1, Per: time.Hour}, {Max: 1, Per: 7 * 24 * time.Hour}},
		"limit 1/100ms: tiers: a window of": {{Max: 1, Per: 100 * time.Millisecond}},
	} {
		require.ErrorContains(t, wrong.Check(c.Config().Ladder), want)
		require.Error(t, try.Err(c.Take(ctx, signup, 1, wrong)))
	}
}

func TestLocalIsTheStoresWord(t *testing.T) {
	store := memory.New(memory.Config{})
	local, keeps := inner(newCounter(t, store, counter.Config{})).Local()
	require.True(t, local)
	require.True(t, keeps)
	_, keeps = inner(newCounter(t, memory.New(memory.Config{Full: memory.EvictOldest}), counter.Config{})).Local()
	require.False(t, keeps)
	local, keeps = inner(newCounter(t, struct{ backend.Store }{store}, counter.Config{})).Local()
	require.False(t, local)
	require.False(t, keeps)
}

// Keys of any bytes and of any length are counted apart, whichever way a call goes.
func TestAnyKeyIsCountedApart(t *testing.T) {
	words := []string{" ", "\n", "\r\nset x 0 0 1\r\n1\r\n", "{}", "{a}b", "a}b{", "%", "%25", "a b", "a%20b", "a%2520b", "a:b", "a%3Ab", "ünïcødé", "\x00", "\xff\xfe",
		strings.Repeat("x", 90), strings.Repeat("x", 91), strings.Repeat("x", 500), strings.Repeat("k", 10<<10), strings.Repeat("k", 10<<10) + "l"}
	for _, path := range paths {
		for _, secret := range []string{"", "secret"} {
			cfg := newClock(noon).config()
			cfg.Secret = []byte(secret)
			c := newCounter(t, path.store(), cfg)
			var keys []counter.Key
			for _, word := range words {
				keys = append(keys, counter.Key{Event: "e", Feature: word}, counter.Key{Event: word, Feature: "f"}, counter.Key{Event: "a:b", Feature: word})
			}
			both := limits("1000/d, 900/h")
			for i, key := range keys {
				require.True(t, take(t, c, key, int64(i+1), both).Allowed)
				require.Equal(t, key, take(t, c, key, 1, both).Key)
				_, err := c.TakeAll(ctx, counter.Ask{Key: key, N: 1, Limits: limits("1000/d"), Held: []int64{0}}) // the general way
				require.NoError(t, err)
			}
			for i, key := range keys {
				requireCount(t, c, key, time.Hour, int64(i+3))
			}
		}
	}
}

// Counts far above every Max neither wrap nor admit.
func TestHugeCounts(t *testing.T) {
	for _, path := range paths {
		c := newCounter(t, path.store(), newClock(noon).config())
		require.NoError(t, c.Add(ctx, signup, counter.MaxCount-1))
		err := c.Add(ctx, signup, 2)
		require.ErrorIs(t, err, backend.ErrMaxCount, path.name)
		require.NotErrorIs(t, err, counter.ErrStore, path.name)
		require.False(t, take(t, c, signup, 1, limits("100/d")).Allowed)
		n := try.To(c.Count(ctx, signup, time.Hour))(t)
		require.GreaterOrEqual(t, n.High, int64(counter.MaxCount-1), path.name)
	}
}

// An error of the store is an ErrStore and keeps the text of the store; the answer is the
// zero answer.
func TestAStoreThatFails(t *testing.T) {
	broken := errors.New("connection refused")
	store := newPlainStore()
	store.fault = func(*backend.Request) (int, int, error) { return 0, 0, broken }
	c := newCounter(t, store, newClock(noon).config())
	one := limits("1/d, 2/h, 3/m, 4/s")
	for name, call := range map[string]func() (any, error){
		"take": func() (any, error) { return c.Take(ctx, signup, 1, one) },
		"take all": func() (any, error) {
			return c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: one}, counter.Ask{Key: user, N: 1, Limits: one})
		},
		"peek":   func() (any, error) { return c.Peek(ctx, signup, 1, one) },
		"add":    func() (any, error) { return nil, c.Add(ctx, signup, 1) },
		"count":  func() (any, error) { return c.Count(ctx, signup, time.Hour) },
		"series": func() (any, error) { return c.Series(ctx, signup, noon.Add(-time.Hour), noon, time.Hour) },
		"forget": func() (any, error) { return nil, c.Forget(ctx, signup) },
	} {
		answer, err := call()
		require.Zero(t, answer, name)
		require.ErrorIs(t, err, counter.ErrStore, name)
		require.ErrorIs(t, err, broken, name)
		require.ErrorContains(t, err, `counter: event "signup": connection refused`)
		require.NotContains(t, err.Error(), "203.0.113.9")
	}
}

// A Take, or an Add, with a part of its additions made has failed. The confirmed
// additions, and no others, are taken back, even if the visitor has hung up.
func TestHalfAnAnswerIsTakenBack(t *testing.T) {
	for made := 0; made <= 3; made++ {
		for answered := 0; answered <= made; answered++ {
			store := newPlainStore()
			c := newCounter(t, store, newClock(noon).config())
			require.True(t, take(t, c, signup, 1, limits("5/d")).Allowed)
			visit, hangUp := context.WithCancel(ctx)
			store.fault = func(op *backend.Request) (int, int, error) {
				if op.N > 0 {
					hangUp()
					return made, answered, errors.New("cut off")
				}
				return 0, 0, nil
			}
			v, err := c.Take(visit, signup, 1, limits("5/d"))
			require.ErrorIs(t, err, context.Canceled)
			require.False(t, v.Allowed)
			require.ErrorIs(t, c.Add(ctx, signup, 1), counter.ErrStore)
			for i, width := range []time.Duration{time.Second, time.Minute, time.Hour} {
				want := int64(1)
				if i >= answered && i < made {
					want = 3 // the remaining hits may be the failed calls' or others', and stay
				}
				sum, _ := store.held(width)
				require.Equal(t, want, sum, "%d made, %d answered, tier %s", made, answered, width)
			}
		}
	}
}

// monotonicAhead moves only the monotonic reading of t: the reading of a clock
// after a step of the wall clock, or, backwards, after a machine's sleep. There
// is no honest way to make such a time.
func monotonicAhead(t time.Time, d time.Duration) time.Time {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	(*layout)(unsafe.Pointer(&t)).ext += int64(d)
	return t
}

// A try by ticket that lasts longer than Settle is taken back and repeated, by
// either clock: the wall clock may be stepped, the monotonic clock stands still
// in a sleep. An atomic step needs no such bound.
func TestALateTryIsMadeAgain(t *testing.T) {
	start := time.Now()
	const late = 51 * time.Millisecond
	slept := monotonicAhead(start.Add(late), -late)
	require.Zero(t, slept.Sub(start), "no time has passed on the monotonic clock")
	stepped := monotonicAhead(start, late)
	require.Equal(t, start.Round(0), stepped.Round(0), "nor here on the wall clock")
	for name, second := range map[string]time.Time{"both clocks": start.Add(late), "asleep": slept, "stepped back": stepped} {
		for _, path := range paths {
			t.Run(name+", "+path.name, func(t *testing.T) {
				calls, store := 0, path.store()
				c := newCounter(t, store, counter.Config{Settle: 50 * time.Millisecond, Now: func() time.Time {
					if calls++; calls == 1 {
						return start
					}
					return second
				}})
				v := try.To(c.Take(ctx, signup, 1, limits("5/d")))(t)
				require.True(t, v.Allowed)
				tries, label := int64(1), second
				if _, atomic := store.(backend.Atomic); atomic {
					tries, label = 0, start
				}
				require.Equal(t, tries, c.Stats().LateTries)
				require.True(t, v.At().Equal(label), "the label is that of the try that counts")
				require.EqualValues(t, 1, try.To(c.Count(ctx, signup, time.Hour))(t).High, "the late try was taken back")
			})
		}
	}
}

// A late try is not made again if hits of another key of the call may be left.
func TestALateTryWithAHitThatStays(t *testing.T) {
	clock, store, adds := newClock(noon), newPlainStore(), []string{}
	c := newCounter(t, store, counter.Config{Now: clock.now, Settle: 50 * time.Millisecond})
	store.fault = func(op *backend.Request) (int, int, error) {
		switch {
		case op.N > 0:
			if adds = append(adds, string(op.Key)); len(adds) == 2 {
				clock.forward(51 * time.Millisecond)
			}
		case op.N < 0 && string(op.Key) == adds[0]:
			return 0, 0, errors.New("away")
		}
		return 0, 0, nil
	}
	_, err := c.TakeAll(ctx, counter.Ask{Key: signup, N: 1, Limits: limits("5/d")}, counter.Ask{Key: counter.Key{Event: "mail", Feature: "ada"}, N: 1, Limits: limits("5/d")})
	require.ErrorContains(t, err, "away")
	require.Len(t, adds, 2)
}

// A store that is always late causes an error, by the end of the patience. Of a ladder
// and the former one the shorter Settle counts.
func TestAStoreThatIsAlwaysLate(t *testing.T) {
	for _, cfg := range []counter.Config{
		{Settle: 50 * time.Millisecond},
		{Settle: 50 * time.Millisecond, Former: &counter.Config{Settle: time.Second}},
		{Settle: time.Second, Former: &counter.Config{Settle: 50 * time.Millisecond}},
	} {
		synctest.Test(t, func(t *testing.T) {
			now, store := time.Now(), newPlainStore()
			cfg.Patience = 200 * time.Millisecond
			cfg.Now = func() time.Time {
				now = now.Add(51 * time.Millisecond)
				return now
			}
			c := newCounter(t, store, cfg)
			began := time.Now()
			v, err := c.Take(ctx, signup, 1, limits("5/d"))
			require.ErrorIs(t, err, counter.ErrStore)
			require.ErrorContains(t, err, "want within Config.Settle, 50ms")
			require.False(t, v.Allowed)
			require.Less(t, time.Since(began), 250*time.Millisecond)
			require.Greater(t, c.Stats().LateTries, int64(1))
			sum, _ := store.held(time.Second)
			require.Zero(t, sum, "all was taken back")
		})
	}
}

// A denied key costs no traffic for a second and leaves no items behind; after
// the second a call reads before adding.
func TestDenialsAreRemembered(t *testing.T) {
	clock := newClock(noon)
	store := newPlainStore()
	c := newCounter(t, store, counter.Config{Now: clock.now})
	two := limits("2/m")
	take(t, c, signup, 2, two)
	first := take(t, c, signup, 1, two)
	require.False(t, first.Allowed)
	_, items := store.held(0)
	second := take(t, c, signup, 1, two) // by reading: the count of a ticket is not believed
	require.Equal(t, first.RetryAfter, second.RetryAfter)
	trips := store.trips
	for range 9 {
		clock.forward(100 * time.Millisecond)
		v := take(t, c, signup, 1, two)
		require.False(t, v.Allowed)
		second.RetryAfter -= 100 * time.Millisecond
		require.Equal(t, second.RetryAfter, v.RetryAfter)
	}
	require.Equal(t, trips, store.trips, "no traffic within the second")
	require.False(t, take(t, c, signup, 2, two).Allowed)
	require.Greater(t, store.trips, trips, "another n is another question")
	take(t, c, signup, 1, two)
	trips = store.trips
	take(t, c, signup, 1, two)
	require.Equal(t, trips, store.trips)
	require.NoError(t, c.Add(ctx, signup, 1))
	take(t, c, signup, 1, two)
	require.Greater(t, store.trips, trips+1, "what is remembered is from before the Add")
	for range 50 {
		clock.forward(1001 * time.Millisecond)
		writes := store.writes
		require.False(t, take(t, c, signup, 1, two).Allowed)
		require.Equal(t, writes, store.writes, "a denied key is only read")
	}
	_, after := store.held(0)
	require.Equal(t, items, after, "50 seconds of attack left nothing behind")
	clock.forward(take(t, c, signup, 1, two).RetryAfter)
	require.True(t, take(t, c, signup, 1, two).Allowed)
}

// A second of memory is a second also when the clock is set back meanwhile.
func TestAClockSetBackDoesNotProlongADenial(t *testing.T) {
	clock := newClock(noon)
	store := newPlainStore()
	c := newCounter(t, store, counter.Config{Now: clock.now})
	two := limits("2/m")
	take(t, c, signup, 2, two)
	for range 3 {
		require.False(t, take(t, c, signup, 1, two).Allowed)
	}
	require.NoError(t, newCounter(t, store, counter.Config{Now: clock.now}).Forget(ctx, signup)) // by another process
	require.False(t, take(t, c, signup, 1, two).Allowed, "remembered, for its second")
	clock.forward(-time.Hour)
	require.True(t, take(t, c, signup, 1, two).Allowed)
}

// Under standing overload freed room is taken, and nothing more: a refused
// crowd does not starve itself.
func TestNoStarvationUnderOverload(t *testing.T) {
	clock := newClock(noon)
	store := newPlainStore()
	store.pause = yieldSometimes
	c := newCounter(t, store, counter.Config{Now: clock.now, Skew: time.Millisecond, Patience: time.Minute})
	ten := limits("10/10s")
	admitted := 0
	seconds := long.Rounds(40, 200)
	for range seconds {
		var in atomic.Int64
		ticket.SideBySide(100, func(int) {
			v, err := c.Take(ctx, signup, 1, ten)
			assert.NoError(t, err)
			if v.Allowed {
				in.Add(1)
			}
		})
		admitted += int(in.Load())
		clock.forward(time.Second)
	}
	// The first ten at once; each of their seconds leaves the window of 10 s,
	// rounded up to whole seconds and lengthened by Skew and Settle, 12 s
	// later.
	exact := 10 * ((seconds + 11) / 12)
	require.LessOrEqual(t, admitted, exact)
	require.GreaterOrEqual(t, admitted, exact*95/100)
}

// The TTL of a second ends before the TTL of the minute that holds the second.
func TestForgetLeavesNothingInCoarserBuckets(t *testing.T) {
	clock, cfg := newClock(noon), counter.Config{Ladder: must(tiers.Parse("1s:1h, 1m:1h"))}
	cfg.Now = clock.now
	c := newCounter(t, memory.New(memory.Config{}), cfg)
	require.NoError(t, c.Add(ctx, signup, 3))
	clock.forward(time.Hour + 20*time.Second)
	for _, want := range []int64{3, 0} {
		points := try.To(c.Series(ctx, signup, noon, noon.Add(1), time.Minute))(t)
		require.Len(t, points, 1)
		require.Equal(t, want, points[0].Count)
		require.NoError(t, c.Forget(ctx, signup))
	}
}

// A Forget that stood still after reading its clock forgets hits with later
// labels; a Refund of these must not take back hits from after the Forget.
func TestAForgetThatStoodStill(t *testing.T) {
	for _, path := range paths {
		clock, readings := newClock(noon), 0
		cfg := clock.config()
		cfg.Now = func() time.Time {
			if readings++; readings == 2 {
				return clock.now().Add(-10 * time.Millisecond) // the clock of the Forget, before the standstill
			}
			return clock.now()
		}
		c := newCounter(t, path.store(), cfg)
		v := take(t, c, signup, 1, limits("5/m"))
		require.NoError(t, c.Forget(ctx, signup))
		clock.forward(10 * time.Millisecond)
		take(t, c, signup, 1, limits("5/m"))
		require.NoError(t, c.Refund(ctx, &v))
		requireCount(t, c, signup, time.Minute, 1)
	}
}

// A caller may wipe its slice with the secret after New.
func TestASecretThatIsWiped(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	c := newCounter(t, memory.New(memory.Config{}), counter.Config{Secret: secret})
	require.NoError(t, must(c.With(tiers.For(time.Hour), nil)).Add(ctx, signup, 3))
	clear(secret)
	requireCount(t, must(c.With(tiers.For(time.Hour), nil)), signup, time.Hour, 3)
}

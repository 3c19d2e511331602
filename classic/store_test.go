package classic_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/classic/servers"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

const year = 366 * 24 * time.Hour

func TestWhatLimitersRefuse(t *testing.T) {
	store, items := memory(t, classic.Config{}), memcached(t, "127.0.0.1:1", classic.Config{})
	each(t, func(t *testing.T, k kind) {
		for want, limit := range map[string]counter.Limit{
			"Max is -1, want 0 to 34359738367":           {Max: -1, Per: time.Minute},
			"Max is 34359738368, want 0 to 34359738367":  {Max: classic.MaxHits + 1, Per: time.Minute},
			"Per is 9ms, want 10ms to 366d":              {Max: 1, Per: 9 * time.Millisecond},
			"Per is 366d1s, want 10ms to 366d":           {Max: 1, Per: year + time.Second},
			"Per is 1.0000005s, want whole microseconds": {Max: 1, Per: time.Second + 500},
		} {
			l, err := k.make(limit, 1, store)
			require.EqualError(t, err, "classic: limit "+limit.String()+": "+want)
			require.Nil(t, l)
		}
		_, err := k.make(counter.Limit{Max: 1, Per: time.Minute}, 1, nil)
		require.EqualError(t, err, "classic: the store is nil, want one of Memory, Redis or Memcached")
		if k.name != "textbook-tiers" { // they read and write in a single step, which memcached has not
			_, err := k.make(counter.Limit{Max: 5, Per: time.Minute}, 5, items)
			require.EqualError(t, err, "classic: limit 5/m: the store is memcached, want Memory or Redis, where a limiter reads and writes in one step")
		}
		if k.shape == whole {
			_, err := k.make(counter.Limit{Max: 0, Per: time.Minute}, 1, store)
			require.EqualError(t, err, "classic: limit 0/m: Max is 0, want 1 to 34359738367, the limit being a rate")
		}
		if k.shape != bursting && k.shape != queueing {
			return
		}
		what := map[bool]string{true: "length", false: "burst"}[k.name == "leaky-queue"]
		day := counter.Limit{Max: 1, Per: 24 * time.Hour}
		for want, row := range map[string]struct {
			limit counter.Limit
			room  int64
		}{
			"Max is 0, want 1 to 34359738367, the limit being a rate": {counter.Limit{Max: 0, Per: time.Minute}, 1},
			what + " is -1, want 0 to 34359738367":                    {day, -1},
			what + " is 34359738368, want 0 to 34359738367":           {day, classic.MaxHits + 1},
			what + " is 367, want at most 366, which take 366d":       {day, 367},
			what + " is 34359738367, want at most 1, which take 366d": {counter.Limit{Max: 1, Per: year}, classic.MaxHits},
		} {
			_, err := k.make(row.limit, row.room, store)
			require.EqualError(t, err, "classic: limit "+row.limit.String()+": "+want)
		}
		try.To(k.make(day, 366, store))(t)
	})
	_, err := classic.NewTextbookTiers(counter.Limit{Max: 1, Per: 1500 * time.Millisecond}, store)
	require.EqualError(t, err, "classic: limit 1/1.5s: Per is 1.5s, want whole seconds")
	_, err = classic.NewLeakyQueue(counter.Limit{Max: 10_001, Per: 10 * time.Millisecond}, 1, store)
	require.EqualError(t, err, "classic: limit 10001/10ms: Max is 10001, want at most 10000, one hit a microsecond")
}

func TestWhatStoresRefuse(t *testing.T) {
	const asWanted = ", want printable ASCII without spaces, colons, percent signs and braces"
	for want, cfg := range map[string]classic.Config{
		"Grace is 1d1s, want at most 1d":                                           {Grace: 24*time.Hour + time.Second},
		"MaxKeys is -1, want at least 1, or 0 for 1000000":                         {MaxKeys: -1},
		"Timeout is -1s, want more than 0s, or 0 for 1s":                           {Timeout: -time.Second},
		`Prefix is "a:b"` + asWanted:                                               {Prefix: "a:b"},
		`Prefix is "a{b"` + asWanted:                                               {Prefix: "a{b"},
		`Prefix is "a%b"` + asWanted:                                               {Prefix: "a%b"},
		`Prefix is "a b"` + asWanted:                                               {Prefix: "a b"},
		`Prefix is "ä"` + asWanted:                                                 {Prefix: "ä"},
		"Prefix is \"" + strings.Repeat("a", 33) + "\", 33 bytes, want at most 32": {Prefix: strings.Repeat("a", 33)},
	} {
		require.EqualError(t, try.Err(classic.Memory(cfg)), "classic: Config."+want)
		require.EqualError(t, try.Err(servers.Redis(client(t, "127.0.0.1:1"), cfg)), "classic: Config."+want)
	}
	_, err := servers.Memcached(nil, classic.Config{})
	require.EqualError(t, err, "classic: the memcached client is nil, want one of gomemcache")
	var none *goredis.Client
	for want, client := range map[string]goredis.UniversalClient{
		"ContextTimeoutEnabled": goredis.NewClient(&goredis.Options{}),
		"want *redis.Client":    goredis.NewRing(&goredis.RingOptions{ContextTimeoutEnabled: true}),
		"is nil":                none,
	} {
		_, err := servers.Redis(client, classic.Config{})
		require.ErrorContains(t, err, "classic: ")
		require.ErrorContains(t, err, want)
	}
}

// The caller's mistakes, and his context, are not the store's failure, and nothing
// is counted.
func TestMistakesOfACall(t *testing.T) {
	c := clockAt(start)
	store := memory(t, classic.Config{Now: c.now})
	each(t, func(t *testing.T, k kind) {
		l := k.new(t, 5, time.Minute, 5, store)
		over, cancel := context.WithCancel(ctx)
		cancel()
		for want, call := range map[string]func() (counter.Verdict, error){
			"n is 0, want 1 to":                                      func() (counter.Verdict, error) { return l.Take(ctx, signup, 0) },
			"n is -1, want 1 to":                                     func() (counter.Verdict, error) { return l.Take(ctx, signup, -1) },
			"n is 34359738368":                                       func() (counter.Verdict, error) { return l.Take(ctx, signup, classic.MaxHits+1) },
			"classic: Key.Event is empty, want a name":               func() (counter.Verdict, error) { return l.Take(ctx, counter.Key{Feature: "x"}, 1) },
			`classic: event "x": Key.Feature is empty, want a value`: func() (counter.Verdict, error) { return l.Take(ctx, counter.Key{Event: "x"}, 1) },
			"context canceled":                                       func() (counter.Verdict, error) { return l.Take(over, signup, 1) },
			"Config.Now: tiers: ti": func() (counter.Verdict, error) {
				c.set(time.Date(2251, 1, 1, 0, 0, 0, 0, time.UTC))
				return l.Take(ctx, signup, 1)
			},
		} {
			c.set(start)
			v, err := call()
			require.ErrorContains(t, err, "classic: ")
			require.ErrorContains(t, err, want)
			require.NotErrorIs(t, err, counter.ErrStore)
			require.NotContains(t, err.Error(), "203.0.113.9")
			require.Equal(t, counter.Verdict{}, v)
		}
		c.set(start)
		require.Zero(t, l.Cost())
		require.EqualError(t, try.Err(l.Bytes(ctx, counter.Key{})), "classic: Key.Event is empty, want a name")
	})
	log := kinds[2].new(t, classic.MaxHits, time.Minute, 0, store)
	require.ErrorContains(t, try.Err(log.Take(ctx, signup, 10_001)), "classic: sliding-log: n is 10001, want 1 to 10000")
	require.True(t, take(t, log, signup, 10_000).Allowed)
}

// 10,000 hits at an instant are as many members of a sorted set.
func TestALogOfManyHits(t *testing.T) {
	addr := servertest.Redis(t)
	c := clockAt(start)
	l := kinds[2].new(t, 25_000, time.Minute, 0, onRedis(t, addr, classic.Config{Now: c.now, Grace: grace}))
	for _, n := range []int64{10_000, 501, 500, 499, 1, 10_000} {
		require.True(t, take(t, l, signup, n).Allowed)
	}
	v := take(t, l, signup, 1)
	require.EqualValues(t, 25_000-21_501-1, v.Remaining)
	require.EqualValues(t, 21_502, client(t, addr).ZCard(ctx, l.Keys(signup)[0]).Val())
}

// No two keys share a state, whatever bytes are in them.
func TestKeysDoNotMeet(t *testing.T) {
	r := dice(t)
	store := memory(t, classic.Config{})
	l := kinds[2].new(t, 1, time.Minute, 0, store)
	long := strings.Repeat("x", 150)
	parts := []string{":", "%", "{", "}", "a", "b", "%3A", "%7B", "\x00", "\n", "ä", " ", "a:b", long}
	some := func() string {
		var s strings.Builder
		for range 1 + r.IntN(4) {
			s.WriteString(parts[r.IntN(len(parts))])
		}
		return s.String()
	}
	clean := regexp.MustCompile(`^cl:sliding-log:1m\{[!-z|~]+\}$`)
	seen := map[string]counter.Key{}
	for range 20_000 {
		key := counter.Key{Event: some(), Feature: some()}
		names := l.Keys(key)
		if !clean.MatchString(names[0]) {
			t.Errorf("%q", names[0])
		}
		if other, is := seen[names[0]]; is && other != key || len(names) > 1 || len(names[0]) > 230 {
			t.Errorf("%q and %q: %q", key, other, names)
		}
		seen[names[0]] = key
	}
	require.True(t, take(t, l, counter.Key{Event: "a:b", Feature: "c"}, 1).Allowed)
	require.True(t, take(t, l, counter.Key{Event: "a", Feature: "b:c"}, 1).Allowed)
}

// Kinds, windows and prefixes have states of their own; all else shares a
// state.
func TestWhatShares(t *testing.T) {
	addr := servertest.Redis(t)
	c := clockAt(start)
	cfg := classic.Config{Now: c.now, Grace: grace}
	other := cfg
	other.Prefix = "other"
	for _, store := range append(both(t, addr, cfg), both(t, addr, other)...) {
		for _, k := range kinds {
			for _, per := range []time.Duration{time.Minute, time.Hour} {
				for _, want := range []bool{true, false} {
					require.Equal(t, want, take(t, k.new(t, 1, per, 1, store), signup, 1).Allowed, k.name)
				}
			}
		}
	}
}

// Clocks that are centuries apart overflow nothing, and leave no limiter without a
// bound or with a wait below zero.
func TestClocksCenturiesApart(t *testing.T) {
	addr := servertest.Redis(t)
	each(t, func(t *testing.T, k kind) {
		c := clockAt(start)
		cfg := classic.Config{Now: c.now, Grace: grace}
		for i, limit := range []counter.Limit{{Max: 3, Per: time.Minute}, {Max: 7, Per: 30 * 24 * time.Hour}, {Max: 1, Per: 10 * time.Second}} {
			here, there := k.new(t, limit.Max, limit.Per, limit.Max, memory(t, cfg)), k.new(t, limit.Max, limit.Per, limit.Max, onRedis(t, addr, cfg))
			for _, at := range []time.Time{
				time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2249, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
				time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0), time.Unix(0, -1), start, time.Date(2249, 12, 31, 23, 59, 59, 0, time.UTC),
			} {
				c.set(at)
				for range 9 {
					v, other := take(t, here, name(i), 1), take(t, there, name(i), 1)
					// A window's state or a bucket dropped by a clock ahead is gone. A state
					// with the newest instant is not.
					if !slices.Contains([]string{"fixed-window", "fixed-slots", "textbook-tiers"}, k.name) {
						require.Equal(t, v, other)
					}
					require.GreaterOrEqual(t, v.RetryAfter, time.Duration(0))
					require.GreaterOrEqual(t, v.ResetAfter, time.Duration(0))
					require.Less(t, v.RetryAfter, counter.Never)
					require.LessOrEqual(t, v.Remaining, limit.Max)
				}
				require.False(t, take(t, here, name(i), 1).Allowed)
			}
		}
	})
}

// A full store fails, without harm to its states; a state that no longer
// matters is replaced, in any table.
func TestAFullStore(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		c := clockAt(start)
		store := memory(t, classic.Config{Now: c.now, MaxKeys: 100})
		l, other := k.new(t, 2, time.Minute, 2, store), kinds[0].new(t, 2, 2*time.Minute, 0, store)
		for i := range 50 {
			require.True(t, take(t, l, name(i), 1).Allowed)
			require.True(t, take(t, other, name(i), 1).Allowed)
		}
		v, err := l.Take(ctx, name(100), 1)
		require.ErrorIs(t, err, classic.ErrFull)
		require.ErrorIs(t, err, counter.ErrStore)
		require.EqualError(t, err, "classic: "+k.name+`: event "signup": the memory store is full`)
		require.Equal(t, counter.Verdict{}, v)
		for i := range 50 {
			take(t, l, name(i), 1) // who is known goes on
		}
		c.add(3 * time.Hour)
		for i := range 100 {
			require.True(t, take(t, l, name(1000+i), 1).Allowed, "%d", i)
		}
		require.ErrorIs(t, try.Err(l.Take(ctx, name(100), 1)), classic.ErrFull)
		for i := range 100 {
			require.False(t, take(t, l, name(1000+i), 3).Allowed, "still known")
		}
	})
}

// A state that no longer matters is dropped long before the store is full.
func TestAFloodLeavesLittle(t *testing.T) {
	flood := long.Rounds(5_000, 20_000)
	each(t, func(t *testing.T, k kind) {
		c := clockAt(start)
		l := k.new(t, 2, time.Second, 2, memory(t, classic.Config{Now: c.now}))
		for i := range flood {
			take(t, l, name(i), 1)
			c.add(10 * time.Second)
		}
		left := 0
		for i := range flood {
			if held(t, l, name(i)) > 0 {
				left++
			}
		}
		require.Positive(t, left)
		require.Less(t, left, 1500)
	}, "fixed-window") // whose old names nobody asks for
}

// A drop under a flood of fresh keys changes no decision, for callers whose clocks
// are within Grace.
func TestDroppingChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		r := dice(t)
		c := clockAt(start)
		small := memory(t, classic.Config{Now: c.now, Grace: 30 * time.Second, MaxKeys: 40})
		large := memory(t, classic.Config{Now: c.now, Grace: 30 * time.Second})
		a, b := k.new(t, 3, 10*time.Second, 3, small), k.new(t, 3, 10*time.Second, 3, large)
		lasts, answered := time.Minute, 0
		if k.name == "textbook-tiers" {
			lasts = 2 * time.Hour
		}
		for i := range 3000 {
			c.add(time.Duration(r.Int64N(int64(lasts / 10))))
			back := r.Int64N(int64(30 * time.Second))
			c.add(-time.Duration(back))
			key, n := name(r.IntN(12)), 1+r.Int64N(3)
			if v, err := a.Take(ctx, key, n); err == nil {
				require.Equal(t, v, take(t, b, key, n), "call %d", i)
				answered++
			} else {
				require.ErrorIs(t, err, classic.ErrFull)
			}
			if _, err := a.Take(ctx, name(10_000+i), 1); err != nil {
				require.ErrorIs(t, err, classic.ErrFull)
			}
			c.add(time.Duration(back))
		}
		require.Greater(t, answered, 1500)
	})
}

// A busy key holds its window's content and no more, however long the key is
// busy.
func TestABusyKeyStaysSmall(t *testing.T) {
	addr := servertest.Redis(t)
	each(t, func(t *testing.T, k kind) {
		c := clockAt(start)
		l := k.new(t, 60, time.Minute, 60, memory(t, classic.Config{Now: c.now}))
		far := k.new(t, 60, time.Minute, 60, onRedis(t, addr, classic.Config{Now: c.now}))
		var early int64
		for i := range 4000 {
			c.add(1017 * time.Millisecond)
			require.True(t, take(t, l, signup, 1).Allowed)
			if i < 400 && k.name != "textbook-tiers" { // their counters expire one by one, by the server's clock
				require.True(t, take(t, far, signup, 1).Allowed)
			}
			if i == 150 {
				early = held(t, l, signup)
			}
		}
		require.LessOrEqual(t, held(t, l, signup), 2*early+1000)
		if k.name == "sliding-log" {
			require.LessOrEqual(t, client(t, addr).ZCard(ctx, far.Keys(signup)[0]).Val(), int64(62))
		}
	})
}

package counter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

var halfPast = time.Date(2026, 3, 2, 12, 20, 30, 500_000_000, time.UTC)

// taking is a Counter on a plainStore, with a clock that the test sets.
type taking struct {
	t     *testing.T
	store *plainStore
	now   time.Time
	*counter.Counter
}

func newTaking(t *testing.T, store *plainStore, cfg counter.Config) *taking {
	k := &taking{t: t, store: store, now: halfPast}
	cfg.Now = func() time.Time { return k.now }
	k.Counter = newCounter(t, store, cfg)
	return k
}

// take makes a Take, and returns its verdict, trips and items read.
func (k *taking) take(feature, limits string) (v counter.Verdict, trips, reads int) {
	trips, reads = k.store.trips, k.store.reads
	v, err := k.Take(ctx, keyOf(feature), 1, counter.MustLimits(limits))
	require.NoError(k.t, err)
	return v, k.store.trips - trips, k.store.reads - reads
}

// The items that a Take reads, in the mean over all phases of a day:
// docs/decisions/coarse-first.md has the numbers.
func TestItemsRead(t *testing.T) {
	for _, row := range []struct {
		limits             string
		coarse, exact, hot float64
	}{
		{"1000000/d", 24, 82, 0},
		{"1000000/m, 1000000/h, 1000000/d", 25, 170, 0.1},
	} {
		t.Run(row.limits, func(t *testing.T) {
			mean := func(k *taking, n int, step time.Duration, key func(i int) string) float64 {
				before := k.store.reads
				for i := range n {
					k.now = k.now.Add(step)
					k.take(key(i), row.limits)
				}
				return float64(k.store.reads-before) / float64(n)
			}
			one := func(int) string { return "one" }
			const n = 2000
			coarse := mean(newTaking(t, newPlainStore(), counter.Config{}), n, 24*time.Hour/n+time.Millisecond, func(i int) string { return fmt.Sprint(i) })
			sparse := mean(newTaking(t, newPlainStore(), counter.Config{}), n, 24*time.Hour/n+time.Millisecond, one)
			exact := mean(newTaking(t, newPlainStore(), counter.Config{Exact: true}), n, 24*time.Hour/n+time.Millisecond, one)
			k := newTaking(t, newPlainStore(), counter.Config{})
			mean(k, 2, 0, one)
			hot := mean(k, n, 20*time.Millisecond, one)
			t.Logf("%s: fresh %.2f, every 43 s %.2f, exact %.2f, hot %.2f", row.limits, coarse, sparse, exact, hot)
			require.InDelta(t, row.coarse, coarse, 0.5)
			require.InDelta(t, row.exact, exact, 2)
			require.InDelta(t, row.hot, hot, 0.1)
		})
	}
}

// A key whose coarse cover is above Max is read exactly, at once from then on.
func TestTheExactEdgeMakesRoom(t *testing.T) {
	k := newTaking(t, newPlainStore(), counter.Config{})
	for range 3 {
		k.take("a", "4/d")
	}
	k.now = k.now.Add(24*time.Hour + 2*time.Second) // out of the window, and within the oldest hour
	for i := range int64(3) {
		v, trips, _ := k.take("a", "4/d")
		require.True(t, v.Allowed)
		want := []int64{0, 2, 1}[i] // by the coarse cover, then exact
		require.Equal(t, want, v.Remaining)
		require.Equal(t, []int{1, 2, 1}[i], trips)
	}
	v, trips, _ := k.take("a", "4/d")
	require.True(t, v.Allowed)
	require.Equal(t, 1, trips)

	// Denied by the hours: a trip, and another beside the taking back.
	v, trips, _ = k.take("a", "4/d")
	require.False(t, v.Allowed)
	require.LessOrEqual(t, trips, 3)
	require.Equal(t, 24*time.Hour, v.RetryAfter.Round(time.Minute))
}

// A refused call counts exactly whether there is room after the taking back.
func TestRoomIsExact(t *testing.T) {
	store := newPlainStore()
	k, other := newTaking(t, store, counter.Config{}), newTaking(t, store, counter.Config{})
	for range 4 {
		k.take("a", "4/d")
	}
	k.now = k.now.Add(24*time.Hour + 2*time.Second) // out of the window, and within the oldest hour
	other.now = k.now
	var theirs []counter.Verdict
	for range 4 {
		v, _, _ := other.take("a", "4/d")
		require.True(t, v.Allowed)
		theirs = append(theirs, v)
	}
	store.fault = func(op *backend.Request) (int, int, error) {
		if op.N < 0 {
			store.fault = nil
			for i := range theirs {
				require.NoError(t, other.Refund(ctx, &theirs[i]))
			}
		}
		return 0, 0, nil
	}
	v, _, _ := k.take("a", "4/d")
	require.True(t, v.Allowed)
}

// A denial of a key that this process has not denied before takes three trips at
// most.
func TestTripsOfADenial(t *testing.T) {
	for _, age := range []time.Duration{time.Second, time.Minute, time.Hour, 12 * time.Hour, 23 * time.Hour, 23*time.Hour + 40*time.Minute, 24*time.Hour - 30*time.Second, 24*time.Hour - time.Second} {
		for _, old := range []int{0, 1} {
			store := newPlainStore()
			k, exact := newTaking(t, store, counter.Config{}), newTaking(t, store, counter.Config{Exact: true})
			for range old {
				k.take("a", "100/d")
			}
			k.now = k.now.Add(10 * time.Minute)
			for range 3 {
				k.take("a", "100/d")
			}
			k.now = k.now.Add(age)
			exact.now = k.now
			v, trips, _ := k.take("a", "3/d")
			want, _, _ := exact.take("a", "3/d")
			require.Equal(t, want, v, "age %s", age)
			require.LessOrEqual(t, trips, 3, "age %s", age)
		}
	}
}

// A denial reads the buckets that its answer depends on: of 24 hours, the minutes
// of an hour, and the seconds of a minute.
func TestItemsOfADenial(t *testing.T) {
	for _, row := range []struct {
		name         string
		apart        time.Duration // between the hits, the last a second ago
		trips, items int
		edge         int // seconds of the minute's edge
	}{
		{"a burst", 0, 2, 24 + 21 + 31, 0},
		{"a burst of some minutes", time.Minute, 3, 24 + 21 + 60 + 31, 30},
		{"a day", 2 * time.Hour, 3, 24 + 31 + 60 + 60, 0},
	} {
		for limits, edge := range map[string]int{"9/d": 0, "9/d, 100/m, 100/h": row.edge} {
			k := newTaking(t, newPlainStore(), counter.Config{})
			for i := range 9 {
				k.now = halfPast.Add(-time.Second - time.Duration(8-i)*row.apart)
				require.NoError(t, k.Add(ctx, keyOf("a"), 1))
			}
			first := halfPast.Add(-time.Second - 8*row.apart).Truncate(time.Second)
			k.now = halfPast
			v, trips, items := k.take("a", limits)
			require.False(t, v.Allowed)
			require.Equal(t, row.trips, trips, row.name)
			require.InDelta(t, row.items+edge, items, 4, row.name)
			require.Equal(t, first.Add(time.Second+24*time.Hour+2*counter.DefaultSkew).Sub(halfPast), v.RetryAfter, row.name)
		}
	}
}

// A denial goes by what it has read, not by what the process remembers, not even
// by buckets that are remembered as empty: a slow Add, and an AddAt of another
// process, may have filled one since.
func TestADenialBelievesNoMemory(t *testing.T) {
	for name, fill := range map[string]func(other *taking, key counter.Key, at time.Time) error{
		"slow Add": func(other *taking, key counter.Key, at time.Time) error {
			other.now = at
			return other.Add(ctx, key, 3)
		},
		"AddAt": func(other *taking, key counter.Key, at time.Time) error {
			return other.AddAt(ctx, key, 3, at)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newPlainStore()
			k, other := newTaking(t, store, counter.Config{}), newTaking(t, store, counter.Config{})
			key := keyOf("a")
			hour := halfPast.Truncate(time.Hour)
			other.now = hour.Add(-5 * time.Hour)
			require.NoError(t, other.Add(ctx, key, 2))
			k.now, other.now = hour.Add(700*time.Millisecond), hour.Add(700*time.Millisecond)
			k.take("a", "4/d")
			k.take("a", "4/d")
			require.NoError(t, fill(other, key, hour.Add(-10*time.Millisecond)))
			k.now, other.now = hour.Add(20*time.Second), hour.Add(20*time.Second)
			v, _, _ := k.take("a", "4/d")
			exact := try.To(other.Peek(ctx, key, 1, counter.MustLimits("4/d")))(t)
			require.False(t, v.Allowed)
			require.Equal(t, exact.RetryAfter, v.RetryAfter)
		})
	}
}

func TestRememberedBuckets(t *testing.T) {
	store, key := newPlainStore(), keyOf("a")
	k, other := newTaking(t, store, counter.Config{}), newTaking(t, store, counter.Config{})
	for range 5 {
		k.take("a", "10/d")
	}
	old, _, _ := other.take("a", "10/d")
	k.now = k.now.Add(2 * time.Hour)
	warm := func() counter.Verdict { // the third Take goes by the memory
		k.take("a", "100/d")
		k.take("a", "100/d")
		v, _, reads := k.take("a", "100/d")
		require.Zero(t, reads)
		return v
	}
	cold := func() {
		_, _, reads := k.take("a", "100/d")
		require.NotZero(t, reads)
	}
	require.EqualValues(t, 91, warm().Remaining)

	// A refund of another process is seen after a minute, even if new buckets
	// were read meanwhile; a refund of this process at once.
	other.now = k.now
	require.NoError(t, other.Refund(ctx, &old))
	var mine counter.Verdict
	for range 70 {
		k.now = k.now.Add(time.Second)
		mine, _, _ = k.take("a", "1000/d, 1000/s")
	}
	require.EqualValues(t, 1000-5-3-70, mine.Remaining)
	warm()
	require.NoError(t, k.Refund(ctx, &mine))
	cold()

	// Nobody is denied by remembered counts.
	warm()
	other.now = k.now
	require.NoError(t, other.Forget(ctx, key))
	store.fault = func(op *backend.Request) (int, int, error) {
		if op.N < 0 {
			return 0, 0, errors.New("no answer to the taking back")
		}
		return 0, 0, nil
	}
	require.ErrorIs(t, try.Err(k.Take(ctx, key, 1, limits("2/d"))), counter.ErrStore)
	store.fault = nil
	k.now = k.now.Add(2 * time.Minute)
	require.NoError(t, other.Forget(ctx, key))
	warm()
	require.NoError(t, other.Forget(ctx, key))
	v, _, _ := k.take("a", "2/d")
	require.True(t, v.Allowed)

	// A Forget of this process is seen at once.
	k.now = k.now.Add(2 * time.Minute)
	warm()
	require.NoError(t, k.Forget(ctx, key))
	cold()
}

// A cover of hundreds of buckets is not remembered.
func TestLargeCoversAreNotRemembered(t *testing.T) {
	ladder := try.To(tiers.Parse("10s:1h"))(t)
	k := newTaking(t, newPlainStore(), counter.Config{Ladder: ladder})
	for _, row := range []struct {
		limits string
		read   bool
	}{{"100/20m", false}, {"100/h", true}} {
		k.now = k.now.Add(2 * time.Minute)
		for range 2 {
			k.take("a", row.limits)
		}
		_, _, reads := k.take("a", row.limits)
		require.Equal(t, row.read, reads > 0)
	}
}

// The memory of a process ends when its wall clock parts from the monotonic clock,
// and buckets that have just settled are not remembered at all.
func TestRememberedBucketsAndTheClock(t *testing.T) {
	start := time.Now()
	for name, row := range map[string]struct {
		now  time.Time
		read bool
	}{
		"a moment later":         {start.Add(50 * time.Second), false},
		"a little stepped":       {monotonicAhead(start, counter.DefaultSkew), false},
		"stepped forward":        {monotonicAhead(start.Add(time.Second), -time.Second), true},
		"stepped back":           {monotonicAhead(start, time.Second), true},
		"set back, one clock":    {start.Round(0).Add(-time.Second), true},
		"set back, but a little": {start.Round(0).Add(-50 * time.Millisecond), false},
		"more than a minute":     {start.Add(61 * time.Second), true},
	} {
		t.Run(name, func(t *testing.T) {
			k := newTaking(t, newPlainStore(), counter.Config{Settle: -1})
			// The labels keep to the middle of the hour.
			into := start.Round(0).Truncate(time.Hour).Add(30 * time.Minute).Sub(start.Round(0))
			shift := func(t time.Time) time.Time { return t.Add(into) }
			k.now = shift(start)
			k.take("a", "100/d")
			k.take("a", "100/d")
			_, _, reads := k.take("a", "100/d")
			require.Zero(t, reads)
			k.now = shift(row.now)
			_, _, reads = k.take("a", "100/d")
			require.Equal(t, row.read, reads > 0)
		})
	}
	k := newTaking(t, newPlainStore(), counter.Config{})
	k.now = halfPast.Truncate(time.Hour).Add(counter.DefaultSkew + counter.DefaultSettle)
	for range 3 {
		_, _, reads := k.take("a", "100/d")
		require.NotZero(t, reads)
	}
	k.now = k.now.Add(counter.DefaultSkew)
	for range 2 {
		k.take("a", "100/d")
	}
	_, _, reads := k.take("a", "100/d")
	require.Zero(t, reads)
}

// A clock that was set back, and has caught up since, shows no step: buckets that were
// settled before the step are not believed.
func TestRememberedBucketsOfAClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead time.Duration
		store, cfg := newPlainStore(), counter.Config{Now: func() time.Time { return time.Now().Add(ahead) }}
		admitted := func(c *counter.Counter, calls int) (n int) {
			for range calls {
				if take(t, c, signup, 1, limits("10/m")).Allowed {
					n++
				}
			}
			return n
		}
		one, other := newCounter(t, store, cfg), newCounter(t, store, cfg)
		time.Sleep(61 * time.Second) // the bubble begins with a minute
		require.Equal(t, 2, admitted(one, 2))
		ahead = -51 * time.Second
		require.Equal(t, 10, admitted(other, 10))
		time.Sleep(52 * time.Second)
		require.Zero(t, admitted(one, 10))
	})
}

// A store that has lost its order, for example since its server was replaced by a
// proxy, is not believed for the trip in which this shows.
func TestAStoreThatLosesItsOrder(t *testing.T) {
	plain := newPlainStore()
	plain.ordered = true
	var between func() // of the reads of a trip, which come first, and its additions
	store := backend.FromDo(func(ctx context.Context, op *backend.Request) error {
		then := between
		if then == nil || len(op.Add) == 0 {
			return plain.Do(ctx, op)
		}
		read, add := *op, *op
		read.Add, add.Read, between, plain.ordered = nil, nil, nil, false
		if err := plain.Do(ctx, &read); err != nil {
			return err
		}
		then()
		return plain.Do(ctx, &add)
	})
	now := halfPast.Truncate(time.Second).Add(20 * time.Millisecond)
	ahead := newCounter(t, store, counter.Config{Now: func() time.Time { return now }})
	behind := newCounter(t, store, counter.Config{Now: func() time.Time { return now.Add(-30 * time.Millisecond) }})
	limit := limits("1/2s")
	take(t, ahead, keyOf("other"), 1, limit)
	for _, into := range []time.Duration{20 * time.Millisecond, 950 * time.Millisecond} {
		now, plain.trips = halfPast.Truncate(time.Second).Add(into), 0
		take(t, ahead, keyOf("another"), 1, limits("5/2s"))
		require.Equal(t, 1, plain.trips, "unsettled buckets come with the first trip")
	}
	now = halfPast.Truncate(time.Second).Add(20 * time.Millisecond)
	between = func() { require.True(t, take(t, behind, signup, 1, limit).Allowed) }
	require.False(t, take(t, ahead, signup, 1, limit).Allowed)
}

// Near the end of a ticket bucket only hits of other processes may yet be undone.
// A process knows its own, those that came after a Refund too, and not those that a
// Forget has removed.
func TestOwnHitsAreWaitedFor(t *testing.T) {
	store, now := newPlainStore(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cfg := counter.Config{Now: func() time.Time {
		now = now.Add(time.Microsecond)
		return now
	}}
	one, other, eraser := newCounter(t, store, cfg), newCounter(t, store, cfg), newCounter(t, erasable{store}, cfg)
	five := limits("5/m")
	fill := func(c *counter.Counter, n int, key string) (v counter.Verdict) {
		for range n {
			v = take(t, c, keyOf(key), 1, five)
			require.True(t, v.Allowed)
		}
		return v
	}
	waits := func(c *counter.Counter, key string, long bool) {
		wait := take(t, c, keyOf(key), 1, five).RetryAfter
		require.Equal(t, long, wait > time.Minute)
		require.Equal(t, !long, wait <= counter.DefaultSkew+counter.DefaultSettle)
	}

	fill(one, 5, "lone")
	waits(one, "lone", true)
	waits(other, "lone", false)

	v := fill(one, 5, "refunded")
	require.NoError(t, one.Refund(ctx, &v))
	fill(other, 1, "refunded")
	waits(one, "refunded", false) // one hit is another's

	v = fill(one, 5, "given back and taken")
	require.NoError(t, one.Refund(ctx, &v))
	fill(one, 1, "given back and taken")
	waits(one, "given back and taken", true)

	fill(one, 5, "forgotten")
	require.NoError(t, one.Forget(ctx, keyOf("forgotten")))
	fill(other, 5, "forgotten")
	waits(one, "forgotten", false)

	fill(eraser, 5, "erased")
	require.NoError(t, eraser.Erase(ctx, keyOf("erased")))
	fill(other, 5, "erased")
	waits(eraser, "erased", false)

	require.NoError(t, one.Add(ctx, keyOf("added"), 2))
	require.True(t, try.To(one.Charge(ctx, keyOf("added"), 3, five))(t).Allowed)
	waits(one, "added", true)

	require.NoError(t, one.AddAt(ctx, keyOf("added at"), 5, now))
	waits(other, "added at", false)
	waits(one, "added at", true)
}

// erasable is a plainStore with a Forget of its own.
type erasable struct{ *plainStore }

func (s erasable) Forget(_ context.Context, r *backend.ForgetRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.buckets {
		if strings.HasPrefix(b.key, r.Key) {
			delete(s.buckets, b)
		}
	}
	return nil
}

func (erasable) Forgotten(context.Context, *backend.ForgetRequest) (int64, error) { return 0, nil }

// Hits can come into buckets that a Counter remembers as settled: by an AddAt, and by
// a Charge or an Add that is confirmed later than Settle. Every later Take of the
// process finds them, whichever Counter added them.
func TestEveryTakeOfTheProcessFindsHitsInSettledBuckets(t *testing.T) {
	const own, another, exact, laddered = "the Counter", "another Counter", "an exact Counter", "a Counter by With"
	adds := map[string]func(c *counter.Counter, now time.Time) error{
		"AddAt": func(c *counter.Counter, now time.Time) error { return c.AddAt(ctx, signup, 5, now.Add(-2*time.Hour)) },
		"Charge": func(c *counter.Counter, _ time.Time) error {
			_, err := c.Charge(ctx, signup, 5, limits("10/d"))
			return err
		},
		"Add": func(c *counter.Counter, _ time.Time) error { return c.Add(ctx, signup, 5) },
	}
	for name, add := range adds {
		for _, by := range []string{own, another, exact, laddered} {
			t.Run(name+" of "+by, func(t *testing.T) {
				clock := newClock(time.Date(2026, 3, 1, 11, 59, 50, 0, time.UTC))
				store, cfg := newPlainStore(), counter.Config{Now: clock.now, Patience: 20 * time.Second}
				c := newCounter(t, store, cfg)
				adder := c
				switch cfg.Exact = by == exact; by {
				case another, exact:
					adder = newCounter(t, store, cfg)
				case laddered:
					adder = must(c.With(tiers.Default, nil))
				}
				admitted := 0
				take := func(times int) {
					for range times {
						v := try.To(c.Take(ctx, signup, 1, limits("10/d")))(t)
						if v.Allowed {
							admitted++
						}
					}
				}
				take(3) // the key enters the memory
				clock.forward(9 * time.Second)
				if name != "AddAt" { // begins at 11:59:59, and is executed when the hour is remembered
					store.fault = func(op *backend.Request) (int, int, error) {
						if store.fault = nil; len(op.Add) > 0 {
							clock.forward(3 * time.Second)
							take(2)
						}
						return 0, 0, nil
					}
				}
				if err := add(adder, clock.now()); err != nil {
					require.ErrorIs(t, err, counter.ErrStore) // counted, and late
				}
				clock.forward(time.Second)
				take(20)
				require.LessOrEqual(t, admitted, 5)
			})
		}
	}
}

package counter_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/ticket"
)

// A Settle gives back at the label of the hits, charges at its own, happens once for all
// copies of a Verdict, and tells what remains then.
func TestSettle(t *testing.T) {
	onAll(t, `
		less: take 8 signup 10/h,100/d -> took *signup 10/h 2, signup 100/d 92
		later 10m
		w: settle less 3 -> took *signup 10/h 7, signup 100/d 97
		peek 0 signup 10/h,100/d -> yes *signup 10/h 7, signup 100/d 97
		count signup 5m 1h -> 0 3
		settle less 3 -> error settled or given back before
		settle w 2 -> error counter: Settle: the Verdict counts no hits, or they were settled or given back before
		refund less -> error settled or given back before
		refund w -> error counter: Refund: the Verdict counts no hits
		count signup 5m 1h -> 0 3

		same: take 2 signup 10/h -> took *signup 10/h 5
		settle same 2 -> took *signup 10/h 5
		settle same 2 -> error settled

		# More than there is room for is charged with a label of now, and denies until it has left.
		more: take 2 signup 10/h,100/d -> took *signup 10/h 3, signup 100/d 93
		later 10m
		w: settle more 9 -> took *signup 10/h 0 in 50m1s, signup 100/d 86
		count signup 5m 1h -> 7 14
		take 1 signup 10/h -> no *signup 10/h 0 in 50m1s
		later 55m
		peek 0 signup 10/h,100/d -> yes *signup 10/h 3, signup 100/d 86
		settle w 9 -> error settled
		refund more -> error settled

		# None at all are a refund, and nothing is left to settle or refund.
		none: take 3 user 5/h -> took *user 5/h 2
		w: settle none 0 -> yes *user 5/h 5
		count user 1h -> 0
		settle w 0 -> error settled
		settle w 1 -> error settled
		refund w -> error settled
		refund none -> error settled

		# Refunded or denied, and mistakes that change nothing.
		v: take 3 user 5/h -> took *user 5/h 2
		settle v -1 -> error counter: Settle: used is -1, want 0 to 9007199254740991
		settle v 9007199254740992 -> error counter: Settle: used is 9007199254740992, want 0 to 9007199254740991
		other.settle v 1 -> error counter: Settle: the Verdict is of another Counter
		short.settle v 1 -> took *user 5/h 4
		v: take 3 user 5/h -> took *user 5/h 1
		refund v
		settle v 3 -> error settled
		no: take 9 user 5/h -> no *user 5/h 5 never
		settle no 0 -> error counts no hits
		settle no 1 -> error counts no hits
		count user 1h -> 1

		# Of limits with nothing left the one that is over binds.
		v: take 2 tie 6/h,5/d -> took tie 6/h 4, *tie 5/d 3
		settle v 6 -> took tie 6/h 0, *tie 5/d 0 in 24h0m1s

		# The hits of a Charge that was over: it is no longer.
		v: charge 7 page 5/h -> over *page 5/h 0 in 1h0m1s
		w: settle v 4 -> took *page 5/h 1
		v: charge 3 page 5/h -> over *page 5/h 0 in 1h0m1s
		settle v 2 -> over *page 5/h 0 in 1h0m1s
		# After a Forget nothing is given back, and an excess counts.
		v: take 3 tab 5/h -> took *tab 5/h 2
		w: take 1 tab 5/h -> took *tab 5/h 1
		forget tab
		take 1 tab 5/h -> took *tab 5/h 4
		later 1m
		settle v 1 -> took *tab 5/h 4
		settle w 3 -> took *tab 5/h 2
	`)
}

// Of several keys those that counted N hits are settled, by all their ladders.
func TestSettleOfSeveralKeys(t *testing.T) {
	onAll(t, `
		let in 5 user 9/d; 5 tenant 20/m on=short; 1 page 3/d; 5 model 6/h charged; 0 look 4/d; 5 a 9/d soft; 5 b 4/d soft; 5 c 9/d shared
		let looks 0 user 9/d; 0 tenant 20/m on=short; 0 page 3/d; 0 model 6/h; 0 look 4/d; 0 a 9/d soft; 0 b 4/d soft; 0 c 9/d shared
		less: take in -> took user 9/d 4, tenant 20/m 15, *page 3/d 2, model 6/h 1, look 4/d 4, a 9/d 4, b 4/d 4 never, c 9/d 4
		settle less 2 -> took user 9/d 7, tenant 20/m 18, *page 3/d 2, model 6/h 4, look 4/d 4, a 9/d 7, b 4/d 4, c 9/d 7
		peek looks -> yes user 9/d 7, tenant 20/m 18, *page 3/d 2, model 6/h 4, look 4/d 4, a 9/d 7, b 4/d 4, c 9/d 7
		more: take in -> took user 9/d 2, tenant 20/m 13, *page 3/d 1, model 6/h 0 in 1h0m1s, look 4/d 4, a 9/d 2, b 4/d 4 never, c 9/d 2
		settle more 8 -> took *user 9/d 0 in 24h0m1s, tenant 20/m 10, page 3/d 1, model 6/h 0 in 1h0m1s, look 4/d 4, a 9/d 0 in 24h0m1s, b 4/d 4, c 9/d 0 in 24h0m1s
		peek looks -> no
		count user 1h -> 10
		count page 1h -> 2
		# The first key with hits says which.
		v: take 1 page 5/d; 5 tab 9/d -> took *page 5/d 2, tab 9/d 4
		settle v 2 -> took *page 5/d 1, tab 9/d 4
		v: take 2 alone 9/d soft -> took alone 9/d 7
		settle v 4 -> took alone 9/d 5
		v: take 2 alone 9/d soft -> took alone 9/d 3
		settle v 1 -> took alone 9/d 4
		# A charged key binds too.
		v: take 2 cost 3/h charged; 2 seat 9/d -> took cost 3/h 1, *seat 9/d 7
		settle v 6 -> took *cost 3/h 0 in 1h0m1s, seat 9/d 3
		v: charge 2 p 9/d; 2 q 5/h -> took p 9/d 7, *q 5/h 3
		settle v 4 -> took p 9/d 5, *q 5/h 1
		# A key that is given twice is settled as one.
		v: take 2 twice 9/d; 2 twice 8/h -> took twice 9/d 5, *twice 8/h 4
		settle v 1 -> took twice 9/d 8, *twice 8/h 7
		# Hits held are judged, and none of the settled.
		v: take 2 held 9/d held=3 -> took *held 9/d 4
		settle v 4 -> took *held 9/d 2
	`)
}

// Both ladders of a change have the settled hits.
func TestSettleByTheFormerLadder(t *testing.T) {
	onLadders(t, "1s:1h, 1m:1d", `
		v: both.take 5 user 9/d -> took *user 9/d 4
		both.settle v 2 -> took *user 9/d 7
		former+next.count user 1h -> 2 2
		v: both.take 2 user 9/d; 2 page 9/d soft -> took *user 9/d 5, page 9/d 7
		next.settle v 2 -> error of another Counter
		both.settle v 7 -> took *user 9/d 0, page 9/d 2
		former+next.count user 1h -> 9 9
		former.take 1 user 9/d -> no
	`)
}

// Of racing settlements and refunds of a Verdict one has an effect, and no refund says
// that it has given back what was settled.
func TestASettleRaces(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			c := newCounter(t, path.store(), newClock(noon).config())
			key := func(i int) counter.Key { return keyOf(strconv.Itoa(i)) }
			verdicts, errs := make([]counter.Verdict, 500), [6][500]error{}
			for i := range verdicts {
				verdicts[i] = take(t, c, key(i), 5, limits("100/d"))
			}
			ticket.SideBySide(len(errs), func(racer int) {
				for i, v := range verdicts {
					if racer < 2 {
						errs[racer][i] = c.Refund(ctx, &v)
					} else {
						errs[racer][i] = c.Settle(ctx, &v, int64(3+racer))
					}
				}
			})
			for i := range verdicts {
				var done []int
				for racer := range errs {
					if errs[racer][i] == nil {
						done = append(done, racer)
					} else {
						require.ErrorIs(t, errs[racer][i], counter.ErrSettled)
					}
				}
				want := 0
				switch {
				case len(done) == 1 && done[0] >= 2:
					want = 3 + done[0]
				default:
					require.NotEmpty(t, done)
					require.Less(t, done[len(done)-1], 2, "refunds alone")
				}
				require.EqualValues(t, want, must(c.Count(ctx, key(i), time.Hour)).High)
			}
		})
	}
}

// A Settle that the store fails, in whichever trip and with whichever part done, cannot be
// made again, and no window has less than the lesser number or more than the greater.
func TestASettleThatFails(t *testing.T) {
	broken := errors.New("connection refused")
	failed := 0
	for _, used := range []int64{2, 5, 8} {
		for at := range 24 { // the trip, and what is done of it
			store := newPlainStore()
			c := newCounter(t, store, newClock(noon).config())
			v := take(t, c, user, 5, limits("9/d"))
			gone, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, c.Settle(gone, &v, used), context.Canceled)
			trips := 0
			store.fault = func(op *backend.Request) (int, int, error) {
				if trips++; trips-1 < at/6 {
					return 0, 0, nil
				}
				made := [][2]int{{0, 0}, {1, 0}, {1, 1}, {2, 1}, {3, 2}, {3, 0}}[at%6]
				return min(made[0], len(op.Add)), min(made[1], len(op.Add)), broken
			}
			err := c.Settle(ctx, &v, used)
			store.fault = nil
			for _, per := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
				n := must(c.Count(ctx, user, per)).High
				require.True(t, min(5, used) <= n && n <= max(5, used), "%d of 5 and %d, trip %d", n, used, at)
				require.True(t, err != nil || n == used, "%d of 5 and %d, trip %d", n, used, at)
			}
			if err != nil {
				failed++
				require.ErrorIs(t, err, counter.ErrStore)
				require.ErrorIs(t, err, broken)
			}
			require.ErrorIs(t, c.Settle(ctx, &v, used), counter.ErrSettled)
			require.ErrorIs(t, c.Refund(ctx, &v), counter.ErrSettled)
		}
	}
	require.GreaterOrEqual(t, failed, 30)
}

// A soft key that fails fails no Settle, and is missing in the Verdict.
func TestASettleWithASoftKeyThatFails(t *testing.T) {
	store := newPlainStore()
	c := newCounter(t, store, newClock(noon).config())
	v := must(c.TakeAll(ctx, counter.Ask{Key: signup, N: 2, Limits: limits("9/d")}, counter.Ask{Key: signup, N: 2, Limits: limits("9/h"), Soft: true}))
	require.Len(t, v.All(), 2)
	store.fault = func(op *backend.Request) (made, answered int, err error) {
		if strings.Contains(op.Key, "~") {
			err = errors.New("down")
		}
		return 0, 0, err
	}
	require.NoError(t, c.Settle(ctx, &v, 7))
	require.Len(t, v.All(), 1)
	require.EqualValues(t, 2, v.Remaining)
}

// An excess that no bucket can hold is an error, and is not counted.
func TestAHugeSettle(t *testing.T) {
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			c := newCounter(t, path.store(), newClock(noon).config())
			v := take(t, c, user, 5, limits("9/d"))
			take(t, c, user, 1, limits("9/d"))
			require.ErrorIs(t, c.Settle(ctx, &v, counter.MaxCount), backend.ErrMaxCount)
			require.EqualValues(t, 6, must(c.Count(ctx, user, time.Hour)).High)
		})
	}
}

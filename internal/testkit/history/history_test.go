package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
)

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func TestValidHistoriesPass(t *testing.T) {
	t.Parallel()
	full, seen := int64(0), int64(0)
	var reasons [Reasons]int64
	for seed := range uint64(16) {
		r := check(atomicConfig, simulate(&atomicStore{rng: rng(seed)}, 4000))
		for _, f := range r.Findings {
			t.Errorf("seed %d: %s", seed, &f)
		}
		full, seen = full+r.Full, seen+r.Seen
		for i, n := range r.Reasons {
			reasons[i] += n
		}
	}
	require.Greater(t, full, int64(400), "windows are full")
	require.Greater(t, seen, int64(10000))
	require.Greater(t, reasons[Counted], int64(10000))
	require.Positive(t, reasons[Told], "failed hits that stayed are told apart")
	require.Zero(t, reasons[None])
}

// Each planted break is found by its rule, in a short history.
func TestBreaksAreFound(t *testing.T) {
	t.Parallel()
	for _, b := range []struct {
		name  string
		rule  int
		store func() *atomicStore
		spoil func(c *Call, rng *rand.Rand)
	}{
		{"every 50th addition is lost", 2, func() *atomicStore { return &atomicStore{forgetEvery: 50} }, nil},
		{"every 50th addition is lost, and counts show it", 3, func() *atomicStore { return &atomicStore{forgetEvery: 50} }, nil},
		{"windows are too short by skew and bucket", 2, func() *atomicStore { return &atomicStore{shorter: 2 * skew} }, nil},
		{"windows are too long", 4, func() *atomicStore { return &atomicStore{longer: 500 * time.Millisecond} }, nil},
		{"a label from before the call", 1, nil, func(c *Call, rng *rand.Rand) {
			if c.Label != 0 && rng.IntN(100) == 0 {
				c.Label = c.Lo - 1
			}
		}},
		{"a label that was never read", 1, nil, func(c *Call, rng *rand.Rand) {
			if c.Label != 0 && rng.IntN(100) == 0 {
				c.True = 0
			}
		}},
		{"a denial without a reason", 4, nil, func(c *Call, rng *rand.Rand) {
			if c.Outcome == Done && c.Kind == Peek {
				c.Outcome = Denied
			}
		}},
		{"a Count too low by one", 3, nil, func(c *Call, rng *rand.Rand) {
			if c.Kind == Count && c.Outcome == Done {
				c.High--
			}
		}},
		{"a Remaining too high by one", 3, nil, func(c *Call, rng *rand.Rand) {
			if c.Kind == Peek && c.Outcome == Done {
				c.Remaining[0]++
			}
		}},
		{"a Remaining of a Take too high by one", 3, nil, func(c *Call, rng *rand.Rand) {
			if c.Kind == Take && c.Outcome == Done {
				c.Remaining[0]++
			}
		}},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := &atomicStore{}
			if b.store != nil {
				s = b.store()
			}
			s.rng = rng(7)
			history := simulate(s, 12000)
			if b.spoil != nil {
				spoil := rng(8)
				for _, c := range history {
					b.spoil(c, spoil)
				}
			}
			r := check(atomicConfig, history)
			require.Positive(t, r.Bad)
			found := map[int]string{}
			for _, f := range r.Findings {
				found[f.Rule] = f.String()
			}
			require.Contains(t, found, b.rule)
			require.Contains(t, found[b.rule], "> ", "the story points at the call")
		})
	}
}

// take is an admitted Take of one, at an instant and with a label in milliseconds.
func take(id uint64, began, ended, label int64, limits string) *Call {
	return &Call{ID: id, Kind: Take, Outcome: Done, Began: began * ms, Ended: ended * ms, Lo: (began - 50) * ms, Hi: (ended + 50) * ms,
		Label: label * ms, True: max(began, min(ended, label)) * ms, N: 1, Asks: []Ask{{"k", counter.MustLimits(limits)}}}
}

// not is a call with another outcome than success, and so without a label.
func not(outcome Outcome, c *Call) *Call {
	c.Outcome, c.Label, c.True = outcome, 0, 0
	return c
}

// refund is a Refund of call 1, for ten milliseconds.
func refund(began int64, outcome Outcome) *Call {
	return &Call{ID: 9, Kind: Refund, Outcome: outcome, Began: began * ms, Ended: (began + 10) * ms, Of: 1, N: 1}
}

func forget(began, ended int64, outcome Outcome) *Call {
	return &Call{ID: 8, Kind: Forget, Outcome: outcome, Began: began * ms, Ended: ended * ms, Asks: []Ask{{Key: "k"}}}
}

// count is a Count of two seconds, for ten milliseconds, that finds nothing.
func count(began int64) *Call {
	return &Call{ID: 7, Kind: Count, Outcome: Done, Began: began * ms, Ended: (began + 10) * ms, Lo: began * ms, Hi: (began + 10) * ms,
		Asks: []Ask{{"k", counter.Limits{{Per: 2 * time.Second}}}}}
}

// A period ends by labels, by a clock that may be days from the true time.
func TestPeriodsToTheNanosecond(t *testing.T) {
	t.Parallel()
	const limit = "1 per day in UTC"
	end := 9 * 24 * time.Hour.Nanoseconds()
	cfg := atomicConfig
	cfg.Lives = 10 * time.Second
	for _, row := range []struct {
		a, b, over int64 // labels of two hits, from the end on
	}{{-2, -1, 1}, {-1, 0, 0}, {0, -1, 0}, {0, 1, 1}, {-int64(23 * time.Hour), -1, 1}, {-2, 5, 0}} {
		a, b := take(1, 1000, 1010, 1000, limit), take(2, 3000, 3010, 3000, limit)
		a.Label, b.Label = end+row.a, end+row.b
		a.Lo, a.Hi, b.Lo, b.Hi = a.Label-1, a.Label, b.Label-1, b.Label
		late := not(Denied, take(3, 4000, 4010, 0, limit))
		late.Lo, late.Hi = end+10, end+20
		r := check(cfg, []*Call{a, b, late})
		require.Equal(t, row.over, r.Over, "%+v", row)
		require.Equal(t, max(row.a, row.b) < 0, r.Reasons[None] > 0, "%+v: a hit of the day before is no reason", row)
	}
}

func TestWindowsToTheNanosecond(t *testing.T) {
	t.Parallel()
	a, b := take(1, 1000, 1010, 1000, "1/2s"), take(2, 3000, 3010, 3000, "1/2s")
	require.EqualValues(t, 2, check(atomicConfig, []*Call{a, b}).Over, "both ends of a window belong to it, on both axes")
	b.Label++
	b.True++
	require.Zero(t, check(atomicConfig, []*Call{a, b}).Over)
	b.True--
	require.EqualValues(t, 1, check(atomicConfig, []*Call{a, b}).Over, "true time alone")
}

func TestHitsUnderStricterLimitsCount(t *testing.T) {
	t.Parallel()
	calls := []*Call{take(1, 1000, 1010, 1000, "1/2s"), take(2, 1100, 1110, 1100, "2/2s"), take(3, 1200, 1210, 1200, "2/2s")}
	require.EqualValues(t, 2, check(atomicConfig, calls).Over, "2/2s holds three, one of them under 1/2s")
	calls[0].Asks[0].Limits = counter.MustLimits("1/1s")
	require.Zero(t, check(atomicConfig, calls).Over, "which is not stricter over two seconds")
	calls[0].Asks[0].Limits = counter.MustLimits("2/1m")
	require.EqualValues(t, 2, check(atomicConfig, calls).Over, "and this is")
	ticket := atomicConfig
	ticket.Ticket = true
	require.Zero(t, check(ticket, calls).Over, "by ticket each limit has a queue of its own")
}

func TestRefundedHitsCountUntilThen(t *testing.T) {
	t.Parallel()
	calls := []*Call{take(1, 1000, 1010, 1000, "1/2s"), take(2, 1500, 1510, 1500, "1/2s")}
	for _, outcome := range []Outcome{Open, Failed, Done} {
		require.Zero(t, check(atomicConfig, append(calls[:2:2], refund(1100, outcome))).Over)
		require.Zero(t, check(atomicConfig, append(calls[:2:2], refund(1505, outcome))).Over, "begun before the other was told")
		require.EqualValues(t, 2, check(atomicConfig, append(calls[:2:2], refund(1520, outcome))).Over, "too late to explain it")
	}
}

func TestForgottenHits(t *testing.T) {
	t.Parallel()
	calls := []*Call{take(1, 1000, 1010, 1000, "1/2s"), take(2, 1500, 1510, 1500, "1/2s")}
	over := func(f *Call) int64 { return check(atomicConfig, append(calls[:2:2], f)).Over }
	require.Zero(t, over(forget(1100, 1200, Done)))
	require.EqualValues(t, 2, over(forget(1520, 1530, Done)), "too late")
	require.EqualValues(t, 2, over(forget(900, 999, Done)), "too early")
	require.Zero(t, over(forget(900, 1005, Done)), "while the first was under way")
	require.Zero(t, over(forget(900, 910, Failed)), "one that failed may be done late")
	require.Zero(t, over(forget(900, 910, Open)))
}

// By ticket a call that is under way while the key is forgotten may take back
// what came after.
func TestCallsUnderWayWhileTheKeyIsForgotten(t *testing.T) {
	t.Parallel()
	ticket := atomicConfig
	ticket.Ticket = true
	forget, astride := forget(1100, 1110, Done), not(Denied, take(6, 1090, 1130, 1095, "1/2s"))
	after := []*Call{take(1, 1115, 1120, 1116, "1/2s"), take(2, 1500, 1510, 1500, "1/2s")}
	r := check(ticket, append(after[:2:2], forget, astride))
	require.Zero(t, r.Over)
	require.EqualValues(t, 2, r.HalfForgotten)
	require.Positive(t, check(ticket, append(after[:2:2], forget)).Over, "without the call")
	require.Positive(t, check(atomicConfig, append(after[:2:2], forget, astride)).Over, "with an atomic step")
	third := take(3, 1600, 1610, 1600, "1/2s")
	require.Positive(t, check(ticket, append(after[:2:2], forget, astride, third)).Over, "one for each call")

	count := count(1200)
	require.Zero(t, check(ticket, []*Call{after[0], forget, astride, count}).Unseen)
	require.EqualValues(t, 1, check(ticket, []*Call{after[0], forget, count}).Unseen)
	require.EqualValues(t, 1, check(atomicConfig, []*Call{after[0], forget, astride, count}).Unseen)
}

func TestLossesOfTheStore(t *testing.T) {
	t.Parallel()
	calls := []*Call{take(1, 1000, 1010, 1000, "1/2s"), take(2, 1500, 1510, 1500, "1/2s"), take(3, 2500, 2510, 2500, "1/2s")}
	loss := Fault{Name: "flush_all", From: 1200 * ms, To: 1300 * ms, Loses: Everything}
	r := check(atomicConfig, calls[:2], loss)
	require.Zero(t, r.Over)
	require.EqualValues(t, 2, r.LossyOver)
	require.Positive(t, r.Lossy)
	require.EqualValues(t, 2, check(atomicConfig, calls, loss).Over, "three for one loss: by labels and in true time")
	again := Fault{Name: "flush_all", From: 2000 * ms, To: 2100 * ms, Loses: Everything}
	require.Zero(t, check(atomicConfig, calls, loss, again).Over)
	pause := Fault{Name: "pause", From: 1200 * ms, To: 1300 * ms}
	require.Positive(t, check(atomicConfig, calls[:2], pause).Over)
}

// By ticket a call that is under way while the store is emptied may take back what
// came after.
func TestCallsUnderWayAtALoss(t *testing.T) {
	t.Parallel()
	ticket := atomicConfig
	ticket.Ticket = true
	loss := Fault{Name: "flush_all", From: 1100 * ms, To: 1110 * ms, Loses: Everything}
	astride := not(Denied, take(6, 1090, 1130, 1095, "1/2s"))
	calls := []*Call{take(1, 1000, 1010, 1005, "1/2s"), take(2, 1115, 1120, 1116, "1/2s"), take(3, 1500, 1510, 1500, "1/2s")}
	r := check(ticket, append(calls[:3:3], astride), loss)
	require.Zero(t, r.Over)
	require.EqualValues(t, 2, r.HalfForgotten)
	require.Positive(t, check(ticket, calls, loss).Over, "without the call")
	require.Positive(t, check(atomicConfig, append(calls[:3:3], astride), loss).Over, "with an atomic step")
	require.Positive(t, check(ticket, append(calls[:3:3], astride, take(4, 1600, 1610, 1600, "1/2s")), loss).Over, "one for each call")
}

// A failover loses the hits that the new master had not received, and no others.
func TestLossesOfTheLatestHits(t *testing.T) {
	t.Parallel()
	kept, lost, after := take(1, 1000, 1010, 1000, "2/2s"), take(2, 1200, 1210, 1200, "2/2s"), take(3, 1500, 1510, 1500, "2/2s")
	last, more := take(4, 1600, 1610, 1600, "2/2s"), take(5, 1700, 1710, 1700, "2/2s")
	failover := Fault{Name: "failover", Since: 1100 * ms, From: 1300 * ms, To: 1400 * ms, Loses: Latest}
	r := check(atomicConfig, []*Call{kept, lost, after}, failover)
	require.Zero(t, r.Over)
	require.EqualValues(t, 2, r.LossyOver, "three where two are allowed")
	require.Positive(t, check(atomicConfig, []*Call{kept, lost, after, last}, failover).Over, "one was kept")
	kept.Asks[0].Limits = counter.MustLimits("9/2s")
	require.Zero(t, check(atomicConfig, []*Call{kept, lost, after, last}, failover).Over, "twice Max")
	require.Positive(t, check(atomicConfig, []*Call{lost, after, last, more}, failover).Over, "more than twice Max")
	early := failover
	early.From, early.To = 1550*ms, 1560*ms
	require.Zero(t, check(atomicConfig, []*Call{kept, lost, after, last, more}, early).Bad, "the third was lost too")
	kept.Asks[0].Limits = counter.MustLimits("1/2s")
	require.Positive(t, check(atomicConfig, []*Call{kept, take(2, 1200, 1210, 1200, "1/2s"), after}, early).Over, "over before anything was lost")
	during := failover
	during.To = 1800 * ms
	single := []*Call{take(1, 1400, 1410, 1400, "1/2s"), take(2, 1500, 1510, 1500, "1/2s"), take(3, 1600, 1610, 1600, "1/2s")}
	require.Zero(t, check(atomicConfig, single[:2], during).Over, "twice Max, and each may be lost")
	require.Positive(t, check(atomicConfig, single, during).Over, "more than twice Max, though each may be lost")
	before := Fault{Name: "failover", Since: 700 * ms, From: 800 * ms, To: 900 * ms, Loses: Latest}
	require.Positive(t, check(atomicConfig, []*Call{lost, after, last, more}, before).Over, "nothing of the window was lost")

	count := count(1600)
	require.EqualValues(t, 1, check(atomicConfig, []*Call{take(1, 1000, 1010, 1000, "9/2s"), lost, count}, failover).Unseen, "one was kept")
	require.Zero(t, check(atomicConfig, []*Call{lost, count}, failover).Unseen)
}

// A full server evicts a bucket: the hits with labels in the bucket are lost, and no
// others.
func TestLossesOfABucket(t *testing.T) {
	t.Parallel()
	calls := []*Call{take(1, 1000, 1010, 1005, "1/2s"), take(2, 1500, 1510, 1500, "1/2s")}
	evicted := Fault{Name: "evicted", From: 1300 * ms, To: 1301 * ms, Loses: Bucket, Bucket: [2]int64{1000 * ms, 1100 * ms}}
	r := check(atomicConfig, calls, evicted)
	require.Zero(t, r.Over)
	require.EqualValues(t, 2, r.LossyOver)
	third := take(3, 1600, 1610, 1600, "1/2s")
	require.Positive(t, check(atomicConfig, append(calls, third), evicted).Over)
	for _, bucket := range [][2]int64{{900 * ms, 1005 * ms}, {1005*ms + 1, 1100 * ms}} {
		other := evicted
		other.Bucket = bucket
		require.EqualValues(t, 2, check(atomicConfig, calls, other).Over, "of another bucket")
	}
	late := evicted
	late.From, late.To = 1520*ms, 1521*ms
	require.Positive(t, check(atomicConfig, calls, late).Over, "over before the bucket was lost")
}

// A part of a key is lost: what is left may count longer.
func TestLossesOfParts(t *testing.T) {
	t.Parallel()
	denied := not(Denied, take(5, 2900, 2910, 0, "1/2s"))
	evicted := Fault{Name: "evicted", From: 1300 * ms, To: 1301 * ms, Loses: Everything, Parts: true}
	r := check(atomicConfig, []*Call{denied}, evicted)
	require.Zero(t, r.Bad)
	require.EqualValues(t, 1, r.Left)
	require.EqualValues(t, 1, check(atomicConfig, []*Call{take(1, 1500, 1510, 1500, "1/2s"), denied}, evicted).Reasons[Counted])
	evicted.Parts = false
	require.EqualValues(t, 1, check(atomicConfig, []*Call{denied}, evicted).Reasons[None])
	evicted.Parts, evicted.From, evicted.To = true, 2950*ms, 2960*ms
	require.EqualValues(t, 1, check(atomicConfig, []*Call{denied}, evicted).Reasons[None], "lost later")
}

// A Refund that is lost leaves its hit; a Refund of a hit that is lost may take
// another.
func TestLossesOfRefunds(t *testing.T) {
	t.Parallel()
	failover := Fault{Name: "failover", Since: 1100 * ms, From: 1300 * ms, To: 1400 * ms, Loses: Latest}
	denied := not(Denied, take(5, 2900, 2910, 0, "1/2s"))
	reasons := func(f Fault, calls ...*Call) [Reasons]int64 {
		return check(atomicConfig, append(calls, denied), f).Reasons
	}
	hit := take(1, 1000, 1010, 1000, "1/2s")
	require.EqualValues(t, 1, reasons(failover, hit, refund(1200, Done))[Counted], "the Refund may be lost")
	require.EqualValues(t, 1, reasons(failover, hit, refund(1450, Done))[None], "the Refund came later")
	require.EqualValues(t, 1, reasons(failover, hit, forget(1200, 1210, Done))[Counted])
	require.EqualValues(t, 1, reasons(failover, hit, forget(1450, 1460, Done))[None])
	moved := Fault{Name: "moved", From: 1300 * ms, To: 1400 * ms, Loses: Moved}
	require.EqualValues(t, 1, reasons(moved, hit, forget(1200, 1210, Done))[Counted], "another server may have the hit")
	require.EqualValues(t, 1, reasons(moved, hit, forget(1450, 1460, Done))[None])
	require.EqualValues(t, 1, reasons(moved, hit, refund(1200, Done))[None])

	lost := take(1, 1150, 1160, 1150, "1/2s")
	others := []*Call{take(2, 1500, 1510, 1500, "1/2s"), take(3, 1600, 1610, 1600, "1/2s")}
	require.Positive(t, check(atomicConfig, append(others[:2:2], lost), failover).Over)
	r := check(atomicConfig, append(others[:2:2], lost, refund(1550, Done)), failover)
	require.Zero(t, r.Over)
	require.Positive(t, r.HalfForgotten)
}

func TestLossesOfSomeKeys(t *testing.T) {
	t.Parallel()
	calls := []*Call{take(1, 1000, 1010, 1000, "1/2s"), take(2, 1500, 1510, 1500, "1/2s")}
	for _, loses := range []Loss{Everything, Moved, Latest} {
		loss := Fault{Name: "one of three", From: 1200 * ms, To: 1300 * ms, Loses: loses, Keys: func(key string) bool { return key == "k" }}
		require.Zero(t, check(atomicConfig, calls, loss).Over)
		loss.Keys = func(key string) bool { return key != "k" }
		require.EqualValues(t, 2, check(atomicConfig, calls, loss).Over)
	}
}

func TestClocksBeyondTheSkewAreJudgedApart(t *testing.T) {
	t.Parallel()
	calls := []*Call{take(1, 1000, 1010, 1000, "1/2s"), take(2, 1500, 1510, 1500, "1/2s")}
	calls[0].Beyond = true
	r := check(atomicConfig, calls)
	require.Zero(t, r.Bad)
	require.EqualValues(t, 2, r.BeyondOver)
	require.Positive(t, r.BeyondSeen)
}

func TestReasonsOfADenial(t *testing.T) {
	t.Parallel()
	ticket := atomicConfig
	ticket.Ticket, ticket.Settle, ticket.Remember = true, 250*time.Millisecond, time.Second
	denied := not(Denied, take(5, 3000, 3010, 0, "1/2s"))
	other := func(outcome Outcome, began, ended int64) *Call {
		c := take(1, began, ended, began, "1/2s")
		if outcome == Done {
			return c
		}
		return not(outcome, c)
	}
	severed := Fault{Name: "cut", From: 2000 * ms, To: 2100 * ms, Severs: true}
	for _, c := range []struct {
		name string
		cfg  Config
		all  []*Call
		with []Fault
		want Reason
	}{
		{"nothing", ticket, nil, nil, None},
		{"admitted", ticket, []*Call{other(Done, 1500, 1510)}, nil, Counted},
		{"admitted, at the edge of the bucket and the skew", ticket, []*Call{other(Done, 800, 810)}, nil, Counted},
		{"admitted, further away", ticket, []*Call{other(Done, 700, 710)}, nil, None},
		{"under way", ticket, []*Call{other(Denied, 2990, 3020)}, nil, UnderWay},
		{"under way, with an atomic step", atomicConfig, []*Call{other(Denied, 2990, 3020)}, nil, None},
		{"remembered", ticket, []*Call{other(Denied, 2500, 2510)}, nil, Remembered},
		{"denied too long ago", ticket, []*Call{other(Denied, 1900, 1910)}, nil, None},
		{"denied long ago, taken back on a connection that was cut", ticket, []*Call{other(Denied, 1900, 2010)}, []Fault{severed}, Severed},
		{"failed, connection cut", ticket, []*Call{other(Failed, 1900, 2010)}, []Fault{severed}, Severed},
		{"killed", ticket, []*Call{other(Open, 1900, 2010)}, nil, Severed},
		{"failed", ticket, []*Call{other(Failed, 1900, 2010)}, nil, Told},
		{"failed too long ago", ticket, []*Call{other(Failed, 600, 650)}, nil, None},
		{"refunded long ago", ticket, []*Call{other(Done, 1500, 1510), refund(1600, Done)}, nil, None},
		{"refunded lately", ticket, []*Call{other(Done, 1500, 1510), refund(2600, Done)}, nil, Remembered},
		{"refunded long ago, shortly after the key was forgotten", ticket, []*Call{forget(1400, 1410, Done), other(Done, 1500, 1510), refund(1600, Done)}, nil, Counted},
		{"refunded without success", ticket, []*Call{other(Done, 1500, 1510), refund(1600, Failed)}, nil, Counted},
	} {
		r := check(c.cfg, append(c.all, denied), c.with...)
		var want [Reasons]int64
		want[c.want]++
		for _, call := range c.all {
			if call.Outcome == Denied { // no reason but the other call, if the two meet
				if c.cfg.Ticket && call.Ended > denied.Began {
					want[UnderWay]++
				} else {
					want[None]++
				}
			}
		}
		require.Equal(t, want, r.Reasons, c.name)
	}
}

// In a Cluster a denied call of several keys has added to those it was not denied
// for, and takes back.
func TestADeniedCallOfSeveralKeysIsAReason(t *testing.T) {
	t.Parallel()
	denied, other := not(Denied, take(5, 3000, 3010, 0, "1/2s")), not(Denied, take(1, 2900, 3100, 0, "1/2s"))
	other.Asks = append(other.Asks, Ask{Key: "another", Limits: other.Asks[0].Limits})
	require.EqualValues(t, 2, check(atomicConfig, []*Call{denied, other}).Reasons[None])
	apart := atomicConfig
	apart.Apart = true
	require.EqualValues(t, 1, check(apart, []*Call{denied, other}).Reasons[UnderWay])
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	c := New(atomicConfig, &Report{})
	for i := range uint64(20000) {
		at := int64(i) * 100
		call := take(i+1, at, at+10, at, "50/2s")
		call.Asks[0].Key = fmt.Sprint("k", i/1000)
		c.Call(call)
		if i%100 == 0 {
			c.Advance(at * ms)
		}
	}
	c.Advance(20000 * 100 * ms)
	require.LessOrEqual(t, len(c.keys), 3)
	require.Less(t, len(c.takes), 2000)
	require.Empty(t, c.waiting)
	for _, k := range c.keys {
		require.Less(t, len(k.calls), 1000)
		for _, l := range k.lines {
			require.Less(t, len(l[0]), 1000)
		}
	}
}

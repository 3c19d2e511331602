package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/tiers"
)

// keysDiffer makes the same random calls on the store and in memory.
func keysDiffer(s *subject) {
	now := noon
	cfg := counter.Config{Now: func() time.Time { return now }, Skew: -1, Settle: -1, Patience: -1, Exact: true}
	var d twins
	d.on[0] = laddersOn(s.counter("differ", cfg))
	d.on[1] = laddersOn(value(counter.New(memory.New(memory.Config{}), cfg)))
	for range 300 / s.thrift {
		now = now.Add(time.Second + time.Duration(s.rand.Int64N(int64(20*time.Second))))
		after(&d.said, func() { d.call(s, now) })
	}
}

// creditsRace gives back more hits than there are, while others are counted.
func creditsRace(s *subject) {
	const before, givers, each, takers = 3, 4, 2, 2
	now := noon
	c := s.counter("credits", counter.Config{Now: func() time.Time { return now }, Skew: -1, Settle: enough, Patience: enough})
	ctx, limits := context.Background(), counter.MustLimits("5/m, 5/d")
	for round := range 60 / s.thrift {
		key := counter.Key{Event: "credit", Feature: fmt.Sprint(round)}
		must(c.Add(ctx, key, before))
		var admitted atomic.Int64
		together(givers+takers, func(i int) {
			if i < givers {
				value(c.Charge(ctx, key, -each, limits))
			} else if value(c.Take(ctx, key, 1, limits)).Allowed {
				admitted.Add(1)
			}
		})
		for _, window := range []time.Duration{30 * time.Second, time.Hour} {
			n := value(c.Count(ctx, key, window))
			if most := before + admitted.Load(); n.High < max(0, most-givers*each) || n.Low > most {
				failf("%d hits, up to %d given back, and %+v are counted in %s", most, givers*each, n, window)
			}
		}
	}
}

// settlesRace takes estimates and settles each twice at once, for as much or less.
func settlesRace(s *subject) {
	const racers, places, estimate = 12, 31, 5
	c := s.counter("settle", counter.Config{Settle: enough, Patience: enough})
	ctx := context.Background()
	for round := range 20 / s.thrift {
		asks := []counter.Ask{{Key: counter.Key{Event: "settle", Feature: fmt.Sprint(round)}, N: estimate, Limits: counter.Limits{{Max: places, Per: time.Hour}, {Max: places + 5, Per: 24 * time.Hour}}},
			{Key: counter.Key{Event: "settle", Feature: fmt.Sprint("call", round)}, N: 1, Limits: counter.MustLimits("100/d")}}
		var used, calls atomic.Int64
		together(racers, func(i int) {
			for j := range 20 { // a store that counts too little would never deny
				v := value(c.TakeAll(ctx, asks...))
				if !v.Allowed {
					return
				}
				copied, n := v, int64((i+j)%(estimate+1))
				var errs [2]error
				together(2, func(twin int) { errs[twin] = c.Settle(ctx, []*counter.Verdict{&v, &copied}[twin], n) })
				if won := slices.Index(errs[:], nil); won < 0 || !errors.Is(errs[1-won], counter.ErrSettled) {
					failf("of two settlements of a verdict both succeed, or none: %v", errs)
				}
				calls.Add(1)
				used.Add(n)
			}
		})
		for _, want := range []struct {
			key  counter.Key
			most int64
			n    *atomic.Int64
		}{{asks[0].Key, places, &used}, {asks[1].Key, 100, &calls}} {
			for _, per := range []time.Duration{time.Hour, 24 * time.Hour} {
				if got := value(c.Count(ctx, want.key, per)); got.High != want.n.Load() || got.High > want.most {
					failf("%+v counted of %s, want the %d that were settled, %d at most", got, want.key.Feature, want.n.Load(), want.most)
				}
			}
		}
		asks[0].Limits[0].Max, asks[0].Limits[1].Max = 2*places, 90*places
		v := value(c.TakeAll(ctx, asks...))
		must(c.Settle(ctx, &v, 3*places))
		if s, now := v.All(), value(c.PeekAll(ctx, counter.Ask{Key: asks[0].Key, Limits: asks[0].Limits})).All(); s[0].Remaining != 0 || s[0].RetryAfter <= 0 || s[1].Remaining != now[1].Remaining {
			failf("after an excess: %+v, a Peek answers %+v", s, now)
		}
	}
}

// laddersOn are the ladders on a store: the default, a short one, and the short one
// as the successor of the default.
func laddersOn(c *counter.Counter) [3]*counter.Counter {
	short := parse.Ladder("1s:10m, 1m:10m")
	return [3]*counter.Counter{c, value(c.With(short, nil)), value(c.With(short, &counter.Config{Ladder: tiers.Default}))}
}

// twins are Counters on a store and in memory that are called alike.
type twins struct {
	on       [2][3]*counter.Counter // on the store and in memory, by ladder
	said     []string
	verdicts [][2]counter.Verdict
}

// call makes a random call, and compares the two answers and what is counted
// afterwards.
func (d *twins) call(s *subject, now time.Time) {
	verb := []string{"take", "take", "take", "take", "peek", "charge", "credit", "refund", "settle", "forget", "up to"}[s.rand.IntN(11)]
	say := func(format string, args ...any) { d.said = append(d.said, fmt.Sprintf(format, args...)) }
	var asks [2][]counter.Ask
	most := 1 + s.rand.Int64N(6)
	for range 1 + s.rand.IntN(3) {
		ask := randomAsk(s)
		if verb == "credit" {
			ask.N = -1 - ask.N
		}
		if verb == "up to" && ask.N > 0 {
			ask.N, ask.UpTo = most, true
		}
		ladder := s.rand.IntN(3)
		for i := range d.on {
			ask.On = d.on[i][ladder]
			asks[i] = append(asks[i], ask)
		}
		say("%v %s %s %d under %s soft %v shared %v charge %v ladder %d", now.Sub(noon), verb, ask.Key.Feature, ask.N, ask.Limits, ask.Soft, ask.Shared, ask.Charge, ladder)
	}
	var of [2]*counter.Verdict
	if (verb == "refund" || verb == "settle") && len(d.verdicts) > 0 {
		copied := d.verdicts[s.rand.IntN(len(d.verdicts))]
		of = [2]*counter.Verdict{&copied[0], &copied[1]}
		say("   of %v", copied[0].At().Sub(noon))
	}
	var got [2]counter.Verdict
	var errs [2]error
	for i := range d.on {
		got[i], errs[i] = oneOf(d.on[i][0], verb, asks[i], of[i])
	}
	if (errs[0] == nil) != (errs[1] == nil) || errs[0] != nil && errs[0].Error() != errs[1].Error() {
		failf("the error is %v, in memory %v", errs[0], errs[1])
	}
	if errs[0] != nil {
		return // the caller's mistake
	}
	if a, b := inWords(&got[0]), inWords(&got[1]); a != b {
		failf("the verdict is %s, in memory %s", a, b)
	}
	if d.verdicts = append(d.verdicts, got); verb == "credit" {
		d.verdicts = nil // their hits may have been given back
	}
	d.compareCounts()
}

func randomAsk(s *subject) counter.Ask {
	soft, scarce := s.rand.IntN(4) == 0, int64(8)
	if soft {
		scarce = 3 // what has no room must be seen, of the few calls that are admitted
	}
	return counter.Ask{Key: counter.Key{Event: "differ", Feature: fmt.Sprint(s.rand.IntN(3))}, N: s.rand.Int64N(3),
		Soft: soft, Shared: s.rand.IntN(3) == 0, Charge: s.rand.IntN(5) == 0,
		Limits: counter.Limits{{Max: s.rand.Int64N(scarce), Per: time.Minute}, {Max: scarce/2 + s.rand.Int64N(12), Per: 10 * time.Minute}}[s.rand.IntN(2):]}
}

// oneOf makes one call of twins; of is the verdict that is refunded or settled, if any.
func oneOf(on *counter.Counter, verb string, asks []counter.Ask, of *counter.Verdict) (v counter.Verdict, err error) {
	ctx := context.Background()
	switch verb {
	case "take", "up to":
		v, err = on.TakeAll(ctx, asks...)
	case "peek":
		v, err = on.PeekAll(ctx, asks...)
	case "charge", "credit":
		v, err = on.ChargeAll(ctx, asks...)
	case "refund":
		if of != nil {
			err = on.Refund(ctx, of)
		}
	case "settle":
		if of != nil {
			err = on.Settle(ctx, of, asks[0].N*2)
			v = *of
		}
	case "forget":
		err = asks[0].On.Forget(ctx, asks[0].Key)
	}
	return v, err
}

// compareCounts compares what the store and the memory count, of each key and
// ladder.
func (d *twins) compareCounts() {
	for f := range 3 {
		for h := range 3 {
			var counts [2]counter.Count
			for i := range d.on {
				counts[i] = value(d.on[i][h].Count(context.Background(), counter.Key{Event: "differ", Feature: fmt.Sprint(f)}, 10*time.Minute))
			}
			if counts[0] != counts[1] {
				failf("key %d ladder %d: %v are counted, in memory %v", f, h, counts[0], counts[1])
			}
		}
	}
}

// inWords are the parts of a verdict in which stores with and without an atomic
// step agree: of a denied call, soft keys may not have been judged, and keys that
// were taken and given back tell a later ResetAfter.
func inWords(v *counter.Verdict) string {
	words := fmt.Sprintf("allowed %v %d %v %v %d %v", v.Allowed, v.N(), v.Key, v.Limit, v.Remaining, v.RetryAfter)
	for _, s := range v.All() {
		if v.Allowed || !s.Soft {
			words += fmt.Sprintf("; %d %v %v %d %v %v", s.Ask, s.Key, s.Limit, s.Remaining, s.RetryAfter, s.Soft)
		}
		if v.Allowed {
			words += fmt.Sprintf(" %v", s.ResetAfter)
		}
	}
	return words
}

// changeOfLadder replaces processes, forwards or with a step back, under demand that
// comes at random and as soon as a RetryAfter allows.
func changeOfLadder(s *subject) {
	const per, most = 10 * time.Minute, 5
	limits := counter.Limits{{Max: most, Per: per}}
	for round := range 8 / s.thrift {
		now, old := noon, parse.Ladder("1s:1h, 1m:1h")
		on := func(l tiers.Ladder, former *counter.Config) *counter.Counter {
			return s.counter(fmt.Sprint("ladder", round), counter.Config{Ladder: l, Former: former, Now: func() time.Time { return now }, Skew: -1, Patience: enough})
		}
		fleet := map[string]*counter.Counter{"former": on(old, nil), "both": on(tiers.Default, &counter.Config{Ladder: old}), "new": on(tiers.Default, nil)}
		phases := []string{"former", "former both", "both", "both new", "new"}
		if round%2 == 1 {
			phases = []string{"former", "former both", "former", "former both", "both", "both new", "both", "former both"}
		}
		var admitted []time.Time
		var said []string
		for _, phase := range phases {
			kinds, began := strings.Fields(phase), now
			// A single kind runs until all hits of the kind that has gone are older than Per.
			for calls := 0; calls < 25 || len(kinds) == 1 && now.Sub(began) <= per; calls++ {
				kind := kinds[s.rand.IntN(len(kinds))]
				v := value(fleet[kind].Take(context.Background(), counter.Key{Event: "ladder", Feature: "x"}, 1, limits))
				said = append(said, fmt.Sprintf("%v %s allowed %v", now.Sub(noon), kind, v.Allowed))
				if v.Allowed {
					first := slices.IndexFunc(admitted, func(at time.Time) bool { return now.Sub(at) < per })
					if admitted = append(admitted, now); first >= 0 && len(admitted)-first > most {
						failf("%d of %d admitted in %s:\n%s", len(admitted)-first, most, per, strings.Join(said, "\n"))
					}
				} else if v.RetryAfter < per && s.rand.IntN(4) == 0 {
					now = now.Add(v.RetryAfter)
				}
				now = now.Add(time.Duration(s.rand.Int64N(int64(40 * time.Second))))
			}
		}
		if len(admitted) < 3*most {
			failf("%d admitted in a round of %s", len(admitted), now.Sub(noon))
		}
	}
}

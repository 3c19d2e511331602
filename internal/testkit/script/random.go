package script

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Random makes a script of about n calls on a few keys under a few limits that
// crowd them. Time goes on in steps of every size, often to just before, at or
// after the edge of a bucket or of a period, and callers' clocks are apart by skew. One script of
// three is longer and about one user who comes at an even pace and stays away for
// longer than a tier is kept, again and again. The first hits of every other key
// are backdated, further than the finest tier is kept.
func Random(r *rand.Rand, ladder tiers.Ladder, skew, settle time.Duration, n int) Script {
	s := Script{Ladder: ladder, Skew: skew, Settle: settle}
	g := generator{r: r, ladder: ladder, skew: skew, longest: ladder.At(ladder.Len() - 1).Keep,
		keys: []counter.Key{{Event: "a", Feature: "x"}, {Event: "a", Feature: "y"}, {Event: "b", Feature: "x"}}, usual: map[counter.Key]counter.Limits{}}
	for _, w := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 5 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour} {
		if _, err := ladder.Finest(w); err == nil {
			g.windows = append(g.windows, w)
		}
	}
	for _, i := range r.Perm(len(calendar)) { // few, whose ends matter to many calls
		p, err := tiers.ParsePeriod(calendar[i])
		if err == nil && len(g.periods) < 2 && (counter.Limits{{Period: p}}).Check(ladder) == nil {
			g.periods = append(g.periods, p)
		}
	}
	for _, k := range g.keys {
		g.usual[k] = g.limits()
	}
	if r.IntN(3) == 0 {
		g.keepPace()
		n *= 3
	}
	s.Calls = g.backdated()
	for len(s.Calls) < n {
		g.wait()
		if c, ok := g.call(len(s.Calls)); ok {
			s.Calls = append(s.Calls, c)
		}
	}
	return s
}

// calendar are periods that begin with a bucket of a day, an hour, half an hour and a
// quarter of an hour.
var calendar = []string{"day in UTC", "day in Asia/Kolkata", "day in Pacific/Chatham", "week in UTC", "week in Europe/Berlin",
	"month in Asia/Tehran", "month from 31 in America/St_Johns", "month in UTC"}

// generator makes the calls of a script.
type generator struct {
	r       *rand.Rand
	ladder  tiers.Ladder
	skew    time.Duration   // of the callers' clocks
	longest time.Duration   // that a tier is kept
	windows []time.Duration // that the ladder can count
	periods []tiers.Period  // that the ladder can count
	keys    []counter.Key
	usual   map[counter.Key]counter.Limits
	now     int64 // after [Start]

	pace  int64 // the time between two calls of the user with an even pace; 0: no such user
	visit int   // calls of this user that are left before a pause

	credited int // the first call that may be refunded: earlier hits may have been given back by a credit
}

func (g *generator) window() time.Duration { return g.windows[g.r.IntN(len(g.windows))] }

func (g *generator) tier() tiers.Tier { return g.ladder.At(g.r.IntN(g.ladder.Len())) }

func (g *generator) limits() (l counter.Limits) {
	for range 1 + g.r.IntN(3) {
		limit := counter.Limit{Max: int64(1 + g.r.IntN(12)), Per: g.window()}
		if n := len(g.periods); n > 0 && g.r.IntN(3) == 0 {
			limit.Per, limit.Period = 0, g.periods[g.r.IntN(n)]
		}
		l = append(l, limit)
	}
	return l
}

func (g *generator) ask() counter.Ask {
	k := g.keys[g.r.IntN(len(g.keys))]
	if g.pace > 0 && g.r.IntN(8) > 0 {
		k = g.keys[0]
	}
	if g.r.IntN(5) == 0 {
		return counter.Ask{Key: k, Limits: g.limits()}
	}
	return counter.Ask{Key: k, Limits: g.usual[k]}
}

// keepPace makes the first key the key of a user who comes at an even pace.
func (g *generator) keepPace() {
	per := g.window()
	g.pace = int64(per) / (8 + g.r.Int64N(40))
	limits := append(counter.Limits{{Max: int64(4 + g.r.IntN(40)), Per: per}}, g.limits()[1:]...)
	for i := range limits {
		limits[i].Max *= 4
	}
	g.usual[g.keys[0]] = limits
}

// backdated returns hits that are older than the finest tier is kept.
func (g *generator) backdated() (calls []Call) {
	finest := g.ladder.At(0).Keep
	for i, k := range g.keys {
		hits := g.r.IntN(2) * g.r.IntN(4)
		if i == 0 && g.pace > 0 {
			hits *= 8
		}
		for range hits {
			oldest := max(1, int64(g.longest-finest))
			calls = append(calls, Call{At: g.now, Verb: "addat", N: 1 + g.r.Int64N(3), Asks: []counter.Ask{{Key: k}}, Back: finest + time.Duration(g.r.Int64N(oldest))})
		}
	}
	return calls
}

// wait lets time go on to the next call.
func (g *generator) wait() {
	r := g.r
	switch step := r.IntN(8); {
	case g.pace > 0 && g.visit > 0:
		g.now += g.pace/2 + r.Int64N(g.pace+1)
		g.visit--
	case g.pace > 0:
		g.now += int64(g.tier().Keep)/8*(8+r.Int64N(3)) + int64(g.longest)/64*r.Int64N(3)
		g.visit = 20 + r.IntN(60)
	case step == 0: // to an edge, or near it
		w := g.tier().Width
		next := (tiers.Index(Start.UnixNano()+g.now, w)+1)*int64(w) - Start.UnixNano()
		if n := len(g.periods); n > 0 && r.IntN(2) == 0 {
			_, end := g.periods[r.IntN(n)].Span(Start.UnixNano() + g.now)
			next = end - Start.UnixNano()
		}
		g.now = max(g.now, next+int64(r.IntN(3)-1)*int64(r.IntN(2)*int(time.Millisecond)))
	case step == 1: // out of a window, or nearly
		g.now += max(0, int64(g.window())-int64(r.IntN(2))*int64(time.Second))
	case step <= 3:
		g.now += r.Int64N(int64(g.window())/4 + 1)
	case step <= 5:
		g.now += r.Int64N(int64(2 * time.Second))
	}
}

// call makes a call that may follow after the given number of calls, if there is one.
func (g *generator) call(after int) (c Call, ok bool) {
	r := g.r
	c = Call{At: g.now, Verb: "take", N: 1 + int64(r.IntN(4)/3*r.IntN(12)), Asks: []counter.Ask{g.ask()}}
	if g.skew > 0 {
		c.At += r.Int64N(int64(g.skew) + 1)
	}
	several := func() {
		for range 1 + r.IntN(3)/2 {
			c.Asks = append(c.Asks, g.ask())
		}
	}
	verb := r.IntN(24)
	if g.pace > 0 && r.IntN(2) == 0 {
		verb = 23 // a take
	}
	switch verb {
	case 0, 1:
		if c.Verb = "peek"; r.IntN(3) == 0 {
			several()
		}
	case 2, 3, 4:
		c.Verb = "takeall"
		several()
		last := &c.Asks[len(c.Asks)-1]
		same := func(a counter.Ask) bool { return a.Key == last.Key }
		last.Charge = r.IntN(3) == 0 && !slices.ContainsFunc(c.Asks[:len(c.Asks)-1], same)
	case 5:
		c.Verb, c.Asks[0].Limits = "add", nil
	case 6, 7:
		c.Verb, c.N, c.Window, c.Asks[0].Limits = "count", 0, g.window(), nil
	case 8, 9, 10:
		if after == g.credited {
			return c, false
		}
		c.Verb, c.N, c.Asks = "refund", int64(after-1-r.IntN(min(after-g.credited, 6))), nil
		if r.IntN(2) == 0 {
			c.Verb, c.Used = "settle", r.Int64N(14)
		}
	case 11, 12:
		c.Verb, c.Back, c.Asks[0].Limits = "addat", g.age(), nil
	case 13:
		if r.IntN(4) > 0 {
			return c, false
		}
		c.Verb, c.N, c.Asks[0].Limits = "forget", 0, nil
	case 14, 15:
		if c.Verb = "charge"; r.IntN(3) == 0 {
			several()
		}
		if r.IntN(6) == 0 {
			c.N, g.credited = -c.N, after+1
		}
	case 16:
		t := g.tier()
		c.Verb, c.N, c.Asks[0].Limits = "series", 0, nil
		c.Window = t.Width * time.Duration(1+r.IntN(3))
		c.Back = max(1, time.Duration(r.Int64N(int64(min(t.Keep, 100*t.Width))))+t.Width-c.Window)
	}
	return c, true
}

// age is the age of hits of the past.
func (g *generator) age() time.Duration {
	switch keep := int64(g.tier().Keep); g.r.IntN(4) {
	case 0: // about as old as a tier is kept
		return time.Duration(keep + g.r.Int64N(keep/8) - keep/16)
	case 1:
		return time.Duration(g.r.Int64N(keep / 16))
	default:
		return time.Duration(g.r.Int64N(keep))
	}
}

// Any makes a script of one of the ladders, each with clocks that are further apart
// than a bucket is wide or closer. The seed alone decides.
func Any(seed uint64, ladders ...tiers.Ladder) Script {
	r := rand.New(rand.NewPCG(seed, 0))
	ladder := ladders[r.IntN(len(ladders))]
	clocks := []struct{ skew, settle time.Duration }{{-1, -1}, {100 * time.Millisecond, -1}, {3 * time.Second, 10 * time.Second}, {ladder.At(0).Width * 9 / 8, time.Second}}
	clock := clocks[r.IntN(len(clocks))]
	s := Random(r, ladder, clock.skew, clock.settle, 80)
	s.Exact = r.IntN(4) == 0
	return s
}

// Shrink drops calls as long as the script that is left still fails.
func (s Script) Shrink(fails func(Script) bool) Script {
	for again := true; again; {
		again = false
		for i := len(s.Calls) - 1; i >= 0; i-- {
			if shorter, ok := s.without(i); ok && fails(shorter) {
				s, again = shorter, true
			}
		}
	}
	return s
}

// without returns s without call i, unless a later call refunds or settles call i.
func (s Script) without(i int) (Script, bool) {
	shorter := s
	shorter.Calls = nil
	for j, c := range s.Calls {
		if j == i {
			continue
		}
		if c.ofCall() {
			if c.N == int64(i) {
				return s, false
			}
			if c.N > int64(i) {
				c.N--
			}
		}
		shorter.Calls = append(shorter.Calls, c)
	}
	return shorter, true
}

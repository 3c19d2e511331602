package script

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Random makes a script of about n calls on a few keys under a few limits that
// crowd them. Time goes on in steps of every size, often to just before, at or
// after the edge of a bucket or of a period, and callers' clocks are apart by skew. One script of
// three is longer and about one user who comes at an even pace and stays away for
// longer than a tier is kept, again and again. The first hits of every other key
// are backdated, further than the finest tier is kept. Every second script is of a year
// that is far from ours.
func Random(r *rand.Rand, ladder tiers.Ladder, skew, settle time.Duration, n int) Script {
	s := Script{Ladder: ladder, Skew: skew, Settle: settle, Year: []int{0, 0, 0, 0, 1701, 1969, 2038, 2240}[r.IntN(8)]}
	g := generator{Steps: NewSteps(r, s.start(), ladder), r: r, ladder: ladder, start: s.start().UnixNano(), skew: skew, longest: ladder.At(ladder.Len() - 1).Keep,
		keys: []counter.Key{{Event: "a", Feature: "x"}, {Event: "a", Feature: "y"}, {Event: "b", Feature: "x"}}, usual: map[counter.Key]counter.Limits{}}
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

// Steps draws instants at, and near, the ends of buckets, of windows and of periods.
type Steps struct {
	r       *rand.Rand
	ladder  tiers.Ladder
	windows []time.Duration // that all ladders can count
	periods []tiers.Period  // two of these
}

// calendar are periods that begin with a bucket of a day, an hour, half an hour and a
// quarter of an hour.
var calendar = []string{"day in UTC", "day in Asia/Kolkata", "day in Pacific/Chatham", "week in UTC", "week in Europe/Berlin",
	"month in Asia/Tehran", "month from 31 in America/St_Johns", "month in UTC"}

// NewSteps returns the Steps for limits on all of the ladders, from an instant on.
func NewSteps(r *rand.Rand, from time.Time, ladders ...tiers.Ladder) Steps {
	s := Steps{r: r, ladder: ladders[0]}
	fit := func(limit counter.Limit) bool {
		return !slices.ContainsFunc(ladders, func(l tiers.Ladder) bool { return (counter.Limits{limit}).Check(l) != nil })
	}
	for _, w := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 5 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour} {
		if fit(counter.Limit{Per: w}) {
			s.windows = append(s.windows, w)
		}
	}
	for _, i := range r.Perm(len(calendar)) { // few, whose ends matter to many calls
		p, err := tiers.ParsePeriod(calendar[i])
		old := from.Year() < 1970 && !strings.HasSuffix(calendar[i], "UTC") // zones were some seconds off
		if err == nil && !old && len(s.periods) < 2 && fit(counter.Limit{Period: p}) {
			s.periods = append(s.periods, p)
		}
	}
	return s
}

// Window returns the length of a window.
func (s *Steps) Window() time.Duration { return s.windows[s.r.IntN(len(s.windows))] }

// Limit returns a limit of a window, or of a period.
func (s *Steps) Limit(most int64) counter.Limit {
	if n := len(s.periods); n > 0 && s.r.IntN(3) == 0 {
		return counter.Limit{Max: most, Period: s.periods[s.r.IntN(n)]}
	}
	return counter.Limit{Max: most, Per: s.Window()}
}

// Next returns an instant after another one, in nanoseconds since 1970.
func (s *Steps) Next(now int64) int64 {
	switch r := s.r; r.IntN(8) {
	case 0: // to an edge, or near it
		w := s.ladder.At(r.IntN(s.ladder.Len())).Width
		next := (tiers.Index(now, w) + 1) * int64(w)
		if n := len(s.periods); n > 0 && r.IntN(2) == 0 {
			_, next = s.periods[r.IntN(n)].Span(now)
		}
		return max(now, next+int64(r.IntN(3)-1)*int64(r.IntN(2)*int(time.Millisecond)))
	case 1: // out of a window, or nearly
		return now + max(0, int64(s.Window())-int64(r.IntN(2))*int64(time.Second))
	case 2, 3:
		return now + r.Int64N(int64(s.Window())/4+1)
	case 4, 5:
		return now + r.Int64N(int64(2*time.Second))
	}
	return now
}

// generator makes the calls of a script.
type generator struct {
	Steps
	r       *rand.Rand
	ladder  tiers.Ladder
	skew    time.Duration // of the callers' clocks
	longest time.Duration // that a tier is kept
	keys    []counter.Key
	usual   map[counter.Key]counter.Limits
	start   int64 // of the clock
	now     int64 // after start

	pace  int64 // the time between two calls of the user with an even pace; 0: no such user
	visit int   // calls of this user that are left before a pause

	credited int // the first call that may be refunded: earlier hits may have been given back by a credit
}

func (g *generator) tier() tiers.Tier { return g.ladder.At(g.r.IntN(g.ladder.Len())) }

func (g *generator) limits() (l counter.Limits) {
	for range 1 + g.r.IntN(3) {
		l = append(l, g.Limit(int64(1+g.r.IntN(12))))
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
	per := g.Window()
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
	switch {
	case g.pace > 0 && g.visit > 0:
		g.now += g.pace/2 + g.r.Int64N(g.pace+1)
		g.visit--
	case g.pace > 0:
		g.now += int64(g.tier().Keep)/8*(8+g.r.Int64N(3)) + int64(g.longest)/64*g.r.Int64N(3)
		g.visit = 20 + g.r.IntN(60)
	default:
		g.now = g.Next(g.start+g.now) - g.start
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
		c.Verb, c.N, c.Window, c.Asks[0].Limits = "count", 0, g.Window(), nil
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

// Try plays s, and an error of play has the script as it was, and with the calls alone that
// the failure needs.
func (s Script) Try(play func(Script) ([]Answer, error)) ([]Answer, error) {
	answers, err := play(s)
	if err != nil {
		short := s.Shrink(func(s Script) bool { _, err := play(s); return err != nil })
		err = fmt.Errorf("%w\nthe script, and what was left of it when it was shrunk:\n%s\n%s", err, s, short)
	}
	return answers, err
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

package script

import (
	"math/rand/v2"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Random makes a script of about n calls on a few keys under a few limits that
// crowd them. Time goes on in steps of every size, often to just before, at or
// after a bucket's edge, and callers' clocks are apart by skew. One script of
// three is longer and about one user who comes at an even pace and stays away for
// longer than a tier is kept, again and again. The first hits of every other key
// are backdated, further than the finest tier is kept.
func Random(r *rand.Rand, ladder tiers.Ladder, skew, settle time.Duration, n int) Script {
	s := Script{Ladder: ladder, Skew: skew, Settle: settle}
	var windows []time.Duration
	for _, w := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 5 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour} {
		if _, err := ladder.Finest(w); err == nil {
			windows = append(windows, w)
		}
	}
	window := func() time.Duration { return windows[r.IntN(len(windows))] }
	keep := func() time.Duration { return ladder.At(r.IntN(ladder.Len())).Keep }
	longest := ladder.At(ladder.Len() - 1).Keep
	pace, visit := int64(0), 0 // of the user: the time between two calls, and the calls left before a pause
	limits := func() counter.Limits {
		var l counter.Limits
		for range 1 + r.IntN(3) {
			l = append(l, counter.Limit{Max: int64(1 + r.IntN(12)), Per: window()})
		}
		return l
	}
	keys := []counter.Key{{Event: "a", Feature: "x"}, {Event: "a", Feature: "y"}, {Event: "b", Feature: "x"}}
	usual := map[counter.Key]counter.Limits{}
	for _, k := range keys {
		usual[k] = limits()
	}
	if r.IntN(3) == 0 {
		per := window()
		pace, n = int64(per)/(8+r.Int64N(40)), 3*n
		usual[keys[0]] = append(counter.Limits{{Max: int64(4 + r.IntN(40)), Per: per}}, limits()[1:]...)
		for i := range usual[keys[0]] {
			usual[keys[0]][i].Max *= 4
		}
	}
	ask := func() counter.Ask {
		k := keys[r.IntN(len(keys))]
		if pace > 0 && r.IntN(8) > 0 {
			k = keys[0]
		}
		if r.IntN(5) == 0 {
			return counter.Ask{Key: k, Limits: limits()}
		}
		return counter.Ask{Key: k, Limits: usual[k]}
	}
	now := int64(0)
	for i, k := range keys {
		backdated := r.IntN(2) * r.IntN(4)
		if i == 0 && pace > 0 {
			backdated *= 8
		}
		for range backdated {
			oldest := max(1, int64(longest-ladder.At(0).Keep))
			s.Calls = append(s.Calls, Call{At: now, Verb: "addat", N: 1 + r.Int64N(3), Asks: []counter.Ask{{Key: k}}, Back: ladder.At(0).Keep + time.Duration(r.Int64N(oldest))})
		}
	}
	for len(s.Calls) < n {
		switch step := r.IntN(8); {
		case pace > 0 && visit > 0:
			now += pace/2 + r.Int64N(pace+1)
			visit--
		case pace > 0:
			now += int64(keep())/8*(8+r.Int64N(3)) + int64(longest)/64*r.Int64N(3)
			visit = 20 + r.IntN(60)
		case step == 0: // to an edge, or near it
			w := ladder.At(r.IntN(ladder.Len())).Width
			next := (tiers.Index(Start.UnixNano()+now, w)+1)*int64(w) - Start.UnixNano()
			now = max(now, next+int64(r.IntN(3)-1)*int64(r.IntN(2)*int(time.Millisecond)))
		case step == 1: // out of a window, or nearly
			now += max(0, int64(window())-int64(r.IntN(2))*int64(time.Second))
		case step <= 3:
			now += r.Int64N(int64(window())/4 + 1)
		case step <= 5:
			now += r.Int64N(int64(2 * time.Second))
		}
		c := Call{At: now, Verb: "take", N: 1 + int64(r.IntN(4)/3*r.IntN(12)), Asks: []counter.Ask{ask()}}
		if skew > 0 {
			c.At += r.Int64N(int64(skew) + 1)
		}
		several := func() {
			for range 1 + r.IntN(3)/2 {
				c.Asks = append(c.Asks, ask())
			}
		}
		verb := r.IntN(24)
		if pace > 0 && r.IntN(2) == 0 {
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
		case 5:
			c.Verb, c.Asks[0].Limits = "add", nil
		case 6, 7:
			c.Verb, c.N, c.Window, c.Asks[0].Limits = "count", 0, window(), nil
		case 8, 9, 10:
			if len(s.Calls) == 0 {
				continue
			}
			c.Verb, c.N, c.Asks = "refund", int64(len(s.Calls)-1-r.IntN(min(len(s.Calls), 6))), nil
		case 11, 12:
			c.Verb, c.Asks[0].Limits = "addat", nil
			switch keep := int64(keep()); r.IntN(4) {
			case 0: // about as old as a tier is kept
				c.Back = time.Duration(keep + r.Int64N(keep/8) - keep/16)
			case 1:
				c.Back = time.Duration(r.Int64N(keep / 16))
			default:
				c.Back = time.Duration(r.Int64N(keep))
			}
		case 13:
			if r.IntN(4) > 0 {
				continue
			}
			c.Verb, c.N, c.Asks[0].Limits = "forget", 0, nil
		case 14, 15:
			if c.Verb = "charge"; r.IntN(3) == 0 {
				several()
			}
		case 16:
			t := ladder.At(r.IntN(ladder.Len()))
			c.Verb, c.N, c.Asks[0].Limits = "series", 0, nil
			c.Window = t.Width * time.Duration(1+r.IntN(3))
			c.Back = max(1, time.Duration(r.Int64N(int64(min(t.Keep, 100*t.Width))))+t.Width-c.Window)
		}
		s.Calls = append(s.Calls, c)
	}
	return s
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

// without returns s without call i, unless a later call refunds call i.
func (s Script) without(i int) (Script, bool) {
	shorter := s
	shorter.Calls = nil
	for j, c := range s.Calls {
		if j == i {
			continue
		}
		if c.Verb == "refund" {
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

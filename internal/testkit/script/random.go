package script

import (
	"math/rand/v2"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Random makes a script of n calls on a few keys under a few limits that crowd
// them. Time goes on in steps of every size, often to just before, at or after
// a bucket's edge, and callers' clocks are apart by skew.
func Random(r *rand.Rand, ladder tiers.Ladder, skew, settle time.Duration, n int) Script {
	s := Script{Ladder: ladder, Skew: skew, Settle: settle}
	var windows []time.Duration
	for _, w := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 5 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
		if _, err := ladder.Finest(w); err == nil {
			windows = append(windows, w)
		}
	}
	limits := func() counter.Limits {
		var l counter.Limits
		for range 1 + r.IntN(3) {
			l = append(l, counter.Limit{Max: int64(1 + r.IntN(12)), Per: windows[r.IntN(len(windows))]})
		}
		return l
	}
	keys := []counter.Key{{Event: "a", Feature: "x"}, {Event: "a", Feature: "y"}, {Event: "b", Feature: "x"}}
	usual := map[counter.Key]counter.Limits{}
	for _, k := range keys {
		usual[k] = limits()
	}
	ask := func() counter.Ask {
		k := keys[r.IntN(len(keys))]
		if r.IntN(5) == 0 {
			return counter.Ask{Key: k, Limits: limits()}
		}
		return counter.Ask{Key: k, Limits: usual[k]}
	}
	now := int64(0)
	for len(s.Calls) < n {
		switch r.IntN(8) {
		case 0: // to an edge, or near it
			w := ladder.At(r.IntN(ladder.Len())).Width
			next := (tiers.Index(Start.UnixNano()+now, w)+1)*int64(w) - Start.UnixNano()
			now = max(now, next+int64(r.IntN(3)-1)*int64(r.IntN(2)*int(time.Millisecond)))
		case 1: // out of a window, or nearly
			now += max(0, int64(windows[r.IntN(len(windows))])-int64(r.IntN(2))*int64(time.Second))
		case 2, 3:
			now += r.Int64N(int64(windows[r.IntN(len(windows))])/4 + 1)
		case 4, 5:
			now += r.Int64N(int64(2 * time.Second))
		}
		c := Call{At: now, Verb: "take", N: 1 + int64(r.IntN(4)/3*r.IntN(12)), Asks: []counter.Ask{ask()}}
		if skew > 0 {
			c.At += r.Int64N(int64(skew) + 1)
		}
		switch r.IntN(20) {
		case 0, 1:
			c.Verb = "peek"
		case 2, 3, 4:
			c.Verb, c.Asks = "takeall", append(c.Asks, ask())
			if r.IntN(3) == 0 {
				c.Asks = append(c.Asks, ask())
			}
		case 5:
			c.Verb, c.Asks[0].Limits = "add", nil
		case 6, 7:
			c.Verb, c.Window, c.Asks[0].Limits = "count", windows[r.IntN(len(windows))], nil
		case 8, 9, 10:
			if len(s.Calls) == 0 {
				continue
			}
			c.Verb, c.N, c.Asks = "refund", int64(len(s.Calls)-1-r.IntN(min(len(s.Calls), 6))), nil
		case 11, 12:
			c.Verb, c.Asks[0].Limits = "addat", nil
			switch keep := int64(ladder.At(r.IntN(ladder.Len())).Keep); r.IntN(4) {
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
		}
		if c.Verb == "count" {
			c.N = 0
		}
		s.Calls = append(s.Calls, c)
	}
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

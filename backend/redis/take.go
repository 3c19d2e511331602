package redis

import (
	"context"
	"fmt"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Take does one atomic step, by one EVALSHA.
func (s *Store) Take(ctx context.Context, t *counter.Taking) error {
	var buffer [tiers.MaxTiers]group
	groups := groupsOf(buffer[:0], t.Ladder)
	now := t.Now.UnixNano()

	keys := make([]string, 0, len(t.Demands)*len(groups))
	for _, g := range groups {
		if err := g.fits(t.TTLs[g.last]); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	p := make(program, 0, programHead+len(t.Demands)*(len(groups)*22+4*13))
	mode := byte(modeCount)
	if t.Peek {
		mode = modePeek
	}
	if t.AnyLabel {
		mode |= modeAnyLabel
	}
	p.begin(uint64(t.N), mode)
	for i := range t.Demands {
		d := &t.Demands[i]
		key := string(d.Key)
		for _, g := range groups {
			keys = append(keys, g.rootName(key))
			p.index(tiers.Index(now, g.width))
			p.index(g.stale(now, t.TTLs[g.last]))
			p.ms(g.ttl(t.TTLs[g.last]))
			p.uint(uint64(g.leaf*perBucket), 2)
			count := len(p)
			windows := 0
			p.uint(0, 2)
			for j := range d.Windows {
				if w := &d.Windows[j]; w.Finest == g.first {
					p.index(tiers.Index(now-int64(w.Per)-int64(t.Slack), g.width))
					p.uint(uint64(w.Max), 7)
					windows++
				}
			}
			if windows > maxWindows {
				return fmt.Errorf("%s: %d limits of one key, want at most %d", s, windows, maxWindows)
			}
			p[count], p[count+1] = byte(windows>>8), byte(windows)
		}
	}
	var got any
	var err error
	if t.Peek {
		got, err = s.run(ctx, t.Deadline, takeScript, keys, p)
	} else {
		got, err = s.count(ctx, t.Deadline, takeScript, keys, p, timeOfTake)
	}
	if err != nil {
		return err
	}
	reply, is := got.(string)
	if !is {
		return s.odd(got)
	}
	return s.fill(t, groups, reply)
}

// timeOfTake is the server's time in an answer, which has none if nothing was to
// be counted, and whether that was too late.
func timeOfTake(answer any) (micro int64, late bool) {
	reply, _ := answer.(string)
	if len(reply) < 1+timeBytes || reply[0] == deniedByte {
		return 0, false
	}
	return int64(number(reply[len(reply)-timeBytes:])), reply[0] == lateByte
}

// fill writes what the script has answered into t.
func (s *Store) fill(t *counter.Taking, groups []group, reply string) error {
	rest := answer(reply)
	allowed := rest.next(1) == takenByte
	each(t, groups, func(_ group, w *counter.Window) {
		w.Count = int64(rest.next(sumBytes))
	})
	each(t, groups, func(g group, w *counter.Window) {
		w.Leaves = tiers.Bucket{}
		if w.Count > w.Max-t.N {
			w.Leaves = g.bucket(rest.next(wholeBytes))
		}
	})
	want := len(t.Demands) * len(groups) * wholeBytes
	if allowed && !t.Peek {
		want += timeBytes
	}
	if len(rest) != want {
		return fmt.Errorf("%s: an unexpected answer of %d bytes", s, len(reply))
	}
	for i := range t.Demands {
		for _, g := range groups {
			newest := g.bucket(rest.next(wholeBytes))
			for j := range t.Demands[i].Windows {
				if w := &t.Demands[i].Windows[j]; w.Finest == g.first {
					w.Newest = tiers.Bucket{}
					if w.Count > 0 || allowed && !t.Peek {
						w.Newest = newest
					}
				}
			}
		}
	}
	t.Allowed = allowed
	return nil
}

// each calls f for every window, in the order in which the script hears of them.
func each(t *counter.Taking, groups []group, f func(group, *counter.Window)) {
	for i := range t.Demands {
		for _, g := range groups {
			for j := range t.Demands[i].Windows {
				if w := &t.Demands[i].Windows[j]; w.Finest == g.first {
					f(g, w)
				}
			}
		}
	}
}

// answer is what is left to read of an answer.
type answer string

// next is the number in the next bytes; 0 where there are no more.
func (a *answer) next(bytes int) uint64 {
	if len(*a) < bytes {
		*a = ""
		return 0
	}
	n := number(string((*a)[:bytes]))
	*a = (*a)[bytes:]
	return n
}

// maxWindows of a key take a server some ten milliseconds, in which it answers
// nobody else.
const maxWindows = 1000

// How a script answers: a sum, a position from the epoch on, and its time in
// microseconds.
const (
	sumBytes   = 7
	wholeBytes = 6
	timeBytes  = 7
)

// bucket is the one at the position that a script has answered; 0 is none.
func (g group) bucket(position uint64) tiers.Bucket {
	if position == 0 {
		return tiers.Bucket{}
	}
	return tiers.Bucket{Width: g.width, Index: bucketAt(position)}
}

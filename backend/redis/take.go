package redis

import (
	"context"
	"fmt"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// Take does one atomic step, by one EVALSHA.
func (s *Store) Take(ctx context.Context, t *backend.TakeRequest) error {
	now := t.Now.UnixNano()
	keys := make([]string, 0, 2*len(t.Keys))
	p := make(program, 0, programHead+len(t.Keys)*(2*30+4*13))
	mode := byte(modeCount)
	if t.Peek {
		mode = modePeek
	}
	p.begin(mode, t.AnyLabel)
	for i := range t.Keys {
		k := &t.Keys[i]
		key := string(k.Key)
		var buffer [tiers.MaxTiers]group
		for _, g := range groupsOf(buffer[:0], k.Ladder) {
			ttl := k.TTLs[g.last]
			if err := g.fits(ttl); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
			keys = append(keys, g.rootName(key))
			p.index(tiers.Index(now, g.width))
			p.index(g.stale(now, ttl))
			p.ms(g.ttl(ttl))
			p.uint(uint64(k.N), 7)
			p.uint(uint64(g.leaf*perBucket), 2)
			flags := 0
			if k.Soft {
				flags |= softKey
			}
			if g.number > 0 {
				flags |= sameKey
			}
			p.uint(uint64(flags), 1)
			count := len(p)
			windows := 0
			p.uint(0, 2)
			for j := range k.Windows {
				if w := &k.Windows[j]; w.Finest == g.first {
					p.index(tiers.Index(now-int64(w.Reach), g.width))
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
	return s.fill(t, reply)
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
func (s *Store) fill(t *backend.TakeRequest, reply string) error {
	rest := answer{left: reply}
	first := rest.next(1)
	allowed := first == takenByte || first == partByte
	each(t, func(_ *backend.TakeKey, _ group, w *backend.Window) {
		w.Count = int64(rest.next(sumBytes))
	})
	for i := range t.Keys {
		t.Keys[i].Fits = true
	}
	each(t, func(k *backend.TakeKey, g group, w *backend.Window) {
		w.FreedBy = tiers.Bucket{}
		if w.Count > w.Max-k.N {
			k.Fits = false
			w.FreedBy = g.bucket(rest.next(wholeBytes))
		}
	})
	for i := range t.Keys {
		k := &t.Keys[i]
		added := allowed && !t.Peek && k.Fits && k.N > 0
		var buffer [tiers.MaxTiers]group
		for _, g := range groupsOf(buffer[:0], k.Ladder) {
			newest := g.bucket(rest.next(wholeBytes))
			for j := range k.Windows {
				if w := &k.Windows[j]; w.Finest == g.first {
					w.Newest = tiers.Bucket{}
					if w.Count > 0 || added {
						w.Newest = newest
					}
				}
			}
		}
	}
	if allowed && !t.Peek {
		rest.next(timeBytes)
	}
	if rest.short || len(rest.left) > 0 {
		return fmt.Errorf("%s: an unexpected answer of %d bytes", s, len(reply))
	}
	t.Allowed = allowed
	return nil
}

// each calls f for every window, in the order in which the script hears of them.
func each(t *backend.TakeRequest, f func(*backend.TakeKey, group, *backend.Window)) {
	for i := range t.Keys {
		k := &t.Keys[i]
		var buffer [tiers.MaxTiers]group
		for _, g := range groupsOf(buffer[:0], k.Ladder) {
			for j := range k.Windows {
				if w := &k.Windows[j]; w.Finest == g.first {
					f(k, g, w)
				}
			}
		}
	}
}

// answer is an answer of the script, read from its beginning.
type answer struct {
	left  string
	short bool // more was read than there is
}

// next is the number in the next bytes; 0 where there are no more.
func (a *answer) next(bytes int) uint64 {
	if len(a.left) < bytes {
		a.left, a.short = "", true
		return 0
	}
	n := number(a.left[:bytes])
	a.left = a.left[bytes:]
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

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
	p := make(program, 0, 8+len(t.Demands)*(len(groups)*22+4*13))
	p.uint(uint64(t.N), 7)
	p.flag(t.Peek)
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
			if windows > 1<<16-1 {
				return fmt.Errorf("%s: %d limits of one key, want at most %d", s, windows, 1<<16-1)
			}
			p[count], p[count+1] = byte(windows>>8), byte(windows)
		}
	}
	answer, err := s.run(ctx, t.Deadline, takeScript, keys, p)
	if err != nil {
		return err
	}
	reply, is := answer.(string)
	if !is {
		return s.odd(answer)
	}
	return s.fill(t, groups, reply)
}

// fill writes what the script has answered into t.
func (s *Store) fill(t *counter.Taking, groups []group, reply string) error {
	windows := 0
	for i := range t.Demands {
		windows += len(t.Demands[i].Windows)
	}
	taken := reply != "" && reply[0] == 1 && !t.Peek
	each, want := sumBytes+2*wholeBytes, 1+windows*(sumBytes+2*wholeBytes)
	if taken {
		each, want = sumBytes, 1+windows*sumBytes+len(t.Demands)*len(groups)*wholeBytes
	}
	if len(reply) != want {
		return fmt.Errorf("%s: an unexpected answer of %d bytes, want %d", s, len(reply), want)
	}
	at, last := 1, 1+windows*sumBytes
	for i := range t.Demands {
		d := &t.Demands[i]
		for _, g := range groups {
			for j := range d.Windows {
				w := &d.Windows[j]
				if w.Finest != g.first {
					continue
				}
				w.Count, w.Leaves, w.Newest = int64(number(reply[at:at+sumBytes])), tiers.Bucket{}, tiers.Bucket{}
				if taken {
					w.Newest = g.bucket(reply[last:])
				} else {
					w.Leaves, w.Newest = g.bucket(reply[at+sumBytes:]), g.bucket(reply[at+sumBytes+wholeBytes:])
				}
				at += each
			}
			last += wholeBytes
		}
	}
	t.Allowed = reply[0] == 1
	return nil
}

// How a script answers: a sum, and a position from the epoch on.
const (
	sumBytes   = 7
	wholeBytes = 6
)

// bucket is the one at the position that a script has answered; 0 is none.
func (g group) bucket(answer string) tiers.Bucket {
	position := number(answer[:wholeBytes])
	if position == 0 {
		return tiers.Bucket{}
	}
	return tiers.Bucket{Width: g.width, Index: bucketAt(position)}
}

package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

var labels = []check{
	{
		name:    "labels in any order",
		rule:    "a call with an older label is answered exactly, or with ErrStaleLabel and nothing done; by AnyLabel it is answered",
		instead: true,
		run:     anyOrder,
	},
}

// anyOrder has callers that stand still between their clock and the store: labels
// go back by up to twice the Keep of the ladder. The log forgets nothing, so an
// answer of a store that has dropped a needed bucket is found wrong.
func anyOrder(s *subject) {
	clock := noon // goes on from key to key: a store need not keep its knowledge of drops by key
	for i, l := range []tiers.Ladder{
		mustLadder("1s:10s"),
		mustLadder("1s:1m"),
		mustLadder("100ms:1s, 1s:20s"),
		mustLadder("1s:10s, 10s:1h"),
		mustLadder("1s:1h, 1m:1h"), // the minutes may be sums
	} {
		for j, slack := range []time.Duration{0, 2 * time.Second} {
			kept := *s // finds a store that forgets a little of what it has dropped, which few scripts find
			kept.rand = rand.New(rand.NewPCG(4, 0))
			for round, s := range append(slices.Repeat([]*subject{s}, max(1, 6/s.thrift)), &kept) {
				d := &disorder{subject: s, key: fmt.Sprint(i, "-", j, "-", round), ladder: l, slack: slack, counts: tally{}, newest: clock}
				after(&d.said, func() {
					during(func() { d.run(120) }, "on ladder %s with slack %s", l, slack)
				})
				clock = d.newest
			}
		}
	}
}

// disorder is a random script for a single key, and its log.
type disorder struct {
	*subject
	key    string
	ladder tiers.Ladder
	slack  time.Duration
	counts tally
	newest time.Time // label
	added  []addition
	said   []string
	over   bool // an answer by AnyLabel may have lost hits
}

func (d *disorder) run(n int) {
	for range n {
		at := d.label()
		d.said = append(d.said, fmt.Sprint(at.Sub(noon), " "))
		switch r := d.rand.IntN(8); {
		case r == 0:
			d.look(at)
		case r == 1:
			if len(d.added) == 0 || at.Before(d.newest) {
				continue
			}
			d.takeBack(at)
		case r < 4 || d.taker == nil:
			d.add(at, 1+d.rand.Int64N(4))
		default:
			d.step(at, 1+d.rand.Int64N(4))
		}
		if d.over {
			return
		}
		if at.After(d.newest) {
			d.newest = at
		}
	}
}

// label returns mostly a later label, and often a label of long ago.
func (d *disorder) label() time.Time {
	keep := d.ladder.At(d.rand.IntN(d.ladder.Len())).Keep
	switch r := d.rand; r.IntN(6) {
	case 0:
		return d.newest.Add(-time.Duration(r.Int64N(int64(2 * keep))))
	case 1:
		return d.newest.Add(-time.Duration(r.Int64N(int64(keep/8 + 1))))
	case 2:
		return d.newest.Add(-time.Duration(r.Int64N(int64(d.slack + 1))))
	case 3:
		return d.newest.Add(time.Duration(r.Int64N(int64(keep))))
	default:
		return d.newest.Add(time.Duration(r.Int64N(int64(keep / 16))))
	}
}

// say adds to what is said of the call.
func (d *disorder) say(format string, args ...any) {
	d.said[len(d.said)-1] += fmt.Sprintf(format, args...)
}

// stale reports whether err says that at is a stale label. Only a label older than
// the newest by more than the slack may be stale.
func (d *disorder) stale(at time.Time, err error) bool {
	if !errors.Is(err, backend.ErrStaleLabel) {
		must(err)
		return false
	}
	d.say(": stale")
	if late := d.newest.Sub(at); late <= d.slack {
		failf("a label that is late by %s of a slack of %s: %w", max(0, late), d.slack, err)
	}
	return true
}

func (d *disorder) log(at time.Time, n int64) {
	d.counts.add(d.ladder, at, n)
	if n > 0 {
		d.added = append(d.added, addition{d.key, at, n})
	}
}

// raw is Do without a second try.
func (d *disorder) raw(op *backend.Request) error {
	op.Deadline = time.Now().Add(enough)
	return d.Do(context.Background(), op)
}

func (d *disorder) add(at time.Time, n int64) {
	d.say("add %d", n)
	op := &backend.Request{Key: d.subject.key(d.key), Ladder: d.ladder, Now: at, N: n, Add: chain(d.ladder, at, d.slack)}
	stale := d.stale(at, d.raw(op))
	if !stale {
		d.log(at, n)
		d.counts.slots("after an addition without ErrStaleLabel", op.Add)
		return
	}
	same("slots of an addition that was stale", countsOf(op.Add), []int64{0})
	if d.rand.IntN(4) > 0 {
		return
	}
	d.over, op.AnyLabel = true, true
	mustf(d.raw(op), "by AnyLabel")
	for _, slot := range op.Add {
		if most := d.counts[slot.Bucket] + n; slot.Count < n || slot.Count > most {
			failf("bucket %s counts %d after an addition of %d by AnyLabel, want at most %d", slot.Bucket, slot.Count, n, most)
		}
	}
}

// takeBack is a refund: by a caller whose clock goes right, of a hit that no
// tier has let go.
func (d *disorder) takeBack(at time.Time) {
	i := d.rand.IntN(len(d.added))
	a := d.added[i]
	if at.Sub(a.at) >= d.ladder.At(0).Keep {
		d.say("nothing")
		return
	}
	d.added = append(d.added[:i], d.added[i+1:]...)
	d.say("take back %d of %s", a.n, a.at.Sub(noon))
	op := &backend.Request{Key: d.subject.key(d.key), Ladder: d.ladder, Now: at, N: -a.n, Add: chain(d.ladder, a.at, d.slack)}
	must(d.raw(op))
	d.log(a.at, -a.n)
	d.counts.slots("after a taking back", op.Add)
}

// look reads all buckets within reach of a window at the label, and all newer
// buckets.
func (d *disorder) look(at time.Time) {
	d.say("look")
	op := &backend.Request{Key: d.subject.key(d.key), Ladder: d.ladder, Now: at}
	for _, t := range d.ladder.Tiers() {
		first := tiers.Index(at.Add(-t.Keep).UnixNano(), t.Width)
		last := tiers.Index(max(at.UnixNano(), d.newest.UnixNano()), t.Width)
		op.Read = append(op.Read, span(t.Width, first, int(last-first)+1))
	}
	if d.stale(at, d.raw(op)) {
		return
	}
	d.counts.spans("a look without ErrStaleLabel", op.Read)
}

func (d *disorder) step(at time.Time, n int64) {
	var limits counter.Limits
	for range 1 + d.rand.IntN(2) {
		t := d.ladder.At(d.rand.IntN(d.ladder.Len()))
		limits = append(limits, counter.Limit{Max: n + d.rand.Int64N(12), Per: t.Width + time.Duration(d.rand.Int64N(int64(t.Keep-t.Width)+1))})
	}
	take := d.taking(d.ladder, at, n, d.slack, demand{key: d.key, limits: limits})
	take.Peek, take.Exact = d.rand.IntN(4) == 0, d.rand.IntN(2) == 0
	take.Deadline = time.Now().Add(enough)
	d.say("take %d of %s, peek %v", n, limits, take.Peek)
	stale := d.stale(at, d.taker.Take(context.Background(), take))
	if stale {
		if d.rand.IntN(4) > 0 {
			return
		}
		d.over, take.AnyLabel = true, true
		mustf(d.taker.Take(context.Background(), take), "by AnyLabel")
	}
	allowed := true
	for _, w := range take.Keys[0].Windows {
		width := d.ladder.At(w.Finest).Width
		first := tiers.Index(at.Add(-w.Reach).UnixNano(), width)
		var want int64
		for b, n := range d.counts {
			if b.Width == width && b.Index >= first {
				want += n
			}
		}
		if w.Count > want && !oracle.Bounded(take, &take.Keys[0], &w) || w.Count < want && !stale {
			failf("window of %s counts %d, want %d or ErrStaleLabel", w.Reach, w.Count, want)
		}
		allowed = allowed && w.Count <= w.Max-n
	}
	if take.Allowed != allowed {
		failf("allowed is %v, which is not what its own counts say", take.Allowed)
	}
	if allowed && !take.Peek {
		d.log(at, n)
		d.say(": admitted")
	}
}

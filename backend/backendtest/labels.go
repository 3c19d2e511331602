package backendtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/tiers"
)

// anyOrder has callers that stand still between their clock and the store: labels
// go back by up to twice the Keep of the ladder. The log forgets nothing, so an
// answer of a store that has dropped a needed bucket is found wrong.
func anyOrder(s *subject) {
	clock := noon // goes on from key to key: a store need not keep its knowledge of drops by key
	for i, l := range some(s, []tiers.Ladder{
		parse.Ladder("1s:10s"),
		parse.Ladder("1s:1m"),
		parse.Ladder("100ms:1s, 1s:20s"),
		parse.Ladder("1s:10s, 10s:1h"),
		parse.Ladder("1s:1h, 1m:1h"), // the minutes may be sums
	}) {
		for j, slack := range some(s, []time.Duration{0, 2 * time.Second}) {
			kept := *s // finds a store that forgets a little of what it has dropped, which few scripts find
			kept.rand = rand.New(rand.NewPCG(4, 0))
			for round, s := range append(slices.Repeat([]*subject{s}, max(1, 6/s.thrift)), &kept) {
				model := oracle.NewStore()
				model.Forever = true
				own := s.with(model)
				own.prefix += fmt.Sprint(i, "-", j, "-", round, "-")
				d := &disorder{sequence: sequence{subject: own, ladders: []tiers.Ladder{l}, slack: slack, clock: clock}}
				own.stale = d.stale
				after(&d.said, func() {
					during(func() { d.run(120) }, "on ladder %s with slack %s", l, slack)
				})
				clock = d.clock
			}
		}
	}
}

// disorder is a sequence for a single key, whose clock is the newest label.
type disorder struct {
	sequence
	over bool // an answer by AnyLabel may have lost hits
}

func (d *disorder) run(n int) {
	for ; n > 0 && !d.over; n-- {
		at := d.label()
		switch r := d.rand.IntN(8); {
		case r == 0:
			d.look(at)
		case r == 1 && at.Before(d.clock):
			continue
		case r == 1: // by a caller whose clock goes right, of a hit that no tier has let go
			d.takeBack(at, d.ladders[0].At(0).Keep)
		case r < 4 || d.taker == nil:
			d.add(0, at, 1+d.rand.Int64N(4))
		default:
			d.step(at, 1+d.rand.Int64N(4))
		}
		if at.After(d.clock) {
			d.clock = at
		}
	}
}

// label returns mostly a later label, and often a label of long ago.
func (d *disorder) label() time.Time {
	keep := d.ladders[0].At(d.rand.IntN(d.ladders[0].Len())).Keep
	switch r := d.rand; r.IntN(6) {
	case 0:
		return d.clock.Add(-time.Duration(r.Int64N(int64(2 * keep))))
	case 1:
		return d.clock.Add(-time.Duration(r.Int64N(int64(keep/8 + 1))))
	case 2:
		return d.clock.Add(-time.Duration(r.Int64N(int64(d.slack + 1))))
	case 3:
		return d.clock.Add(time.Duration(r.Int64N(int64(keep))))
	default:
		return d.clock.Add(time.Duration(r.Int64N(int64(keep / 16))))
	}
}

// stale is the stale of the subject. Only a label older than the newest by more than the
// slack may be stale. Of hits before, an answer by AnyLabel may lack some.
func (d *disorder) stale(at time.Time, err error) (again bool) {
	if late := d.clock.Sub(at); late <= d.slack {
		failf("a label that is late by %s of a slack of %s: %w", max(0, late), d.slack, err)
	}
	d.over = d.rand.IntN(4) == 0
	d.say("\tis stale, again by AnyLabel: %v", d.over)
	if d.over {
		for _, held := range d.model.Keys[d.key("0")] {
			held.Low = 0
		}
	}
	return d.over
}

// look reads all buckets within reach of a window at the label, and all newer
// buckets.
func (d *disorder) look(at time.Time) {
	d.say("%s look", at.Sub(noon))
	op := &backend.Request{Key: d.key("0"), Ladder: d.ladders[0], Now: at}
	for _, t := range d.ladders[0].Tiers() {
		first := tiers.Index(at.Add(-t.Keep).UnixNano(), t.Width)
		last := tiers.Index(max(at.UnixNano(), d.clock.UnixNano()), t.Width)
		op.Read = append(op.Read, span(t.Width, first, int(last-first)+1))
	}
	answered(d.do(op))
}

func (d *disorder) step(at time.Time, n int64) {
	l := d.ladders[0]
	var limits counter.Limits
	for range 1 + d.rand.IntN(2) {
		t := l.At(d.rand.IntN(l.Len()))
		limits = append(limits, counter.Limit{Max: n + d.rand.Int64N(12), Per: t.Width + time.Duration(d.rand.Int64N(int64(t.Keep-t.Width)+1))})
	}
	take := d.taking(l, at, n, d.slack, demand{key: "0", limits: limits})
	take.Peek, take.Exact = d.rand.IntN(4) == 0, d.rand.IntN(2) == 0
	d.say("%s take %d of %s, peek %v", at.Sub(noon), n, limits, take.Peek)
	if answered(d.take(take)) && take.Allowed && !take.Peek {
		d.added = append(d.added, addition{0, at, n})
		d.say("\tadmitted")
	}
}

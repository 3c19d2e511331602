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
				d := &disorder{subject: s.with(model), key: fmt.Sprint(i, "-", j, "-", round), ladder: l, slack: slack, newest: clock}
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
	newest time.Time // label
	added  []addition
	said   []string
	over   bool // an answer by AnyLabel may have lost hits
}

func (d *disorder) run(n int) {
	for ; n > 0 && !d.over; n-- {
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

// ask makes a call at a label, and reports whether it was answered. Only a label older
// than the newest by more than the slack may be stale. Then the call may come again by
// AnyLabel: of hits before, the answer may lack some.
func (d *disorder) ask(at time.Time, anyLabel *bool, call func(context.Context) error) (answered bool) {
	err := call(context.Background())
	if !errors.Is(err, backend.ErrStaleLabel) {
		must(err)
		return true
	}
	d.say(": stale")
	if late := d.newest.Sub(at); late <= d.slack {
		failf("a label that is late by %s of a slack of %s: %w", max(0, late), d.slack, err)
	}
	if d.rand.IntN(4) > 0 {
		return false
	}
	d.over, *anyLabel = true, true
	mustf(call(context.Background()), "by AnyLabel")
	for _, held := range d.model.Keys[d.subject.key(d.key)] {
		held.Low = 0
	}
	return true
}

// change adds n to the buckets that hold at, by a caller whose clock is at now.
func (d *disorder) change(now, at time.Time, n int64) (answered bool) {
	op := &backend.Request{Key: d.subject.key(d.key), Ladder: d.ladder, Now: now, Deadline: time.Now().Add(enough), N: n, Add: chain(d.ladder, at, d.slack)}
	answered = d.ask(now, &op.AnyLabel, func(ctx context.Context) error {
		err := d.Do(ctx, op)
		if errors.Is(err, backend.ErrStaleLabel) {
			same("slots of an addition that was stale", countsOf(op.Add), []int64{0})
		}
		return err
	})
	if answered {
		must(d.model.Do(op))
	}
	return answered
}

func (d *disorder) add(at time.Time, n int64) {
	if d.say("add %d", n); d.change(at, at, n) {
		d.added = append(d.added, addition{at: at, n: n})
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
	d.added = slices.Delete(d.added, i, i+1)
	d.say("take back %d of %s", a.n, a.at.Sub(noon))
	if !d.change(at, a.at, -a.n) {
		failf("a taking back is stale")
	}
}

// look reads all buckets within reach of a window at the label, and all newer
// buckets.
func (d *disorder) look(at time.Time) {
	d.say("look")
	op := &backend.Request{Key: d.subject.key(d.key), Ladder: d.ladder, Now: at, Deadline: time.Now().Add(enough)}
	for _, t := range d.ladder.Tiers() {
		first := tiers.Index(at.Add(-t.Keep).UnixNano(), t.Width)
		last := tiers.Index(max(at.UnixNano(), d.newest.UnixNano()), t.Width)
		op.Read = append(op.Read, span(t.Width, first, int(last-first)+1))
	}
	if d.ask(at, &op.AnyLabel, func(ctx context.Context) error { return d.Do(ctx, op) }) {
		must(d.model.Do(op))
	}
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
	if !d.ask(at, &take.AnyLabel, func(ctx context.Context) error { return d.taker.Take(ctx, take) }) {
		return
	}
	must(d.model.Take(take))
	if take.Allowed && !take.Peek {
		d.added = append(d.added, addition{at: at, n: n})
		d.say(": admitted")
	}
}

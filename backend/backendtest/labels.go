package backendtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
func anyOrder(s *subject) error {
	clock := noon // goes on from key to key: a store need not keep its knowledge of drops by key
	for i, l := range []tiers.Ladder{
		mustLadder("1s:10s"),
		mustLadder("1s:1m"),
		mustLadder("100ms:1s, 1s:20s"),
		mustLadder("1s:10s, 10s:1h"),
		mustLadder("1s:1h, 1m:1h"), // the minutes may be sums
	} {
		for j, slack := range []time.Duration{0, 2 * time.Second} {
			for round := range max(1, 6/s.thrift) {
				d := &disorder{subject: s, key: fmt.Sprint(i, "-", j, "-", round), ladder: l, slack: slack, counts: map[tiers.Bucket]int64{}, newest: clock}
				if err := d.run(120); err != nil {
					return fmt.Errorf("%w\nafter, on ladder %s with slack %s:\n%s", err, l, slack, strings.Join(d.said, "\n"))
				}
				clock = d.newest
			}
		}
	}
	return nil
}

// disorder is a random script for a single key, and its log.
type disorder struct {
	*subject
	key    string
	ladder tiers.Ladder
	slack  time.Duration
	counts map[tiers.Bucket]int64
	newest time.Time // label
	added  []addition
	said   []string
	over   bool // an answer by AnyLabel may have lost hits
}

func (d *disorder) run(n int) error {
	for range n {
		at := d.label()
		said := fmt.Sprint(at.Sub(noon), " ")
		var err error
		switch r := d.rand.IntN(8); {
		case r == 0:
			err = d.look(&said, at)
		case r == 1:
			if len(d.added) == 0 || at.Before(d.newest) {
				continue
			}
			err = d.takeBack(&said, at)
		case r < 4 || d.taker == nil:
			err = d.add(&said, at, 1+d.rand.Int64N(4))
		default:
			err = d.step(&said, at, 1+d.rand.Int64N(4))
		}
		d.said = append(d.said, said)
		if err != nil || d.over {
			return err
		}
		if at.After(d.newest) {
			d.newest = at
		}
	}
	return nil
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

// stale reports whether err says that at is a stale label. Only a label older than
// the newest by more than the slack may be stale.
func (d *disorder) stale(said *string, at time.Time, err error) (bool, error) {
	if !errors.Is(err, backend.ErrStaleLabel) {
		return false, err
	}
	*said += ": stale"
	if late := d.newest.Sub(at); late <= d.slack {
		return true, fmt.Errorf("a label that is late by %s of a slack of %s: %w", max(0, late), d.slack, err)
	}
	return true, nil
}

func (d *disorder) log(at time.Time, n int64) {
	for _, b := range d.ladder.Buckets(at) {
		d.counts[b] += n
	}
	if n > 0 {
		d.added = append(d.added, addition{d.key, at, n})
	}
}

// raw is Do without a second try.
func (d *disorder) raw(op *backend.Request) error {
	op.Deadline = time.Now().Add(enough)
	return d.Do(context.Background(), op)
}

func (d *disorder) add(said *string, at time.Time, n int64) error {
	*said += fmt.Sprint("add ", n)
	op := &backend.Request{Key: d.subject.key(d.key), Ladder: d.ladder, Now: at, N: n, Add: chain(d.ladder, at, d.slack)}
	stale, err := d.stale(said, at, d.raw(op))
	if err != nil {
		return err
	}
	if !stale {
		d.log(at, n)
		for _, slot := range op.Add {
			if want := d.counts[slot.Bucket]; slot.Count != want {
				return fmt.Errorf("bucket %s counts %d after the addition, want %d or ErrStaleLabel", slot.Bucket, slot.Count, want)
			}
		}
		return nil
	}
	if err := same("slots of an addition that was stale", countsOf(op.Add), []int64{0}); err != nil {
		return err
	}
	if d.rand.IntN(4) > 0 {
		return nil
	}
	d.over, op.AnyLabel = true, true
	if err := d.raw(op); err != nil {
		return fmt.Errorf("by AnyLabel: %w", err)
	}
	for _, slot := range op.Add {
		if most := d.counts[slot.Bucket] + n; slot.Count < n || slot.Count > most {
			return fmt.Errorf("bucket %s counts %d after an addition of %d by AnyLabel, want at most %d", slot.Bucket, slot.Count, n, most)
		}
	}
	return nil
}

// takeBack is a refund: by a caller whose clock goes right, of a hit that no
// tier has let go.
func (d *disorder) takeBack(said *string, at time.Time) error {
	i := d.rand.IntN(len(d.added))
	a := d.added[i]
	if at.Sub(a.at) >= d.ladder.At(0).Keep {
		*said += "nothing"
		return nil
	}
	d.added = append(d.added[:i], d.added[i+1:]...)
	*said += fmt.Sprint("take back ", a.n, " of ", a.at.Sub(noon))
	op := &backend.Request{Key: d.subject.key(d.key), Ladder: d.ladder, Now: at, N: -a.n, Add: chain(d.ladder, a.at, d.slack)}
	if err := d.raw(op); err != nil {
		return err
	}
	d.log(a.at, -a.n)
	for _, slot := range op.Add {
		if want := d.counts[slot.Bucket]; slot.Count != want {
			return fmt.Errorf("bucket %s counts %d after the taking back, want %d", slot.Bucket, slot.Count, want)
		}
	}
	return nil
}

// look reads all buckets within reach of a window at the label, and all newer
// buckets.
func (d *disorder) look(said *string, at time.Time) error {
	*said += "look"
	op := &backend.Request{Key: d.subject.key(d.key), Ladder: d.ladder, Now: at}
	for _, t := range d.ladder.Tiers() {
		first := tiers.Index(at.Add(-t.Keep).UnixNano(), t.Width)
		last := tiers.Index(max(at.UnixNano(), d.newest.UnixNano()), t.Width)
		op.Read = append(op.Read, span(t.Width, first, int(last-first)+1))
	}
	stale, err := d.stale(said, at, d.raw(op))
	if err != nil || stale {
		return err
	}
	for _, r := range op.Read {
		for i, n := range r.Counts {
			if b := (tiers.Bucket{Width: r.Width, Index: r.First + int64(i)}); n != d.counts[b] {
				return fmt.Errorf("bucket %s is read as %d, want %d or ErrStaleLabel", b, n, d.counts[b])
			}
		}
	}
	return nil
}

func (d *disorder) step(said *string, at time.Time, n int64) error {
	var limits counter.Limits
	for range 1 + d.rand.IntN(2) {
		t := d.ladder.At(d.rand.IntN(d.ladder.Len()))
		limits = append(limits, counter.Limit{Max: n + d.rand.Int64N(12), Per: t.Width + time.Duration(d.rand.Int64N(int64(t.Keep-t.Width)+1))})
	}
	take := d.taking(d.ladder, at, n, d.slack, demand{key: d.key, limits: limits})
	take.Peek, take.Exact = d.rand.IntN(4) == 0, d.rand.IntN(2) == 0
	take.Deadline = time.Now().Add(enough)
	*said += fmt.Sprintf("take %d of %s, peek %v", n, limits, take.Peek)
	stale, err := d.stale(said, at, d.taker.Take(context.Background(), take))
	if err != nil {
		return err
	}
	if stale {
		if d.rand.IntN(4) > 0 {
			return nil
		}
		d.over, take.AnyLabel = true, true
		if err := d.taker.Take(context.Background(), take); err != nil {
			return fmt.Errorf("by AnyLabel: %w", err)
		}
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
			return fmt.Errorf("window of %s counts %d, want %d or ErrStaleLabel", w.Reach, w.Count, want)
		}
		allowed = allowed && w.Count <= w.Max-n
	}
	if take.Allowed != allowed {
		return fmt.Errorf("allowed is %v, which is not what its own counts say", take.Allowed)
	}
	if allowed && !take.Peek {
		d.log(at, n)
		*said += ": admitted"
	}
	return nil
}

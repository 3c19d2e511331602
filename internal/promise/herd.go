package promise

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

const (
	racers = 40
	places = 7
)

// HerdRule is the Rule of every [Herd].
const HerdRule = "never more than Max, and within a bucket of the ticket tier exactly Max"

// Herd is a race of 40 callers for seven places, in rounds, on one or more keys; the
// least Max of limits is 7. The racers share the given number of Counters.
func Herd(limits counter.Limits, keys, counters, rounds int) Case {
	return Case{
		Name: "herd", Promise: "exactly Max in a race",
		Rule: HerdRule,
		Try: func(ctx context.Context, s *Subject) (f Finding, err error) {
			all := make([]*counter.Counter, counters)
			for i := range all {
				if all[i], err = s.Counter(tiers.Default, false); err != nil {
					return f, err
				}
			}
			var t tally
			for round := range rounds + 1 {
				var asks []counter.Ask
				for k := range keys {
					asks = append(asks, counter.Ask{Key: counter.Key{Event: "herd", Feature: fmt.Sprint(limits, round, k)}, N: 1, Limits: limits})
				}
				if s.Round != nil {
					if err := s.Round(ctx); err != nil {
						return f, err
					}
				}
				var this Failures
				admitted := s.race(ctx, all, asks, &this)
				if round == 0 {
					continue // makes the connections
				}
				f.Calls, f.Failed, f.Late = f.Calls+this.Calls, f.Failed+this.Failed, f.Late+this.Late
				if this.Failed > 0 {
					f.Last = this.Last
				}
				if t.add(admitted, this.Failed > 0); this.Failed > 0 {
					continue
				}
				for _, ask := range asks {
					high, err := s.counted(ctx, all[0], ask.Key, int64(admitted), t.left == 0, &f.Failures)
					if err == nil && high != int64(admitted) {
						t.left++
					}
				}
			}
			f.Seen, f.Broken = t.seen(rounds), t.broken()
			return f, nil
		},
	}
}

// tally counts the rounds of a herd.
type tally struct {
	admitted          []string // by round
	over, under, left int      // rounds above Max and below, and keys that count another number than was admitted
}

// add notes a round. A call that failed may have kept a place.
func (t *tally) add(admitted int, failed bool) {
	t.admitted = append(t.admitted, fmt.Sprint(admitted))
	if admitted > places {
		t.over++
	}
	if admitted < places && !failed {
		t.under++
	}
}

func (t *tally) seen(rounds int) string {
	told := t.admitted
	if len(told) > 9 {
		told = slices.Compact(told)
	}
	return fmt.Sprintf("%d racers for %d places, %d rounds: %s admitted", racers, places, rounds, strings.Join(told, " "))
}

// broken returns the promise that does not hold, or "".
func (t *tally) broken() string {
	switch {
	case t.over > 0:
		return "Promise 2 is broken: limits do not hold on this store."
	case t.under > 0:
		return "Callers were denied though there was room."
	case t.left > 0:
		return "After the race another number is counted than was admitted."
	}
	return ""
}

// lateUndo bounds the time from a denial to the end of its undo.
const lateUndo = 2 * time.Second

// counted returns the hits of a key. On a store that may be late, an undo may end
// after the denial that it belongs to: a patient counted then waits for the wanted
// number.
func (s *Subject) counted(ctx context.Context, c *counter.Counter, key counter.Key, want int64, patient bool, f *Failures) (int64, error) {
	for first := time.Now(); ; {
		n, late, err := s.count(ctx, c, key)
		f.Add(late, err)
		if err != nil || n.High == want || s.Judge == nil || !patient || time.Since(first) > lateUndo {
			return n.High, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// race has all racers take one hit at once, every other racer with the keys in
// reverse.
func (s *Subject) race(ctx context.Context, all []*counter.Counter, asks []counter.Ask, f *Failures) (admitted int) {
	reversed := slices.Clone(asks)
	slices.Reverse(reversed)
	var mu sync.Mutex
	ticket.SideBySide(racers, func(i int) {
		mine := asks
		if i%2 == 1 {
			mine = reversed
		}
		v, late, err := judged(s, func() (counter.Verdict, error) { return all[i%len(all)].TakeAll(ctx, mine...) })
		mu.Lock()
		defer mu.Unlock()
		if f.Add(late, err); v.Allowed {
			admitted++
		}
	})
	return admitted
}

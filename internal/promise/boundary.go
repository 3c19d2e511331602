package promise

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

// Boundary has callers try almost without a pause under a limit of a second, for some
// seconds of true time, and looks for a window with too many hits. Each call has a
// Counter of its own: a Counter that was denied would not ask the store for a while.
var Boundary = Case{
	Name: "boundary", Promise: "no window over Max",
	Rule: "in no window of Per more than Max",
	Try: func(ctx context.Context, s *Subject) (f Finding, err error) {
		const callers, longest = 8, 6 * time.Second
		limit := counter.Limit{Max: 2, Per: time.Second}
		ladder := tiers.For(limit.Per)
		// Two windows as the Counter takes them, the second time with room again.
		spent := min(2*(limit.Per+s.Reach)+500*time.Millisecond, longest)
		until, cancel := context.WithTimeout(ctx, spent)
		defer cancel()
		var mu sync.Mutex
		var hits []time.Time // labels
		ticket.SideBySide(callers, func(int) {
			for until.Err() == nil {
				mu.Lock()
				c, made := s.Counter(ladder, false)
				if made != nil {
					err = made
					cancel()
				}
				mu.Unlock()
				if made != nil {
					return
				}
				v, late, err := s.take(ctx, c, counter.Key{Event: "boundary", Feature: "one"}, 1, counter.Limits{limit})
				mu.Lock()
				if f.Add(late, err); v.Allowed {
					hits = append(hits, v.At())
				}
				mu.Unlock()
				select {
				case <-until.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
		if err != nil {
			return f, err
		}
		most := Fullest(hits, limit.Per)
		f.Seen = fmt.Sprintf("%s, %d callers, %s: %d admitted, %d in any second",
			limit, callers, dur.Format(spent.Round(100*time.Millisecond)), len(hits), most)
		switch {
		case most > limit.Max:
			f.Broken = "Promise 2 is broken: limits do not hold on this store."
		case f.Failed == 0 && len(hits) < int(limit.Max):
			f.Broken = "Callers were denied though there was room."
		}
		return f, nil
	},
}

// Fullest returns the number of hits in the fullest window of length per.
func Fullest(hits []time.Time, per time.Duration) (most int64) {
	for _, oldest := range hits {
		var n int64
		for _, h := range hits {
			if since := h.Sub(oldest); since >= 0 && since <= per {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

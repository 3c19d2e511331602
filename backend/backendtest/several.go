package backendtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// racingUpTo is a race of callers for a number of places that is no multiple of theirs.
func racingUpTo(s *subject) {
	s.takePlaces("upto", 12, 31, 60, func(i int) counter.Ask { return counter.Ask{N: int64(1 + i%7), UpTo: true} })
}

// goTogether has more callers of a key than go to a store at once.
func goTogether(s *subject) {
	s.takePlaces("together", 64, 49, 20, func(int) counter.Ask { return counter.Ask{N: 1} })
}

// takePlaces has callers take all places of a key at once, in rounds, and then half of the
// admitted calls give theirs back.
func (s *subject) takePlaces(name string, callers int, places int64, rounds int, ask func(i int) counter.Ask) {
	ctx := context.Background()
	c := s.counter(name, counter.Config{Settle: enough, Patience: enough, Now: func() time.Time { return noon }})
	for round := range rounds / s.thrift {
		key := counter.Key{Event: name, Feature: fmt.Sprint(round)}
		limits := counter.MustLimits(fmt.Sprintf([]string{"%d/h, %d/d", "%[2]d/h, %[1]d per day in UTC"}[round%2], places, places+5))
		counts := func(want int64, what string) {
			if n := value(c.Count(ctx, key, time.Hour)); n.High != want {
				failf("%+v counted %s, want %d", n, what, want)
			}
		}
		verdicts := make([]counter.Verdict, callers)
		together(callers, func(i int) {
			ask := ask(i)
			ask.Key, ask.Limits = key, limits
			verdicts[i] = value(c.TakeAll(ctx, ask))
		})
		taken, admitted := int64(0), slices.DeleteFunc(verdicts, func(v counter.Verdict) bool { return !v.Allowed })
		for i := range admitted {
			taken += admitted[i].N()
		}
		if taken != places {
			failf("%d of %d places taken by %d callers", taken, places, callers)
		}
		counts(places, "after a race")
		for i := range admitted[:(len(admitted)+1)/2] {
			taken -= admitted[i].N()
			must(c.Refund(ctx, &admitted[i]))
		}
		counts(taken, "after refunds")
	}
}

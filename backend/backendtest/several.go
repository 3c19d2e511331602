package backendtest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// racingUpTo is a race of callers for a number of places that is no multiple of theirs.
func racingUpTo(s *subject) {
	const racers, places = 12, 31
	c := s.counter("upto", counter.Config{Settle: enough, Patience: enough, Now: func() time.Time { return noon }})
	for round := range 60 / s.thrift {
		key := counter.Key{Event: "race", Feature: fmt.Sprint(round)}
		limits := counter.MustLimits([]string{"31/h, 36/d", "36/h, 31 per day in UTC"}[round%2])
		var taken atomic.Int64
		verdicts := make([]counter.Verdict, racers)
		together(racers, func(i int) {
			verdicts[i] = value(c.TakeAll(context.Background(), counter.Ask{Key: key, N: int64(1 + i%7), Limits: limits, UpTo: true}))
			taken.Add(verdicts[i].N())
		})
		if n := taken.Load(); n != places {
			failf("%d of %d places taken", n, places)
		}
		if n := value(c.Count(context.Background(), key, time.Hour)); n.High != places {
			failf("%+v counted, of %d", n, places)
		}
		i := slices.IndexFunc(verdicts, func(v counter.Verdict) bool { return v.Allowed })
		n := verdicts[i].N()
		must(c.Refund(context.Background(), &verdicts[i]))
		if got := value(c.Count(context.Background(), key, time.Hour)); got.High != places-n {
			failf("%+v counted after a refund of %d of %d", got, n, places)
		}
	}
}

// goTogether has more callers of a key than go to a store at once.
func goTogether(s *subject) {
	const callers, places = 64, 49
	c := s.counter("together", counter.Config{Settle: enough, Patience: enough, Now: func() time.Time { return noon }})
	for round := range 20 / s.thrift {
		key := counter.Key{Event: "hot", Feature: fmt.Sprint(round)}
		limits := counter.MustLimits([]string{"49/h", "49 per day in UTC"}[round%2])
		verdicts := make([]counter.Verdict, callers)
		together(callers, func(i int) { verdicts[i] = value(c.Take(context.Background(), key, 1, limits)) })
		admitted := slices.DeleteFunc(verdicts, func(v counter.Verdict) bool { return !v.Allowed })
		if n := value(c.Count(context.Background(), key, time.Hour)); len(admitted) != places || n.High != places {
			failf("%d callers, %d of %d admitted, %+v counted", callers, len(admitted), places, n)
		}
		for i := range admitted[:places/2] {
			must(c.Refund(context.Background(), &admitted[i]))
		}
		if n := value(c.Count(context.Background(), key, time.Hour)); n.High != places-places/2 {
			failf("%+v counted after %d refunds of %d", n, places/2, places)
		}
	}
}

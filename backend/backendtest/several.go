package backendtest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
)

// severalTimes makes steps of one key, and of several.
func severalTimes(s *subject) {
	for i, row := range []struct {
		there, n, times int64
		limits          string
		peek            bool
		taken           int64 // 0: denied
	}{
		{0, 1, 5, "9/h", false, 5},
		{7, 1, 5, "9/h", false, 2},
		{8, 1, 5, "9/h", false, 1},
		{9, 1, 5, "9/h", false, 0},
		{0, 1, 50, "9/h", false, 9},
		{2, 3, 5, "9/h", false, 2},
		{2, 3, 2, "9/h", false, 2},
		{7, 3, 5, "9/h", false, 0},
		{2, 2, 1, "9/h", false, 1},
		{3, 1, 9, "5/m, 20/h, 9/d", false, 2},
		{3, 1, 9, "20/m, 9/h, 30/d", false, 6},
		{3, 1, 9, "20/m, 9 per day in UTC, 30/d", false, 6},
		{2, 1, 9, "9/h", true, 7},
		{9, 1, 9, "9/h", true, 0},
		{1, 1, backend.MaxCount, "9007199254740991/h", false, backend.MaxCount - 1},
		{70_000, 70_000, 3, "200000/h", false, 1},
		{1, 66_000, 5, "200000/h", false, 3},
	} {
		key := fmt.Sprint("k", i)
		if row.there > 0 {
			s.add(dayLadder, key, noon, row.there)
		}
		step := s.taking(dayLadder, noon, row.n, 0, demand{key: key, limits: counter.MustLimits(row.limits)})
		step.Times, step.Taken, step.Peek = row.times, garbage, row.peek
		must(s.take(step))
		want := row.there
		if row.taken > 0 && !row.peek {
			want += row.taken * row.n
			if step.Taken != row.taken {
				failf("row %d: %d times, want %d", i, step.Taken, row.taken)
			}
		}
		if step.Allowed != (row.taken > 0) || row.peek && step.Allowed && step.Fitting() != row.taken {
			failf("row %d: allowed %v, fitting %d", i, step.Allowed, step.Fitting())
		}
		during(func() { s.expect(dayLadder, key, noon, noon, want) }, "row %d", i)
		if w := step.Keys[0].Windows[0]; w.Count != row.there {
			failf("row %d: count %d, want %d from before the step", i, w.Count, row.there)
		}
	}
	s.leastOfKeys()
}

// leastOfKeys takes of several keys as often as the key with the least room allows.
func (s *subject) leastOfKeys() {
	demands := []demand{{key: "a", limits: counter.MustLimits("9/h")}, {key: "b", n: 2, limits: counter.MustLimits("9/h, 7/d")}, {key: "c", limits: counter.MustLimits("30/d")}}
	step := s.taking(dayLadder, noon, 1, 0, demands...)
	if step.Times = 8; !s.taker.Together(step.Keys) {
		return
	}
	for round, row := range []struct{ taken, a, b, c int64 }{{3, 3, 6, 3}, {0, 3, 6, 3}} {
		must(s.take(step))
		if step.Allowed != (row.taken > 0) || step.Allowed && step.Taken != row.taken {
			failf("three keys, round %d: allowed %v, %d times", round, step.Allowed, step.Taken)
		}
		for i, want := range []int64{row.a, row.b, row.c} {
			during(func() { s.expect(dayLadder, demands[i].key, noon, noon, want) }, "three keys, round %d", round)
		}
	}
}

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

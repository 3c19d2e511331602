package backendtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/child"
)

// crowd are the callers of [astrideOfProcesses], by their patience.
type crowd struct {
	timeout time.Duration
	rounds  int
	least   float64 // share of the places that are taken
	misled  int     // rounds in which a loser may be told too long: calls that time out leave hits behind for a moment
}

// crowdsAstride take all places, or nearly, with some seconds of patience; with less,
// as many as they can.
var crowdsAstride = []crowd{
	{10 * time.Second, 32, 0.95, 0},
	{50 * time.Millisecond, 12, 0, 1},
}

// astrideOfProcesses has 40 racers in all processes for 7 places, at the end of the
// bucket of their ticket, or of a period: on its two sides, with clocks apart by the skew,
// callers refuse each other. Never too many are admitted; patient callers leave no place
// empty; and no loser is told a longer wait than a lone caller's afterwards, plus
// Skew + Settle.
func astrideOfProcesses(children []*child.Process, store backend.Store, prefix string, out io.Writer) {
	for _, crowd := range crowdsAstride {
		rounds := max(4, crowd.rounds/thrift()) // of each limit one
		var found astride
		for round := range rounds {
			found.race(children, store, prefix, crowd, round)
		}
		share := float64(found.taken) / float64(places*rounds)
		fmt.Fprintf(out, "astride, patience %s: %d of %d places taken in %d rounds, %d calls failed, the slowest took %s; in %d rounds a loser was told up to %s too long\n",
			crowd.timeout, found.taken, places*rounds, rounds, found.failed, found.slowest.Round(time.Millisecond), found.misled, found.wrong.Round(time.Millisecond))
		// A store that loses hits leaves places empty and misleads losers: both are told.
		var empty, misleading error
		if share < crowd.least {
			empty = fmt.Errorf("patience %s: %d of %d places were taken across the ends of buckets, want %.0f %%", crowd.timeout, found.taken, places*rounds, 100*crowd.least)
		}
		if found.misled > crowd.misled {
			misleading = fmt.Errorf("patience %s: in %d of %d rounds a loser was told to wait for up to %s longer than a lone caller afterwards", crowd.timeout, found.misled, rounds, found.wrong)
		}
		must(errors.Join(empty, misleading))
	}
}

// astride is the sum of the rounds of a crowd.
type astride struct {
	taken, failed int
	slowest       time.Duration // call
	misled        int           // rounds with a loser who was told too long
	wrong         time.Duration // by so much, at most
}

// race adds a round, and stops at an error of the store or at more admitted calls than
// places.
func (a *astride) race(children []*child.Process, store backend.Store, prefix string, crowd crowd, round int) {
	limit := []string{"7/d", "7/h", "7/m", "7 per day in UTC"}[round%4]
	width := []time.Duration{time.Hour, time.Hour, time.Minute, 24 * time.Hour}[round%4]
	start := time.Now().Add(20 * time.Millisecond)
	// The clock that is ahead by half the skew is at the boundary in the middle of the
	// crowd.
	const within = 2 * time.Millisecond
	middle := start.Add(within/2 + crewSkew/2)
	boundary := middle.Truncate(width).Add(width)
	o := order{Race: fmt.Sprint(crowd.timeout, round), Limits: limit, Start: start, Within: within, Shift: boundary.Sub(middle), Timeout: crowd.timeout}
	r := all(children, o)
	a.taken, a.failed = a.taken+min(places, len(r.hits)), a.failed+r.failed
	var labels []time.Time
	var told time.Time // of the latest
	for _, out := range r.all {
		a.slowest = max(a.slowest, out.Took)
		if out.Told.After(told) {
			told = out.Told
		}
		if out.Hit != nil {
			labels = append(labels, out.Hit.Label)
		}
	}
	if n := fullestPeriod(counter.MustLimits(limit)[0], labels); n > places {
		failf("%s, patience %s, round %d: %d admitted across the end of a bucket, want at most %d", limit, crowd.timeout, round, n, places)
	}
	// A lone caller afterwards, on the clock that is right.
	now, c := time.Now(), value(counter.New(store, o.config(prefix)))
	v := value(c.Peek(context.Background(), counter.Key{Event: "race", Feature: o.Race}, 1, counter.MustLimits(limit)))
	if beyond := toldBeyond(told, now.Add(v.RetryAfter)); beyond > 0 {
		a.misled++
		a.wrong = max(a.wrong, beyond)
	}
}

// toldBeyond returns by how much the last loser was told to wait longer than a lone
// caller afterwards, plus Skew + Settle and onTheWay. It is not above zero if nobody
// was told.
func toldBeyond(told, lone time.Time) time.Duration {
	return told.Sub(lone.Add(crewSkew + counter.DefaultSettle + onTheWay))
}

// onTheWay is the longest time from the clock's reading that a RetryAfter is counted
// from to the caller, on a machine that is busy. Whoever is told wrongly is told a
// bucket too much: seconds, or an hour.
const onTheWay = 500 * time.Millisecond

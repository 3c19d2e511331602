// Package attack plays a sign-up attack over three virtual days against two
// limiters, a fixed window and abacus, and counts the admitted attempts of each.
package attack

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/cmd/demo/internal/replay"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// Shape of the attack.
const (
	Days       = 3
	BurstLen   = 10 * time.Second // before midnight, and as long after it
	BurstEach  = 60               // attempts in either
	DripEvery  = 10 * time.Minute // afterwards, to the end of the last day
	HoursInAll = Days * 24
)

// Limit is the limit on sign-ups of one address.
var Limit = counter.Limit{Max: 20, Per: dur.Day}

var (
	start    = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	midnight = start.Add(dur.Day)
	attacker = counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
)

// Attempts lists the instants of the attacker's attempts: a burst just before the
// first midnight and a burst just after, then a steady drip.
func Attempts() []time.Time {
	var at []time.Time
	for i := range time.Duration(2 * BurstEach) {
		at = append(at, midnight.Add(-BurstLen+i*BurstLen/BurstEach))
	}
	for t := midnight.Add(DripEvery); t.Before(start.Add(Days * dur.Day)); t = t.Add(DripEvery) {
		at = append(at, t)
	}
	return at
}

// Tally counts the admitted attempts.
type Tally struct {
	Admitted int64
	PerHour  [HoursInAll]int64
	PerDay   [Days]int64
	Worst    int64 // admitted in the fullest true window of Limit
}

// Tell counts the attempts that allow admits. Its error is the error of allow.
func Tell(attempts []time.Time, allow func(at time.Time) (bool, error)) (Tally, error) {
	var t Tally
	var log oracle.Log
	for _, at := range attempts {
		allowed, err := allow(at)
		if err != nil {
			return t, err
		}
		if !allowed {
			continue
		}
		log.Add(at, 1)
		t.PerHour[at.Sub(start)/time.Hour]++
		t.PerDay[at.Sub(start)/dur.Day]++
	}
	t.Admitted, t.Worst = log.Total(), log.Worst(Limit.Per)
	return t, nil
}

// Everything admits everything.
func Everything(time.Time) (bool, error) { return true, nil }

// FixedWindow is the textbook limiter: a counter for each calendar window, here
// the day in UTC. The counter begins anew at midnight, however full a moment ago.
func FixedWindow(limit counter.Limit) func(time.Time) (bool, error) {
	counts := map[int64]int64{}
	return func(at time.Time) (bool, error) {
		window := tiers.Index(at.UnixNano(), limit.Per)
		if counts[window] >= limit.Max {
			return false, nil
		}
		counts[window]++
		return true, nil
	}
}

// Abacus is a Counter on store, which must be empty, with the clock of the
// attempts.
func Abacus(store backend.Store) (func(time.Time) (bool, error), error) {
	var clock time.Time
	c, err := replay.NewCounter(store, tiers.For(Limit.Per), 0, "", &clock)
	if err != nil {
		return nil, err
	}
	return func(at time.Time) (bool, error) {
		clock = at
		v, err := c.Take(context.Background(), attacker, 1, counter.Limits{Limit})
		return v.Allowed, err
	}, nil
}

// Return is the outcome of two attempts about the end of a RetryAfter.
type Return struct {
	Denied     time.Time // the first denial
	RetryAfter time.Duration
	Early      bool // admitted a second, a bucket of the window's edge, sooner than told
	Then       bool // admitted when told
}

// ComeBack attacks until the first denial, and then obeys the verdict.
func ComeBack(store backend.Store, attempts []time.Time) (Return, error) {
	var r Return
	var clock time.Time
	c, err := replay.NewCounter(store, tiers.For(Limit.Per), 0, "", &clock)
	if err != nil {
		return r, err
	}
	ctx, limits := context.Background(), counter.Limits{Limit}
	for _, clock = range attempts {
		v, err := c.Take(ctx, attacker, 1, limits)
		if err != nil {
			return r, err
		}
		if v.Allowed {
			continue
		}
		r.Denied, r.RetryAfter = clock, v.RetryAfter
		back := clock.Add(v.RetryAfter)
		clock = back.Add(-time.Second)
		early, err := c.Peek(ctx, attacker, 1, limits)
		if err != nil {
			return r, err
		}
		clock = back
		then, err := c.Take(ctx, attacker, 1, limits)
		r.Early, r.Then = early.Allowed, then.Allowed
		return r, err
	}
	return r, fmt.Errorf("attack: %d attempts under %s, and none was denied", len(attempts), Limit)
}

package counter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// byTicket has the methods of a store without an atomic step, on another machine.
type byTicket struct{ backend.Store }

// Around the end of a month in Berlin, which is no end of a day in UTC: by the fast path,
// by an atomic step and by ticket.
func TestTakeByTheCalendar(t *testing.T) {
	limits := counter.MustLimits("3 per month in Europe/Berlin")
	ladder := limits.Ladder()
	end := time.Date(2026, 10, 31, 23, 0, 0, 0, time.UTC)
	const skew = 100 * time.Millisecond
	for name, store := range map[string]backend.Store{
		"memory": memory.New(memory.Config{}), "an atomic step": struct{ backend.Atomic }{memory.New(memory.Config{})}, "by ticket": byTicket{memory.New(memory.Config{})},
	} {
		t.Run(name, func(t *testing.T) {
			var now time.Time
			c := try.To(counter.New(store, counter.Config{Ladder: ladder, Skew: skew, Settle: -1, Patience: -1, Now: func() time.Time { return now }}))(t)
			key, ctx := counter.Key{Event: "call", Feature: "user:7"}, context.Background()
			take := func(at time.Time, want bool, left int64, wait time.Duration) {
				now = at
				v := try.To(c.Take(ctx, key, 1, limits))(t)
				require.Equal(t, []any{want, left, wait}, []any{v.Allowed, v.Remaining, v.RetryAfter}, "%s", v)
				require.Equal(t, left, try.To(c.Peek(ctx, key, 0, limits))(t).Remaining)
			}
			first := time.Date(2026, 9, 30, 22, 0, 0, 0, time.UTC)
			take(first.Add(-1), true, 2, 0) // the last instant of September
			take(first, true, 2, 0)
			take(end.Add(-time.Hour), true, 1, 0)
			take(end.Add(-time.Minute), true, 0, 0)
			take(end.Add(-time.Second), false, 0, time.Second+skew)
			take(end.Add(-1), false, 0, 1+skew)
			take(end, true, 2, 0)
			take(end.Add(1), true, 1, 0)

			// A clock behind is still in October, which is full.
			take(end.Add(-skew/2), false, 0, skew/2+skew)

			// A credit takes back from November alone.
			now = end.Add(time.Hour)
			try.To(c.Charge(ctx, key, -9, limits))(t)
			take(end.Add(time.Hour), true, 2, 0)
			take(end.Add(-2*time.Second), false, 0, 2*time.Second+skew)
		})
	}
}

// A ladder holds its limits in any zone, and is the same in all.
func TestLadderOfLimits(t *testing.T) {
	for text, want := range map[string]string{
		"100/h, 5/m": "1s:1h, 1m:1h, 1h:1h",
		"1 per day in UTC, 1 per day in Asia/Kathmandu":     "15m:1d8h, 1h:1d8h",
		"1 per day in Antarctica/Troll, 1 per week in UTC":  "15m:7d8h, 1h:7d8h, 1d:7d8h",
		"1000 per month in Europe/Berlin, 100/h":            "1s:1h, 1m:1h, 15m:31d8h, 1h:31d8h, 1d:31d8h",
		"1000 per month from 15 in UTC, 100/h":              "1s:1h, 1m:1h, 15m:31d8h, 1h:31d8h, 1d:31d8h",
		"1/30d, 1 per day in Asia/Tokyo":                    "1s:30d, 1m:30d, 15m:30d, 1h:30d, 1d:30d",
		"9/15ms, 9/90ms, 9/2s, 9/d, 1 per week in UTC":      "1ms:90ms, 50ms:2s, 1s:1d, 1m:1d, 15m:7d8h, 1h:7d8h, 1d:7d8h",
		"9/15ms, 9/200ms, 9/2s, 9/100s, 1 per month in UTC": "1ms:15ms, 5ms:200ms, 50ms:2s, 1s:1m40s, 10s:1m40s, 15m:31d8h, 1h:31d8h, 1d:31d8h",
	} {
		limits := counter.MustLimits(text)
		require.Equal(t, want, limits.Ladder().String(), text)
		require.NoError(t, limits.Check(limits.Ladder()), text)
	}
	require.Equal(t, tiers.Default, counter.Limits{}.Ladder())
	for _, unit := range []string{"day", "week", "month from 31"} {
		ladder := counter.MustLimits("1 per " + unit + " in UTC").Ladder()
		for _, zone := range []string{"Africa/Monrovia", "America/St_Johns", "Antarctica/Casey", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Berlin", "Pacific/Apia", "Pacific/Kiritimati"} {
			limits := counter.MustLimits("1 per " + unit + " in " + zone)
			require.Equal(t, ladder, limits.Ladder(), zone)
			require.NoError(t, limits.Check(ladder), zone)
		}
	}
}

func TestParseLimitsByTheCalendar(t *testing.T) {
	for text, want := range map[string]string{
		"100/h, 1000 per month in Europe/Berlin": "100/h, 1000 per month in Europe/Berlin",
		" 100  per  day  in UTC ":                "100 per day in UTC",
		"1000 per month from 15 in Asia/Tokyo":   "1000 per month from 15 in Asia/Tokyo",
		"50 per week in UTC":                     "50 per week in UTC",
	} {
		limits := try.To(counter.ParseLimits(text))(t)
		require.Equal(t, want, limits.String())
		require.Equal(t, limits, try.To(counter.ParseLimits(want))(t))
		require.NoError(t, limits.Check(limits.Ladder()))
	}
	for text, says := range map[string]string{
		"5 per hour":                     `limit "5 per hour": tiers: period "hour": want day, week or month; a window that slides is 5/hour`,
		"5 per day":                      `period "day": want one time zone after day, such as day in UTC or day in Europe/Berlin; a window that slides is 5/day`,
		"x per day":                      `limit "x per day": "x" is not a whole number`,
		"5 per day in Mars/X":            `unknown time zone "Mars/X"`,
		"-1 per day in UTC":              "max -1, want 0 to",
		"-99999999999999999999 per day":  "max -99999999999999999999, want 0 to 9007199254740991",
		"5 per day in UTC, 7 per day on": `period "day on": want one time zone after day`,
	} {
		require.ErrorContains(t, try.Err(counter.ParseLimits(text)), says)
	}
	hours := try.To(tiers.Parse("1h:32d"))(t)
	require.NoError(t, counter.MustLimits("1 per month in Europe/Berlin").Check(hours))
	require.ErrorContains(t, counter.MustLimits("1 per month in Asia/Kolkata").Check(hours), "buckets of 1h for it, and the month in Asia/Kolkata does not begin with a bucket")
	day := counter.MustLimits("1 per day in UTC")
	day[0].Per = time.Hour
	require.ErrorContains(t, day.Check(tiers.Default), "want a Per or a Period")
}

package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// A tighter rule denies as many of the counted hits as of a log of these hits.
func TestAsTheLog(t *testing.T) {
	began := time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC)
	random := rand.New(rand.NewPCG(1, 2))
	for _, row := range []struct{ old, tighter string }{
		{"100/h,1000/d", "40/h,1000/d"},
		{"100/h,1000/d", "10/m,100/h,300/d"},
		{"2000/3d", "50/h,700/3d"},
		{"100/h,2000/3d", "100/h,2000/3d,300 per day in UTC"},
	} {
		rule := limiter.Rule{Event: "signup", Kind: "user", Limits: counter.MustLimits(row.old)}
		tighter := rule
		tighter.Limits = counter.MustLimits(row.tighter)
		require.Empty(t, looserRule(rule, tighter))
		now := began
		count := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }}))(t)
		lim := try.To(limiter.New(count, limiter.Config{Rules: []limiter.Rule{rule}}))(t)
		feature := feature.New("user", "7")
		var admitted []counter.Point
		for now.Sub(began) < 20*time.Hour {
			// Bursts, and hours of silence.
			now = now.Add(time.Duration(random.ExpFloat64() * float64(5*time.Second)))
			if random.IntN(2000) == 0 {
				now = now.Add(3 * time.Hour)
			}
			v := try.To(lim.Allow(t.Context(), "signup", feature))(t)
			if v.Allowed {
				admitted = append(admitted, counter.Point{Start: now, Count: 1})
			}
		}
		want := try.To(deniedOf(t.Context(), tighter, feature, admitted))(t)
		require.Greater(t, want, int64(50))

		on := try.To(count.With(lim.Rules("signup")[0].Ladder, nil))(t)
		hits := try.To(historyOf(t.Context(), on, counter.Key{Event: "signup", Feature: "user:7"}))(t)
		var sum int64
		for _, p := range hits {
			sum += p.Count
		}
		require.EqualValues(t, len(admitted), sum)
		got := try.To(deniedOf(t.Context(), tighter, feature, hits))(t)
		require.Equal(t, want, got, "%s of %s", row.tighter, row.old)
		t.Logf("%s after %s: %d of %d denied, as by the log", row.tighter, row.old, got, sum)
	}
}

func TestLooser(t *testing.T) {
	for _, row := range []struct {
		old, rule string
		looser    bool
	}{
		{"100/h", "100/h", false},
		{"100/h", "90/h", false},
		{"100/h", "100/h,200/d", false},
		{"100/h", "100/d", false}, // any 100 of a day are no more than 100 of an hour
		{"100/h", "101/h", true},
		{"100/h,200/d", "100/h", true},
		{"100/h", "10/m", true},
		{"100 per day in UTC", "90 per day in UTC", false},
		{"100 per day in UTC", "100/d", false},
		{"100 per day in Europe/Berlin", "100/d", true}, // which has 25 hours once a year
		{"100/d", "100 per day in UTC", true},
		{"100 per day in UTC", "100 per day in Europe/Berlin", true},
	} {
		a, b := limiter.Rule{Limits: counter.MustLimits(row.old)}, limiter.Rule{Limits: counter.MustLimits(row.rule)}
		require.Equal(t, row.looser, looserRule(a, b) != "", "%v", row)
	}
	limits := counter.MustLimits("100/h")
	exempt := []limiter.Override{{Value: "x", Exempt: true}}
	denied := []limiter.Override{{Value: "x", Denied: true}}
	more := []limiter.Override{{Value: "x", Limits: counter.MustLimits("200/h")}}
	less := []limiter.Override{{Value: "x", Limits: counter.MustLimits("20/h")}}
	least := []limiter.Override{{Value: "x", Limits: counter.MustLimits("10/h")}}
	until := func(all []limiter.Override, year int) []limiter.Override {
		o := all[0]
		o.Until = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		return []limiter.Override{o}
	}
	for _, row := range []struct {
		old, rule []limiter.Override
		looser    bool
	}{
		{nil, exempt, true}, {exempt, nil, false}, {exempt, exempt, false}, {denied, exempt, true},
		{nil, denied, false}, {denied, nil, true}, {nil, more, true}, {more, nil, false}, {nil, less, false}, {less, nil, true}, {more, more, false}, {less, more, true},
		{denied, less, true}, {least, less, true}, {less, least, false}, {exempt, denied, false},
		{until(exempt, 2020), exempt, true}, {exempt, until(exempt, 2020), false}, {until(exempt, 2020), until(exempt, 2020), false},
		{denied, until(denied, 2020), true}, {until(denied, 2020), denied, false}, {nil, until(less, 2020), false}, {until(less, 2020), nil, true},
	} {
		a, b := limiter.Rule{Limits: limits, Overrides: row.old}, limiter.Rule{Limits: limits, Overrides: row.rule}
		require.Equal(t, row.looser, looserRule(a, b) != "", "%v", row)
	}
	require.Equal(t, "the ban is shorter", looserRule(limiter.Rule{Limits: limits, Ban: limiter.Bans{time.Hour}}, limiter.Rule{Limits: limits}))
}

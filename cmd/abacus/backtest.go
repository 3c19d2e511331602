package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// looserRule is the reason for which rule cannot be tried on the hits admitted under old:
// rule admits hits that old denies, and denied hits are not counted. The reason is
// empty if rule admits a subset of the hits admitted under old.
func looserRule(old, rule limiter.Rule) string {
	if reason := looser(old.Limits, rule.Limits); reason != "" {
		return reason
	}
	for i := range max(len(old.Ban), len(rule.Ban)) {
		if at(old.Ban, i) > at(rule.Ban, i) {
			return "the ban is shorter"
		}
	}
	without := [2]limiter.Override{{Limits: old.Limits}, {Limits: rule.Limits}}
	for _, of := range slices.Concat(rule.Overrides, old.Overrides) {
		before, after := except(old, of.String()), except(rule, of.String())
		reason := looserOverride(before, after)
		if !before.Until.Equal(after.Until) { // one goes on without the other
			if !before.Until.IsZero() {
				reason = cmp.Or(reason, looserOverride(without[0], after))
			}
			if !after.Until.IsZero() {
				reason = cmp.Or(reason, looserOverride(before, without[1]))
			}
		}
		if reason != "" {
			return "for " + of.String() + ": " + reason
		}
	}
	return ""
}

// except is the Override of r that has the name given, or what holds without one.
func except(r limiter.Rule, name string) limiter.Override {
	for _, o := range r.Overrides {
		if o.String() == name {
			return o
		}
	}
	return limiter.Override{Limits: r.Limits}
}

// looserOverride is looser of two Overrides of the same features.
func looserOverride(old, o limiter.Override) string {
	switch {
	case old.Exempt || o.Denied:
		return ""
	case o.Exempt:
		return "an exempt feature is admitted always"
	case old.Denied:
		return "a denied feature is admitted again"
	}
	return looser(old.Limits, o.Limits)
}

// looser names a limit of old that no limit of limits implies.
func looser(old, limits counter.Limits) string {
	for _, a := range old {
		if !slices.ContainsFunc(limits, func(b counter.Limit) bool { return b.Max <= a.Max && within(a, b) }) {
			return fmt.Sprintf("%s held until now, and %s admits more", a, limits)
		}
	}
	return ""
}

// within reports whether each window of a is in a window of b.
func within(a, b counter.Limit) bool {
	return a.Period == b.Period && a.Per <= b.Per || b.Period.IsZero() && a.Window() <= b.Per
}

// historyOf returns the hits of key on c, oldest first, in buckets of the finest tier
// that is kept longest. Spans without a hit in a coarse bucket are not read.
func historyOf(ctx context.Context, c *counter.Counter, key counter.Key) (hits []counter.Point, err error) {
	ladder, now := c.Config().Ladder, c.Config().Now()
	top := ladder.Len() - 1
	spans := []span{{from: now.Add(-ladder.At(top).Keep), to: now.Add(c.Config().Skew + 1)}}
	for _, t := range []tiers.Tier{ladder.At(top), ladder.At(ladder.Base(top))} {
		var filled []span
		hits = nil
		for p, err := range filledIn(ctx, c, key, t, spans) {
			if err != nil {
				return nil, err
			}
			end := p.Start.Add(t.Width)
			if last := len(filled) - 1; last >= 0 && filled[last].from.Equal(end) {
				filled[last].from = p.Start
			} else {
				filled = append(filled, span{p.Start, end})
			}
			hits = append(hits, p)
		}
		spans = filled
	}
	slices.Reverse(hits)
	return hits, nil
}

// deniedOf returns the number of denials of rule, enforced alone, for the admitted
// hits of feature, oldest first.
func deniedOf(ctx context.Context, rule limiter.Rule, feature feature.Feature, hits []counter.Point) (denied int64, err error) {
	var now time.Time
	rule.Soft, rule.Percent, rule.Former, rule.OnFailure = false, 0, nil, limiter.FailClosed
	count, err := counter.New(memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }})
	if err != nil {
		return 0, err
	}
	lim, err := limiter.New(count, limiter.Config{Rules: []limiter.Rule{rule}})
	if err != nil {
		return 0, err
	}
	for _, hit := range hits {
		now = hit.Start
		for range hit.Count {
			verdict, err := lim.Allow(ctx, rule.Event, feature)
			if err != nil {
				return denied, err
			}
			if !verdict.Allowed {
				denied++
			}
		}
	}
	return denied, nil
}

// at returns the length of the ban after i others; 0 for none.
func at(bans limiter.Bans, i int) time.Duration {
	if len(bans) == 0 {
		return 0
	}
	return bans[min(i, len(bans)-1)]
}

package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/tiers"
)

// Usage is the state of a key beside the limits of its rule, and the course of
// the hits of a day: for a page of the people who run the service.
// [Limiter.Usage] returns a Usage for each key.
type Usage struct {
	Key    counter.Key
	Kind   string       // of the feature
	Limits []LimitUsage // the limits by which a call with these features would be judged, in order

	// Banned is the time that is left of the ban of the feature: see Rule.Ban.
	// 0: the feature is not banned.
	Banned time.Duration

	// Override is the Override that holds for the feature: with Limits, or exempt
	// or denied, and then no limit is asked; nil: none. Override belongs to the
	// Limiter, and must not be changed.
	Override *Override

	// Total counts the hits in Window, the longest time that the counter's ladder
	// keeps. Series is the course of these hits, oldest first: at most 100 points,
	// each Width long; the last ends after now, and the first begins less than
	// Width after the begin of Window. The points of a ladder without a coarse tier
	// may cover the newest part of Window only.
	Total  counter.Count
	Window time.Duration
	Series []counter.Point
	Width  time.Duration
}

// LimitUsage is the state of a key under one limit.
type LimitUsage struct {
	Limit      counter.Limit
	Count      counter.Count // hits in the window that ends now; decisions use High
	Remaining  int64         // hits for which the limit has room now
	RetryAfter time.Duration // until the limit has room for a hit; 0: there is room
}

// Usage returns the counts of an event by these features: a Usage for each key,
// in the order of the rules, and each key once. Usage counts nothing. The keys
// are the keys of [Limiter.Forget], so a page finds Ada@Example.org however the
// address is typed, and a Forget with the same features unlocks the customer.
// Each key costs a few reads of the store; hits that wait to be carried to the
// store are not included. An error is that of Forget for the features, or the store's.
func (l *Limiter) Usage(ctx context.Context, event string, features ...feature.Feature) ([]Usage, error) {
	keys, err := l.keysOf(event, features...)
	if err != nil {
		return nil, err
	}
	if !l.taker.Begin() {
		return nil, ErrClosed
	}
	defer l.taker.End()
	all := make([]Usage, len(keys))
	for i, k := range keys {
		o := k.rule.overrides.of(k.feature, []byte(k.key.Feature))
		by := o
		if o != nil && o.Limits == nil {
			by = nil
		}
		t, err := k.rule.termsOf(ctx, event, 1, k.feature, features, by)
		if err != nil {
			return nil, err
		}
		if all[i], err = k.usage(ctx, t.limits); err != nil {
			return nil, fmt.Errorf("limiter: usage: %w", err)
		}
		if o != nil {
			all[i].Override = o.Override
		}
	}
	return all, nil
}

func (k *ruleKey) usage(ctx context.Context, limits counter.Limits) (Usage, error) {
	c, ladder := k.rule.counter, k.rule.counter.Config().Ladder
	u := Usage{Key: k.key, Kind: k.feature.Kind(), Window: ladder.At(ladder.Len() - 1).Keep}
	v, err := c.Peek(ctx, k.key, 1, limits)
	if err != nil {
		return u, err
	}
	for i, state := range v.All() {
		limit := limits[i]
		count, err := c.Count(ctx, k.key, limit.Per)
		if err != nil {
			return u, err
		}
		remaining := state.Remaining
		if v.Allowed { // less the hit of the Peek
			remaining++
		}
		u.Limits = append(u.Limits, LimitUsage{limit, count, remaining, state.RetryAfter})
	}
	if ban := k.rule.ban; ban != nil {
		v, err := ban.counter.Peek(ctx, ban.key(k.key), 0, ban.look)
		if err != nil {
			return u, err
		}
		u.Banned = v.RetryAfter
	}
	if u.Total, err = c.Count(ctx, k.key, u.Window); err != nil {
		return u, err
	}
	// The coarsest tier of which the window has a dozen buckets.
	width := ladder.At(ladder.Len() - 1).Width
	for i := ladder.Len() - 2; i >= 0 && u.Window/width < 12 && ladder.At(i).Keep >= u.Window; i-- {
		width = ladder.At(i).Width
	}
	const points = 100
	each := min(max(1, (u.Window/width+points-1)/points), counter.MaxPoints/points-1)
	u.Width = each * width
	now := c.Config().Now()
	oldest := tiers.Bucket{Width: u.Width, Index: tiers.Index(now.Add(-min(u.Window, points*u.Width)).UnixNano(), u.Width) + 1}
	u.Series, err = c.Series(ctx, k.key, oldest.Start(), now.Add(1), u.Width)
	return u, err
}

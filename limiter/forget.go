package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/tiers"
)

// Forget sets an event's counts by the given features to zero: support lets a customer
// in again, or a good log-in clears earlier failures. All rules of the event with a key
// among the features start again, and the rules by other kinds keep their counts.
// Features of a kind without a rule, and missing features, are ignored, as by Allow; if
// no feature is left, Forget returns an error.
//
// A ban is lifted. Known denials in this process, hits of the local counter and hits
// waiting to be carried to the store are forgotten as well; the local counters of other
// processes keep their hits. For the time, for calls under way and for errors see
// [counter.Counter.Forget]; an error of one key does not hold up the other keys.
func (l *Limiter) Forget(ctx context.Context, event string, features ...feature.Feature) error {
	keys, err := l.rules.Load().keysOf(event, features)
	if err != nil {
		return err
	}
	return l.forget(ctx, keys, false)
}

// Erase removes a person from the store and from the memory of this process:
// the keys of these features, of all events. Afterwards no name and no value in
// the store has the text of a feature; a digest of each key stays for as long as
// hits of the past can be refunded. A feature of [feature.Join] is a feature of its own,
// to be erased next to its parts. It is an error if no event has rules by the
// kind of a feature, or if a feature is missing; nothing was erased then. Bans of
// other lengths that rules of this Limiter had before a Replace are erased too; a
// process that started later knows only the length of its own rules.
//
// For the time and for calls under way see [counter.Counter.Erase]. After an
// error, and where calls may have been under way, a second Erase removes the
// rest.
func (l *Limiter) Erase(ctx context.Context, features ...feature.Feature) error {
	set, kinds := l.rules.Load(), map[string]bool{}
	events := set.names()
	for _, event := range events {
		for _, p := range set.events[event].rules {
			for _, kind := range p.kinds() {
				kinds[kind] = true
			}
		}
	}
	for i := range features {
		f := &features[i]
		switch {
		case f.Err() != nil:
			return fmt.Errorf("limiter: %w", f.Err())
		case !kinds[f.Kind()]:
			return fmt.Errorf("limiter: Erase: no event has rules by %q, want a feature of %s", f.Kind(), words.Quoted(slices.Sorted(maps.Keys(kinds))))
		case f.Missing():
			return fmt.Errorf("limiter: Erase: feature %q is missing", f.Kind())
		}
	}
	if len(features) == 0 {
		return errors.New("limiter: Erase: no features, want at least one")
	}
	var keys []ruleKey
	for _, event := range events {
		keys = set.events[event].appendKeys(keys, features)
	}
	return l.forget(ctx, keys, true)
}

// ruleKey is a key of a rule.
type ruleKey struct {
	rule    *prepared
	feature *feature.Feature // of Kind or Else of the rule
	key     counter.Key
	soft    *counter.Counter // of a soft rule beside, with the ladder of the soft rule; nil: none
}

// keysOf returns the keys of features under the rules of an event, at least one.
func (set *ruleset) keysOf(event string, features []feature.Feature) ([]ruleKey, error) {
	of, err := set.of(event, features)
	if err != nil {
		return nil, err
	}
	keys := of.appendKeys(nil, features)
	if len(keys) == 0 {
		var kinds []string
		for _, p := range of.rules {
			kinds = append(kinds, p.kinds()...)
		}
		return nil, fmt.Errorf("limiter: event %q: none of %s is a feature of %s, by which the event has rules", event, words.Plural(int64(len(features)), "feature"), words.Quoted(kinds))
	}
	return keys, nil
}

// appendKeys appends the keys of features under the rules, each once and in the order
// of the rules.
func (of *eventRules) appendKeys(keys []ruleKey, features []feature.Feature) []ruleKey {
	for _, p := range of.rules {
		for _, kind := range p.kinds() {
			for j := range features {
				f := &features[j]
				if !f.Of(kind) || f.Missing() {
					continue
				}
				k := ruleKey{rule: p, feature: f, key: counter.Key{Event: of.event, Feature: string(of.normalizer.Append(nil, f))}}
				i := slices.IndexFunc(keys, func(other ruleKey) bool { return other.key == k.key })
				switch {
				case i < 0:
					keys = append(keys, k)
				case p.Soft && p.counter != keys[i].rule.counter:
					keys[i].soft = p.counter
				}
			}
		}
	}
	return keys
}

// forget forgets keys in the store and in this process.
func (l *Limiter) forget(ctx context.Context, keys []ruleKey, erase bool) error {
	if !l.taker.Begin() {
		return ErrClosed
	}
	defer l.taker.End()
	empty, name := (*counter.Counter).Forget, "forget"
	if erase {
		empty, name = (*counter.Counter).Erase, "erase"
	}
	var errs []error
	for _, k := range keys {
		// A carry under way would add its hits after the store has forgotten.
		errs = append(errs, l.taker.Forget(ctx, k.key), empty(k.rule.counter, ctx, k.key))
		if k.rule.here != nil {
			errs = append(errs, empty(k.rule.here, ctx, k.key))
		}
		if k.soft != nil {
			errs = append(errs, empty(k.soft, ctx, k.key))
		}
		for _, ban := range k.rule.bans {
			if ban.here != nil {
				errs = append(errs, l.taker.Forget(ctx, ban.key(k.key)), empty(ban.here, ctx, ban.key(k.key)))
			}
			errs = append(errs, empty(ban.counter, ctx, ban.key(k.key)))
		}
	}
	l.turns.Freed(func(key counter.Key) bool {
		return slices.ContainsFunc(keys, func(k ruleKey) bool { return k.key == key })
	})
	if l.observe != nil {
		for i := range keys {
			l.observe(Decision{Event: keys[i].key.Event, Kind: keys[i].feature.Kind(), Outcome: OutcomeForgotten, Key: HiddenKey(keys[i].key)})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("limiter: %s: %w", name, err)
	}
	return nil
}

// Usage is the state of a key next to the limits of its rule, and the course of
// the hits of a day: for a page of the people who run the service.
// [Limiter.Usage] returns a Usage for each key.
type Usage struct {
	Key    counter.Key
	Kind   string       // of the feature
	Limits []LimitUsage // the limits by which a call with these features would be judged, in order

	// Banned is the time that is left of the ban of the feature: see Rule.Ban.
	// 0: the feature is not banned.
	Banned time.Duration

	// BanStep is the number of the last time of Rule.Ban for which the feature was
	// banned, 1 for the first, while that is remembered; 0: the next ban is the first.
	BanStep int

	// Override is the Override that holds for the feature: with Limits, or exempt
	// or denied, and then no limit is asked; nil: none. Override belongs to the
	// Limiter, and must not be changed.
	Override *Override

	// Total counts the hits in Window, the longest time that the counter's ladder
	// keeps. Series is the course of these hits, oldest first: at most 100 points,
	// each Width long; the last ends after now, and the first begins less than
	// Width after the start of Window. The points of a ladder without a coarse tier
	// may cover the newest part of Window only.
	Total  counter.Count
	Window time.Duration
	Series []counter.Point
	Width  time.Duration
}

// LimitUsage is the state of a key under one limit.
type LimitUsage struct {
	Limit      counter.Limit
	Count      counter.Count // hits in the window that ends now, or in the period so far; decisions use High
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
	keys, err := l.rules.Load().keysOf(event, features)
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
		t, err := k.rule.termsOf(ctx, event, 1, k.feature, ownOf(k.feature), features, by)
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

// count returns the hits in the window of a limit. No bucket of a period counts in part.
func (k *ruleKey) count(ctx context.Context, limit counter.Limit) (counter.Count, error) {
	if limit.Period.IsZero() {
		return k.rule.counter.Count(ctx, k.key, limit.Per)
	}
	limit.Max = counter.MaxCount
	v, err := k.rule.counter.Peek(ctx, k.key, 0, counter.Limits{limit})
	n := counter.MaxCount - v.Remaining
	return counter.Count{Low: n, High: n}, err
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
		count, err := k.count(ctx, limit)
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
		v, err := ban.counter.Peek(ctx, ban.key(k.key), 0, ban.seen)
		if err != nil {
			return u, err
		}
		u.BanStep = ban.reached(&v)
		if step, left := ban.holds(&v); left > 0 {
			u.Banned, u.BanStep = left, max(u.BanStep, step+1)
		}
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

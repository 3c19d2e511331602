package limiter

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter/fallback"
	"github.com/abacus-go/abacus/tiers"
)

// ban is the Ban of a rule. A feature is banned while the key of the ban holds a
// hit. Each call looks at the key of the ban in the step that judges the feature:
// no hits under a Max of zero. A call denied by the feature's limits takes the
// only hit that fits under a Max of 1. So one of several racing calls begins the
// ban, and none prolongs the ban.
type ban struct {
	counter    *counter.Counter // counts on the ladder of the ban
	on         *counter.Counter // counter, or nil if that is the Limiter's
	look, take counter.Limits
	here       *counter.Counter // counts the bans that this process knows of, on the local counter; nil if the rule never counts locally
	local      *fallback.Rule   // look, on here; nil too
}

// banPrefix begins the Feature of a ban's key, before the text of the feature.
// No kind is empty, so no feature has such a key.
const banPrefix = ":ban:"

func newBan(per time.Duration, l *ladders) (*ban, error) {
	on, err := l.on(tiers.For(per), nil)
	if err != nil {
		return nil, err
	}
	return &ban{counter: cmp.Or(on, l.counter), on: on, look: counter.Limits{{Max: 0, Per: per}}, take: counter.Limits{{Max: 1, Per: per}}}, nil
}

// keepBans keeps the bans of other lengths by the rules of before, nil if there are
// none: their keys are other keys of the store, and may still be there. It also keeps
// bans of the same length that the local counter knows and those of the rule do not.
func (p *prepared) keepBans(before *ruleset) {
	if p.ban != nil {
		p.bans = []*ban{p.ban}
	}
	if before == nil || before.events[p.Event] == nil {
		return
	}
	for _, kind := range p.kinds() {
		old := before.events[p.Event].counting(kind)
		if old == nil {
			continue
		}
		for _, b := range old.bans {
			if !slices.ContainsFunc(p.bans, func(kept *ban) bool { return kept.counter == b.counter && (kept.here != nil || b.here == nil) }) {
				p.bans = append(p.bans, b)
			}
		}
	}
}

// key is the key of the ban of a feature, whose own key is given.
func (b *ban) key(of counter.Key) counter.Key {
	return counter.Key{Event: of.Event, Feature: banPrefix + of.Feature}
}

// bannable is a key of a call whose rule has a Ban; the key of the ban is the
// next in the call.
type bannable struct {
	ask int
	ban *ban
}

// banned is a key with the rest of the key's ban.
type banned struct {
	key  counter.Key
	left time.Duration
}

// ban completes a verdict of the store with the bans that hold, and begins those that
// follow from it. own are the open hits of the call, or nil; a verdict that was known
// before begins none of the store's.
func (l *Limiter) ban(ctx context.Context, v *Verdict, c *call, asks []counter.Ask, own *open, known bool) {
	v.lookForBans()
	if begins := v.local && !v.Banned || !v.local && !known; begins && c.Mode == fallback.Taking && !v.Allowed {
		l.soften(v, c, asks, own)
		l.beginBans(ctx, v, c, asks)
	}
	if !known && v.Degraded == nil {
		v.rememberBans(c, asks)
	}
}

// lookForBans has v speak of features alone, not of the keys of their bans.
func (v *Verdict) lookForBans() {
	for _, s := range v.Verdict.All() {
		if feature, isBan := strings.CutPrefix(s.Key.Feature, banPrefix); isBan && s.RetryAfter > 0 {
			v.bans = append(v.bans, banned{counter.Key{Event: s.Key.Event, Feature: feature}, s.RetryAfter})
		}
	}
	if v.Banned = len(v.bans) > 0; v.Banned || strings.HasPrefix(v.Key.Feature, banPrefix) {
		v.bind()
	}
}

// bind sets the flat fields of v by its states.
func (v *Verdict) bind() {
	for i, s := range v.All() {
		if binds := s.Remaining < v.Remaining; i == 0 || v.Allowed && binds || !v.Allowed && s.RetryAfter > v.RetryAfter {
			v.Key, v.Limit, v.Remaining, v.RetryAfter, v.ResetAfter = s.Key, s.Limit, s.Remaining, s.RetryAfter, s.ResetAfter
		}
	}
}

// beginBans bans the features whose limits have denied the call, unless hits that may
// yet go have denied it: held hits may be counted twice, open hits undone, and a Share
// of a limit is not the limit. If the store does not take a ban, the ban is not begun,
// and the denial stays.
func (l *Limiter) beginBans(ctx context.Context, v *Verdict, c *call, asks []counter.Ask) {
	states := v.All()
	for _, b := range c.bans {
		ask := &asks[b.ask]
		if ask.N == 0 || !v.denies(states, ask.Key) || v.bannedFor(ask.Key) > 0 {
			continue
		}
		var taken counter.Verdict
		on, begun := b.ban.counter, false
		switch rule := c.rule(b.ask); {
		case !v.local && ask.Held == nil:
			taken, begun = l.banInStore(ctx, b.ban, asks[b.ask+1].Key, c.Until)
		case v.local && rule != nil && rule.Denies(ask.Key, ask.N):
			on = b.ban.here
			taken, begun = b.ban.banHere(asks[b.ask+1].Key)
		}
		if !begun {
			continue
		}
		left := taken.RetryAfter
		if taken.Allowed {
			left = taken.ResetAfter + on.Config().Skew // as RetryAfter: the next call may come from the slowest clock
		}
		v.Banned, v.bans = true, append(v.bans, banned{ask.Key, left})
	}
	if v.Banned {
		v.bind()
	}
}

// banInStore begins a ban, in the time that is left for the call. A ban that comes
// later holds too.
func (l *Limiter) banInStore(ctx context.Context, b *ban, key counter.Key, until time.Time) (taken counter.Verdict, ok bool) {
	c := &fallback.Call{Policy: fallback.Open, Until: until}
	by, err := l.taker.Take(ctx, c, []counter.Ask{{Key: key, N: 1, Limits: b.take, On: b.on}}, &taken)
	return taken, err == nil && by.Degraded == nil
}

// banHere begins a ban in the local counter, and has it carried to the store, where
// the other processes find it.
func (b *ban) banHere(key counter.Key) (taken counter.Verdict, ok bool) {
	taken, err := b.here.Take(context.Background(), key, 1, b.take)
	if err == nil && taken.Allowed {
		b.local.Carry(key, b.here.Config().Now())
	}
	return taken, err == nil
}

// rule is the rule by which the ask of index i counts in this process; nil: none.
func (c *call) rule(i int) *fallback.Rule {
	if c.Rules == nil {
		return nil
	}
	return c.Rules[i]
}

// rememberBans has the local counter know the bans that the store has answered, for
// the time without the store. A ban ends here a bucket and the Skew of the local
// counter later at most. A local counter that is full does not learn a ban.
func (v *Verdict) rememberBans(c *call, asks []counter.Ask) {
	for _, b := range c.bans {
		left, here, key := v.bannedFor(asks[b.ask].Key), b.ban.here, asks[b.ask+1].Key
		if left <= 0 || here == nil {
			continue
		}
		if known, err := here.Peek(context.Background(), key, 0, b.ban.look); err == nil && known.RetryAfter > 0 {
			continue
		}
		since := max(0, b.ban.look[0].Per-left)
		_ = here.AddAt(context.Background(), key, 1, here.Config().Now().Add(-since))
	}
}

// denies reports whether a limit of key denies the call for now, and not for open
// hits alone. A call for more than a Max is denied for ever, and is no reason for a
// ban.
func (v *Verdict) denies(states []counter.State, key counter.Key) (denied bool) {
	for _, s := range states {
		if s.Key == key && s.RetryAfter == counter.Never {
			return false
		}
		denied = denied || s.Key == key && s.RetryAfter > 0 && !v.open.pardons(&s)
	}
	return denied
}

// bannedFor is the time that is left of the ban of key.
func (v *Verdict) bannedFor(key counter.Key) time.Duration {
	for _, b := range v.bans {
		if b.key == key {
			return b.left
		}
	}
	return 0
}

// All returns the state of every limit of every feature of the call, as
// counter.Verdict does, but for those of soft rules. A limit of a banned feature
// has a Remaining of zero, and a RetryAfter that lasts until the end of the ban at
// least. Ask is the index of the feature in the call, the first of equal features, or
// -1 for features that are missing under MissingShare.
func (v Verdict) All() []counter.State {
	all := v.Verdict.All()
	states := all[:0]
	for _, s := range all {
		if s.Soft || v.counts && s.Limit.Max == counter.MaxCount || strings.HasPrefix(s.Key.Feature, banPrefix) {
			continue
		}
		if left := v.bannedFor(s.Key); left > 0 {
			s.Remaining, s.RetryAfter = 0, max(s.RetryAfter, left)
		} else if v.open.frees(&s) {
			s.RetryAfter = min(s.RetryAfter, v.open.after)
		}
		s.Ask = placeOf(v.places, s.Key.Feature)
		states = append(states, s)
	}
	return states
}

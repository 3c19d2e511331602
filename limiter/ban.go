package limiter

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
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

// lookForBans completes a verdict of the store: v then speaks of features alone,
// not of the keys of their bans.
func (v *Verdict) lookForBans(q *question) {
	if len(q.bans) == 0 {
		return
	}
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

// beginBans bans the features whose limits have denied the call, unless held or open
// hits may have denied the call: held hits may be counted twice, open hits undone. If the store does not
// take a ban, the ban is not begun, and the denial stays.
func (v *Verdict) beginBans(ctx context.Context, q *question, asks []counter.Ask) {
	states := v.All()
	for _, b := range q.bans {
		key := asks[b.ask].Key
		if asks[b.ask].Held != nil || v.bannedFor(key) > 0 || !v.denies(states, key) {
			continue
		}
		taken, err := b.ban.counter.Take(ctx, asks[b.ask+1].Key, 1, b.ban.take)
		if err != nil {
			continue
		}
		left := taken.RetryAfter
		if taken.Allowed {
			left = taken.ResetAfter + b.ban.counter.Skew() // as RetryAfter: the next call may come from the slowest clock
		}
		v.Banned, v.bans = true, append(v.bans, banned{key, left})
	}
	if v.Banned {
		v.bind()
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
		denied = denied || s.Key == key && s.RetryAfter > 0 && !v.open.frees(&s)
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
// counter.Verdict does, but for those of soft rules. A limit of a banned feature has a Remaining of zero, and
// a RetryAfter that lasts until the end of the ban at least.
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
		states = append(states, s)
	}
	return states
}

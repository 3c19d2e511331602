package limiter

import (
	"cmp"
	"context"
	"slices"
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
	here       *counter.Counter // counts the bans that this process knows of, on the local counter; nil if the rule never counts locally
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

// beginBans bans the features whose limits have denied the call, unless held or
// open hits may have denied the call: held hits may be counted twice, open hits
// undone. If the store does not take a ban, the ban is not begun, and the denial
// stays.
func (v *Verdict) beginBans(ctx context.Context, q *question, asks []counter.Ask) {
	states := v.All()
	for _, b := range q.bans {
		if asks[b.ask].Held == nil && v.denies(states, asks[b.ask].Key) {
			v.beginBan(ctx, b.ban.counter, b, asks)
		}
	}
	if v.Banned {
		v.bind()
	}
}

// beginBan bans a feature on c, and reports whether the ban is new.
func (v *Verdict) beginBan(ctx context.Context, c *counter.Counter, b bannable, asks []counter.Ask) bool {
	key := asks[b.ask].Key
	if v.bannedFor(key) > 0 {
		return false
	}
	taken, err := c.Take(ctx, asks[b.ask+1].Key, 1, b.ban.take)
	if err != nil {
		return false
	}
	left := taken.RetryAfter
	if taken.Allowed {
		left = taken.ResetAfter + c.Config().Skew // as RetryAfter: the next call may come from the slowest clock
	}
	v.Banned, v.bans = true, append(v.bans, banned{key, left})
	return taken.Allowed
}

// rememberBans has the local counter know the bans that the store has answered, for
// the time without the store. A ban ends here a bucket and the Skew of the local
// counter later at most. A local counter that is full does not learn a ban.
func (v *Verdict) rememberBans(q *question, asks []counter.Ask) {
	for _, b := range q.bans {
		left := v.bannedFor(asks[b.ask].Key)
		if left <= 0 || b.ban.here == nil || b.ban.left(asks[b.ask+1].Key) > 0 {
			continue
		}
		since := max(0, b.ban.look[0].Per-left)
		_ = b.ban.here.AddAt(context.Background(), asks[b.ask+1].Key, 1, b.ban.here.Config().Now().Add(-since))
	}
}

// left is the rest of a ban in the local counter.
func (b *ban) left(key counter.Key) time.Duration {
	v, err := b.here.Peek(context.Background(), key, 0, b.look)
	if err != nil {
		return 0
	}
	return v.RetryAfter
}

// bannedHere answers a call of a feature that is banned in the local counter.
func (v *Verdict) bannedHere(q *question, asks []counter.Ask) bool {
	if q.mode == charging {
		return false
	}
	var bans []banned
	for _, b := range q.bans {
		if b.ban.here != nil {
			if left := b.ban.left(asks[b.ask+1].Key); left > 0 {
				bans = append(bans, banned{asks[b.ask].Key, left})
			}
		}
	}
	if bans == nil {
		return false
	}
	f := flight{mode: peeking, n: q.n}
	for i, rule := range q.rules {
		if rule != nil {
			f.local, f.keys = rule.local, append(f.keys, flightKey{key: asks[i].Key, rule: rule})
		}
	}
	var err error
	if v.Verdict, err = f.peek(); err != nil {
		return false
	}
	v.Allowed, v.Banned, v.bans = false, true, bans
	v.bind()
	return true
}

// beginBansHere begins the bans that follow from a denial without the store, in the
// local counter, and has them carried to the store. A call that only the Share of a
// Max, or open hits, deny begins no ban.
func (l *Limiter) beginBansHere(v *Verdict, q *question, asks []counter.Ask) {
	if v.Allowed || v.Banned || q.mode != taking {
		return
	}
	l.soften(v, q, asks)
	states := v.All()
	for _, b := range q.bans {
		rule := q.rules[b.ask]
		if rule == nil || !v.denies(states, asks[b.ask].Key) {
			continue
		}
		known, err := rule.here.Peek(context.Background(), asks[b.ask].Key, q.n, rule.limits)
		if err != nil || known.Allowed || known.RetryAfter == counter.Never {
			continue
		}
		if v.beginBan(context.Background(), b.ban.here, b, asks) {
			l.local.carryBan(b.ban, asks[b.ask+1].Key)
		}
	}
	if v.Banned {
		v.bind()
	}
}

// carryBan has a ban that was begun here carried to the store, where the other
// processes find it. If too many hits wait, the ban stays in this process.
func (l *local) carryBan(b *ban, key counter.Key) {
	if l.carrier.full(1) {
		return
	}
	hash, at := l.hash(key), b.here.Config().Now()
	s := l.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[key]
	if k == nil {
		k = &localKey{key: key, store: b.counter}
		s.keys[key] = k
	}
	k.pend(l, tiers.Index(at.UnixNano(), b.here.Config().Ladder.At(0).Width), at, 1)
	l.carrier.put(k, 0)
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
// least.
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

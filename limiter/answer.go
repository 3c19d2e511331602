package limiter

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// lookForBans has v speak of features alone, not of the keys of their bans.
func (v *Verdict) lookForBans(slack time.Duration) {
	for _, s := range v.Verdict.All() {
		if feature, isBan := strings.CutPrefix(s.Key.Feature, banPrefix); isBan && s.RetryAfter > 0 {
			v.bans = append(v.bans, banned{counter.Key{Event: s.Key.Event, Feature: feature}, s.Limit, leftOf(&s, slack)})
		}
	}
	if v.Banned = len(v.bans) > 0; v.Banned || strings.HasPrefix(v.Key.Feature, banPrefix) {
		v.bind()
	}
}

// ban begins the bans that follow from v: none if the store's verdict was known before,
// and none in this process while a ban holds. Then this process learns the bans that the
// store has answered.
func (l *Limiter) ban(ctx context.Context, v *Verdict, c *call, asks []counter.Ask, known bool) {
	if begins := v.local && !v.Banned || !v.local && !known; begins && c.Mode == fallback.Taking && !v.Allowed {
		l.beginBans(ctx, v, c, asks)
	}
	if known || v.Degraded != nil {
		return
	}
	for _, b := range c.bans {
		if by := v.banOf(asks[b.ask].Key); by.left > 0 && b.ban.local != nil {
			b.ban.local.Learn(asks[b.ask+1].Key, b.ban.weight(slices.Index(b.ban.look, by.step)), by.step, by.left)
		}
	}
}

// All returns the state of every limit of every feature of the call, as
// counter.Verdict does, but for those of soft rules. A limit of a banned feature
// has a Remaining of zero, and a RetryAfter that lasts until the end of the ban at
// least. Ask is the index of the feature in the call, the first of equal features, or
// -1 for features that are missing under MissingShare.
func (v Verdict) All() []counter.State { return v.states(make([]counter.State, 0, 4)) }

// states appends to states, which are on the stack of the caller of All, as in
// counter.Verdict.
func (v *Verdict) states(states []counter.State) []counter.State {
	for _, s := range v.Verdict.All() {
		if s.Soft || v.counts && s.Limit.Max == counter.MaxCount || strings.HasPrefix(s.Key.Feature, banPrefix) {
			continue
		}
		s.Ask = placeOf(v.places, s.Key.Feature)
		if left := v.banOf(s.Key).left; left > 0 {
			s.Remaining, s.RetryAfter = 0, max(s.RetryAfter, left)
		} else if v.open.frees(&s) {
			s.RetryAfter = min(s.RetryAfter, v.open.after)
		}
		states = append(states, s)
	}
	return states
}

// keys are the keys of the call, without those of soft rules and bans; a key may
// repeat.
func (v *Verdict) keys() (keys []counter.Key) {
	for _, s := range v.All() {
		keys = append(keys, s.Key)
	}
	return keys
}

// banOf is the step of the ban of key that holds for longest; zero: none.
func (v *Verdict) banOf(key counter.Key) (longest banned) {
	for _, b := range v.bans {
		if b.key == key && b.left > longest.left {
			longest = b
		}
	}
	return longest
}

// bind sets the flat fields of v by its states.
func (v *Verdict) bind() {
	for i, s := range v.All() {
		if binds := s.Remaining < v.Remaining || s.Remaining == v.Remaining && s.RetryAfter > v.RetryAfter; i == 0 || v.Allowed && binds || !v.Allowed && s.RetryAfter > v.RetryAfter {
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
		if ask.N == 0 || !v.denies(states, ask.Key) || v.banOf(ask.Key).left > 0 {
			continue
		}
		var step int
		var left time.Duration
		switch {
		case !v.local && ask.Held == nil:
			step, left = b.ban.begin(ctx, l.taker, asks[b.ask+1].Key, c.Until)
		case v.local && c.Rules[b.ask] != nil && c.Rules[b.ask].Denies(ask.Key, fallback.Least(ask)):
			step, left = b.ban.begin(ctx, nil, asks[b.ask+1].Key, c.Until)
		}
		if left > 0 {
			v.Banned, v.bans = true, append(v.bans, banned{ask.Key, b.ban.look[step], left})
		}
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
		denied = denied || s.Key == key && s.RetryAfter > 0 && !v.open.pardons(&s)
	}
	return denied
}

// complete adds to v what is known without the store.
func (v *Verdict) complete(c *call) {
	v.event, v.places = c.of.event, c.places
	if c.upTo && v.Verdict.N() > 0 {
		c.n = v.Verdict.N()
	}
	if v.Allowed {
		v.n = c.n
	}
	if c.override != nil && !c.limited && !c.charged && v.Allowed {
		v.Override, v.kind = c.override.Override, c.kind
	}
	if c.soft && v.Allowed && v.Degraded == nil {
		v.Soft = append(softVerdicts(v.Verdict.All(), c.places), c.softly...)
	}
	v.counts = c.counts
	switch {
	case c.limited:
	case c.charged && v.Allowed:
		v.bind()
	case v.counts:
		v.free, v.Limit, v.Remaining, v.ResetAfter = true, counter.Limit{}, 0, 0
	}
}

// softVerdicts are the answers of soft rules, from the states of all limits.
func softVerdicts(states []counter.State, places string) (all []SoftVerdict) {
	var last counter.Key
	for _, s := range states {
		if !s.Soft {
			continue
		}
		first := len(all) == 0 || s.Key != last
		if first {
			all = append(all, SoftVerdict{Ask: placeOf(places, s.Key.Feature), Kind: feature.KindOf(s.Key.Feature)})
			last = s.Key
		}
		v := &all[len(all)-1]
		if first || s.RetryAfter > v.RetryAfter || !v.Denied && s.Remaining < v.Remaining {
			v.Denied, v.Limit, v.Remaining, v.RetryAfter, v.ResetAfter = s.RetryAfter > 0, s.Limit, s.Remaining, s.RetryAfter, s.ResetAfter
		}
	}
	return all
}

// decision is the argument of Observe for v.
func (v *Verdict) decision(n int64, latency, waited time.Duration) Decision {
	d := Decision{Event: v.event, Kind: v.ruleKind(), Limit: v.Limit, Outcome: v.outcome(), N: n, Latency: latency, Degraded: v.Degraded, Soft: v.Soft, Waited: waited}
	if !v.Allowed {
		d.Key = HiddenKey(v.Key)
	}
	return d
}

// placeOf is the index of the feature with this text in the call, by a result of
// nameAsks; -1 if there is none.
func placeOf(places, text string) int {
	if places == "" {
		return 0
	}
	n := int(places[len(places)-1])
	for of := []byte(places[len(places)-1-12*n:]); n > 0; n, of = n-1, of[12:] {
		if places[binary.LittleEndian.Uint32(of):binary.LittleEndian.Uint32(of[4:])] == text {
			return int(int32(binary.LittleEndian.Uint32(of[8:])))
		}
	}
	return -1
}

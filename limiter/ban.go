package limiter

import (
	"context"
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
	look, take counter.Limits
	here       *counter.Counter // counts the bans that this process knows of, on the local counter; nil if the rule never counts locally
	local      *fallback.Rule   // look, on here; nil too
}

// banPrefix begins the Feature of a ban's key, before the text of the feature.
// No kind is empty, so no feature has such a key.
const banPrefix = ":ban:"

// newBan returns a ban of a length, on the counters of store.
func newBan(per time.Duration, store *ladders) (*ban, error) {
	c, err := store.on(tiers.For(per), nil)
	return &ban{counter: c, look: counter.Limits{{Max: 0, Per: per}}, take: counter.Limits{{Max: 1, Per: per}}}, err
}

// bindLocally prepares the ban for the local counter.
func (b *ban) bindLocally(taker *fallback.Fallback, local *ladders) (err error) {
	if b.here, err = local.on(b.counter.Config().Ladder, nil); err == nil {
		b.local = taker.Ladder(b.counter, b.here).Look(b.look)
	}
	return err
}

// key is the key of the ban of a feature, from the feature's own key.
func (b *ban) key(of counter.Key) counter.Key {
	return counter.Key{Event: of.Event, Feature: banPrefix + of.Feature}
}

// inStore begins a ban, by until. A ban that comes later holds too.
func (b *ban) inStore(ctx context.Context, taker *fallback.Fallback, key counter.Key, until time.Time) (taken counter.Verdict, ok bool) {
	c := &fallback.Call{Policy: fallback.Open, Until: until}
	by, err := taker.Take(ctx, c, []counter.Ask{{Key: key, N: 1, Limits: b.take, On: b.counter}}, &taken)
	return taken, err == nil && by.Degraded == nil
}

// inProcess begins a ban in the local counter, and has it carried to the store, where
// the other processes find it.
func (b *ban) inProcess(key counter.Key) (taken counter.Verdict, ok bool) {
	taken, err := b.here.Take(context.Background(), key, 1, b.take)
	if err == nil && taken.Allowed {
		b.local.Carry(key, b.here.Config().Now())
	}
	return taken, err == nil
}

// remember has the local counter know a ban that the store has answered, for the time
// without the store. A ban ends here a bucket and the Skew of the local counter later
// at most. A local counter that is full does not learn a ban.
func (b *ban) remember(key counter.Key, left time.Duration) {
	if left <= 0 || b.here == nil {
		return
	}
	if known, err := b.here.Peek(context.Background(), key, 0, b.look); err == nil && known.RetryAfter > 0 {
		return
	}
	since := max(0, b.look[0].Per-left)
	_ = b.here.AddAt(context.Background(), key, 1, b.here.Config().Now().Add(-since))
}

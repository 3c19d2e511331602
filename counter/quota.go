package counter

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/abacus-go/abacus/backend"
)

// quota is limits prepared for an event, on a store with a short way: with the
// first Take of an event under some limits the Counter checks and prepares the
// limits, and later calls find the quota by event and limits. Verdicts and
// counts are the same either way.
type quota struct {
	event   string
	details details       // of the Verdicts
	least   int64         // smallest Max: no more hits than that are ever admitted
	short   backend.Quota // nil if the store has no short way for these limits
}

// quotas is the short way of a Counter: the quotas that it has prepared, and the
// receipts of admissions by them.
//
// Most programs have a few events, each with its limits. But limits may also be
// a user's own, and then there is no end of them. So quotas is a table of
// bounded size, in sets as in a processor's cache. When a set is full, further
// calls go the general way, and one in churn of them takes a place in the set:
// what is asked for most is soon back, and the rest costs little.
type quotas struct {
	store    backend.Local
	sets     [1 << quotaBits]quotaSet
	receipts numbered
}

type quotaSet [4]atomic.Pointer[quota] // the first nil is the end

const (
	quotaBits = 6 // 256 quotas
	churn     = 256
)

// quota returns the quota of an event and limits; nil if there is none.
func (c *Counter) quota(event string, limits Limits) *quota {
	if c.quotas == nil || event == "" || len(limits) == 0 {
		return nil
	}
	// A hash of all the text would take longer than all the rest. The multiplier is
	// that of Fibonacci hashing, 2^64 divided by the golden ratio.
	n := len(event)
	hash := uint64(event[0])<<32 ^ uint64(event[n/2])<<24 ^ uint64(event[n*3/4])<<16 ^ uint64(event[n-1])<<8 ^
		uint64(n) ^ uint64(limits[0].Max) ^ uint64(limits[0].Per)
	set := &c.quotas.sets[hash*0x9E3779B97F4A7C15>>(64-quotaBits)]
	for i := range set {
		switch q := set[i].Load(); {
		case q == nil:
			return c.enterQuota(set, i, event, limits)
		case q.event == event && slices.Equal(q.details.limits, limits):
			return q
		}
	}
	return c.enterQuota(set, len(set), event, limits)
}

// enterQuota puts the quota of an event and limits into a place of a set, or, beyond
// the last, now and then instead of another.
func (c *Counter) enterQuota(set *quotaSet, place int, event string, limits Limits) *quota {
	if place == len(set) {
		if place = rand.IntN(len(set)); rand.Uint32N(churn) > 0 {
			return nil
		}
	}
	q := c.prepare(event, limits)
	if q != nil {
		set[place].Store(q)
	}
	return q
}

// prepare makes the quota of an event and limits; nil if a Take returns an error.
func (c *Counter) prepare(event string, limits Limits) *quota {
	if limits.Check(c.plan.Ladder) != nil {
		return nil
	}
	q := &quota{event: strings.Clone(event), least: MaxCount}
	q.details.limits = slices.Clone(limits)
	q.details.windows = make([]backend.Window, len(limits))
	for i := range limits {
		_ = limits[i].window(&q.details.windows[i], &c.plan) // checked
		q.least = min(q.least, limits[i].Max)
	}
	q.short = c.quotas.store.Bind(c.store, &backend.TakeKey{
		Key: c.keys.appendHead(nil, event), Ladder: c.plan.Ladder, TTLs: c.plan.TTLs, Windows: q.details.windows,
	})
	return q
}

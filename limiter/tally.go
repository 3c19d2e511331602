package limiter

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// Tally has the decisions of a [Limiter], by rule and outcome, and the keys that
// were denied most. [Limiter.Tally] returns a Tally.
type Tally struct {
	// Since is the time from which Decisions are counted: that of New. The zero time
	// without Config.Tally; all is empty then.
	Since     time.Time
	Decisions []DecisionCount // in the order of Event, Kind and Outcome

	// MostDenied are keys in the order of Denied.Low, highest first.
	MostDenied  []DeniedKey
	DeniedSince time.Time // the beginning of the count of denials: one to two hours ago, or Since
}

// DecisionCount is a number of decisions. Event and Kind are those of a
// [Decision].
type DecisionCount struct {
	Event, Kind string
	Outcome     Outcome
	Count       int64
}

// DeniedKey is a key with the number of its denied calls, whatever the n of the
// calls.
type DeniedKey struct {
	Key    counter.Key // by Redact of the Counter: with a Secret the feature is a digest
	Kind   string
	Denied counter.Count // at least Low and at most High
}

// Tally returns the decisions since New, and at most so many keys that were
// denied by a limit or a ban. Peek is no decision.
//
// The keys are found in a fixed memory: 1,024 counters for the hour that is under
// way, and as many for the hour before. A key with more than one in five hundred of
// an hour's denials is among them, however many other keys there are. Without a
// Secret of the Counter the features are readable: addresses of visitors.
func (l *Limiter) Tally(most int) Tally {
	t := l.tally
	if t == nil {
		return Tally{}
	}
	all := Tally{Since: t.began}
	for rule, n := range *t.decisions.Load() {
		all.Decisions = append(all.Decisions, DecisionCount{rule.event, rule.kind, rule.outcome, n.count.Load()})
	}
	slices.SortFunc(all.Decisions, func(a, b DecisionCount) int {
		return cmp.Or(strings.Compare(a.Event, b.Event), strings.Compare(a.Kind, b.Kind), cmp.Compare(a.Outcome, b.Outcome))
	})
	var after time.Duration
	all.MostDenied, after = t.denied.most(most, time.Since(t.began), l.counter)
	all.DeniedSince = t.began.Add(after)
	return all
}

// tally counts decisions. The nil tally counts none.
type tally struct {
	began     time.Time
	decisions atomic.Pointer[map[decided]*decisions] // never changed, but replaced
	mu        sync.Mutex                             // of replacing
	denied    sketch
}

// decided is the event, the kind and the outcome of a decision.
type decided struct {
	event, kind string
	outcome     Outcome
}

// decisions counts the decisions of one event, kind and outcome.
type decisions struct {
	decided
	count atomic.Int64
}

func newTally() *tally {
	t := &tally{began: time.Now()}
	t.decisions.Store(&map[decided]*decisions{})
	t.denied.init()
	return t
}

// note counts a decision of the limiter, which redacts with c.
func (t *tally) note(event string, v *Verdict, c *counter.Counter) {
	if t == nil {
		return
	}
	d := t.of(decided{event, v.ruleKind(), v.outcome()})
	d.count.Add(1)
	if !v.Allowed && v.Key != (counter.Key{}) {
		t.denied.note(d.event, d.kind, v.Key, time.Since(t.began), c)
	}
}

// of returns the counter of d. There are as many as events, kinds and outcomes of
// rules, so that all are found by the first decisions.
func (t *tally) of(d decided) *decisions {
	if n := (*t.decisions.Load())[d]; n != nil {
		return n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	was := *t.decisions.Load()
	if n := was[d]; n != nil {
		return n
	}
	d.event, d.kind = strings.Clone(d.event), strings.Clone(d.kind) // may be parts of longer texts
	all, n := maps.Clone(was), &decisions{decided: d}
	all[d] = n
	t.decisions.Store(&all)
	return n
}

// forget forgets the denials of keys.
func (t *tally) forget(keys []ruleKey) {
	if t == nil {
		return
	}
	for i := range keys {
		t.denied.forget(keys[i].key)
	}
}

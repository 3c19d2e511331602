package limiter

import (
	"context"
	"testing"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// BanHits is the number of hits that the ban of a feature holds: a ban is one.
func BanHits(t testing.TB, l *Limiter, event, text string) int64 {
	of := l.rules.Load().events[event]
	kind := feature.KindOf(text)
	b := of.by(kind, false).ban
	n := try.To(b.counter.Count(context.Background(), counter.Key{Event: event, Feature: banPrefix + text}, b.seen[len(b.seen)-1].Per))(t)
	return n.High
}

// BanFault is a fault of growing bans.
type BanFault int

// Faults of growing bans.
const (
	BanOfOneStep BanFault = iota // every ban takes the first step
	BanOfRacers                  // every racing call begins a ban
	BanForgotten                 // a ban is forgotten at its end
	BanUnseen                    // no call sees a ban
)

// PlantInBan plants a fault in the bans of the rule of an event and kind.
func PlantInBan(l *Limiter, event, kind string, fault BanFault) {
	b := l.rules.Load().events[event].by(kind, false).ban
	last := len(b.look)
	switch fault {
	case BanOfOneStep:
		b.seen[last].Max = 0 // no step is reached
	case BanOfRacers:
		for i := range b.take {
			b.take[i].Max = counter.MaxCount
		}
	case BanForgotten:
		b.seen[last].Per = b.look[0].Per
		b.seen[0].Per /= 2
	case BanUnseen:
		b.look[0].Max = counter.MaxCount
	}
}

// Enforced reports whether the soft rule of an event is enforced for a feature.
func Enforced(l *Limiter, event, text string) bool {
	return l.rules.Load().events[event].by(feature.KindOf(text), true).enforces([]byte(text))
}

// WaitQueues is the number of queues of calls of Wait.
func WaitQueues(l *Limiter) int {
	_, queues := l.turns.Waiting()
	return queues
}

// Steps is the number of rules that a call with features meets.
func Steps(l *Limiter, event string, features ...feature.Feature) int {
	return len(l.rules.Load().events[event].met(features, nil))
}

// Comparisons is the number of comparisons of two rules by which New checks rules,
// all of one event.
func Comparisons(rules []Rule) (n int) {
	of := &eventRules{enforced: map[string]*prepared{}, soft: map[string]*prepared{}}
	for i := range rules {
		n += len(of.near(&rules[i]))
		of.add(rules[i], i)
	}
	return n
}

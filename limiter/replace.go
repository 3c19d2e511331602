package limiter

import (
	"fmt"

	"github.com/abacus-go/abacus/counter"
)

// Replace puts rules instead of all rules, whole or not at all: after an
// error the rules are as before. The error is an error of New for the rules, or
// tells that
//
//   - an event would have no rules any more: calls of the event would be errors,
//     and a soft rule keeps an event without a limit (see also ReplaceAll); or
//   - a ladder is changed while hits are still counted by an earlier ladder too.
//
// A call keeps the rules of its beginning; a waiting call of Wait keeps its place,
// and asks at once, by the new rules. In no window more hits are admitted than the
// larger Max of the limits before and after. Counts, refunds, and bans stay; only
// a change of Rule.Ban ends the running bans. Under FailLocal, a rule that did not
// count locally before begins with an empty local counter, as a new process does.
//
// # Ladders
//
// A rule whose ladder changes gets the former ladder as its Former, and counts by
// both ladders from then on. A derived ladder changes with the limits of the rule.
// Only the rules drop a former ladder. Replace keeps an added Former as long as
// the rules name none, since no process can know whether another process still
// counts by the former ladder alone. Replace drops a Former that the rules named
// and name no more. So rules that change a ladder should name the former ladder in
// Rule.Former: a process that starts in the middle of the change needs the field.
// The rules leave the field out more than Per + Skew after the last process has
// the new rules. Until then a third ladder is an error, and the way back is no
// third ladder.
func (l *Limiter) Replace(rules ...Rule) error { return l.replace("Replace", false, rules) }

// ReplaceAll is Replace for rules that may leave out an event, for a program whose
// events come and go with its rules. There is at least one rule.
//
// A call of an event that is left out is an error, like a call of any event without
// rules; a call of Wait that is waiting then ends with this error. Refund gives
// earlier hits back, and hits that were admitted locally are carried to the store.
// Forget and Erase know an event as long as it has rules, so erase before.
//
// The Limiter forgets the ladders and bans of such an event. If the event comes back
// with the same ladder, its counts go on; with another ladder they begin at zero,
// unless Rule.Former names the earlier ladder.
func (l *Limiter) ReplaceAll(rules ...Rule) error { return l.replace("ReplaceAll", true, rules) }

// replace is the method of this name.
func (l *Limiter) replace(name string, mayDrop bool, rules []Rule) error {
	if len(rules) == 0 {
		return fmt.Errorf("limiter: %s: no rules, want at least one", name)
	}
	if err := l.install(rules, mayDrop); err != nil {
		return fmt.Errorf("limiter: %s: %w", name, err)
	}
	l.turns.Freed(func(counter.Key) bool { return true })
	l.log.replaced(len(rules))
	return nil
}

// install puts rules in force.
func (l *Limiter) install(rules []Rule, mayDrop bool) error {
	l.replacing.Lock()
	defer l.replacing.Unlock()
	before := l.rules.Load()
	set, err := l.maker.ruleset(rules, before)
	if err != nil {
		return err
	}
	for _, event := range before.names() {
		if set.events[event] == nil && !mayDrop {
			return fmt.Errorf("event %q has rules now, and would have none, want at least one rule, which may be Soft, or ReplaceAll", event)
		}
	}
	l.rules.Store(set)
	return nil
}

// Generation is the number of the rules: 1 at first, and 1 more with each Replace.
// Equal numbers are equal rules, for a program that keeps a value derived from
// Rules.
func (l *Limiter) Generation() uint64 { return l.rules.Load().generation }

package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// DefaultDecideWithin is the time that a decision may take on a store on another
// machine: as long as the calls of a counter.Counter with its own default.
const DefaultDecideWithin = counter.DefaultPatience

// Config is what a [Limiter] decides by.
type Config struct {
	// Rules are all rules of all events. At least one.
	Rules []Rule

	// DecideWithin is the time that a decision may take, with the store's answer or
	// without: all features together. What is under way then is waited for in
	// the background, for as long as the Counter takes back what it added, and
	// given back if the decision was to deny; if it was to allow, the hit stays,
	// and nobody can refund it. A shorter time sends visitors away sooner when
	// the store is late, and lets more of them pass an FailOpen rule uncounted; it
	// changes no window. Default: DefaultDecideWithin, one second; negative, and for a
	// store in this process: none.
	DecideWithin time.Duration

	// Observe, if it is set, is called with every decision of Allow and AllowN,
	// by the goroutine that asked, before it gets its answer. It is called by
	// many goroutines at once.
	Observe func(Decision)

	// IPv4Bits and IPv6Bits are how much of an address [IP] limits by.
	// Default: 32 and 64.
	IPv4Bits, IPv6Bits int

	// EmailIgnoreDots and EmailIgnoreTags make one of addresses that differ by
	// dots in the local part, or by what follows a plus sign there. Some
	// providers deliver all of them to one mailbox, with others they are
	// different people: dots are ignored for all providers or for none.
	EmailIgnoreDots, EmailIgnoreTags bool
}

// Limiter decides whether events may happen. It is used by many goroutines at
// once. [New] makes one; the zero Limiter is not usable.
type Limiter struct {
	counter    *counter.Counter
	within     time.Duration // zero: unbounded
	observe    func(Decision)
	normalizer normalizer
	rules      map[string][]Rule // of each event, one for each kind
}

// New makes a Limiter that counts on c. The error names the rule, or the field
// of cfg, that is wrong.
func New(c *counter.Counter, cfg Config) (*Limiter, error) {
	if c == nil {
		return nil, errors.New("limiter: the counter is nil, want one of counter.New")
	}
	if len(cfg.Rules) == 0 {
		return nil, errors.New("limiter: Config.Rules is empty, want at least one rule")
	}
	normalizer, err := newNormalizer(&cfg)
	if err != nil {
		return nil, err
	}
	l := &Limiter{counter: c, within: cfg.DecideWithin, observe: cfg.Observe, normalizer: normalizer, rules: map[string][]Rule{}}
	switch {
	case c.Local(), cfg.DecideWithin < 0:
		l.within = 0
	case cfg.DecideWithin == 0:
		l.within = DefaultDecideWithin
	}
	for i, rule := range cfg.Rules {
		err := rule.check(c, cfg.Rules[:i])
		if err == nil {
			l.rules[rule.Event], err = merge(l.rules[rule.Event], rule, c)
		}
		if err != nil {
			return nil, fmt.Errorf("limiter: rule %s: Config.Rules[%d]%w", rule, i, err)
		}
	}
	return l, nil
}

// Events lists the events that have rules, in alphabetical order.
func (l *Limiter) Events() []string { return slices.Sorted(maps.Keys(l.rules)) }

// Rules are the rules of an event, one for each kind, in the order in which
// they were first given. There are none if the event is unknown.
func (l *Limiter) Rules(event string) []Rule {
	rules := append([]Rule(nil), l.rules[event]...)
	for i := range rules {
		rules[i].Limits = append(counter.Limits(nil), rules[i].Limits...)
	}
	return rules
}

// Allow decides whether event may happen once more, and counts it if so: under
// all of its rules, or under none. Features that no rule of the event limits
// by are ignored; several of one kind are all counted.
//
// An error is the caller's mistake (an event without rules, an address that is
// none) or the caller's context; its Verdict denies. A denial is not an error,
// and neither is a store that failed: Verdict.Degraded says so, and the rules'
// policy has decided.
func (l *Limiter) Allow(ctx context.Context, event string, features ...Feature) (Verdict, error) {
	return l.decide(ctx, event, 1, features, false)
}

// AllowN is Allow for an event that counts n times, one or more: all of it or
// nothing.
func (l *Limiter) AllowN(ctx context.Context, event string, n int64, features ...Feature) (Verdict, error) {
	return l.decide(ctx, event, n, features, false)
}

// Peek is what AllowN would answer now. It counts nothing, its Verdict cannot be
// refunded, and Config.Observe does not hear of it.
func (l *Limiter) Peek(ctx context.Context, event string, n int64, features ...Feature) (Verdict, error) {
	return l.decide(ctx, event, n, features, true)
}

// Refund gives back what v counted, and empties v: for an event that came to
// nothing, or that counts only if it fails. A Verdict that counted nothing
// gives nothing back; that is no error. It does so once, for all copies of v
// together, and also if the store fails, since what it has done then is
// unknown. It asks the store twice for every key, all keys side by side, and
// ends within the Counter's Timeout. An error is the store's, or of ctx; if ctx
// was over before anything was asked, v stays as it is.
func (l *Limiter) Refund(ctx context.Context, v *Verdict) error {
	err := l.counter.Refund(ctx, &v.Verdict)
	if !v.Allowed { // emptied
		*v = Verdict{}
	}
	if err != nil {
		return fmt.Errorf("limiter: refund: %w", err)
	}
	return nil
}

package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter/fallback"
	"github.com/abacus-go/abacus/limiter/turns"
)

// DefaultDecideWithin is the longest time of a decision on a store on another
// machine, equal to the default of counter.Config for its calls.
const DefaultDecideWithin = counter.DefaultPatience

// DefaultMaxWaiting is the default of Config.MaxWaiting.
const DefaultMaxWaiting = 10_000

// Config holds the rules of a [Limiter], and all else that it goes by.
type Config struct {
	// Rules are all rules of all events. At least one rule. Replace changes them;
	// all other fields hold for the life of the Limiter.
	Rules []Rule

	// DecideWithin is the longest time of a decision, for all features together. Then
	// the rules' OnFailure decides, and the call to the store goes on in the background
	// for as long as the Counter takes back its additions: a late hit is given back,
	// unless a FailOpen rule let the caller through. Such a hit stays, and no one can
	// refund it. A shorter time denies sooner when the store is late, and lets more
	// calls pass a FailOpen rule uncounted; windows stay the same. Default:
	// DefaultDecideWithin, one second. Negative, and for a store in this process:
	// unbounded.
	DecideWithin time.Duration

	// Local counts in this process for rules under FailLocal. While the store does
	// not answer, the limits of these rules admit ceil(Share * Max) hits of a key
	// in any window, including the hits that the store has admitted for this
	// Limiter. A key denied by the store stays denied until the RetryAfter of the
	// denial. The hits are added to the store when the store answers again.
	//
	// Local needs a store in this process that fails when full, such as
	// memory.New(memory.Config{}), and the clock of the Limiter's Counter. The
	// Skew of Local is at least the Skew of the Counter plus DecideWithin: the
	// answer of a store may be so old when Local judges the answer. Each rule is
	// counted on the rule's ladder. Local must count nothing else.
	Local *counter.Counter

	// Share is the part of each Max that this process may admit while the store
	// does not answer: about 1 / I in a fleet of I processes. In any window the
	// fleet admits at most Max + (I-1) * ceil(Share * Max): see
	// docs/guarantees.md. A smaller Share denies more while the store fails.
	// Above 0, at most 1. Default: 1.
	Share float64

	// MaxInFlight bounds the calls to the store that are under way, including the
	// calls whose callers no longer wait. Further calls wait for a turn, as long
	// as DecideWithin and their context allow, and are then decided as if the
	// store had failed. Rules under FailOpen count locally then, and need Local.
	// A call that is known to be denied takes no turn. Default: 0, unbounded.
	MaxInFlight int

	// MaxWaiting bounds the waiting calls of Wait and WaitN in a queue. A queue
	// has the calls with the same keys. A call beyond the bound fails with
	// ErrQueueFull. Each queue has the bound for itself, so a flood for one
	// tenant takes no place from another tenant. The sum of all queues is bounded
	// by the goroutines of the callers. Default: DefaultMaxWaiting, 10,000.
	MaxWaiting int

	// Observe, if set, is called with every decision of Allow and AllowN, in
	// the goroutine of the caller and before the caller has the Verdict. A call
	// of Wait or WaitN is one decision, the last one. Each key that Forget or Erase
	// has emptied is a Decision of OutcomeForgotten, for an observer that keeps keys.
	// Many goroutines call Observe at once. See package metrics/tally, and the module
	// metrics/prometheus.
	Observe func(Decision)

	// Logger gets a line for each change of state: decisions are made without the
	// store, and by the store again; in this process, and no longer; the clocks of
	// store and caller are apart by the Check, and no longer; the rules were replaced.
	// The end of a state is logged ten seconds after the last sign of the state, by
	// the next call; its attribute lasted is the time from the first sign to the last.
	// A store that comes and goes makes at most one line of each sort a minute, and so
	// do requests to package httplimit without a client's address. No line has a
	// feature. Default: slog.Default(). To log nothing, set
	// slog.New(slog.DiscardHandler).
	Logger *slog.Logger

	// ReceiptKey seals receipts, by which another process can give hits back: see
	// [Limiter.Receipt]. At least 16 random bytes, the same in all processes, and not
	// given to clients. Receipts under another key are refused. Default: none, and no
	// receipts.
	ReceiptKey []byte

	// Forms says which addresses and e-mail addresses are the same feature. Default:
	// that of package feature.
	Forms feature.Forms
}

// Limiter decides whether events may happen. [New] makes a Limiter; the zero
// Limiter is not usable. Most callers want Allow; Wait waits until the event may
// happen, AllowOpen is Allow for hits that may be refunded, Charge counts in any
// case, Refund gives a hit back, Receipt has another process do so, Settle replaces an
// estimate, and Peek decides without counting. Usage, Forget and Erase are for support. A
// Limiter with Config.Local is closed by Close. Many goroutines may use a Limiter at once.
type Limiter struct {
	counter   *counter.Counter
	taker     *fallback.Fallback // around counter
	turns     *turns.Queues[Verdict]
	opens     opens
	within    time.Duration // zero: unbounded
	observe   func(Decision)
	made      time.Time // by New: time.Since reads one clock, and time.Now two
	log       *transitions
	source    atomic.Pointer[source] // of the rules; nil: RulesRead was not called
	receipts  []byte                 // the secret of receipts; nil: there are none
	rules     atomic.Pointer[ruleset]
	replacing sync.Mutex // held while rules are made
	maker     maker      // under replacing
}

// New makes a Limiter that counts on c. An error names the rule or the field of
// cfg.
func New(c *counter.Counter, cfg Config) (*Limiter, error) {
	if c == nil {
		return nil, errors.New("limiter: the counter is nil, want a *counter.Counter, which counter.New makes")
	}
	if len(cfg.Rules) == 0 {
		return nil, errors.New("limiter: Config.Rules is empty, want at least one rule")
	}
	normalizer, err := feature.NewNormalizer(cfg.Forms)
	if err != nil {
		return nil, err
	}
	l := &Limiter{counter: c, within: cfg.DecideWithin, observe: cfg.Observe, made: time.Now(), log: &transitions{to: cfg.Logger}}
	storeHere, _ := inner(c).Local()
	switch {
	case storeHere, cfg.DecideWithin < 0:
		l.within = 0
	case cfg.DecideWithin == 0:
		l.within = DefaultDecideWithin
	}
	if err := cfg.checkLocal(c, l.within); err != nil {
		return nil, err
	}
	l.taker = fallback.New(c, fallback.Config{Within: l.within, MaxInFlight: cfg.MaxInFlight, Local: cfg.Local, Share: cmp.Or(cfg.Share, 1)})
	if cfg.MaxWaiting < 0 {
		return nil, fmt.Errorf("limiter: Config.MaxWaiting is %d, want 1 or more, or 0 for %d", cfg.MaxWaiting, DefaultMaxWaiting)
	}
	l.turns = turns.New[Verdict](cmp.Or(cfg.MaxWaiting, DefaultMaxWaiting))
	if l.receipts, err = receiptSecret(cfg.ReceiptKey, c); err != nil {
		return nil, err
	}
	skew := c.Config().Skew
	if cfg.Local != nil { // not less
		skew = cfg.Local.Config().Skew
	}
	l.maker = maker{newLadders(c), newLadders(cfg.Local), l.taker, cfg.MaxInFlight, normalizer, 3*skew + c.Config().Settle + time.Millisecond}
	set, err := l.maker.ruleset(cfg.Rules, &ruleset{})
	if err != nil {
		return nil, fmt.Errorf("limiter: %w", err)
	}
	l.rules.Store(set)
	return l, nil
}

// checkLocal checks the fields for local counting.
func (cfg *Config) checkLocal(c *counter.Counter, within time.Duration) error {
	if cfg.MaxInFlight < 0 {
		return fmt.Errorf("limiter: Config.MaxInFlight is %d, want 1 or more, or 0 for no bound", cfg.MaxInFlight)
	}
	if !(cfg.Share >= 0 && cfg.Share <= 1) { // also not a number
		return fmt.Errorf("limiter: Config.Share is %v, want above 0 and at most 1, or 0 for 1", cfg.Share)
	}
	here := cfg.Local
	if here == nil {
		return nil
	}
	storeHere, keeps := inner(here).Local()
	skew, least := here.Config().Skew, c.Config().Skew+within
	switch {
	case !storeHere:
		return errors.New("limiter: Config.Local counts on a store over a network, want a store in this process, such as memory.New(memory.Config{})")
	case !keeps:
		return errors.New("limiter: Config.Local counts on a store that removes hits when it is full, or does not say, want a store that fails then, such as memory.New(memory.Config{Full: memory.Refuse})")
	case skew < least:
		return fmt.Errorf("limiter: Config.Local has a Skew of %s, want %s, the Skew of the counter (%s) and DecideWithin (%s), or more", skew, least, least-within, within)
	}
	return nil
}

// Counter returns the Counter that New was given: for its Stats and Skew. Keys of
// rules with another ladder are not counted there.
func (l *Limiter) Counter() *counter.Counter { return l.counter }

// Logger returns Config.Logger, or slog.Default(), for what stands around the Limiter.
func (l *Limiter) Logger() *slog.Logger { return l.log.logger() }

// Events lists the events that have rules, in alphabetical order.
func (l *Limiter) Events() []string { return l.rules.Load().names() }

// Has reports whether event has rules: Allow of an event without rules is an error.
func (l *Limiter) Has(event string) bool { return l.rules.Load().events[event] != nil }

// Rules are the rules of an event now, merged by kind, in the order of
// Config.Rules, the soft rules last, each with the Ladder that its hits are added
// to, and the Former that a Replace has added. Without rules for the event the
// slice is empty.
func (l *Limiter) Rules(event string) []Rule {
	of := l.rules.Load().events[event]
	if of == nil {
		return nil
	}
	var rules []Rule
	for _, p := range of.rules {
		rules = append(rules, p.clone())
	}
	return rules
}

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
	l.Logger().Info("limiter: the rules were replaced", "rules", len(rules))
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

// source is the last outcome of reading the source of the rules.
type source struct {
	read    time.Time
	refused string
}

// RulesRead notes that the source of the rules was read, such as their file, and by
// err why it was refused, for Stats, tally.Status and the metrics. See
// rules.WatchConfig.Read.
func (l *Limiter) RulesRead(err error) {
	next := source{read: time.Now()}
	if err != nil {
		next = source{refused: err.Error()}
		if last := l.source.Load(); last != nil {
			next.read = last.read
		}
	}
	l.source.Store(&next)
}

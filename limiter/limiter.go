package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/inside"
	"github.com/abacus-go/abacus/limiter/fallback"
	"github.com/abacus-go/abacus/limiter/turns"
)

// DefaultDecideWithin is the longest time of a decision on a store on another
// machine, equal to the default of counter.Config for its calls.
const DefaultDecideWithin = counter.DefaultPatience

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
	// the next call. A store that comes and goes makes at most one line of each sort
	// a minute. No line has a feature. Default: slog.Default(). To log nothing, set
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
// case, Refund gives a hit back, Receipt has another process do so, and Peek decides without counting. Usage, Forget
// and Erase are for support. A Limiter with Config.Local is closed by Close. Many
// goroutines may use a Limiter at once.
type Limiter struct {
	counter     *counter.Counter
	taker       *fallback.Fallback // around counter
	turns       *turns.Queues[Verdict]
	opens       opens
	within      time.Duration // zero: unbounded
	maxInFlight int           // zero: unbounded
	observe     func(Decision)
	made        time.Time // by New: time.Since reads one clock, and time.Now two
	log         *transitions
	source      atomic.Pointer[source] // of the rules; nil: RulesRead was not called
	normalizer  *feature.Normalizer
	receipts    []byte // the secret of receipts; nil: there are none
	rules       atomic.Pointer[ruleset]
	replacing   sync.Mutex // held while rules are made
	store       ladders    // of counter; under replacing
	here        ladders    // of Config.Local, whose counter may be nil; under replacing
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
	l := &Limiter{counter: c, within: cfg.DecideWithin, maxInFlight: cfg.MaxInFlight, observe: cfg.Observe, made: time.Now(), log: &transitions{to: cfg.Logger}, normalizer: normalizer, store: ladders{counter: c}, here: ladders{counter: cfg.Local}}
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
	set, err := l.newRuleset(cfg.Rules, nil)
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

// Allow decides whether event may happen once more and, if so, counts a hit
// under all rules of the event; a denied call counts under none. Features of a
// kind without a rule are ignored; several features of a kind are all counted,
// and equal features once, under the limits of each.
//
// An error is the caller's mistake (an event without rules, text that is not an
// address) or the caller's context, and comes with a Verdict that denies. A
// denial is not an error. A store that failed is not an error either: the
// rules' OnFailure has decided, and Verdict.Degraded holds the store's error.
func (l *Limiter) Allow(ctx context.Context, event string, features ...feature.Feature) (v Verdict, err error) {
	err = l.decide(ctx, &v, event, 1, features, fallback.Taking, false)
	return v, err
}

// AllowN is Allow for n hits, at least one: all hits count or none.
func (l *Limiter) AllowN(ctx context.Context, event string, n int64, features ...feature.Feature) (v Verdict, err error) {
	err = l.decide(ctx, &v, event, n, features, fallback.Taking, false)
	return v, err
}

// Charge counts n hits under all rules of the event in any case, and
// reports whether a limit is over with them: for costs that are known only
// afterwards, such as the tokens of an answer. The hits of a Verdict that is not
// Allowed are counted as well, unless its At is the zero time: a feature is missing
// or denied by an Override, or the store has failed. RetryAfter is then the time
// until no limit is over, and Refund gives the hits back. Under FailLocal the hits
// are counted while the store fails. Config.Observe is called. See
// [counter.Counter.Charge].
//
// An n below zero is a credit: the newest -n hits of each feature are given back, soft
// rules included, or as many as there are, whoever counted them, and calls of Wait by
// these features ask again at once. [Times] gives back its own n. The Verdict is that of a
// Peek of 0 afterwards, and cannot be refunded. Nothing is given back if a feature is
// missing or denied by an Override: the Verdict says so. A ban holds on.
//
// A credit goes to the store alone, whatever OnFailure and DecideWithin are: hits in
// Config.Local stay, and a store that fails is an error, after which some hits may have
// been given back. Config.Observe is not called. No receipt protects from a second credit
// for the same hits, nor from a Refund of hits that a credit has given back. An n of 0,
// or beyond [counter.MaxCount] either way, is an error.
func (l *Limiter) Charge(ctx context.Context, event string, n int64, features ...feature.Feature) (v Verdict, err error) {
	if n < 0 {
		return l.credit(ctx, event, n, features)
	}
	err = l.decide(ctx, &v, event, n, features, fallback.Charging, false)
	return v, err
}

// credit is Charge with an n below zero.
func (l *Limiter) credit(ctx context.Context, event string, n int64, features []feature.Feature) (v Verdict, err error) {
	if n < -counter.MaxCount { // also the n that has no negative
		return v, fmt.Errorf("limiter: event %q: n is %d, want %d to -1, or 1 to %d", event, n, -int64(counter.MaxCount), int64(counter.MaxCount))
	}
	err = l.decide(ctx, &v, event, -n, features, fallback.Crediting, false)
	keys := v.keys()
	l.turns.Freed(func(key counter.Key) bool {
		return slices.Contains(keys, key) || err != nil && key.Event == event // some may have been given back
	})
	return v, err
}

// giveBack gives back the hits of asks, by the store alone.
func (l *Limiter) giveBack(ctx context.Context, v *Verdict, asks []counter.Ask) (err error) {
	given, ask := slices.Clone(asks), l.counter.PeekAll
	for i := range given {
		if given[i].N > 0 {
			given[i].N, ask = -given[i].N, l.counter.ChargeAll
		}
	}
	if v.Verdict, err = ask(ctx, given...); err != nil {
		return fmt.Errorf("limiter: credit: %w", err)
	}
	return nil
}

// Peek returns the Verdict that AllowN would return now, and counts nothing. An n
// of 0 asks whether a limit is over now, and how much is left. The Verdict cannot
// be refunded, and Config.Observe is not called. Peek begins no ban, so a denial
// by a limit is not Banned, even if AllowN would begin a ban. RetryAfter counts open
// hits like hits that stay: see [Limiter.AllowOpen].
func (l *Limiter) Peek(ctx context.Context, event string, n int64, features ...feature.Feature) (v Verdict, err error) {
	err = l.decide(ctx, &v, event, n, features, fallback.Peeking, false)
	return v, err
}

// Refund gives back the hits that v counted, and empties v: for an event that came
// to nothing, or that counts only if it fails. A Verdict without hits gives nothing
// back, which is no error. Copies of v are refunded once, all together, even if the
// store fails, since the effect of a failed call is unknown. Hits that were counted
// locally are taken out of the local counter, and are not carried to the store.
// Refund takes two calls to the store for every key, all keys side by side, and
// ends within the Counter's Patience. An error is the store's, or of ctx; if ctx
// was over before the first call, v is unchanged.
func (l *Limiter) Refund(ctx context.Context, v *Verdict) error {
	given := *v
	if v.Allowed {
		defer l.turns.Refunded(given.keys)
	}
	err := l.taker.Refund(ctx, &v.Verdict, fallback.Origin{Local: v.local, Hits: v.hits})
	if !v.Allowed { // given back
		*v = Verdict{}
		given.open.close(true)
	}
	if err != nil {
		return fmt.Errorf("limiter: refund: %w", err)
	}
	return nil
}

// inner returns what a Limiter needs of a Counter and users do not.
func inner(c *counter.Counter) inside.Counter[counter.Key, counter.Ask, counter.Verdict] {
	return inside.Of(c).(inside.Counter[counter.Key, counter.Ask, counter.Verdict])
}

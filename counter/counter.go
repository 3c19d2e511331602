package counter

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// What a network store's callers are allowed unless Config says otherwise.
const (
	DefaultSkew    = 100 * time.Millisecond
	DefaultTimeout = 50 * time.Millisecond

	maxSkew    = 24 * time.Hour
	maxTimeout = time.Minute
)

// Config is how a [Counter] counts. The zero Config is a good one. All
// processes that count the same keys must have the same Config.
type Config struct {
	// Ladder is the tiers that every hit is added to, and how long each is
	// kept. More tiers cost writes, longer ones memory. It is part of the
	// stored key: a process with another Ladder counts by itself. Default:
	// tiers.Default, which serves windows from a second to a day.
	Ladder tiers.Ladder

	// Skew is how far the clocks of two callers may be apart. Every window is
	// longer by Skew + Timeout, so that the promise holds in true time; if
	// clocks are further apart than this, it does not. Default: 100 ms, and
	// none for a store in this process. Negative: none.
	Skew time.Duration

	// Timeout is the budget of a call, from reading the clock to the verdict. A
	// Take that exceeds it is not admitted, and is an error of the store.
	// Taking back a refused hit may take as long again, and finding out when
	// it may come back once more. Default: 50 ms, and none for a store in this
	// process. Negative: none, for a single caller
	// on a clock of its own, such as the replay of a log.
	Timeout time.Duration

	// Now reads the clock, once a call, and once more where a budget is to be
	// kept. Default: time.Now.
	Now func() time.Time

	// Secret, if it is set, keeps features out of the store: they are stored as
	// HMAC-SHA256 under it. Without it a feature is stored readably, if it is
	// short. Changing it loses all counts.
	Secret []byte

	// Prefix begins every stored key, for stores that are shared: up to 32
	// printable ASCII characters without space, colon, percent sign and braces.
	// Default: "ab".
	Prefix string
}

// Counter counts hits of keys and limits them. It is used by many goroutines at
// once. [New] makes one; the zero Counter is not usable.
type Counter struct {
	store  Store
	taker  Taker // nil if the store has no atomic step
	now    func() time.Time
	skew   time.Duration
	budget time.Duration // zero: none
	plan   plan
	ttls   []time.Duration
	keys   keyMaker
	denied *denials // nil for a store in this process
	pool   sync.Pool

	inFlight atomic.Int64 // calls by ticket, to tell a race from a full key
}

// New makes a Counter on a store. The error names the field of cfg that is
// wrong.
func New(store Store, cfg Config) (*Counter, error) {
	if store == nil {
		return nil, errors.New("counter: the store is nil")
	}
	if cfg.Ladder.Len() == 0 {
		cfg.Ladder = tiers.Default
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	_, local := store.(Local)
	cfg.Skew = orDefault(cfg.Skew, DefaultSkew, local)
	cfg.Timeout = orDefault(cfg.Timeout, DefaultTimeout, local)
	if cfg.Skew > maxSkew {
		return nil, fmt.Errorf("counter: skew %s, want at most %s", dur.Format(cfg.Skew), dur.Format(maxSkew))
	}
	if cfg.Timeout > maxTimeout {
		return nil, fmt.Errorf("counter: timeout %s, want at most %s", dur.Format(cfg.Timeout), dur.Format(maxTimeout))
	}
	keys, err := newKeyMaker(cfg.Prefix, cfg.Ladder, cfg.Secret)
	if err != nil {
		return nil, err
	}
	c := &Counter{
		store:  store,
		now:    cfg.Now,
		skew:   cfg.Skew,
		budget: cfg.Timeout,
		plan:   newPlan(cfg.Ladder, cfg.Skew, cfg.Timeout),
		keys:   keys,
	}
	c.taker, _ = store.(Taker)
	if !local {
		c.denied = newDenials()
	}
	for i := range cfg.Ladder.Len() {
		c.ttls = append(c.ttls, c.plan.ttl(cfg.Ladder.At(i)))
	}
	c.pool.New = func() any {
		return &scratch{
			taking: Taking{Ladder: cfg.Ladder, TTLs: c.ttls, Slack: time.Duration(c.plan.left)},
			tokens: &tokens{owner: c},
		}
	}
	return c, nil
}

func orDefault(d, byDefault time.Duration, local bool) time.Duration {
	switch {
	case d < 0, d == 0 && local:
		return 0
	case d == 0:
		return byDefault
	}
	return d
}

// Ladder is the ladder that c counts on.
func (c *Counter) Ladder() tiers.Ladder { return c.plan.ladder }

// Local tells whether the store is in this process: no network, nothing to wait
// for. See the interface of the same name.
func (c *Counter) Local() bool {
	_, local := c.store.(Local)
	return local
}

// Check is the error that a Take under these limits would return for their
// sake: one is out of bounds, or the ladder keeps no tier for its window. For
// those who read limits before they use them.
func (c *Counter) Check(limits Limits) error {
	if err := limits.check(); err != nil {
		return err
	}
	for _, limit := range limits {
		if _, err := c.plan.ladder.Finest(limit.Per); err != nil {
			return fmt.Errorf("counter: limit %s: %w", limit, err)
		}
	}
	return nil
}

// deadline is when the store must have answered a call that begins now.
func (c *Counter) deadline() time.Time {
	if c.budget == 0 {
		return time.Time{}
	}
	return time.Now().Add(c.budget)
}

// storeError is an error of the store, met while counting an event. It does not
// name the feature, which may be somebody's address.
type storeError struct {
	event string
	err   error
}

func (e *storeError) Error() string {
	return fmt.Sprintf("counter: event %q: %v", e.event, e.err)
}

func (e *storeError) Unwrap() error { return e.err }

// Is makes every storeError an [ErrStore].
func (e *storeError) Is(target error) bool { return target == ErrStore }

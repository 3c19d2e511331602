package counter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// Defaults of [Config] for a store on another machine.
const (
	DefaultSkew     = 100 * time.Millisecond
	DefaultSettle   = 250 * time.Millisecond
	DefaultPatience = time.Second

	maxSkew     = 24 * time.Hour
	maxPatience = time.Minute
)

// Config is how a [Counter] counts. The zero Config is a good one. All
// processes that count the same keys must have the same Config.
type Config struct {
	// Ladder is the tiers that every hit is added to, and how long each is
	// kept. More tiers cost writes, longer ones memory. It is part of the
	// stored key: a process with another Ladder counts by itself. Default:
	// tiers.Default, which serves windows from a second to a day.
	Ladder tiers.Ladder

	// Skew is the most that the clocks of two callers may be apart. Every window
	// is longer by it, so that the promise holds in true time as well as by the
	// clocks; if clocks are further apart, it does not hold. On a store without an
	// atomic step it is part of the stored key: all processes that count a key
	// must have the same. Default: 100 ms, and none for a store in this process.
	// Negative: none.
	Skew time.Duration

	// Settle is the longest that one try of a Take may last, from its reading of
	// the clock to the last confirmed addition; a try that is later is taken back
	// and, within Patience, made again. It matters on a store without an atomic
	// step (memcached), where it ends a bucket: buckets of which the end is less
	// than Skew + Settle ago take a second round trip. It is part of the stored
	// key there: all processes that count a key must have the same. A call that
	// has to take back what it added may last longer than Patience by Settle or
	// by Patience, whichever is less. Default: 250 ms, and none for a store in this
	// process. Negative: none, for a single caller on a clock of its own, such as
	// the replay of a log.
	Settle time.Duration

	// Patience is the time that a call may wait: the time from its beginning to its
	// answer, or to the error that the store has none. It lengthens no window,
	// and callers may differ in it. A call waits within it for others of the
	// same key, and tries as often as fits. A denial of several keys may look at
	// those that did not deny for as long as a taking back lasts. Default: 1 s, and
	// none for a store in this process. Negative: none.
	Patience time.Duration

	// Now reads the clock: once for each label that a call tries, and once more
	// where the time of a try is to be kept. Default: time.Now.
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
	store    backend.Store
	atomic   backend.Atomic // nil if the store has no atomic step
	now      func() time.Time
	skew     time.Duration
	settle   time.Duration // zero: a try may last for ever
	patience time.Duration // zero: none
	plan     plan
	ttls     []time.Duration
	keys     keyMaker
	denied   *denials // nil for a store in this process
	queues   *queues  // nil for a store in this process
	calls    sync.Pool
	stats    stats
}

// New makes a Counter on a store. The error names the field of cfg that is
// wrong.
func New(store backend.Store, cfg Config) (*Counter, error) {
	if store == nil {
		return nil, errors.New("counter: the store is nil")
	}
	if cfg.Ladder.Len() == 0 {
		cfg.Ladder = tiers.Default
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	_, local := store.(backend.Local)
	cfg.Skew = orDefault(cfg.Skew, DefaultSkew, local)
	cfg.Settle = orDefault(cfg.Settle, DefaultSettle, local)
	cfg.Patience = orDefault(cfg.Patience, DefaultPatience, local)
	if cfg.Skew > maxSkew {
		return nil, fmt.Errorf("counter: skew %s, want at most %s", dur.Format(cfg.Skew), dur.Format(maxSkew))
	}
	if cfg.Settle > maxPatience {
		return nil, fmt.Errorf("counter: settle %s, want at most %s", dur.Format(cfg.Settle), dur.Format(maxPatience))
	}
	if cfg.Patience > maxPatience {
		return nil, fmt.Errorf("counter: patience %s, want at most %s", dur.Format(cfg.Patience), dur.Format(maxPatience))
	}
	atomic, _ := store.(backend.Atomic)
	layout, unsettled := cfg.Ladder.String(), time.Duration(0)
	if atomic == nil {
		layout += fmt.Sprintf("; skew %d, settle %d", cfg.Skew, cfg.Settle)
		unsettled = cfg.Settle
	}
	keys, err := newKeyMaker(cfg.Prefix, layout, cfg.Secret)
	if err != nil {
		return nil, err
	}
	c := &Counter{
		store:    store,
		atomic:   atomic,
		now:      cfg.Now,
		skew:     cfg.Skew,
		settle:   cfg.Settle,
		patience: cfg.Patience,
		plan:     newPlan(cfg.Ladder, cfg.Skew, unsettled),
		keys:     keys,
	}
	if !local {
		c.denied, c.queues = newDenials(), newQueues()
	}
	for i := range cfg.Ladder.Len() {
		c.ttls = append(c.ttls, ttl(cfg.Ladder.At(i), cfg.Skew, cfg.Settle))
	}
	c.calls.New = func() any { return &call{c: c, receipts: &receipts{owner: c}} }
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
	_, local := c.store.(backend.Local)
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
		if _, err := c.plan.window(limit); err != nil {
			return fmt.Errorf("counter: limit %s: %w", limit, err)
		}
	}
	return nil
}

// deadline is the end of the patience of a call that begins now; zero: none.
func (c *Counter) deadline() time.Time {
	if c.patience == 0 {
		return time.Time{}
	}
	return time.Now().Add(c.patience)
}

// grace is by when a call that may wait until then has taken back what it added,
// and found out what a denial is to say.
func (c *Counter) grace(until time.Time) time.Time {
	if until.IsZero() {
		return until
	}
	return until.Add(c.graceTime())
}

// graceTime is how much longer than its patience a call may last.
func (c *Counter) graceTime() time.Duration {
	if c.settle == 0 {
		return c.patience
	}
	return min(c.patience, c.settle)
}

// callError says whose fault err is, which the store returned: the caller's
// context or the store itself.
func callError(ctx context.Context, event string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("counter: event %q: %w", event, ctx.Err())
	}
	// A store may keep the deadline of ctx before the timer of ctx has rung.
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return fmt.Errorf("counter: event %q: %w", event, context.DeadlineExceeded)
	}
	return &storeError{event, err}
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

// ErrStore is the mark that [errors.Is] finds in an error of the store: it could
// not be reached, answered too late or wrongly, or has no room. Any other error
// of a [Counter] is the caller's mistake or the caller's context.
var ErrStore = backend.ErrStore

package counter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

// Defaults of [Config] for a store on another machine.
const (
	DefaultSkew     = backend.DefaultSkew // 100 ms
	DefaultSettle   = 250 * time.Millisecond
	DefaultPatience = time.Second

	maxSkew     = 24 * time.Hour
	maxPatience = time.Minute
)

// Config configures a [Counter]. The zero Config is ready for use. All
// processes that count the same keys must have the same Config, except for
// Patience and Now.
type Config struct {
	// Ladder is the set of tiers that every hit is added to, with the time that
	// each is kept. More tiers cost writes, longer times cost memory. The
	// ladder is a part of the stored key: processes with different ladders
	// count apart. A window is longer by the width of its oldest bucket: on the
	// default ladder, in buckets of a second, steady demand gets half of 2/s, and
	// 0.92 of 10/10s. Limits.Ladder makes a ladder for given limits, as a limiter.Limiter
	// does: 0.97 of 2/s in memory, and 0.72 by ticket. Default: tiers.Default, for
	// windows from a second to a day, and days of the calendar in UTC.
	Ladder tiers.Ladder

	// Skew is the largest difference between the clocks of two callers. Every
	// window is longer by Skew, so that a limit holds in true time as well as
	// by the clocks. While clocks differ by more than Skew, no limit is
	// guaranteed. On a store without an atomic step, Skew is a part of the
	// stored key: all processes that count a key must have the same Skew.
	// Default: 100 ms; zero for a store in this process. Negative: zero.
	Skew time.Duration

	// Settle is the longest time that a try of a Take may last, from the reading
	// of the clock to the last confirmed addition. A try that lasts longer is
	// taken back, and repeated within Patience. Settle matters only on a store
	// without an atomic step (memcached). With a shorter Settle more tries on a
	// slow store are late, with a longer Settle more calls need a second round
	// trip, to read the buckets that ended less than Skew + Settle ago. On such a
	// store Settle is a part of the stored key: all processes that count a key
	// must have the same Settle. A call that takes back its additions may outlast
	// Patience by the lesser of Settle and Patience. Default: 250 ms; none for a
	// store in this process. Negative: none, for a single caller with a clock of
	// its own, such as the replay of a log.
	Settle time.Duration

	// Patience is the time from the beginning of a call to its answer, or to
	// the error that the store has none. Within Patience a call waits for other
	// calls of the same key, and tries again as often as time allows. Longer
	// patience means fewer errors and longer waits; no window depends on
	// Patience, and processes may differ in it. After a denial of several keys,
	// the other keys may be looked at for as long as an undo may last.
	// Default: 1 s; none for a store in this process. Negative: none.
	Patience time.Duration

	// Exact asks for exact numbers in every verdict. By default the Remaining of
	// an admitted call may be too low on a network store: the store admits by an
	// upper bound of the count where the bound has room. On a store without an
	// atomic step (memcached) the oldest bucket of the bound is coarse, and counts
	// that this process has read within the last minute may serve; exact numbers
	// then cost reads: 82 items of a day on average, instead of 24 or none.
	// Denials are exact in any case, and so are Peek and a store in this process.
	Exact bool

	// Now reads the clock: for each label that a call tries, and at the end of
	// each try that must end within Settle. Default: time.Now.
	Now func() time.Time `json:"-"`

	// Secret, if set, keeps features out of the store: stored keys then hold
	// HMAC-SHA256 digests under Secret: at least 16 random bytes, the same in all
	// processes, since whoever guesses a short one can try features. Without a secret,
	// short features are stored as they are. A change of Secret loses all counts.
	Secret []byte

	// Prefix begins every stored key, for stores that several applications
	// share: up to 32 printable ASCII characters other than space, colon,
	// percent sign and braces. Default: "ab".
	Prefix string

	// Former is the Config of processes that still run, or ran a moment ago, for a
	// change of ladder that loses no counts. The fields that change a stored key
	// are used: Ladder, Prefix, Secret, Skew and Settle. A zero field is as in this
	// Config, or as the ladder of With, and a Secret that is empty and not nil is
	// none; so at least one of these fields is set. Default: none.
	//
	// A Counter with a Former counts each hit by both ladders, with one label, and
	// admits a hit only if in both ladders every limit has room that the ladder can
	// hold. Forget empties both, a Refund gives back in both, and Count, Peek and
	// RetryAfter tell the larger number. Each call has the cost of two keys.
	//
	// So no limit is lost while a ladder changes, as long as all hits within one
	// Per come from processes that have one ladder in common:
	//
	//  1. Processes with the former ladder alone are replaced by processes with
	//     both ladders, at any pace, or back.
	//  2. When the last process with the former ladder alone is gone, more than Per
	//     + Skew pass, of the longest Per.
	//  3. Processes with both are replaced by processes with the new ladder alone,
	//     at any pace, or back.
	//
	// While both ladders count, clocks must agree within the smaller Skew of the
	// two. A limit that the former ladder cannot hold begins to hold with the last
	// hit that was counted by the former alone. Soft keys are counted by the new
	// ladder alone.
	Former *Config
}

// Counter counts hits of keys over sliding windows on a store, and limits them.
// Each hit is added to a bucket in each tier of a ladder; the count of a window
// is a sum of buckets.
//
// The zero Counter is not usable; [New] makes a Counter, and With another on the
// same store, with a ladder of its own.
//
// Counter has two main methods, Take and Peek. Most callers should use Take,
// which counts hits if all limits of a key have room. Peek tells the answer of
// a Take and counts nothing. Charge counts in any case, and reports whether that
// was over. TakeAll and PeekAll are for several keys and one verdict. Refund
// gives back the hits of an admitted Take, and Settle replaces an estimate by what
// was used. Add counts without limits, AddAt hits of the past; Count and Series read.
// Forget sets a key to zero. Check reports whether the store is ready, and Stats
// whether the conditions of the promises hold.
//
// All methods may be called by many goroutines at once.
type Counter struct {
	*base
	cfg      Config // with the defaults; no Patience or Settle: no bound
	plan     ticket.Plan
	keys     keyMaker
	softKeys keyMaker
	former   *Counter // counted and judged too; nil: none
	quotas   *quotas  // nil: no short way
	chosen   bool     // the ladder was
	calls    sync.Pool
}

// base is common to the Counters that With makes of one another.
type base struct {
	store    backend.Store
	protocol *ticket.Protocol
	atomic   backend.Atomic // nil if the store has no atomic step
	now      func() time.Time
	denied   *denials // nil for a store in this process
	queues   *queues  // nil for a store in this process
	exact    bool     // no upper bounds
	waited   atomic.Int64
	labels   labels
	checks   checks
}

// New returns a Counter on store. An error names the field of cfg, its value
// and the values that are allowed, or a store that is nil.
func New(store backend.Store, cfg Config) (*Counter, error) {
	if v := reflect.ValueOf(store); store == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("counter: New: store is nil, want a store of buckets")
	}
	chosen := cfg.Ladder.Len() > 0 || cfg.Former != nil
	if cfg.Ladder.Len() == 0 {
		cfg.Ladder = tiers.Default
	}
	own := cfg.Now
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	_, local := backend.As[backend.Local](store)
	skew, settle, patience := DefaultSkew, DefaultSettle, DefaultPatience
	if local {
		skew, settle, patience = 0, 0, 0
	}
	cfg.Skew = max(0, cmp.Or(cfg.Skew, skew))
	cfg.Settle = max(0, cmp.Or(cfg.Settle, settle))
	cfg.Patience = max(0, cmp.Or(cfg.Patience, patience))
	if cfg.Patience > maxPatience {
		return nil, fmt.Errorf("counter: Config.Patience is %s, want at most %s", dur.Format(cfg.Patience), dur.Format(maxPatience))
	}
	cfg.Secret = bytes.Clone(cfg.Secret) // for With, whatever the caller does with the slice
	b := &base{
		store:  store,
		now:    cfg.Now,
		exact:  cfg.Exact || local,
		labels: labels{now: own},
	}
	b.atomic, _ = backend.As[backend.Atomic](store)
	if !local {
		b.denied, b.queues = newDenials(), newQueues()
	}
	b.protocol = ticket.New(store, cfg.Skew, b.exact, cfg.Now, crowd{b.denied, b.queues})
	return b.counter(cfg, chosen)
}

// counter returns a Counter with the Ladder, Prefix, Secret, Skew, Settle and
// Former of cfg. chosen reports whether the ladder is no default.
func (b *base) counter(cfg Config, chosen bool) (*Counter, error) {
	if cfg.Skew > maxSkew {
		return nil, fmt.Errorf("counter: Config.Skew is %s, want at most %s", dur.Format(cfg.Skew), dur.Format(maxSkew))
	}
	if cfg.Settle > maxPatience {
		return nil, fmt.Errorf("counter: Config.Settle is %s, want at most %s", dur.Format(cfg.Settle), dur.Format(maxPatience))
	}
	layout := cfg.Ladder.String()
	if b.atomic == nil {
		layout += fmt.Sprintf("; skew %d, settle %d", cfg.Skew, cfg.Settle)
	}
	keys, err := newKeyMaker(cfg.Prefix, layout, cfg.Secret)
	if err != nil {
		return nil, err
	}
	c := &Counter{
		base:     b,
		cfg:      cfg,
		chosen:   chosen,
		plan:     ticket.NewPlan(cfg.Ladder, cfg.Skew, cfg.Settle, b.atomic != nil),
		keys:     keys,
		softKeys: keys.soft(),
	}
	c.calls.New = func() any { return &call{c: c} }
	if c.former, err = c.formerly(cfg); err != nil {
		return nil, err
	}
	if local, is := backend.As[backend.Local](b.store); is && len(cfg.Secret) == 0 && c.former == nil {
		c.quotas = &quotas{store: local}
	}
	return c, nil
}

// With returns a Counter that counts on ladder, and else is as c: the store, the
// memory of denials, the clock, Stats and Check are common to both. Keys of
// different ladders are different counts. former, if not nil, is the former
// ladder of these keys, as [Config].Former.
func (c *Counter) With(ladder tiers.Ladder, former *Config) (*Counter, error) {
	if ladder.Len() == 0 {
		return nil, errors.New("counter: With: the ladder has no tiers, want at least one")
	}
	cfg := c.cfg
	cfg.Ladder, cfg.Former = ladder, former
	return c.base.counter(cfg, true)
}

// Config returns the Config of c, with its defaults and the ladder of With. Left
// out are the Secret and the Former, which may have one: a Config may be logged.
func (c *Counter) Config() Config {
	cfg := c.cfg
	cfg.Secret, cfg.Former = nil, nil
	return cfg
}

// deadline is the end of the patience of a call that begins now; zero: none.
func (c *Counter) deadline() time.Time {
	if c.cfg.Patience == 0 {
		return time.Time{}
	}
	return time.Now().Add(c.cfg.Patience)
}

// grace returns the time by which a call with the deadline until has taken back
// its additions and completed the details of a denial.
func (c *Counter) grace(until time.Time) time.Time {
	switch {
	case until.IsZero():
		return until
	case c.cfg.Settle == 0:
		return until.Add(c.cfg.Patience)
	}
	return until.Add(min(c.cfg.Patience, c.cfg.Settle))
}

// callError names the culprit of err, an error of the store: the context of the
// caller, or the store. The text does not name the feature, which may be a
// personal address. Without an error of the store there is none.
func callError(ctx context.Context, event string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ticket.ErrClock) {
		return fmt.Errorf("counter: %w", err)
	}
	culprit := ctx.Err()
	// A store may keep the deadline of ctx before the timer of ctx has rung.
	if deadline, ok := ctx.Deadline(); culprit == nil && ok && !time.Now().Before(deadline) {
		culprit = context.DeadlineExceeded
	}
	if culprit != nil {
		return fmt.Errorf("counter: event %q: %w", event, culprit)
	}
	if errors.Is(err, backend.ErrMaxCount) && !errors.Is(err, ErrStore) {
		return fmt.Errorf("counter: event %q: %w", event, err) // of n: a Take is denied then
	}
	return &storeError{fmt.Errorf("counter: event %q: %w", event, err)}
}

// storeError is an error of the store, and an [ErrStore].
type storeError struct{ error }

func (e *storeError) Unwrap() error        { return e.error }
func (e *storeError) Is(target error) bool { return target == ErrStore }

// ErrStore is the error that [errors.Is] finds in all errors of the store: the
// store could not be reached, answered late or wrongly, or has no room. All
// other errors of a [Counter] are mistakes of the caller, or come from the
// context of the caller.
var ErrStore = backend.ErrStore

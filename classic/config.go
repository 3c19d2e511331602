package classic

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/classic/internal/server"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// MaxHits is the largest Max of a limit, burst, length of a queue, and n of a
// call. It leaves scripts, which calculate in floating point, room for exact
// products.
const MaxHits = 1<<35 - 1

// Defaults of Config.
const (
	DefaultGrace   = time.Second
	DefaultMaxKeys = 1_000_000
	DefaultTimeout = time.Second
	DefaultPrefix  = "cl"
)

// Config configures a [Store]. The zero Config is a good choice.
type Config struct {
	// Now reads the clock, once a call: any time between 1700 and 2250, such as
	// the time of a replayed log. Instants are whole microseconds, rounded
	// down. Default: time.Now.
	Now func() time.Time

	// Grace is the time for which a state is kept beyond the need of a caller
	// with the same clock: for callers whose clocks are behind; and on Redis,
	// where time to live runs by the server's clock, for a replay that takes
	// longer than the log. Grace makes no limiter stricter. At most a day.
	// Default: [DefaultGrace]. Negative: none.
	Grace time.Duration

	// Prefix begins every stored name, for stores that are shared. Limiters of
	// the same kind and window length share the states of a key if they share a
	// store, or a server and a prefix: so a changed Max finds the history, and
	// processes count together. To keep two such limiters apart takes two
	// stores, and on Redis two prefixes. Up to 32 printable ASCII characters
	// without space, colon, percent sign and braces. Default: [DefaultPrefix].
	Prefix string

	// MaxKeys bounds the states in memory, of all limiters on the store
	// together. A new state replaces a state that can no longer matter. If all
	// states still matter, the call fails with [ErrFull], so an attacker who
	// makes up keys can make calls fail. The size of a state has its own bound:
	// a sliding log keeps up to Max instants. Default: [DefaultMaxKeys]. Redis
	// has settings of its own.
	MaxKeys int

	// Timeout bounds a call to a server; the caller's context can only shorten the
	// bound. Default: [DefaultTimeout].
	Timeout time.Duration
}

// Store keeps the states of limiters: [Memory], or one of package servers. Many
// limiters and many goroutines may use a Store at once.
type Store struct {
	cfg    Config
	server server.Server // nil in memory
	remote *remote       // the server, if it has scripts

	mu     sync.Mutex
	tables map[string]sweeper // by kind and window length
	states atomic.Int64       // in all tables, of cfg.MaxKeys
}

// Memory makes a store in the memory of the process, without goroutine or
// timer: the time of each call decides which states have expired. A state
// dropped by a clock far ahead is gone for all clocks.
func Memory(cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Store{cfg: cfg, tables: map[string]sweeper{}}, nil
}

// String names the store, without a password.
func (s *Store) String() string {
	if s.server != nil {
		return s.server.String()
	}
	return "memory"
}

func (cfg Config) complete() (Config, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	cfg.Grace = max(cfg.Grace, 0)
	if cfg.Grace > dur.Day {
		return cfg, fmt.Errorf("classic: Config.Grace is %s, want at most %s", dur.Format(cfg.Grace), dur.Format(dur.Day))
	}
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if err := checkPrefix(cfg.Prefix); err != nil {
		return cfg, err
	}
	if cfg.MaxKeys == 0 {
		cfg.MaxKeys = DefaultMaxKeys
	}
	if cfg.MaxKeys < 0 {
		return cfg, fmt.Errorf("classic: Config.MaxKeys is %d, want at least 1, or 0 for %d", cfg.MaxKeys, DefaultMaxKeys)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Timeout < 0 {
		return cfg, fmt.Errorf("classic: Config.Timeout is %s, want more than 0s, or 0 for %s", cfg.Timeout, DefaultTimeout)
	}
	return cfg, nil
}

// checkLimit checks the limit and the store of a limiter that reads and writes in
// one step.
func checkLimit(limit counter.Limit, store *Store) error {
	if err := checkBounds(limit, store); err != nil {
		return err
	}
	if store.server != nil && store.remote == nil {
		return fmt.Errorf("classic: limit %s: the store is %s, want Memory or Redis, where a limiter reads and writes in one step", limit, store)
	}
	return nil
}

// checkBounds checks the limit and the store of any limiter.
func checkBounds(limit counter.Limit, store *Store) error {
	switch {
	case store == nil:
		return errors.New("classic: the store is nil, want one of Memory, Redis or Memcached")
	case limit.Max < 0 || limit.Max > MaxHits:
		return fmt.Errorf("classic: limit %s: Max is %d, want 0 to %d", limit, limit.Max, int64(MaxHits))
	case limit.Per < tiers.MinWindow || limit.Per > tiers.MaxWindow:
		return fmt.Errorf("classic: limit %s: Per is %s, want %s to %s", limit, dur.Format(limit.Per), dur.Format(tiers.MinWindow), dur.Format(tiers.MaxWindow))
	case limit.Per%time.Microsecond != 0:
		return fmt.Errorf("classic: limit %s: Per is %s, want whole microseconds", limit, dur.Format(limit.Per))
	}
	return nil
}

// checkRate checks a limit that is a rate, Max per Per, with hits at once: a
// burst or a queue, which the rate must restore within tiers.MaxWindow.
func checkRate(limit counter.Limit, what string, hits int64, store *Store) error {
	if err := checkLimit(limit, store); err != nil {
		return err
	}
	if limit.Max == 0 {
		return fmt.Errorf("classic: limit %s: Max is 0, want 1 to %d, the limit being a rate", limit, int64(MaxHits))
	}
	if hits < 0 || hits > MaxHits {
		return fmt.Errorf("classic: limit %s: %s is %d, want 0 to %d", limit, what, hits, int64(MaxHits))
	}
	if most := rateOf(limit).hits(moment{micros(tiers.MaxWindow), 0}); hits > most {
		return fmt.Errorf("classic: limit %s: %s is %d, want at most %d, which take %s", limit, what, hits, most, dur.Format(tiers.MaxWindow))
	}
	return nil
}

package classic

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// MaxHits is the largest Max of a limit, burst, length of a queue, and n of a
// call. It leaves scripts, which calculate in floating point, room for exact
// products.
const MaxHits = 1<<35 - 1

// What a [Store] does unless its Config says otherwise.
const (
	DefaultGrace   = time.Second
	DefaultMaxKeys = 1_000_000
	DefaultTimeout = time.Second
	DefaultPrefix  = "cl"
)

// Config is how a [Store] keeps what limiters know. The zero Config is a good
// one.
type Config struct {
	// Now reads the clock, once a call. It may show any time between 1700 and
	// 2250, such as that of a log that is replayed. It counts in whole
	// microseconds; what is beyond is cut off. Default: time.Now.
	Now func() time.Time

	// Grace is how much longer a state is kept than a caller with the same clock
	// could need it: for callers whose clocks are behind, and on Redis, where time
	// to live runs by the server's clock, for the replay of a log that takes longer
	// than the log. It makes no limiter stricter. At most a day. Default:
	// [DefaultGrace]. Negative: none.
	Grace time.Duration

	// Prefix begins every stored name, for stores that are shared. Limiters of one
	// kind and window length share what they know of a key if they share a store,
	// or a server and a prefix: so a changed Max finds the history, and processes
	// count together. Two such limiters that are to be apart need two stores, and
	// on Redis two prefixes. Up to 32 printable ASCII characters without space,
	// colon, percent sign and braces. Default: [DefaultPrefix].
	Prefix string

	// MaxKeys bounds the states in memory, of all limiters on the store together.
	// A state that can no longer matter makes room for a new one. If there is
	// none, the call fails with [ErrFull], and an attacker who makes up keys can
	// make it so. What is in a state has its own bound: a sliding log keeps up to
	// Max instants. Default: [DefaultMaxKeys]. Redis has settings of its own.
	MaxKeys int

	// Timeout bounds a call to Redis; the caller's context can only shorten it.
	// Default: [DefaultTimeout].
	Timeout time.Duration
}

// Store is where limiters keep what they know: [Memory] or [Redis]. It is used
// by many limiters and many goroutines at once.
type Store struct {
	cfg    Config
	remote *remote // nil in memory

	mu     sync.Mutex
	tables map[string]sweeper // by kind and window length
	states atomic.Int64       // in all tables, of cfg.MaxKeys
}

// Memory makes a store in the memory of the process. It has no goroutine and no
// timer: what is expired is decided by the time that comes with each call. What
// a clock far ahead has dropped, no clock brings back.
func Memory(cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Store{cfg: cfg, tables: map[string]sweeper{}}, nil
}

// String names the store, without its password.
func (s *Store) String() string {
	if s.remote != nil {
		return s.remote.server.String()
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

// checkLimit is what every limiter wants of its limit and store.
func checkLimit(limit counter.Limit, store *Store) error {
	switch {
	case store == nil:
		return errors.New("classic: the store is nil, want one of Memory or Redis")
	case limit.Max < 0 || limit.Max > MaxHits:
		return fmt.Errorf("classic: limit %s: Max is %d, want 0 to %d", limit, limit.Max, int64(MaxHits))
	case limit.Per < tiers.MinWindow || limit.Per > tiers.MaxWindow:
		return fmt.Errorf("classic: limit %s: Per is %s, want %s to %s", limit, dur.Format(limit.Per), dur.Format(tiers.MinWindow), dur.Format(tiers.MaxWindow))
	case limit.Per%time.Microsecond != 0:
		return fmt.Errorf("classic: limit %s: Per is %s, want whole microseconds", limit, dur.Format(limit.Per))
	}
	return nil
}

// checkRate is what limiters want whose limit is a rate, Max per Per, with room
// for some hits at once: such room must be restored in a time that can be said.
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

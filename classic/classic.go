package classic

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/classic/internal/server"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// Limiter decides whether n hits of a key may happen now, and counts the hits
// if so. All limiters of this package are Limiters; many goroutines may use a
// Limiter at once.
type Limiter interface {
	// Take admits all n hits or none; a denied call changes nothing, unless the
	// limiter's doc says otherwise. n is one or more. A denial is not an error: an error is a [counter.ErrStore], the error
	// of ctx, or the caller's mistake, and comes with the zero Verdict, which
	// denies. After an error of a server the hits may be counted.
	//
	// Of the Verdict only the flat fields are filled in. If no one else calls, and
	// no one's clock has been ahead, a caller who comes back after RetryAfter is
	// admitted, and one who comes a microsecond earlier is not, unless the
	// limiter's doc says otherwise.
	Take(ctx context.Context, key counter.Key, n int64) (counter.Verdict, error)
}

// Measured is a Limiter that measures its own cost, as all limiters of this
// package do.
type Measured interface {
	Limiter

	// Name is the kind of the limiter, such as "sliding-log".
	Name() string

	// Cost is the sum over all calls until now.
	Cost() Cost

	// Keys are the names under which the store may hold a state of key now; nil
	// for a key that Take would refuse.
	Keys(key counter.Key) []string

	// Bytes is the memory of key in the store: on Redis the sum of MEMORY USAGE
	// over Keys, on memcached the sizes of the items, in memory an estimate of the
	// heap, the map's share included.
	Bytes(ctx context.Context, key counter.Key) (int64, error)
}

// Cost counts the work of a store, in the store and in the scripts. In memory a
// state is 1 read, and 1 write if changed; on Redis a command that reads or
// writes counts 1, and a command that reads many keys counts each key.
type Cost struct {
	Calls  int64 // of the store, without calls that were refused
	Trips  int64 // round trips to a server
	Reads  int64
	Writes int64 // commands that set a time to live included
}

// call is a call on its way through rule and store.
type call struct {
	now, n   int64
	patience moment  // of a queue: how long the caller would wait
	hurry    *moment // if shorter, the wait until the deadline of the caller's context

	stamped time.Time   // filled in: when now was read, for a caller who waits
	allowed bool        // filled in
	facts   [4]int64    // filled in: the arguments of verdict, by rule
	cost    server.Cost // so far
}

// rule is an algorithm: the same step in Go and for Redis, and the meaning of
// its outcome. A step that is not allowed changes no state, but for
// [requestDecay]'s.
type rule[S any] interface {
	step(s *S, known bool, c *call)
	remote(ctx context.Context, r *remote, name string, c *call) error
	verdict(c *call) (remaining, retryAfter, resetAfter int64)

	name(base string, now int64) string
	names(base string, now int64) []string
	bytes(s *S) int64 // outside of S itself
}

// single is the common part of rules with one state of fixed size for a key.
type single[S any] struct{}

func (single[S]) name(base string, _ int64) string    { return base }
func (single[S]) names(base string, _ int64) []string { return []string{base} }
func (single[S]) bytes(*S) int64                      { return 0 }

// engine is a rule on a store, and the methods of all limiters.
type engine[S any] struct {
	kind  string
	limit counter.Limit
	most  int64 // a larger n never passes
	large int64 // a larger n is the caller's mistake
	ttl   int64 // the time for which a written state can matter, Grace included
	rule  rule[S]
	store *Store
	table *table[S] // nil on Redis

	calls, trips, reads, writes atomic.Int64
}

// start makes e ready; life is the time after a hit in which the hit can still
// matter.
func (e *engine[S]) start(kind string, limit counter.Limit, store *Store, most, life int64, r rule[S]) {
	e.kind, e.limit, e.store, e.most, e.rule = kind, limit, store, most, r
	e.large, e.ttl = MaxHits, life+microsUp(store.cfg.Grace)
	if store.server == nil {
		e.table = tableOf[S](store, e.head())
	}
}

func (e *engine[S]) head() string {
	return e.store.cfg.Prefix + ":" + e.kind + ":" + dur.Format(e.limit.Per)
}

// Name is the kind of the limiter, a part of its stored names.
func (e *engine[S]) Name() string { return e.kind }

// Cost is the sum over all calls until now.
func (e *engine[S]) Cost() Cost {
	return Cost{e.calls.Load(), e.trips.Load(), e.reads.Load(), e.writes.Load()}
}

// Take takes n hits of key, see [Limiter].
func (e *engine[S]) Take(ctx context.Context, key counter.Key, n int64) (counter.Verdict, error) {
	c := call{n: n}
	return e.take(ctx, key, &c)
}

func (e *engine[S]) take(ctx context.Context, key counter.Key, c *call) (counter.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return counter.Verdict{}, e.wrong(key, err)
	}
	if c.n < 1 || c.n > e.large {
		return counter.Verdict{}, fmt.Errorf("classic: %s: n is %d, want 1 to %d", e.kind, c.n, e.large)
	}
	if err := checkKey(key); err != nil {
		return counter.Verdict{}, err
	}
	now, err := e.now()
	if err != nil {
		return counter.Verdict{}, err
	}
	c.now = now
	if c.patience != (moment{}) {
		c.stamped = time.Now()
	}
	never := c.n > e.most
	c.n = min(c.n, e.most+1) // never admitted either, and cannot overflow
	err = e.run(ctx, e.rule.name(e.base(key), now), c)
	e.calls.Add(1)
	e.spend(c)
	if err != nil {
		if ctx.Err() != nil {
			return counter.Verdict{}, e.wrong(key, ctx.Err())
		}
		return counter.Verdict{}, &storeError{e.kind, key, err}
	}
	remaining, retry, reset := e.rule.verdict(c)
	v := counter.Verdict{Allowed: c.allowed, Key: key, Limit: e.limit, Remaining: max(0, remaining), ResetAfter: duration(max(0, reset))}
	switch {
	case never:
		v.RetryAfter = counter.Never
	case !c.allowed:
		v.RetryAfter = duration(max(0, retry))
	}
	return v, nil
}

func (e *engine[S]) run(ctx context.Context, name string, c *call) error {
	if e.table != nil {
		return e.table.take(name, c, e.ttl, e.rule.step)
	}
	return e.rule.remote(ctx, e.store.remote, name, c)
}

func (e *engine[S]) spend(c *call) {
	e.trips.Add(c.cost.Trips)
	e.reads.Add(c.cost.Reads)
	e.writes.Add(c.cost.Writes)
}

// now is the clock in microseconds.
func (e *engine[S]) now() (int64, error) {
	now := e.store.cfg.Now()
	if err := cover.CheckTime(now); err != nil {
		return 0, fmt.Errorf("classic: %s: Config.Now: %w", e.kind, err)
	}
	return tiers.Index(now.UnixNano(), 1000), nil
}

func (e *engine[S]) base(key counter.Key) string { return e.head() + tag(key) }

// Keys are the names under which the store may hold a state of key now; nil for
// a key that Take would refuse.
func (e *engine[S]) Keys(key counter.Key) []string {
	now, err := e.now()
	if err != nil || checkKey(key) != nil {
		return nil
	}
	return e.rule.names(e.base(key), now)
}

// Bytes is the memory of key in the store, see [Measured].
func (e *engine[S]) Bytes(ctx context.Context, key counter.Key) (int64, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	if e.table == nil {
		n, err := e.store.usage(ctx, e.Keys(key))
		if err != nil {
			return 0, &storeError{e.kind, key, err}
		}
		return n, nil
	}
	var sum int64
	for _, name := range e.Keys(key) {
		sum += e.table.bytes(name, e.rule.bytes)
	}
	return sum, nil
}

// ttlMillis is the time to live of a state written now.
func (e *engine[S]) ttlMillis() int64 { return ceilDiv(e.ttl, 1000) }

// wrong is an error of the caller's context.
func (e *engine[S]) wrong(key counter.Key, err error) error {
	return fmt.Errorf("classic: %s: event %q: %w", e.kind, key.Event, err)
}

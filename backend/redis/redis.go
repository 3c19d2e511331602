// Package redis keeps counts on a Redis server, or on Sentinel or Cluster.
//
//	store, err := redis.Open("redis://127.0.0.1:6379/0", redis.Config{})
//	c, err := counter.New(store, counter.Config{})
//
// A [Store] checks and adds in one atomic step: one EVALSHA, one round trip,
// for a single key on any server, and for several keys where one server holds
// them all. It was tried with Redis 7.0, on a 64-bit
// machine. A call that counts is never sent twice,
// whatever the client does with other commands.
//
// What is stored, and what a key costs: docs/storage.md. Every stored key has a
// time to live, and all that belongs to a counted key has one hash tag. Set
// maxmemory-policy to noeviction: a full server then refuses, visibly, where any
// other policy forgives hits in silence. See docs/operating.md.
package redis

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/internal/redisscript"
)

// DefaultTimeout is how long a call may take that has no deadline of its own.
const DefaultTimeout = time.Second

// Config configures a [Store]. The zero Config is ready to use.
type Config struct {
	// Timeout bounds a call of the store for which a Counter sets no deadline,
	// as one does whose own Timeout is below zero. Default: [DefaultTimeout].
	Timeout time.Duration

	// AnyTime lets the server count a call whenever it gets to it. Otherwise the
	// script that counts looks at the server's clock first, and does nothing when
	// the call's deadline has passed: a hit whose caller was told of a failure does
	// not stay, though its connection was lost. That is a fifth of the server's
	// time for an admitted call. What is counted late on a connection that is still
	// there, a [Dialer] takes back with or without it.
	AnyTime bool

	// Dialer is the one that the client of [New] dials with, nil if it has another
	// one. The Store tells its Stats. [Open] makes its own, and refuses one.
	Dialer *Dialer
}

// Store is a [backend.Store], [backend.Atomic] and [backend.Forgetter] on Redis. It
// is used by many goroutines at once; [Open] and [New] make one.
type Store struct {
	server  *redisscript.Server
	timeout time.Duration
	owned   bool // the client and the dialer, by Close
	dialer  *Dialer
	anyTime bool
	clocks  []serverTime // one, or of a Cluster one for each run of slots
	late    atomic.Int64
}

var (
	_ backend.Atomic    = (*Store)(nil)
	_ backend.Forgetter = (*Store)(nil)
)

// New makes a Store on a client. The client must have ContextTimeoutEnabled: a
// client without ignores deadlines once it has begun to wait for an answer,
// and is refused. Retries do no harm: what counts is never sent twice. A Ring
// and other clients that spread keys by a rule of their own are refused too.
//
// A hit that the server counts in time, but whose answer comes after the call's
// deadline, stays counted until it ages out, unless the client dials with a
// [Dialer].
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	server, err := redisscript.On(client)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	s := &Store{server: server, timeout: cfg.Timeout, anyTime: cfg.AnyTime, dialer: cfg.Dialer}
	if s.timeout == 0 {
		s.timeout = DefaultTimeout
	}
	if s.timeout < 0 {
		return nil, fmt.Errorf("redis: timeout %s, want more than zero", cfg.Timeout)
	}
	s.clocks = make([]serverTime, 1)
	if server.Cluster() {
		s.clocks = make([]serverTime, clusterClocks)
	}
	for i := range s.clocks {
		s.clocks[i].begin()
	}
	return s, nil
}

// Stats is what a [Store] has counted since it was made. All but TooLate are those
// of its [Dialer], zero if it has none.
type Stats struct {
	TooLate     int64 // calls, of which the server said that they came after their deadline and counted nothing; one of a server whose clock was stepped ahead is sent again
	LateAnswers int64 // answers that said that hits were counted, and came after their call had returned an error
	TakenBack   int64 // of these, hits taken back
	NotTaken    int64 // of these, hits that could not be taken back: they stay until they age out
	Abandoned   int64 // answers that never came, within a minute or before the connection was lost or made room for another one: their hits may stay until they age out
	Draining    int   // connections that wait for a late answer now
}

// Stats is a snapshot; its numbers need not fit together to the last one.
func (s *Store) Stats() Stats {
	st := Stats{TooLate: s.late.Load()}
	if d := s.dialer; d != nil {
		st.TooLate += d.refused.Load()
		st.LateAnswers = d.late.Load()
		st.TakenBack = d.takenBack.Load()
		st.NotTaken = d.failed.Load()
		st.Abandoned = d.abandoned.Load()
		d.mu.Lock()
		st.Draining = d.draining.Len()
		d.mu.Unlock()
	}
	return st
}

// Open makes a Store with a client of its own, which [Store.Close] closes. The
// URL is one of
//
//	redis://user:password@host:6379/0
//	redis://host:6379?addr=host2:6379&addr=host3:6379      a Cluster, by some of its nodes
//	redis://host:26379/0?master_name=mymaster              a master by its Sentinels; addr names more of them
//
// with rediss for TLS, or unix:// and the path of a socket. Other parameters
// are those of go-redis, such as pool_size and protocol. Open does not connect.
func Open(rawURL string, cfg Config) (*Store, error) {
	if cfg.Dialer != nil {
		return nil, errors.New("redis: Open makes a Dialer of its own, and was given one")
	}
	client, dialer, err := connect(rawURL)
	if err != nil {
		return nil, err
	}
	cfg.Dialer = dialer
	s, err := New(client, cfg)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.owned = true
	return s, nil
}

// connect makes a client that keeps deadlines and hears late answers, and tells at
// once that it is refused: five tries to dial, which is the default, take longer
// than most calls have.
func connect(rawURL string) (redis.UniversalClient, *Dialer, error) {
	// The parsers' errors repeat the URL, and with it the password.
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, nil, errors.New("redis: the URL cannot be parsed, want redis://host:port/db")
	}
	wrong := func(err error) error {
		return fmt.Errorf("redis: the URL of %s: %w", u.Host, err)
	}
	q := u.Query()
	switch {
	case q.Has("master_name"):
		o, err := redis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, nil, wrong(err)
		}
		d := NewDialer(dialWith(o.TLSConfig))
		o.ContextTimeoutEnabled, o.DialerRetries, o.Dialer = true, 1, d.DialContext
		return redis.NewFailoverClient(o), d, nil
	case q.Has("addr"):
		o, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, nil, wrong(err)
		}
		d := NewDialer(dialWith(o.TLSConfig))
		o.ContextTimeoutEnabled, o.DialerRetries, o.Dialer = true, 1, d.DialContext
		return redis.NewClusterClient(o), d, nil
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, nil, wrong(err)
	}
	d := NewDialer(dialWith(o.TLSConfig))
	o.ContextTimeoutEnabled, o.DialerRetries, o.Dialer = true, 1, d.DialContext
	return redis.NewClient(o), d, nil
}

// Close closes the client of a Store that [Open] made, and the connections that
// wait for late answers. Those of [New] are their owner's to close.
func (s *Store) Close() error {
	if !s.owned {
		return nil
	}
	return errors.Join(s.server.Client().Close(), s.dialer.Close())
}

// String names the store, without its password.
func (s *Store) String() string { return s.server.String() }

// Together tells whether one server, or of a Cluster one slot, holds all these
// keys.
func (s *Store) Together(demands []backend.TakeKey) bool {
	if !s.server.Cluster() {
		return true
	}
	for _, d := range demands[1:] {
		if slot(d.Key) != slot(demands[0].Key) {
			return false
		}
	}
	return true
}

// until is the context of a call, with its deadline.
func (s *Store) until(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	if deadline.IsZero() {
		return context.WithTimeout(ctx, s.timeout)
	}
	return context.WithDeadline(ctx, deadline)
}

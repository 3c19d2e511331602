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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// DefaultTimeout is how long a call may take that has no deadline of its own.
const DefaultTimeout = time.Second

// Config configures a [Store]. The zero Config is ready to use.
type Config struct {
	// Timeout bounds a call of the store for which a Counter sets no deadline,
	// as one does whose own Timeout is below zero. Default: [DefaultTimeout].
	Timeout time.Duration
}

// Store is a [counter.Store] and [counter.Taker] on Redis. It is used by many
// goroutines at once; [Open] and [New] make one.
type Store struct {
	server  *redisscript.Server
	timeout time.Duration
	owned   bool // the client, by Close
}

var _ counter.Taker = (*Store)(nil)

// New makes a Store on a client. The client must have ContextTimeoutEnabled: a
// client without ignores deadlines once it has begun to wait for an answer,
// and is refused. Retries do no harm: what counts is never sent twice. A Ring
// and other clients that spread keys by a rule of their own are refused too.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	server, err := redisscript.On(client)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	s := &Store{server: server, timeout: cfg.Timeout}
	if s.timeout == 0 {
		s.timeout = DefaultTimeout
	}
	if s.timeout < 0 {
		return nil, fmt.Errorf("redis: timeout %s, want more than zero", cfg.Timeout)
	}
	return s, nil
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
	client, err := connect(rawURL)
	if err != nil {
		return nil, err
	}
	s, err := New(client, cfg)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.owned = true
	return s, nil
}

// connect makes a client that keeps deadlines, and tells at once that it is
// refused: five tries to dial, which is the default, take longer than most
// calls have.
func connect(rawURL string) (redis.UniversalClient, error) {
	// The parsers' errors repeat the URL, and with it the password.
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("redis: the URL cannot be parsed, want redis://host:port/db")
	}
	wrong := func(err error) error {
		return fmt.Errorf("redis: the URL of %s: %w", u.Host, err)
	}
	q := u.Query()
	switch {
	case q.Has("master_name"):
		o, err := redis.ParseFailoverURL(rawURL)
		if err != nil {
			return nil, wrong(err)
		}
		o.ContextTimeoutEnabled, o.DialerRetries = true, 1
		return redis.NewFailoverClient(o), nil
	case q.Has("addr"):
		o, err := redis.ParseClusterURL(rawURL)
		if err != nil {
			return nil, wrong(err)
		}
		o.ContextTimeoutEnabled, o.DialerRetries = true, 1
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, wrong(err)
	}
	o.ContextTimeoutEnabled, o.DialerRetries = true, 1
	return redis.NewClient(o), nil
}

// Close closes the client of a Store that [Open] made. That of [New] is its
// owner's to close.
func (s *Store) Close() error {
	if !s.owned {
		return nil
	}
	return s.server.Client().Close()
}

// String names the store, without its password.
func (s *Store) String() string { return s.server.String() }

// Together tells whether one server, or of a Cluster one slot, holds all these
// keys.
func (s *Store) Together(demands []counter.Demand) bool {
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

// slot is the hash slot of a key in a Cluster: CRC-16/XMODEM modulo 16384, as
// the Redis Cluster specification says.
func slot(key []byte) int {
	var crc uint16
	for _, b := range key {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc % 16384)
}

// until is the context of a call, with its deadline.
func (s *Store) until(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	if deadline.IsZero() {
		return context.WithTimeout(ctx, s.timeout)
	}
	return context.WithDeadline(ctx, deadline)
}

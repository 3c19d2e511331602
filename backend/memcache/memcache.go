// Package memcache keeps buckets on memcached.
//
//	store, err := memcache.New(memcache.Config{}, "10.0.0.1:11211", "10.0.0.2:11211")
//	...
//	c, err := counter.New(store, counter.Config{})
//
// # What is stored
//
// One item for each bucket of each key, and one for each key that was forgotten.
// The name of a bucket's item is
//
//	key|width index        without the space: ab:1wxyz:signup:ip:203.0.113.9|1m29454210
//
// key is [backend.Request.Key], at most 200 bytes. width is the bucket's, as short
// as durations are written (1s, 1m, 1h, 1d, 100ms, 1m30s), and ends in a letter.
// index is the bucket's number since 1970, in decimal; it starts with a digit
// or a minus. So the name can be read backwards without doubt: the index, the
// width, the last |, the key. It has at most 247 bytes of memcached's 250. The
// value is the count, in decimal; memcached may leave spaces after it when a
// count is taken back. The flags are 0. A value above [counter.MaxCount] is full,
// since memcached adds first and the surplus is taken back then. A value that is
// anything else, or 2^63 and more, was written by somebody else, and is an error.
//
// An item that a bucket is created with lives for [backend.Slot.TTL], rounded up
// to a second; 2 s more, since memcached's clock ticks about once a second; and
// a minute more, or as long again where the TTL is shorter: memcached answers by
// a stale clock when it goes on after a standstill, and what is created then
// lives shorter by as much. A standstill of up to a minute costs no hit. Beyond
// 30 days memcached wants a date: this machine's clock is then
// compared with the server's, and must not be behind it by more than the
// windows have to spare. The date is a 32-bit number: a TTL that goes beyond
// 2038-01-19 is an error.
//
// The item that remembers a [Store.Forget] is named by two hashes of the key and
// ends in |forgotten. It stands on the server of its key and holds the label, and
// the second up to which the label is remembered.
//
// # Round trips
//
// All additions of a call and one multi-get for all that it reads go out side
// by side, each on a connection of its own. memcached creates an item by one
// command (add) and counts it up by another (incr), so the first must be guessed:
// add for a bucket that this process has not met, incr for one that it has. The
// right guess is one round trip, the wrong one two. What is remembered for it is
// one bucket of each key and tier, in a table of 512 kB that does not grow.
//
// # Servers
//
// All buckets of a key are on one server, chosen by rendezvous hashing of the
// key: with one server more or less only the keys of that server move. The name
// of a server is hashed as it is written, so all processes must write it alike.
//
// # Limits of time and number
//
// A call returns by its deadline, whatever the server does. What it leaves
// behind is a request under way on some connections; such a request counts
// against [Config.MaxInFlight] until [Config.IOTimeout] is up, or twice that if it
// had to connect first. One call has at most 16 requests under way, and asks for
// at most 1,000 items in each.
//
// An addition that has no answer by then is listened for by a minute more: on
// its connection, which nobody else uses, in one goroutine, and on at most
// MaxInFlight connections to a server beside those that calls wait on. If it
// turns out to have been made it is taken back, once, on the same connection. An
// addition whose connection is lost, or that is one listener too many, may stay
// until it ages out; [Stats] counts both. No addition is ever sent twice.
//
// While a server has answered nothing since such an addition was sent, no others
// are sent to it: calls that add wait, for their own time, until the server
// answers a request that changes nothing. So what a silent server has to take
// back later is bounded by MaxInFlight, however long the silence lasts. A server
// that refuses connections, or does not accept them in time, is dialled again
// after 50 to 100 ms, by one call at a time; the others fail at once.
//
// A taking back is made to its end, whether its call waits for it or not. It
// names no life of an item: one that comes after the server has lost the item,
// in a restart for example, takes another's hit if there is one by then. Late
// additions are safe from that, since they are taken back on the connection on
// which they were made.
package memcache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/internal/redial"
)

// What a [Config] that says nothing gets.
const (
	DefaultIOTimeout   = time.Second
	DefaultMaxInFlight = 256
)

// Config configures a [Store]. The zero Config is a good one.
type Config struct {
	// IOTimeout is how long a request to a server may take, and how long a call
	// that has no deadline. A call whose deadline is earlier returns earlier,
	// but its requests stay under way up to IOTimeout, and its additions for a
	// minute more, so that a late answer can still be taken back. Default: 1 s.
	IOTimeout time.Duration

	// MaxInFlight is how many requests may be under way at once: to each server,
	// for a Store made by New; in all, for one made by NewFromClient. A Take on
	// three tiers has four. It is also how many connections to a server there
	// are at most, and as many again while additions are listened for that a
	// silent server has not answered; memcached's own default is 1,024 for all
	// its clients together. Where it is reached, calls wait, until their
	// deadline. Default: 256.
	MaxInFlight int

	// MaxIdleConns is how many connections to each server are kept when they
	// are not in use. With fewer than requests come at once, connections are
	// made and thrown away all the time. They are kept for good: nobody closes
	// them but the server. Default: MaxInFlight, so that no more than that are
	// ever made while nothing fails. It is not for NewFromClient, whose client
	// has a field of that name.
	MaxIdleConns int

	// DialContext connects to a server, over TLS for example. It has IOTimeout,
	// and is not called again for 50 to 100 ms after it has failed. Default: that
	// of a net.Dialer. It is not for NewFromClient either.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// withDefaults is cfg with its defaults filled in.
func (cfg Config) withDefaults() (Config, error) {
	switch {
	case cfg.IOTimeout < 0:
		return cfg, fmt.Errorf("memcache: Config.IOTimeout %s, want above zero", cfg.IOTimeout)
	case cfg.MaxInFlight < 0:
		return cfg, fmt.Errorf("memcache: max in flight %d, want above zero", cfg.MaxInFlight)
	case cfg.MaxIdleConns < 0:
		return cfg, fmt.Errorf("memcache: max idle connections %d, want above zero", cfg.MaxIdleConns)
	}
	if cfg.IOTimeout == 0 {
		cfg.IOTimeout = DefaultIOTimeout
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	if cfg.MaxIdleConns == 0 {
		cfg.MaxIdleConns = cfg.MaxInFlight
	}
	if cfg.DialContext == nil {
		cfg.DialContext = new(net.Dialer).DialContext
	}
	return cfg, nil
}

// Store keeps buckets on memcached servers. It is a [backend.Store] without an
// atomic step: a [counter.Counter] takes by ticket. It is used by many
// goroutines at once. [New] makes one, or [NewFromClient].
type Store struct {
	selector *selector // nil for a client of the caller's own
	peers    map[string]*peer
	timeout  time.Duration
	seen     seen
	closed   atomic.Bool

	guesses, rightGuesses, lateAdditions, takenBack, takingBackFailed, unanswered, refused, withheld atomic.Int64
}

var _ backend.Store = (*Store)(nil)

// New makes a Store on servers, each "host:port", or the path of a Unix socket:
// what has a slash. Their order does not matter, and one that stands there
// twice counts once. Nothing is sent yet: a server that cannot be reached shows
// with the first call.
func New(cfg Config, servers ...string) (*Store, error) {
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	selector, err := newSelector(servers)
	if err != nil {
		return nil, err
	}
	// A dial has a timeout of its own: one that takes too long is remembered.
	connect := redial.New(func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, full.IOTimeout)
		defer cancel()
		return full.DialContext(ctx, network, address)
	})
	s := &Store{selector: selector, timeout: full.IOTimeout, peers: map[string]*peer{}}
	for i := range selector.servers {
		address := &selector.servers[i]
		s.peers[address.name] = &peer{address: address, where: address.name + ": ", gate: make(gate, full.MaxInFlight),
			timeout: full.IOTimeout, maxIdle: full.MaxIdleConns, connect: connect}
	}
	return s, nil
}

// NewFromClient makes a Store on a client of your own. What [New] does to its
// client is then yours to do:
//
//   - Selector: [NewSelector]. A client made by memcache.New(servers...) has a
//     ServerList, which is crc32 % servers over the whole name of an item: it
//     spreads the buckets of one key, and what remembers its Forget, over all
//     servers, so each call needs all of them, and one that is down fails every
//     call; and with one server more or less nearly all counts are gone.
//   - IOTimeout: how long a request may stay under way when its call has
//     returned already. An addition that is answered later stays, and is counted
//     in [Stats]: the client closes its connection then. gomemcache's default is
//     500 ms.
//   - MaxIdleConns: as many as requests come at once, four for a Take on three
//     tiers. gomemcache's default is 2: nearly each Take then makes connections
//     of its own.
//
// A connection that the server has closed while it was idle fails the next
// request on it; New finds out before it sends. Calls to a server that is silent,
// or refuses connections, are sent and dialled each for itself. cfg.IOTimeout is here only for
// calls that have no deadline. Errors do not name the server, unless the
// client's do.
func NewFromClient(client *gomemcache.Client, cfg Config) (*Store, error) {
	if client == nil {
		return nil, errors.New("memcache: the client is nil")
	}
	if cfg.MaxIdleConns != 0 {
		return nil, fmt.Errorf("memcache: max idle connections %d: set MaxIdleConns of the client", cfg.MaxIdleConns)
	}
	if cfg.DialContext != nil {
		return nil, errors.New("memcache: DialContext is set: set that of the client")
	}
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &peer{shared: client, gate: make(gate, full.MaxInFlight), timeout: full.IOTimeout}
	return &Store{timeout: full.IOTimeout, peers: map[string]*peer{"": p}}, nil
}

// peerOf is where the items of key are.
func (s *Store) peerOf(key string) *peer {
	if s.selector == nil {
		return s.peers[""]
	}
	return s.peers[s.selector.pick(key).name]
}

// Close closes the connections, also those on which late answers are listened
// for. Calls that come later fail; those under way end as they would have. The
// client of [NewFromClient] is left as it is.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		for _, p := range s.peers {
			p.close()
		}
	}
	return nil
}

// Stats is what a [Store] has counted since it was made, and what it is doing.
type Stats struct {
	InFlight  int // requests under way now, of which calls of the last IOTimeout may still use the answer
	Listening int // connections on which the answer to an addition is awaited that only matters for taking it back

	Guesses      int64 // buckets added to
	RightGuesses int64 // of these, with one request: the item was there, or not, as expected

	LateAdditions    int64 // buckets that were added to, but confirmed only after the call had returned its error
	TakenBack        int64 // of these, taken back again
	TakingBackFailed int64 // takings back, of late additions and any others, that were refused, not sent, or not answered: hits that may stay until they age out
	Unanswered       int64 // additions that were sent and will never be answered, since the connection is gone: as above

	Refused  int64 // calls that failed because of MaxInFlight
	Withheld int64 // calls that failed without sending anything, because the server was silent
}

// Stats is a snapshot; its numbers need not fit together to the last one.
func (s *Store) Stats() Stats {
	st := Stats{
		RightGuesses:     s.rightGuesses.Load(),
		Guesses:          s.guesses.Load(),
		TakenBack:        s.takenBack.Load(),
		LateAdditions:    s.lateAdditions.Load(),
		TakingBackFailed: s.takingBackFailed.Load(),
		Unanswered:       s.unanswered.Load(),
		Refused:          s.refused.Load(),
		Withheld:         s.withheld.Load(),
	}
	for _, p := range s.peers {
		st.InFlight += len(p.gate)
		p.mu.Lock()
		st.Listening += len(p.listening)
		p.mu.Unlock()
	}
	return st
}

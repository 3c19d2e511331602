// Package memcache keeps buckets on memcached.
//
//	store, err := memcache.New(memcache.Config{}, "10.0.0.1:11211", "10.0.0.2:11211")
//	...
//	c, err := counter.New(store, counter.Config{})
//
// # Stored format
//
// Each bucket of a key is an item, and each forgotten key has another item. The
// name of a bucket's item is
//
//	key|width index        without the space: ab:1wxyz:signup:ip:203.0.113.9|1m29454210
//
// key is [backend.Request.Key], at most 200 bytes. width is the width of the
// bucket, in the short form of durations (1s, 1m, 1h, 1d, 100ms, 1m30s), and
// ends in a letter. index is the number of the bucket since 1970, in decimal;
// the index starts with a digit or a minus. So a name can be parsed from its
// end without ambiguity: the index, the width, the last |, the key. A name has
// at most 247 bytes; memcached allows 250. The value is the count, in decimal;
// memcached may leave spaces after the number when a count is undone. The
// flags are 0. A value above [counter.MaxCount] means a full bucket, since
// memcached adds before the surplus is undone. Any other value, and any
// number from 2^63 on, was written by another program, and is an error.
//
// A new item lives for [backend.Slot.TTL], rounded up to a second, and longer
// for two reasons. The clock of memcached ticks about once a second: 2 s more.
// After a standstill memcached answers by a stale clock, and items created then
// live shorter by the time of the standstill: a minute more, or the TTL again
// if the TTL is shorter. A standstill of up to a minute costs no hit. Beyond 30
// days memcached wants a date: the clock of this machine is then compared with
// the clock of the server, and must not be behind by more than the windows have
// to spare. The date is a 32-bit number: a TTL that ends after 2038-01-19 is an
// error.
//
// The item that remembers a [Store.Forget] is named by two hashes of the key
// and ends in |forgotten. The item is on the server of the key, and holds the
// label and the second until which the label is remembered.
//
// # Round trips
//
// A call is one write and one answer on a connection that calls share: the
// command ma for each addition, which creates a missing item in the same step,
// and then a multi-get for all reads. So reads of a call come after its
// additions ([backend.Request.Ordered]). Two connections to a server carry the
// calls of all goroutines. Larger reads, of more than 4,000 items, and a Forget are
// several requests, one after the other. To a server or proxy without meta commands
// (memcached before 1.6) an addition is two commands in the same write, add and
// incr, and reads are not said to come after additions.
//
// Each answer is known for that of its own command, whatever a proxy repeats, leaves
// out or inserts: additions have tags, and so has a command behind a read. A read
// with an addition needs no such command where the bucket just added to is read.
// Without meta commands there are no tags.
//
// # Servers
//
// All buckets of a key are on one server, chosen by rendezvous hashing of the
// key: when a server is added or removed, only the keys of that server move.
// The name of a server is hashed as written, so all processes must write the
// name alike.
//
// # Limits of time and number
//
// A call returns by its deadline, whatever the server does. A request that is
// not answered by then counts against [Config.MaxInFlight] until the answer
// comes, or until another connection takes the place of the silent connection.
//
// If an addition has no answer by then, its connection is listened on until a
// minute passes without an answer. An addition that turns out to have been made
// is undone, once, on the same connection. An addition whose connection is
// lost, or which is never answered, may stay until it ages out; [Stats] counts
// both. An addition is sent twice only after the answer that nothing was done.
//
// A connection is quiet if nothing was answered since a request whose call has
// given up. Quiet connections get no more requests but undos: calls wait,
// for their own time, until the connection answers, or until a new connection
// has answered a command that changes nothing. So the additions that a silent
// server has to take back later are those that were in flight at the same time.
// Up to eight replaced connections to a server listen for late answers; while
// eight do, calls wait for the quiet one.
// A server that refuses connections, or does not accept in time, is dialled
// again after 50 to 100 ms, by one call at a time; other calls fail at once.
//
// An undo is made to its end, whether or not its call still waits. An undo does not
// know one life of an item from the next: after the server has lost the item, in a
// restart for example, a late undo removes a hit of another call, if there is one by
// then. Late additions are safe, since their undo uses the connection on which they
// were made.
package memcache

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/plain"
	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"github.com/abacus-go/abacus/internal/redial"
)

// The files of the package, top down:
//
//	memcache.go  Config, Store and Stats
//	do.go        Do: a request, and its commands
//	pipeline.go  a connection: its callers, writes and reads
//	answer.go    the answers to the commands
//	exchange.go  a request with its answers, and the pool of these
//	undo.go      an undo that outlasts its caller
//	transport.go a server: the choice of a connection, and new connections
//	late.go      answers that no one waits for, and the end of a connection
//	ask.go       requests of plain commands
//	forget.go    Forget: finding and emptying the buckets of a key
//	marker.go    the item that remembers a Forget
//	check.go     Check: the servers' answers, clocks and evictions
//	selector.go  the choice of a server for a key
//	alive_*.go   a look at an idle connection
//	errors.go    errors that name the server and the bucket
//
//	internal/item  the name, value and expiry of the item of a bucket
//	plain          a store by gomemcache's own calls: read it first

// Defaults of [Config].
const (
	DefaultIOTimeout   = time.Second
	DefaultConns       = 2
	DefaultMaxInFlight = 256
)

// Config configures a [Store]. The zero Config is ready for use.
type Config struct {
	// IOTimeout is the longest time of a request to a server, and of a call
	// without a deadline. A call with an earlier deadline returns earlier; its
	// additions are listened for, for a minute, so that a late answer can still be
	// taken back. Default: 1 s.
	IOTimeout time.Duration

	// Conns is the number of shared connections to each server. The second is made
	// when calls come at the same time. More connections than two cost more system
	// calls on both sides. Default: 2.
	Conns int

	// Proxied says that a proxy stands between the store and the servers. A proxy
	// may execute the commands of a request in another order, so reads are not
	// said to come after additions ([backend.Request.Ordered]).
	Proxied bool

	// MaxInFlight is the largest number of requests in flight to each server. A call
	// is one request. At the bound, calls wait until their deadline, but undos do
	// not: up to 16,384 to a server are under way besides. A further undo waits for
	// the time of its call, and then counts in Stats.TakingBackFailed. Default: 256.
	MaxInFlight int

	// DialContext connects to a server, over TLS for example. A dial lasts for
	// IOTimeout at most; after a failed dial, the next is 50 to 100 ms later.
	// Default: the DialContext of a net.Dialer.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
}

// withDefaults returns cfg with the defaults of the zero fields.
func (cfg Config) withDefaults() (Config, error) {
	switch {
	case cfg.IOTimeout < 0:
		return cfg, fmt.Errorf("memcache: Config.IOTimeout is %s, want zero or more", cfg.IOTimeout)
	case cfg.MaxInFlight < 0:
		return cfg, fmt.Errorf("memcache: Config.MaxInFlight is %d, want zero or more", cfg.MaxInFlight)
	case cfg.Conns < 0:
		return cfg, fmt.Errorf("memcache: Config.Conns is %d, want zero or more", cfg.Conns)
	}
	cfg.IOTimeout = cmp.Or(cfg.IOTimeout, DefaultIOTimeout)
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, DefaultMaxInFlight)
	cfg.Conns = cmp.Or(cfg.Conns, DefaultConns)
	if cfg.DialContext == nil {
		cfg.DialContext = new(net.Dialer).DialContext
	}
	return cfg, nil
}

// Store keeps buckets on memcached servers. A Store is a [backend.Store]
// without an atomic step: a [counter.Counter] takes by ticket. [New] makes a
// Store; the zero Store is not usable. Most callers need
// New, Check, Close and Stats only; the Counter calls the other methods. All methods
// may be called by many goroutines at once.
type Store struct {
	selector   *selector
	transports map[string]*transport // by the name of the server
	timeout    time.Duration
	closed     atomic.Bool
	life       context.Context // of undos that go on without a caller
	end        context.CancelFunc
	exchanges  *sync.Pool

	lateAdditions, takenBack, undoFailed, unanswered, refused, withheld atomic.Int64
}

var _ backend.Store = (*Store)(nil)

// New returns a Store on servers. Each argument is "host:port", the path of a Unix
// socket, which begins with / or ./, or a URL with one or more servers:
// memcached://host:port,host2:port, without a port 11211, or memcached:///path. The
// order does not matter, and duplicates count once. New does not connect: an error
// is about the Config or a name. [Store.Check], or the Check of a Counter or
// limiter, reports whether the servers can be counted on.
func New(cfg Config, servers ...string) (*Store, error) {
	full, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	selector, err := newSelector(servers)
	if err != nil {
		return nil, err
	}
	// Each dial has a timeout of its own. redial.New delays the next dial after
	// a timeout.
	connect := redial.New(func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, full.IOTimeout)
		defer cancel()
		return full.DialContext(ctx, network, address)
	})
	s := &Store{selector: selector, timeout: full.IOTimeout, transports: map[string]*transport{}, exchanges: newExchanges()}
	s.life, s.end = context.WithCancel(context.Background())
	for i := range selector.servers {
		address := &selector.servers[i]
		s.transports[address.name] = newTransport(s, address, full, connect)
	}
	return s, nil
}

// NewFromClient returns the plain store, which counts by the calls of a client of
// the caller: package plain has its bounds.
func NewFromClient(client *gomemcache.Client) (*plain.Store, error) { return plain.New(client) }

// ServerOf is described in [backend.Placer].
func (s *Store) ServerOf(key string) string { return s.selector.pick(key).name }

// transportOf returns the server of the items of key.
func (s *Store) transportOf(key string) *transport { return s.transports[s.ServerOf(key)] }

// Close closes the connections, and ends the listening for late answers. Calls
// in flight end as they would have; later calls fail. Undos that go on without a
// caller end within Config.IOTimeout.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		time.AfterFunc(s.timeout, s.end)
		for _, t := range s.transports {
			t.close()
		}
	}
	return nil
}

// Stats counts events in a [Store] since its creation. InFlight and Listening
// are numbers of the moment.
type Stats struct {
	InFlight  int // requests in flight, undos included
	Listening int // connections that await answers for which no call waits, to take back late additions

	LateAdditions    int64 // buckets whose addition was confirmed after the call had returned an error
	TakenBack        int64 // of these, taken back
	TakingBackFailed int64 // takings back, of late and other additions, that were refused, not sent, or not answered: the hits may stay until they age out
	Unanswered       int64 // additions sent without an answer, on a connection that is gone: the hits may stay until they age out

	Refused  int64 // calls that failed at the bound of MaxInFlight
	Withheld int64 // calls that failed with nothing sent, because the server was silent
}

// Stats returns a snapshot. InFlight and Listening are read first: what no longer
// counts there is in the other numbers.
func (s *Store) Stats() (st Stats) {
	for _, t := range s.transports {
		st.InFlight += len(t.gate) + len(t.undos)
		st.Listening += int(t.listening.Load())
	}
	st.TakenBack = s.takenBack.Load()
	st.LateAdditions = s.lateAdditions.Load()
	st.TakingBackFailed = s.undoFailed.Load()
	st.Unanswered = s.unanswered.Load()
	st.Refused = s.refused.Load()
	st.Withheld = s.withheld.Load()
	return st
}

// Package redis keeps counts on a Redis server, a master behind Sentinel, or a Cluster.
//
//	store, err := redis.Open("redis://127.0.0.1:6379/0", redis.Config{})
//	c, err := counter.New(store, counter.Config{})
//
// A [Store] has one of two layouts. With [Plain] each bucket is a counter for redis-cli
// to read, a call is one MULTI and EXEC, and no script is run: see docs/storage.md. The
// rest of this text is about [Sums], the default.
//
// A Store checks and adds in one atomic step: one FCALL, one round trip,
// for a single key on any server, and for several keys where the same server holds
// all keys. The package was tried with Redis 7.0, on a 64-bit machine. A call that
// counts is never sent twice, whatever the client does with other commands.
//
// Calls at the same time share round trips: while two round trips are under way,
// further calls wait for up to a millisecond, and go in one pipeline. A lone call never
// waits, and each call keeps its own deadline. If the caller gives up before the call
// is written, the call is not sent; but if a hook of the client looks at the words of
// commands, the call is sent and taken back. In a Cluster each call goes alone.
//
// The Store loads a library of functions into a server without the library, and removes
// libraries that other versions of this package loaded more than 30 days ago. A server
// before Redis 7, and a server whose user has no right to run or load functions, gets
// the same programs as scripts, by EVALSHA. The Store tries functions again after ten
// minutes; [Stats].ByScripts counts such calls.
//
// docs/storage.md shows every stored byte, docs/sizing.md the cost of a key. Every stored
// key has a time to live, and all stored keys of a counted key have the same hash tag. Set
// maxmemory-policy to noeviction: a full server then refuses, visibly, where any
// other policy forgives hits in silence. See docs/operating.md.
package redis

// A Take passes two files: take.go, which makes the request to lua/take.lua and reads the
// answer, and call.go, from there to the call of the client. Each other file is a question:
//
//	redis.go     Config, Store, Open, New
//	do.go        Do, by lua/do.lua
//	forget.go    Forget and Forgotten, by lua/forget.lua
//	check.go     Check: the servers' answers, clocks and evictions
//	layout.go    what are the stored values: groups of tiers, names and positions
//	request.go   the bytes of a request and of an answer
//	root.go      a value that was read: the counts of its buckets
//	script.go    the scripts, and the names that are expanded in them
//	library.go   how does a server get the scripts
//	likely.go    guesses about keys
//	deadline.go  a deadline in the server's time
//	queue.go     pipelines of calls at the same time
//	dialer.go    what becomes of late answers: the Dialer takes their hits back
//	conn.go      a connection of a Dialer
//	wire.go      requests and answers of the protocol, as a conn sees them
//	shape.go     whether an answer can be one to its request
//	plain        the layout Plain, a package of its own

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/backend/redis/plain"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// DefaultIOTimeout is the default of [Config].IOTimeout.
const DefaultIOTimeout = time.Second

// Config configures a [Store]. The zero Config is ready to use.
type Config struct {
	// Layout is the form of the stored counts. Default: [Sums].
	Layout Layout

	// IOTimeout bounds a call that comes without a deadline, as the calls of a
	// Counter do whose Patience is below zero. Default: [DefaultIOTimeout], a
	// second; below zero is an error.
	IOTimeout time.Duration

	// AnyTime lets the server count a call at any time. Without AnyTime a script that
	// counts reads the server's clock first, and does nothing when the call's
	// deadline has passed: a hit whose caller was told of a failure does not stay,
	// though the connection was lost. The reading takes about 1 us of the server, of 6
	// to 10 for an admitted call. Hits that are counted late on a connection that is still
	// open are undone by a [Dialer], with AnyTime or without. The layout [Plain] has no
	// script and counts at any time, whatever AnyTime says.
	AnyTime bool

	// Dialer is the Dialer that the client of [New] dials with; nil for a client
	// without. [Store.Stats] includes the Dialer's numbers. [Open] makes a Dialer of the
	// Store's own, and refuses another.
	Dialer *Dialer
}

// Layout is the form in which a [Store] keeps counts. Two layouts on one server know
// nothing of each other: a change of the layout begins all counts again.
type Layout int

const (
	// Sums keeps running sums: a value for a key, or some values for a busy key. A call
	// is checked and added in one atomic step, by a function or a script.
	Sums Layout = iota

	// Plain keeps a counter for each bucket: a string with a decimal number and its own
	// time to live. A Plain store runs no script, and is no [backend.Atomic]: a Counter
	// takes by ticket, as on memcached. Plain needs MULTI, and PEXPIRE with NX, which
	// Redis has from version 7.0 on.
	Plain
)

// String returns the word of the layout: "sums" or "plain".
func (l Layout) String() string {
	if names := [...]string{Sums: "sums", Plain: "plain"}; 0 <= l && int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("Layout(%d)", int(l))
}

// Store is a [backend.Store] on Redis. With the layout [Sums] a Store is a
// [backend.Atomic] as well. [Open] and [New] make a Store, and no other package
// implements the interface. Most callers need Check, Stats and Close only; the
// Counter calls the other methods. A Store is used by many goroutines at once.
type Store interface {
	backend.Store

	// Check asks the server, or all masters of a Cluster, and returns nil if each
	// answers, takes an addition, has a clock within [backend.DefaultSkew] of this
	// machine's, is no replica, and evicts nothing. Otherwise the error joins the
	// findings; findings that leave hits countable are a [backend.ErrCondition]. The
	// addition is to a key that begins with ab, the default Prefix of a Counter. A
	// Counter or limiter on the store has a Check of its own, with its own clock, Skew
	// and Prefix. Check keeps the deadline of ctx, and lasts no longer than
	// Config.IOTimeout if ctx has none.
	Check(ctx context.Context) error

	// Stats returns a snapshot; the numbers need not agree with each other.
	Stats() Stats

	// Close closes the client of a Store that [Open] made, and the connections that
	// wait for late answers. After [New], the caller closes client and Dialer.
	Close() error

	// String returns the store's address, without the password.
	String() string
}

// base is the part of a Store that both layouts have.
type base struct {
	server    *redisscript.Server
	layout    layout // the whole Store
	timeout   time.Duration
	owned     bool // Close closes the client and the dialer
	dialer    *Dialer
	lateHits  // that were noticed without the Dialer
	byScripts atomic.Int64
}

// layout is the part of a Store that each layout has of its own.
type layout interface {
	Store

	// names returns the stored keys to which r adds.
	names(r *backend.Request) []string
}

// sums is a Store with the layout Sums.
type sums struct {
	base
	anyTime bool
	clocks  []serverTime // of the server, or of a Cluster one for each run of slots
	queue   *queue
	refused atomic.Int64 // nanoseconds after epoch until which functions are not tried

	// The next Take of a key that was denied asks for exact counts at once, since an
	// upper bound will hardly admit it. A key that this process does not know
	// is likely missing if the last such key was.
	denied, known likely
	missing       atomic.Bool
}

// plainStore is a Store with the layout Plain.
type plainStore struct {
	base
	*plain.Store
}

var (
	_ backend.Atomic = (*sums)(nil)
	_ layout         = (*sums)(nil)
	_ layout         = (*plainStore)(nil)
)

// New makes a Store on a client, and does not connect: see [Store.Check]. The
// client must have ContextTimeoutEnabled: a client without ignores deadlines once
// it has begun to wait for an answer, and is refused. Retries do no harm: a call
// that counts is never sent twice. New also refuses a Ring, and any other client
// with its own rule of spreading keys.
//
// A hit that the server counts in time, but whose answer comes after the call's
// deadline, stays counted until the hit ages out, unless the client dials with a
// [Dialer].
func New(client redis.UniversalClient, cfg Config) (Store, error) {
	s, err := newStore(client, cfg)
	if err != nil {
		return nil, err
	}
	return s.layout, nil
}

// newStore returns the base of a new Store.
func newStore(client redis.UniversalClient, cfg Config) (b *base, err error) {
	server, err := redisscript.On(client)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if cfg.IOTimeout < 0 {
		return nil, fmt.Errorf("redis: Config.IOTimeout is %s, want zero or more", cfg.IOTimeout)
	}
	timeout := cmp.Or(cfg.IOTimeout, DefaultIOTimeout)
	countingPrefixes() // takes milliseconds once: not within the deadline of the first call
	switch cfg.Layout {
	case Sums:
		s := newSums(server, cfg.AnyTime)
		b, s.layout = &s.base, s
	case Plain:
		s := &plainStore{}
		s.Store = plain.On(server, timeout, &s.notTaken)
		b, s.layout = &s.base, s
	default:
		return nil, fmt.Errorf("redis: Config.Layout is %s, want Sums or Plain", cfg.Layout)
	}
	b.server, b.dialer, b.timeout = server, cfg.Dialer, timeout
	return b, nil
}

// newSums returns a sums without its base.
func newSums(server *redisscript.Server, anyTime bool) *sums {
	s := &sums{anyTime: anyTime, clocks: make([]serverTime, 1)}
	if server.Cluster() != nil {
		s.clocks = make([]serverTime, clusterClocks)
	}
	s.queue = newQueue(server.Client(), s.unheard)
	for i := range s.clocks {
		s.clocks[i].begin()
	}
	s.denied.seed, s.known.seed = maphash.MakeSeed(), maphash.MakeSeed()
	return s
}

// Stats are the numbers of a [Store] since the Store was made. Without a [Dialer] late
// answers are noticed only in a pipeline, if another caller of the pipeline still waits.
type Stats struct {
	TooLate     int64 // calls that reached the server after the deadline, and counted nothing; if the server's clock was stepped ahead the call is sent again
	LateAnswers int64 // answers, after the call had returned an error, that hits were counted
	TakenBack   int64 // late answers whose hits were taken back
	NotTaken    int64 // late answers, and with Plain additions beyond MaxCount, whose hits could not be taken back: the hits stay until they age out
	Abandoned   int64 // answers that did not come within a minute, or before the connection was lost or closed in favour of another: the hits may stay until they age out
	Draining    int   // connections that wait for a late answer now
	ByScripts   int64 // calls sent as scripts, since the server has no functions, or refused to load or run one
}

// lateHits counts what became of hits that came or were answered late: see [Stats].
type lateHits struct{ tooLate, answered, takenBack, notTaken, abandoned atomic.Int64 }

func (l *lateHits) addTo(st *Stats) {
	st.TooLate += l.tooLate.Load()
	st.LateAnswers += l.answered.Load()
	st.TakenBack += l.takenBack.Load()
	st.NotTaken += l.notTaken.Load()
	st.Abandoned += l.abandoned.Load()
}

func (s *base) Stats() Stats {
	st := Stats{ByScripts: s.byScripts.Load()}
	s.addTo(&st)
	if d := s.dialer; d != nil {
		d.addTo(&st)
		d.mu.Lock()
		defer d.mu.Unlock()
		st.Draining = d.draining.Len()
	}
	return st
}

func (s *base) Close() error {
	if !s.owned {
		return nil
	}
	err := s.server.Client().Close()
	if sums, is := s.layout.(*sums); is {
		sums.queue.close()
	}
	return errors.Join(err, s.dialer.Close())
}

func (s *base) String() string { return s.server.String() }

func (s *base) Check(ctx context.Context) error { return backend.CheckStore(ctx, s.layout) }

func (s *plainStore) names(r *backend.Request) []string { return plain.Names(r) }

func (s *sums) names(r *backend.Request) (all []string) {
	for _, g := range groupsOf(nil, r.Ladder) {
		all = append(all, g.rootName(r.Key))
	}
	return all
}

// Package stores opens the store of --store, identifies the servers, and removes
// the keys or items of a run.
package stores

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/tiers"
)

// patience is the longest time for the identification of a server.
const patience = 1500 * time.Millisecond

// Opened is a store with its servers. At most one of Redis and Memcached is not
// nil; both are nil for a store in this process.
type Opened struct {
	Name      Name
	Store     backend.Store
	Redis     *Redis
	Memcached *Memcached
	servers   servers // Redis or Memcached; nil in this process
}

// servers is the set of operations on a store's servers besides counting.
type servers interface {
	look(ctx context.Context) []Look
	clean(ctx context.Context, prefix string) (int64, error)
	slack(l tiers.Ladder) time.Duration
	close() error
}

// Open opens the store, without connecting. timeout bounds a call of the store
// without a deadline.
func Open(n Name, timeout time.Duration) (*Opened, error) {
	o := &Opened{Name: n}
	var err error
	switch n.Kind {
	case OnRedis:
		err = o.openRedis(timeout)
	case OnMemcached:
		err = o.openMemcached(timeout)
	default:
		o.Store = memory.New(memory.Config{})
	}
	return o, err
}

// Identify asks all servers for their kind. An error tells a server that is out of
// reach, wants another password, is of another kind than in the URL, or cannot be
// written to. A store in this process has no servers.
func (o *Opened) Identify(ctx context.Context) error {
	all := o.Look(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, l := range all {
		err := l.Err
		if err == nil && l.Facts["role"] == "slave" && l.Facts["slave_read_only"] != "0" {
			err = fmt.Errorf("the server is a read-only replica, want its master %s:%s", l.Facts["master_host"], l.Facts["master_port"])
		}
		if err != nil && o.Memcached != nil && len(all) > 1 {
			err = fmt.Errorf("%s: %w", l.Name, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Cleaning is a context for the removal of a run's keys: an interrupt of the run does
// not end it, and two minutes do.
func Cleaning(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
}

// Clean removes all keys under a prefix: counter.Config.Prefix, or the beginning
// of a Prefix. All calls must have ended. Clean returns the number of removed
// items or keys.
func (o *Opened) Clean(ctx context.Context, prefix string) (int64, error) {
	if o.servers == nil {
		return 0, nil
	}
	n, err := o.servers.clean(ctx, prefix)
	if err != nil {
		return n, fmt.Errorf("remove the keys that begin with %s: %w", prefix, err)
	}
	return n, nil
}

// Life is the longest time to live of a stored key after the last write, on the
// ladder l and with the Skew and Settle of a counter.Config.
func (o *Opened) Life(l tiers.Ladder, skew, settle time.Duration) time.Duration {
	coarsest := l.At(l.Len() - 1)
	life := coarsest.Width + coarsest.Keep + 2*(skew+settle)
	if o.servers != nil {
		life += o.servers.slack(l)
	}
	return life
}

// Close closes the connections.
func (o *Opened) Close() error {
	if o.servers != nil {
		return o.servers.close()
	}
	return nil
}

// Namespace is a unique prefix for a run: word and eight random letters and
// digits.
func Namespace(word string) string { return word + strings.ToLower(rand.Text()[:8]) }

// known is an error with a known cause, even if the search took long.
type known struct{ error }

// errKind is the error of a server of another kind than the URL says.
func errKind(is, want Kind, addr string) error {
	scheme := map[Kind]string{OnRedis: "redis", OnMemcached: "memcached"}[is]
	if strings.HasPrefix(addr, "/") {
		return fmt.Errorf("what answers is %s, not %s", is, want)
	}
	return fmt.Errorf("what answers is %s, not %s; its store is %s://%s", is, want, scheme, addr)
}

// reason is the innermost error of err: the system's message without the address,
// for the store's name has the address.
func reason(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	if err == io.EOF {
		return errors.New("the server closed the connection")
	}
	return err
}

// Forms lists the values of --store.
const Forms = "memory, redis://host:6379/0 (also rediss://, unix://), or memcached://host:11211,host2:11211"

// Kind is the kind of a store.
type Kind int

// The kinds of stores.
const (
	InMemory Kind = iota
	OnRedis
	OnMemcached
)

// String is the name of the server program: "Redis".
func (k Kind) String() string { return [...]string{"memory", "Redis", "memcached"}[k] }

// Name is the value of --store. The zero Name is memory.
type Name struct {
	Kind    Kind
	url     string // of a Redis, with its password
	layout  redis.Layout
	servers []string // of memcached, in the form for memcache.New
	shown   string
}

// Parse reads the value of --store. An error never holds a password.
func Parse(text string) (Name, error) {
	scheme, _, isURL := strings.Cut(text, "://")
	switch {
	case text == "memory":
		return Name{}, nil
	case !isURL:
		if strings.Contains(text, "@") {
			return Name{}, fmt.Errorf("a store with an @ and without a scheme, want %s", Forms)
		}
		return Name{}, fmt.Errorf("unknown store %q, want %s", text, Forms)
	}
	switch scheme {
	case "redis", "rediss", "unix":
		return parseRedis(text)
	case "memcached":
		return parseMemcached(text)
	}
	return Name{}, fmt.Errorf("unknown store %q, want %s", scheme+"://", Forms)
}

// String names the store, without user and password.
func (n Name) String() string {
	if n.Kind == InMemory {
		return "memory"
	}
	return n.shown
}

// parseRedis checks the URL as the store does, and keeps what can be shown.
func parseRedis(text string) (Name, error) {
	store, err := redis.Open(text, redis.Config{})
	if err != nil {
		return Name{}, err
	}
	if err := store.Close(); err != nil {
		return Name{}, err
	}
	u, err := url.Parse(text)
	if err != nil {
		return Name{}, err
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	q, layout := u.Query(), redis.Sums
	// Other parameters may be secrets.
	kept := url.Values{}
	for _, name := range []string{"addr", "layout", "master_name"} {
		if q.Has(name) {
			kept[name] = q[name]
		}
	}
	shown.RawQuery, _ = url.QueryUnescape(kept.Encode())
	if q.Get("layout") == redis.Plain.String() {
		layout = redis.Plain
	}
	q.Del("layout") // the program's own client does not know the parameter
	u.RawQuery = q.Encode()
	return Name{Kind: OnRedis, url: u.String(), layout: layout, shown: shown.String()}, nil
}

// IsPlain reports whether the store is a Redis with a plain counter for each bucket.
func (n Name) IsPlain() bool { return n.layout == redis.Plain }

func parseMemcached(text string) (Name, error) {
	selector, err := memcache.NewSelector(text)
	if err != nil {
		return Name{}, err
	}
	n := Name{Kind: OnMemcached}
	_ = selector.Each(func(addr net.Addr) error { // fails as its function does
		n.servers = append(n.servers, addr.String())
		return nil
	})
	n.shown = "memcached://" + strings.Join(n.servers, ",")
	return n, nil
}

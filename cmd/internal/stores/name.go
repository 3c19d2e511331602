package stores

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/redis"
)

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

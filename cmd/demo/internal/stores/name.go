package stores

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

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
	scheme, rest, isURL := strings.Cut(text, "://")
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
		return parseRedis(text, rest)
	case "memcached":
		return parseMemcached(rest)
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

// parseRedis checks the parts of the URL around the password, so that the rest
// can be shown. All else is judged by the client that connects.
func parseRedis(text, rest string) (Name, error) {
	// A password with a slash ends the host, and would be taken for the rest.
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[i:], "@") {
		return Name{}, errors.New("a URL with an @ behind its host: in a password / ? # @ are written %2F %3F %23 %40")
	}
	u, err := url.Parse(text)
	if err != nil {
		return Name{}, errors.New("the URL cannot be parsed, want redis://host:6379/0")
	}
	if u.Host == "" && u.Scheme != "unix" {
		return Name{}, fmt.Errorf("a URL without a host, want %s", Forms)
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
	if q.Has("layout") {
		switch word := q.Get("layout"); word {
		case redis.Sums.String():
		case redis.Plain.String():
			layout = redis.Plain
		default:
			return Name{}, fmt.Errorf("a URL with layout=%s, want layout=sums or layout=plain", word)
		}
		q.Del("layout") // the client does not know the parameter
		u.RawQuery = q.Encode()
		text = u.String()
	}
	return Name{Kind: OnRedis, url: text, layout: layout, shown: shown.String()}, nil
}

// IsPlain tells whether the store is a Redis with a plain counter for each bucket.
func (n Name) IsPlain() bool { return n.layout == redis.Plain }

func parseMemcached(rest string) (Name, error) {
	if strings.Contains(rest, "@") {
		return Name{}, errors.New("a memcached:// URL with an @, want memcached://host:11211,host2:11211 without user and password")
	}
	if strings.HasPrefix(rest, "/") {
		return Name{Kind: OnMemcached, servers: []string{rest}, shown: "memcached://" + rest}, nil
	}
	var servers []string
	for server := range strings.SplitSeq(strings.TrimSuffix(rest, "/"), ",") {
		host, port, err := net.SplitHostPort(server)
		if err != nil && hostAlone.MatchString(server) {
			host, port, err = strings.Trim(server, "[]"), "11211", nil
		}
		if err != nil || host == "" || port == "" {
			return Name{}, fmt.Errorf("server %q: want memcached://host:11211,host2:11211", server)
		}
		servers = append(servers, net.JoinHostPort(host, port))
	}
	slices.Sort(servers)
	servers = slices.Compact(servers)
	return Name{Kind: OnMemcached, servers: servers, shown: "memcached://" + strings.Join(servers, ",")}, nil
}

var hostAlone = regexp.MustCompile(`^([\w.-]+|\[[0-9a-fA-F:.]+\])$`)

package memcache

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/cespare/xxhash/v2"
)

// NewSelector returns the selector of [New], for a gomemcache client of the
// caller: rendezvous hashing of an item's key. The key is the name of the item
// up to the last |; the name of a marker of a Forget begins with the hash of
// the key. Each server gets a score from the hash of its name and the hash of
// the key, and the highest score wins. So a new server among n+1 takes over
// 1/(n+1) of the keys, and no key moves between the old servers. servers are
// the servers of [New].
func NewSelector(servers ...string) (gomemcache.ServerSelector, error) {
	s, err := newSelector(servers)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// selector is immutable.
type selector struct{ servers []server }

// server is a net.Addr with the name as given. The name is resolved by each
// dial, so a name may get another address.
type server struct {
	network, name string
	seed          uint64
}

func (s *server) Network() string { return s.network }
func (s *server) String() string  { return s.name }

func newSelector(texts []string) (*selector, error) {
	var names []string
	for _, text := range texts {
		some, err := namesOf(text)
		if err != nil {
			return nil, err
		}
		names = append(names, some...)
	}
	if len(names) == 0 {
		return nil, errors.New("memcache: no servers, want at least one")
	}
	slices.Sort(names)
	s := new(selector)
	for _, name := range slices.Compact(names) {
		network := "tcp"
		if isPath(name) {
			network = "unix"
		}
		s.servers = append(s.servers, server{network, name, xxhash.Sum64String(name)})
	}
	return s, nil
}

const (
	scheme      = "memcached://"
	defaultPort = "11211" // of a host in a URL
)

// namesOf returns the names of the servers in an argument of [New].
func namesOf(text string) (names []string, err error) {
	rest, isURL := strings.CutPrefix(text, scheme)
	if isPath(rest) {
		return []string{rest}, nil
	}
	if strings.Contains(text, "@") {
		return nil, errors.New("memcache: a server with an @, want host:port or memcached://host:port,host2:port without user and password")
	}
	if isURL {
		rest = strings.TrimSuffix(rest, "/")
	} else if strings.Contains(text, ",") {
		return nil, fmt.Errorf("memcache: server %q: want one argument for each server, or memcached://host:port,host2:port", text)
	}
	for name := range strings.SplitSeq(rest, ",") {
		host, port, err := net.SplitHostPort(name)
		if err != nil && isURL {
			host, port, err = net.SplitHostPort(name + ":" + defaultPort)
		}
		switch {
		case err != nil, host == "", strings.ContainsAny(name, "/?# "):
			return nil, fmt.Errorf("memcache: server %q: want host:port, memcached://host:port,host2:port, or the path of a Unix socket", name)
		default:
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return nil, fmt.Errorf("memcache: server %q: port %q, want 1 to 65535", name, port)
			}
		}
		names = append(names, net.JoinHostPort(host, port))
	}
	return names, nil
}

// isPath reports whether name is the path of a Unix socket.
func isPath(name string) bool {
	return strings.HasPrefix(name, "/") || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../")
}

// PickServer returns the server of an item, or of a key.
func (s *selector) PickServer(item string) (net.Addr, error) {
	return s.serverFor(placementOf(item)), nil
}

func (s *selector) pick(key string) *server {
	if len(s.servers) == 1 {
		return &s.servers[0]
	}
	return s.serverFor(xxhash.Sum64String(key))
}

func (s *selector) serverFor(hash uint64) *server {
	best, high := 0, uint64(0)
	for i := range s.servers {
		if score := mix(hash ^ s.servers[i].seed); score > high {
			best, high = i, score
		}
	}
	return &s.servers[best]
}

// Each calls f for every server, until one fails.
func (s *selector) Each(f func(net.Addr) error) error {
	for i := range s.servers {
		if err := f(&s.servers[i]); err != nil {
			return err
		}
	}
	return nil
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014): each bit of x
// changes about half the bits of the result. Without mix the XOR of the two
// hashes would order the servers alike for all keys with the same high bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

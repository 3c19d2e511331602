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

// NewSelector is how [New] chooses servers, for a gomemcache client of your own:
// rendezvous hashing of an item's name up to its last |, which is the key
// without its bucket; and where that remembers a Forget, of the key whose hash
// the name begins with. Each server gets a score from the hash of its name and
// that of the key, and the highest has it. So one server more of n+1 takes over
// 1/(n+1) of the keys, and no key moves between the others. servers are those
// of [New].
func NewSelector(servers ...string) (gomemcache.ServerSelector, error) {
	s, err := newSelector(servers)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// selector is immutable.
type selector struct{ servers []server }

// server is a net.Addr under its name as it was given: it is resolved when it
// is dialled, so that a name may get another address.
type server struct {
	network, name string
	seed          uint64
}

func (s *server) Network() string { return s.network }
func (s *server) String() string  { return s.name }

func newSelector(names []string) (*selector, error) {
	if len(names) == 0 {
		return nil, errors.New("memcache: no servers, want at least one")
	}
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	s := &selector{make([]server, len(names))}
	for i, name := range names {
		network := "unix"
		if !strings.Contains(name, "/") {
			network = "tcp"
			host, port, err := net.SplitHostPort(name)
			if err != nil || host == "" {
				return nil, fmt.Errorf("memcache: server %q: want host:port, or the path of a Unix socket", name)
			}
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return nil, fmt.Errorf("memcache: server %q: port %q, want 1 to 65535", name, port)
			}
		}
		s.servers[i] = server{network, name, xxhash.Sum64String(name)}
	}
	return s, nil
}

// PickServer returns the server of the item of that name, or of that key.
func (s *selector) PickServer(item string) (net.Addr, error) {
	return s.place(placementOf(item)), nil
}

func (s *selector) pick(key string) *server {
	if len(s.servers) == 1 {
		return &s.servers[0]
	}
	return s.place(xxhash.Sum64String(key))
}

func (s *selector) place(hash uint64) *server {
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
// moves about half the bits of the result. Without it the two hashes' XOR would
// order the servers alike for keys that share their high bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

package memcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memcache/internal/item"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func serversOf(n int) []string {
	servers := make([]string, n)
	for i := range servers {
		servers[i] = fmt.Sprintf("10.0.0.%d:11211", i+1)
	}
	return servers
}

func keyOf(i int) string { return fmt.Sprintf("ab:1abcd:signup:ip:203.0.%d.%d", i/256, i%256) }

// A Store tells the server of a key, and keeps what it tells.
func TestServerOf(t *testing.T) {
	s := try.To(New(Config{}, serversOf(3)...))(t)
	defer s.Close()
	for i := range 100 {
		require.Equal(t, s.transportOf(keyOf(i)).address.name, s.ServerOf(keyOf(i)))
	}
}

// A new server among n+1 takes over 1/(n+1) of the keys, and no key moves
// between the old servers.
func TestOneServerMore(t *testing.T) {
	const keys = 50_000
	for _, n := range []int{1, 2, 3, 10} {
		before := try.To(newSelector(serversOf(n)))(t)
		after := try.To(newSelector(serversOf(n + 1)))(t)
		moved := 0
		for i := range keys {
			was, is := before.pick(keyOf(i)).name, after.pick(keyOf(i)).name
			if was != is {
				moved++
				require.Equal(t, serversOf(n + 1)[n], is, "a key may only move to the new server")
			}
		}
		require.InEpsilon(t, float64(keys)/float64(n+1), moved, 0.05)
	}
}

func TestServersAreBalanced(t *testing.T) {
	const n, keys = 10, 100_000
	s := try.To(newSelector(serversOf(n)))(t)
	load := map[string]int{}
	for i := range keys {
		load[s.pick(keyOf(i)).name]++
	}
	require.Len(t, load, n)
	for server, got := range load {
		require.InEpsilon(t, keys/n, got, 0.05, server)
	}
}

func TestOrderAndRepetitionOfServersDoNotMatter(t *testing.T) {
	servers := serversOf(7)
	s := try.To(newSelector(servers))(t)
	shuffled := append(slices.Clone(servers), servers[2], servers[2], servers[5])
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	given := slices.Clone(shuffled)
	other := try.To(newSelector(shuffled))(t)
	require.Equal(t, given, shuffled, "the caller's list is left as it is")
	require.Equal(t, s.servers, other.servers)
	for i := range 1000 {
		require.Equal(t, s.pick(keyOf(i)).name, other.pick(keyOf(i)).name)
	}
}

// All buckets of a key are on the same server, even if the key holds the
// separator.
func TestBucketsOfAKeyStayTogether(t *testing.T) {
	s := try.To(NewSelector(serversOf(10)...))(t)
	for i := range 100 {
		key := fmt.Sprintf("%s|%d", keyOf(i), i)
		want := try.To(s.PickServer(key + "|1s0"))(t)
		require.Equal(t, want, s.(*selector).pick(key))
		for index := range int64(20) {
			for _, width := range []time.Duration{time.Second, time.Minute, 90 * time.Minute} {
				require.Equal(t, want, try.To(s.PickServer(item.Name(key, tiers.Bucket{Width: width, Index: index})))(t))
			}
		}
	}
}

// The choice of servers is a part of the stored format, and must not change
// between versions.
func TestTheChoiceIsFixed(t *testing.T) {
	s := try.To(newSelector(serversOf(10)))(t)
	for i, want := range []int{8, 1, 5, 4, 2, 9} {
		require.Equal(t, fmt.Sprintf("10.0.0.%d:11211", want), s.pick(keyOf(i)).name)
	}
}

// The marker of a Forget is on the server of its key, even for a client that
// knows only the name of the item, and the name does not show the key.
func TestMarksStandOnTheirKeysServer(t *testing.T) {
	s := try.To(newSelector(serversOf(10)))(t)
	names := map[string]bool{}
	for i := range 1000 {
		key := fmt.Sprintf("%s|%d", keyOf(i), i)
		name := markerName(key)
		require.Len(t, name, 16+43+len("|forgotten"))
		require.NotContains(t, name, "203.0")
		require.False(t, names[name])
		names[name] = true
		at := try.To(s.PickServer(name))(t)
		require.Equal(t, s.pick(key), at)
	}
	for _, key := range []string{"forgotten", "k|forgotten", "0123456789abcdef|forgotten", "xyz|forgotten"} {
		at := try.To(s.PickServer(item.Name(key, tiers.Bucket{Width: time.Second, Index: 1})))(t)
		require.Equal(t, s.pick(key), at, "the buckets of a key that looks like a mark")
	}
}

// Names of servers, in an argument of their own and in the URL of the program's --store.
func TestServerNames(t *testing.T) {
	for text, want := range map[string][]string{
		"localhost:11211":               {"localhost:11211"},
		"[::1]:11211":                   {"[::1]:11211"},
		"/run/memcached.sock":           {"/run/memcached.sock"},
		"./m@1.sock":                    {"./m@1.sock"},
		"memcached://a:1":               {"a:1"},
		"memcached://b:2,a:1,b:2/":      {"a:1", "b:2"},
		"memcached://[::1],10.0.0.1":    {"10.0.0.1:11211", "[::1]:11211"},
		"memcached:///run/m.sock":       {"/run/m.sock"},
		"memcached:///run/m@1.sock":     {"/run/m@1.sock"},
		"memcached://a":                 {"a:11211"},
		"memcached://":                  nil,
		"memcached://a:1,":              nil,
		"memcached://a:":                nil,
		"memcached://:1":                nil,
		"memcached://u:secret@a:1":      nil,
		"memcached://a:1/0":             nil,
		"memcached://memcached://a:1":   nil,
		"memcached://a:1,memcached://b": nil,
		"":                              nil,
		"localhost":                     nil,
		":11211":                        nil,
		"localhost:":                    nil,
		"localhost:0":                   nil,
		"localhost:65536":               nil,
		"localhost:memcached":           nil,
		"::1:11211":                     nil,
		"redis://localhost:6379":        nil,
		"localhost:11211/0":             nil,
		"run/memcached.sock":            nil,
		"a:1,b:2":                       nil,
		"local host:11211":              nil,
		"unix:///run/m.sock":            nil,
	} {
		s, err := newSelector([]string{text})
		if want == nil {
			require.ErrorContains(t, err, "memcache: ", text)
			require.ErrorContains(t, err, " want ", text)
			require.NotContains(t, err.Error(), "secret")
			require.NotContains(t, err.Error(), `port "/`, "a path is no port")
			_, err = NewSelector("10.0.0.1:11211", text)
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		var names []string
		for i := range s.servers {
			names = append(names, s.servers[i].String())
			require.Equal(t, strings.Contains(names[i], "/"), s.servers[i].Network() == "unix", text)
		}
		require.Equal(t, want, names, text)
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"memcache: Config.IOTimeout is -1s, want zero or more":  {IOTimeout: -time.Second},
		"memcache: Config.MaxInFlight is -1, want zero or more": {MaxInFlight: -1},
		"memcache: Config.Conns is -3, want zero or more":       {Conns: -3},
		"memcache: no servers, want at least one":               {},
	} {
		require.EqualError(t, try.Err(New(cfg)), want)
	}
	require.EqualError(t, try.Err(NewSelector()), "memcache: no servers, want at least one")
}

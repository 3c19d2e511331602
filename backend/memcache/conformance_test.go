package memcache_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// The shared connections, and a client of the caller, without meta commands. The
// two wait for the clock together.
func TestConformance(t *testing.T) {
	t.Run("New", func(t *testing.T) {
		t.Parallel()
		addr := servertest.Memcached(t)
		backendtest.Run(t, func(t testing.TB) backend.Store { return newStore(t, memcache.Config{}, addr) })
	})
	t.Run("NewFromClient", func(t *testing.T) {
		t.Parallel()
		client := rawClient(servertest.Memcached(t))
		client.MaxIdleConns = memcache.DefaultMaxInFlight
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		s, err := memcache.NewFromClient(client, memcache.Config{IOTimeout: patience})
		require.NoError(t, err)
		backendtest.Run(t, func(testing.TB) backend.Store { return s })
	})
}

// The shared connections, and a client of the caller.
func TestErase(t *testing.T) {
	addr := servertest.Memcached(t)
	client := rawClient(addr)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	for name, open := range map[string]func(t testing.TB) *memcache.Store{
		"New": func(t testing.TB) *memcache.Store { return newStore(t, memcache.Config{IOTimeout: patience}, addr) },
		"NewFromClient": func(t testing.TB) *memcache.Store {
			s, err := memcache.NewFromClient(client, memcache.Config{IOTimeout: patience})
			require.NoError(t, err)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			backendtest.Erase(t, func(t testing.TB) (backend.Store, backendtest.Contents) {
				return open(t), func() (string, error) { return contents(t, addr) }
			})
		})
	}
}

// contents returns the names of all items, and the values of the markers; the
// values of buckets are numbers.
func contents(t testing.TB, addr string) (string, error) {
	var all strings.Builder
	for _, line := range tell(t, addr, "lru_crawler metadump all", "END") {
		escaped, _, _ := strings.Cut(strings.TrimPrefix(line, "key="), " ")
		name, err := url.PathUnescape(escaped)
		if err != nil {
			return "", err
		}
		all.WriteString(name + "\n")
		if strings.HasSuffix(name, "|forgotten") {
			fmt.Fprintln(&all, tell(t, addr, "get "+name, "END"))
		}
	}
	return all.String(), nil
}

func TestProcesses(t *testing.T) {
	backendtest.Processes(t, func(t testing.TB) string { return servertest.Memcached(t) },
		func(addr string) (backend.Store, error) {
			return memcache.New(memcache.Config{IOTimeout: patience}, addr)
		})
}

func TestPause(t *testing.T) {
	server := servertest.StartMemcached(t)
	backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
		s, err := memcache.New(memcache.Config{}, server.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}

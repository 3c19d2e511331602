package memcache_test

import (
	"testing"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
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
		client := gomemcache.New(servertest.Memcached(t))
		client.Timeout, client.MaxIdleConns = patience, memcache.DefaultMaxInFlight
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		s, err := memcache.NewFromClient(client, memcache.Config{})
		require.NoError(t, err)
		backendtest.Run(t, func(testing.TB) backend.Store { return s })
	})
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

package memcache_test

import (
	"testing"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

func TestConformance(t *testing.T) {
	addr := servertest.Memcached(t)
	backendtest.Run(t, func(t testing.TB) backend.Store { return newStore(t, memcache.Config{}, addr) })
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

package memcache_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// A server with meta commands, and a server without. The two wait for the clock
// together.
func TestConformance(t *testing.T) {
	t.Run("meta", func(t *testing.T) {
		t.Parallel()
		addr := servertest.Memcached(t)
		backendtest.Run(t, func(t testing.TB) backend.Store { return newStore(t, memcache.Config{}, addr) })
	})
	t.Run("classic", func(t *testing.T) {
		t.Parallel()
		old, _ := oldMemcached(t)
		backendtest.Run(t, func(t testing.TB) backend.Store { return newStore(t, memcache.Config{}, old) })
	})
}

func TestErase(t *testing.T) {
	t.Parallel()
	addr := servertest.Memcached(t)
	old, behind := oldMemcached(t)
	for name, server := range map[string]struct{ asked, addr string }{"meta": {addr, addr}, "classic": {old, behind}} {
		t.Run(name, func(t *testing.T) {
			backendtest.Erase(t, func(t testing.TB) (backend.Store, backendtest.Contents) {
				return newStore(t, memcache.Config{}, server.asked), func() (string, error) { return contents(t, server.addr) }
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
	t.Parallel()
	backendtest.Processes(t, func(t testing.TB) string { return servertest.Memcached(t) },
		func(addr string) (backend.Store, error) {
			return memcache.New(memcache.Config{IOTimeout: patience}, addr)
		})
}

func TestPause(t *testing.T) {
	server := servertest.StartMemcached(t)
	backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
		s := try.To(memcache.New(memcache.Config{}, server.Addr))(t)
		t.Cleanup(func() { s.Close() })
		return s
	})
}

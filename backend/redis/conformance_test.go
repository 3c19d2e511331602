package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// The cases take turns with the two protocols, and with functions and scripts.
func TestConformance(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	logins := []string{"", scriptsUser(t, addr) + "@"}
	var stores atomic.Int64
	backendtest.Run(t, func(t testing.TB) backend.Store {
		turn := stores.Add(1)
		return open(t, fmt.Sprintf("redis://%s%s/0?protocol=%d", logins[turn/2%2], addr, 2+turn%2))
	})
}

func TestErase(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	client := raw(t, addr)
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			backendtest.Erase(t, func(t testing.TB) (backend.Store, backendtest.Contents) {
				s, err := redis.Open("redis://"+addr+"/0", redis.Config{Layout: layout, IOTimeout: patience})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				return s, func() (string, error) {
					var all strings.Builder
					names, err := client.Keys(ctx, "*").Result()
					for some := range slices.Chunk(names, 1000) {
						for i, value := range client.MGet(ctx, some...).Val() {
							fmt.Fprintf(&all, "%s %s\n", some[i], value)
						}
					}
					return all.String(), err
				}
			})
		})
	}
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	backendtest.Processes(t, func(t testing.TB) string { return servertest.Redis(t) },
		func(addr string) (backend.Store, error) {
			return redis.Open("redis://"+addr+"/0", redis.Config{IOTimeout: patience})
		})
}

// clusterURL returns the URL of a new Cluster.
func clusterURL(t *testing.T) (string, *servertest.ClusterSetup) {
	cluster := servertest.Cluster(t)
	return "redis://" + cluster.Addrs[0] + "?protocol=2&addr=" + strings.Join(cluster.Addrs[1:], "&addr="), cluster
}

package redis_test

import (
	"testing"

	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/servertest"
)

func TestConformance(t *testing.T) {
	addr := servertest.Redis(t)
	for name, url := range map[string]string{
		"RESP2": "redis://" + addr + "/0?protocol=2",
		"RESP3": "redis://" + addr + "/1?protocol=3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backendtest.Run(t, func(t testing.TB) counter.Store { return open(t, url) })
		})
	}
}

func TestProcesses(t *testing.T) {
	backendtest.Processes(t, func(t testing.TB) string { return servertest.Redis(t) },
		func(addr string) (counter.Store, error) {
			return redis.Open("redis://"+addr+"/0", redis.Config{Timeout: patience})
		})
}

package envoy_test

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/service/envoy"
)

// The environment of a reference service says what it says there.
func TestEnvironment(t *testing.T) {
	defaults := envoy.Environment{}
	for _, row := range []struct {
		environ string // separated by spaces
		want    envoy.Environment
	}{
		{"", defaults},
		{"HOME=/root REDIS=x SHADOW_MODE= REDIS_TIMEOUT=", defaults},
		{"SHADOW_MODE=true QUOTA_MODE=1 RESPONSE_DYNAMIC_METADATA=t MERGE_DOMAIN_CONFIG=TRUE FORCE_START_WITHOUT_INITIAL_CONFIG=true",
			envoy.Environment{Settings: envoy.Settings{Shadow: true, Quota: true, Metadata: true, MergeDomains: true, ForceStart: true}}},
		{"LIMIT_LIMIT_HEADER=X-L", defaults},
		{"LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_LIMIT_HEADER=X-L LIMIT_REMAINING_HEADER=X-Rem LIMIT_RESET_HEADER=X-Res",
			envoy.Environment{Settings: envoy.Settings{LimitHeader: "X-L", RemainingHeader: "X-Rem", ResetHeader: "X-Res"}}},
		{"RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit", envoy.Environment{Rules: "/data/ratelimit/config"}},
		{"RUNTIME_ROOT=/data RUNTIME_APPDIRECTORY=rules", envoy.Environment{Rules: "/data/rules"}},
		{"USE_STATSD=false LOG_LEVEL=debug REDIS_SOCKET_TYPE=tcp REDIS_URL=localhost:6379", envoy.Environment{LogLevel: slog.LevelDebug, Redis: "redis://localhost:6379/0"}},
		{"LOG_LEVEL=WARN REDIS_URL=/run/redis.sock REDIS_AUTH=p:a@ss", envoy.Environment{LogLevel: slog.LevelWarn, Redis: "unix://p:a%40ss@/run/redis.sock"}},
		{"LOG_LEVEL=fatal REDIS_SOCKET_TYPE=tcp REDIS_TLS=true REDIS_AUTH=secret REDIS_URL=r:1", envoy.Environment{LogLevel: slog.LevelError, Redis: "rediss://:secret@r:1/0"}},
		{"REDIS_URL=redis://u:p@r:1/3", envoy.Environment{Redis: "redis://u:p@r:1/3"}},
		{"BACKEND_TYPE=memcache MEMCACHE_HOST_PORT=a:1,b:2 REDIS_URL=r:1 CACHE_KEY_PREFIX=rl", envoy.Environment{Memcached: []string{"a:1", "b:2"}, Prefix: "rl"}},
		{"PORT=80 GRPC_HOST=::1 DEBUG_PORT=1", envoy.Environment{HTTP: "0.0.0.0:80", GRPC: "[::1]:8081", Admin: "0.0.0.0:1"}},
		{"USE_PROMETHEUS=true USE_STATSD=false NEAR_LIMIT_RATIO=0.8", envoy.Environment{Metrics: true}},
		{"HOST=h GRPC_PORT=2 GRPC_UDS=/run/rl.sock DEBUG_HOST=d", envoy.Environment{HTTP: "h:8080", GRPC: "unix:///run/rl.sock", Admin: "d:6070"}},
	} {
		got, err := envoy.ReadEnvironment(strings.Fields(row.environ))
		require.NoError(t, err, row.environ)
		require.Equal(t, &row.want, got, row.environ)
		if got.Redis != "" {
			store, err := redis.Open(got.Redis, redis.Config{})
			require.NoError(t, err, got.Redis)
			require.NoError(t, store.Close())
		}
	}
	_, err := envoy.ReadEnvironment([]string{"SHADOW_MODE=maybe", "REDIS_TIMEOUT=10s", "LOG_LEVEL=loud", "BACKEND_TYPE=disk"})
	for _, name := range []string{`SHADOW_MODE is "maybe"`, "REDIS_TIMEOUT is not supported", `LOG_LEVEL is "loud"`, `BACKEND_TYPE is "disk"`} {
		require.ErrorContains(t, err, name)
	}
}

// The page has each variable of a reference service, and says what is done with it.
func TestPageOfTheEnvironment(t *testing.T) {
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	code, told := regexp.MustCompile("`([^`]+)`"), map[string]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "_") && !strings.Contains(cells[1], "PORT") {
			continue
		}
		for _, name := range code.FindAllStringSubmatch(cells[1], -1) {
			told[name[1]] = strings.TrimSpace(cells[3])
		}
	}
	read := func(pair string) error {
		_, err := envoy.ReadEnvironment([]string{pair})
		return err
	}
	for name, here := range told {
		switch {
		case here == "honoured":
			require.NotContains(t, fmt.Sprint(read(name+"=warn")), "is not supported", name)
			require.NotContains(t, fmt.Sprint(read(name+"=warn")), "leave it out", name)
		case here == "refused":
			require.ErrorContains(t, read(strings.ReplaceAll(name, "*", "X")+"=1"), "is not supported", name)
		default:
			for _, value := range code.FindAllStringSubmatch(here, -1) {
				require.NoError(t, read(name+"="+value[1]), name)
			}
			require.ErrorContains(t, read(name+"=x"), name+` is "x", want `, name)
		}
	}
	// The variables of src/settings/settings.go of the reference, of the version in service/bench.
	known := strings.Fields(`HOST PORT DEBUG_HOST DEBUG_PORT GRPC_UDS GRPC_HOST GRPC_PORT GRPC_MAX_CONNECTION_AGE
		GRPC_MAX_CONNECTION_AGE_GRACE GRPC_SERVER_USE_TLS GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY
		GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN LOG_LEVEL LOG_FORMAT CONFIG_TYPE FORCE_START_WITHOUT_INITIAL_CONFIG
		CONFIG_GRPC_XDS_NODE_ID XDS_CLIENT_BACKOFF_JITTER USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_STATSD
		STATSD_HOST STATSD_PORT EXTRA_TAGS STATS_FLUSH_INTERVAL DISABLE_STATS USE_PROMETHEUS PROMETHEUS_ADDR
		PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY
		RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT EXPIRATION_JITTER_MAX_SECONDS LOCAL_CACHE_SIZE_IN_BYTES
		NEAR_LIMIT_RATIO CACHE_KEY_PREFIX BACKEND_TYPE STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT
		LIMIT_RESPONSE_HEADERS_ENABLED LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER
		HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED REDIS_SOCKET_TYPE REDIS_TYPE REDIS_URL REDIS_POOL_SIZE REDIS_AUTH
		REDIS_TLS REDIS_TLS_CACERT REDIS_PIPELINE_WINDOW REDIS_PERSECOND REDIS_PERSECOND_URL REDIS_SENTINEL_AUTH
		REDIS_TIMEOUT MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV MEMCACHE_TLS MEMCACHE_TLS_CACERT
		SHADOW_MODE QUOTA_MODE RESPONSE_DYNAMIC_METADATA MERGE_DOMAIN_CONFIG TRACING_ENABLED TRACING_SERVICE_NAME`)
	for _, name := range known {
		_, named := told[name]
		for pattern, here := range told {
			named = named || here == "refused" && strings.HasSuffix(pattern, "*") && strings.HasPrefix(name, strings.TrimSuffix(pattern, "*"))
		}
		require.True(t, named, "the page has no row for %s", name)
	}
}

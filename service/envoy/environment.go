package envoy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Environment is what the environment of a reference service says. All but Settings is for
// the program, which makes a [Config] of it and listens.
type Environment struct {
	Settings

	Rules             string     // for Config.Rules; empty: RUNTIME_ROOT is not set
	Redis             string     // a URL for redis.Open; empty: none
	Memcached         []string   // servers for memcache.New; empty: none
	Prefix            string     // for counter.Config
	HTTP, GRPC, Admin string     // addresses, host:port or unix:// and a path; empty: not set
	LogLevel          slog.Level // of the lines that are logged
	Metrics           bool       // numbers under the names of the reference, for Config.Metrics
}

// honoured are the variables that say something, and fixed the values that say what holds
// here anyway: other values are refused. README.md has the meaning of each.
var (
	honoured = strings.Fields(`SHADOW_MODE QUOTA_MODE RESPONSE_DYNAMIC_METADATA MERGE_DOMAIN_CONFIG
		FORCE_START_WITHOUT_INITIAL_CONFIG LIMIT_RESPONSE_HEADERS_ENABLED LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER
		LIMIT_RESET_HEADER RUNTIME_ROOT RUNTIME_SUBDIRECTORY RUNTIME_APPDIRECTORY BACKEND_TYPE REDIS_SOCKET_TYPE
		REDIS_URL REDIS_AUTH REDIS_TLS MEMCACHE_HOST_PORT CACHE_KEY_PREFIX HOST PORT GRPC_HOST GRPC_PORT GRPC_UDS
		DEBUG_HOST DEBUG_PORT LOG_LEVEL USE_PROMETHEUS`)
	fixed = strings.Fields(`CONFIG_TYPE=FILE REDIS_TYPE=SINGLE REDIS_TYPE=single REDIS_PERSECOND=false
		RUNTIME_IGNOREDOTFILES=true RUNTIME_WATCH_ROOT=true RUNTIME_WATCH_ROOT=false
		STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true
		GRPC_SERVER_USE_TLS=false MEMCACHE_TLS=false USE_STATSD=false USE_DOG_STATSD=false NEAR_LIMIT_RATIO=0.8
		DISABLE_STATS=true TRACING_ENABLED=false`)
)

// refused are the beginnings of the other variables of a reference service.
var refused = strings.Fields(`CONFIG_GRPC_XDS_ EXPIRATION_JITTER_MAX_SECONDS EXTRA_TAGS GRPC_CLIENT_TLS_
	GRPC_MAX_CONNECTION_AGE GRPC_SERVER_TLS_ LOCAL_CACHE_SIZE_IN_BYTES LOG_FORMAT MEMCACHE_
	PROMETHEUS_ REDIS_ STATSD_ STATS_FLUSH_INTERVAL TRACING_ USE_DOG_STATSD_MOGRIFIERS XDS_CLIENT_`)

// settled returns an error for a variable that is not honoured, unless its value holds here.
func settled(name, value string) error {
	var want []string
	for _, pair := range fixed {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			want = append(want, v)
		}
	}
	switch {
	case slices.Contains(want, value):
	case want != nil:
		return fmt.Errorf("%s is %q, want %s, or leave it out", name, value, strings.Join(want, " or "))
	case slices.ContainsFunc(refused, func(begin string) bool { return strings.HasPrefix(name, begin) }):
		return fmt.Errorf("%s is not supported: leave it out", name)
	}
	return nil
}

// ReadEnvironment reads the variables of a reference service, each NAME=value as os.Environ
// returns them. The error names all variables with values that are not supported. Variables
// that the reference service does not know are ignored.
func ReadEnvironment(environ []string) (*Environment, error) {
	e, vars := &Environment{}, map[string]string{}
	var errs []error
	for _, pair := range environ {
		switch name, value, _ := strings.Cut(pair, "="); {
		case value == "":
		case slices.Contains(honoured, name):
			vars[name] = value
		default:
			errs = append(errs, settled(name, value))
		}
	}
	isOn := func(name string) bool {
		on, err := strconv.ParseBool(cmp.Or(vars[name], "false"))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, want true or false", name, vars[name]))
		}
		return on
	}
	e.Settings = Settings{Shadow: isOn("SHADOW_MODE"), Quota: isOn("QUOTA_MODE"), Metadata: isOn("RESPONSE_DYNAMIC_METADATA"), MergeDomains: isOn("MERGE_DOMAIN_CONFIG"), ForceStart: isOn("FORCE_START_WITHOUT_INITIAL_CONFIG")}
	if isOn("LIMIT_RESPONSE_HEADERS_ENABLED") {
		e.LimitHeader = cmp.Or(vars["LIMIT_LIMIT_HEADER"], "RateLimit-Limit")
		e.RemainingHeader = cmp.Or(vars["LIMIT_REMAINING_HEADER"], "RateLimit-Remaining")
		e.ResetHeader = cmp.Or(vars["LIMIT_RESET_HEADER"], "RateLimit-Reset")
	}
	level := strings.NewReplacer("warning", "warn", "trace", "debug", "fatal", "error", "panic", "error").Replace(strings.ToLower(vars["LOG_LEVEL"]))
	if err := e.LogLevel.UnmarshalText([]byte(cmp.Or(level, "info"))); err != nil {
		errs = append(errs, fmt.Errorf("LOG_LEVEL is %q, want debug, info, warn or error", vars["LOG_LEVEL"]))
	}
	e.Prefix, e.Metrics = vars["CACHE_KEY_PREFIX"], isOn("USE_PROMETHEUS")
	if root := vars["RUNTIME_ROOT"]; root != "" {
		e.Rules = filepath.Join(root, vars["RUNTIME_SUBDIRECTORY"], cmp.Or(vars["RUNTIME_APPDIRECTORY"], "config"))
	}
	address := func(host, port, usual string) string {
		if vars[host] == "" && vars[port] == "" {
			return ""
		}
		return net.JoinHostPort(cmp.Or(vars[host], "0.0.0.0"), cmp.Or(vars[port], usual))
	}
	e.HTTP, e.GRPC, e.Admin = address("HOST", "PORT", "8080"), address("GRPC_HOST", "GRPC_PORT", "8081"), address("DEBUG_HOST", "DEBUG_PORT", "6070")
	if socket := vars["GRPC_UDS"]; socket != "" {
		e.GRPC = "unix://" + socket
	}
	switch backend := cmp.Or(vars["BACKEND_TYPE"], "redis"); {
	case backend == "memcache":
		e.Memcached = strings.FieldsFunc(vars["MEMCACHE_HOST_PORT"], func(c rune) bool { return c == ',' || c == ' ' })
	case backend != "redis":
		errs = append(errs, fmt.Errorf("BACKEND_TYPE is %q, want redis or memcache", backend))
	case vars["REDIS_URL"] != "":
		e.Redis = redisURL(vars, isOn("REDIS_TLS"))
	}
	return e, errors.Join(errs...)
}

// redisURL is the URL of the server that REDIS_URL names.
func redisURL(vars map[string]string, byTLS bool) string {
	at := vars["REDIS_URL"]
	if strings.Contains(at, "://") {
		return at
	}
	u := url.URL{Scheme: "redis", Host: at, Path: "/0"}
	if byTLS {
		u.Scheme = "rediss"
	}
	if vars["REDIS_SOCKET_TYPE"] != "tcp" {
		u.Scheme, u.Host, u.Path = "unix", "", at
	}
	if auth := vars["REDIS_AUTH"]; auth != "" {
		colon := strings.Index(auth, ":")
		u.User = url.UserPassword(auth[:max(0, colon)], auth[colon+1:])
	}
	return u.String()
}

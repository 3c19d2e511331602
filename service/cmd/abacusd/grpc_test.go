package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

const envoyRules = `domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}
`

// gateway is a client of the rate limit service.
func gateway(t *testing.T, address string, by credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(by))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// asks asks about a user, under a limit of the request above 0.
func asks(conn *grpc.ClientConn, user string, limit uint32, lines ...string) (pb.RateLimitResponse_Code, codes.Code) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), lines...), time.Minute)
	defer cancel()
	d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}
	if limit > 0 {
		d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: limit, Unit: typev3.RateLimitUnit_HOUR}
	}
	got, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{d}})
	return got.GetOverallCode(), status.Code(err)
}

func health(conn *grpc.ClientConn) healthpb.HealthCheckResponse_ServingStatus {
	got, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	if err != nil {
		return healthpb.HealthCheckResponse_UNKNOWN
	}
	return got.Status
}

const (
	ok   = pb.RateLimitResponse_OK
	over = pb.RateLimitResponse_OVER_LIMIT
)

// Who may is the same over gRPC, over TLS and under /json as over HTTP.
func TestGateways(t *testing.T) {
	ca := &authority{t: t}
	caPEM, _ := ca.issue("ca.internal", time.Hour)
	cert, key := ca.issue("abacusd.internal", time.Hour)
	const token = "0123456789abcdef"
	dir := files(t, map[string]string{
		"envoy.yaml": envoyRules, "ca.pem": caPEM, "cert.pem": cert, "key.pem": key, "token": token,
		"abacusd.yaml": `listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
envoy: {rules: envoy.yaml, reflection: true}
drain: 10ms
tls: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem}
callers:
  - {name: envoy, san: envoy.internal, may: [rls, override]}
  - {name: other, token_file: token, may: [rls]}
  - {name: prometheus, from: [127.0.0.1], may: [metrics]}
`,
	})
	d := serve(t, filepath.Join(dir, "abacusd.yaml"))
	by := func(pair ...tls.Certificate) *tls.Config {
		config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "abacusd.internal", Certificates: pair}
		config.RootCAs.AddCert(ca.cert)
		return config
	}
	cert, key = ca.issue("envoy.internal", time.Hour)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	envoy, nobody, plain := gateway(t, d.grpc, credentials.NewTLS(by(pair))), gateway(t, d.grpc, credentials.NewTLS(by())), gateway(t, d.grpc, insecure.NewCredentials())
	bearer := []string{"authorization", "Bearer " + token}
	for i, row := range []struct {
		conn  *grpc.ClientConn
		limit uint32
		lines []string
		want  pb.RateLimitResponse_Code
		code  codes.Code
	}{
		{envoy, 0, nil, ok, codes.OK},
		{nobody, 0, nil, 0, codes.PermissionDenied}, // prometheus by its address
		{nobody, 0, []string{"authorization", "Bearer " + token + "0"}, 0, codes.Unauthenticated},
		{envoy, 0, []string{"authorization", "Bearer " + token + "0"}, 0, codes.Unauthenticated},
		{nobody, 0, append(bearer, bearer...), 0, codes.PermissionDenied},
		{plain, 0, bearer, 0, codes.Unavailable},
		{nobody, 0, bearer, ok, codes.OK},
		{nobody, 0, bearer, over, codes.OK},
		{nobody, 9, bearer, over, codes.OK}, // its limit does not hold
		{envoy, 9, nil, ok, codes.OK},
	} {
		got, code := asks(row.conn, "ada", row.limit, row.lines...)
		require.Equal(t, row.code, code, i)
		require.Equal(t, row.want, got, i)
	}
	require.Eventually(t, func() bool { return health(nobody) == healthpb.HealthCheckResponse_SERVING }, time.Minute, 10*time.Millisecond)

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: by()}}
	const body = `{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "bob"}]}]}`
	for i, want := range []int{200, 200, 429, 403} {
		lines := []string{"Authorization: Bearer " + token}
		if want == 403 {
			lines = nil
		}
		got := ask(client, "POST", "https://"+d.http+"/json", body, lines...)
		require.Equal(t, want, got.status, "%d: %s", i, got.body)
	}
	require.Equal(t, 401, ask(client, "POST", "https://"+d.http+"/json", body, "Authorization: Bearer "+token+"0").status)
	require.Equal(t, 403, ask(client, "POST", "https://"+d.http+"/v1/take", body).status)
	metrics := ask(client, "GET", "https://"+d.admin+"/metrics", "").body
	require.Contains(t, metrics, `abacus_decisions_total{event="shop",kind=`)
	require.Contains(t, metrics, "abacusd_envoy_rules_refused_total 0")
	require.NotContains(t, metrics+d.said(), "bob")
	require.Zero(t, d.stop())
}

// Support finds and erases a user of a gateway, also where there are no other rules, and
// who may see the numbers sees the rules.
func TestSupportOfGateways(t *testing.T) {
	const token = "0123456789abcdef"
	config := `listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
envoy: {rules: envoy.yaml, reference_metrics: true}
drain: 10ms
callers:
  - {name: envoy, from: [127.0.0.1], may: [rls]}
  - {name: support, token_file: token, may: [take, refund, erase, status, metrics]}
`
	dir := files(t, map[string]string{
		"envoy.yaml": envoyRules + "  - {key: ip, descriptors: [{key: user, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 2}}]}\n",
		"token":      token, "alone.yaml": config, "both.yaml": config + "rules: rules.yaml\n", "rules.yaml": pageRules,
	})
	const bearer = "Authorization: Bearer " + token
	for name, rules := range map[string]bool{"alone.yaml": false, "both.yaml": true} {
		d := serve(t, filepath.Join(dir, name))
		conn := gateway(t, d.grpc, insecure.NewCredentials())
		for _, want := range []pb.RateLimitResponse_Code{ok, ok, over, over} {
			got, _ := asks(conn, "ada", 0)
			require.Equal(t, want, got)
		}
		take := d.post("/v1/take", `{"event":"mail","features":["user:ada"],"n":2}`, bearer)
		require.Equal(t, map[bool]int{true: 200, false: 404}[rules], take.status, take.body)
		page := d.get("/v1/status?limiter=envoy", bearer, "Accept: application/json")
		require.Contains(t, page.body, `"most_denied":[{"event":"shop","kind":"/user@1h0m0s","feature":"/user@1h0m0s:3:ada","at_least":2,`)
		usual := d.get("/v1/status", bearer, "Accept: application/json")
		require.Contains(t, usual.body, map[bool]string{true: `"event":"mail"`, false: `"event":"shop"`}[rules])
		require.NotContains(t, usual.body, map[bool]string{true: `"event":"shop"`, false: `"event":"mail"`}[rules])
		for path, want := range map[string]int{"/v1/status?limiter=none": 404, "/v1/status?limiter=rules": map[bool]int{true: 200, false: 404}[rules], "/openapi.yaml": 200} {
			require.Equal(t, want, d.get(path, bearer).status, path)
		}
		require.Equal(t, 403, d.get("/v1/status").status)
		require.Equal(t, 400, d.post("/v1/refund", `{"receipt":"AAAA"}`, bearer).status)

		require.Equal(t, 400, d.post("/v1/erase", `{"features":["user:ada","none:ada"]}`, bearer).status)
		require.Equal(t, 204, d.post("/v1/erase", `{"features":["user:eve","ip:192.0.2.7"]}`, bearer).status)
		got, _ := asks(conn, "ada", 0)
		require.Equal(t, over, got)
		require.Equal(t, 204, d.post("/v1/erase", `{"features":["user:ada"]}`, bearer).status)
		require.NotContains(t, d.get("/v1/status?limiter=envoy", bearer).body, "ada")
		got, _ = asks(conn, "ada", 0)
		require.Equal(t, ok, got)
		if rules {
			require.Contains(t, d.post("/v1/take", `{"event":"mail","features":["user:ada"],"n":2}`, bearer).body, `"allowed":true`)
		}

		admin := func(path string, lines ...string) answer {
			return ask(http.DefaultClient, "GET", "http://"+d.admin+path, "", lines...)
		}
		require.Equal(t, 403, admin("/rlconfig").status)
		require.Equal(t, "\"shop.ip.user\": 2/h, shadow_mode: false, quota_mode: false\n\"shop.user\": 2/h, shadow_mode: false, quota_mode: false\n", admin("/rlconfig", bearer).body)
		require.Contains(t, admin("/metrics", bearer).body, `ratelimit_service_rate_limit_over_limit{domain="shop",key1="user",key2=""} 3`)
	}
}

// The environment of a reference service wins over a file, which is not needed. A service
// that drains, or has no store, is not serving, and answers all the same.
func TestEnvironment(t *testing.T) {
	dir := files(t, map[string]string{"rules.yaml": envoyRules, ".abacusd.yaml": "drain: 3s\nlisten: {grpc: '127.0.0.1:1'}"})
	store := servertest.StartRedis(t)
	t.Setenv("RUNTIME_ROOT", filepath.Dir(dir))
	t.Setenv("RUNTIME_APPDIRECTORY", filepath.Base(dir))
	t.Setenv("REDIS_URL", store.Addr)
	t.Setenv("REDIS_SOCKET_TYPE", "tcp")
	for name, port := range map[string]string{"HOST": "PORT", "GRPC_HOST": "GRPC_PORT", "DEBUG_HOST": "DEBUG_PORT"} {
		t.Setenv(name, "127.0.0.1")
		t.Setenv(port, "0")
	}
	d := serve(t, filepath.Join(dir, ".abacusd.yaml")).ready()
	conn := gateway(t, d.grpc, insecure.NewCredentials())
	for _, want := range []pb.RateLimitResponse_Code{ok, ok, over} {
		got, code := asks(conn, "ada", 0)
		require.Equal(t, codes.OK, code)
		require.Equal(t, want, got)
	}
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, health(conn))
	store.Pause()
	d.eventually("not serving", func() bool { return health(conn) == healthpb.HealthCheckResponse_NOT_SERVING })
	got, code := asks(conn, "bob", 0)
	require.Equal(t, codes.OK, code)
	require.Equal(t, over, got)
	store.Resume()
	d.eventually("serving", func() bool { return health(conn) == healthpb.HealthCheckResponse_SERVING })
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	d.eventually("not serving", func() bool { return health(conn) == healthpb.HealthCheckResponse_NOT_SERVING })
	got, code = asks(conn, "eve", 0)
	require.Equal(t, codes.OK, code)
	require.Equal(t, ok, got)
	<-d.ended
	require.Zero(t, d.cmd.ProcessState.ExitCode())

	for name, want := range map[string]string{"GRPC_HOST": "open to other machines", "REDIS_TYPE": "REDIS_TYPE is", "REDIS_POOL_SIZE": "REDIS_POOL_SIZE is not supported"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "0.0.0.0")
			_, errs, status := runs(t, "serve")
			require.Contains(t, errs, want)
			require.Equal(t, 1, status)
			require.False(t, strings.Contains(errs, "panic"), errs)
		})
	}
}

// A service that has begun without rules is not ready, over HTTP and gRPC, and has the
// metrics of a limiter once there are some.
func TestForceStart(t *testing.T) {
	dir := files(t, map[string]string{"rules.yaml": "bad", ".abacusd.yaml": "reload: 20ms\ndrain: 10ms\nlisten: {grpc: '127.0.0.1:0', http: '127.0.0.1:0', admin: '127.0.0.1:0'}\n" +
		"callers: [{name: here, from: [127.0.0.1], may: [rls, metrics]}]"})
	t.Setenv("RUNTIME_ROOT", filepath.Dir(dir))
	t.Setenv("RUNTIME_APPDIRECTORY", filepath.Base(dir))
	t.Setenv("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")
	t.Setenv("BACKEND_TYPE", "memcache")
	t.Setenv("MEMCACHE_HOST_PORT", servertest.Memcached(t))
	for name, port := range map[string]string{"HOST": "PORT", "GRPC_HOST": "GRPC_PORT", "DEBUG_HOST": "DEBUG_PORT"} {
		t.Setenv(name, "127.0.0.1")
		t.Setenv(port, "0")
	}
	d := serve(t, filepath.Join(dir, ".abacusd.yaml"))
	conn := gateway(t, d.grpc, insecure.NewCredentials())
	_, code := asks(conn, "ada", 0)
	require.Equal(t, codes.Unavailable, code)
	require.Equal(t, 503, d.get("/readyz").status)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, health(conn))
	replaceFile(t, filepath.Join(dir, "rules.yaml"), envoyRules)
	d.eventually("rules", func() bool { _, code := asks(conn, "ada", 0); return code == codes.OK })
	d.ready().eventually("serving", func() bool { return health(conn) == healthpb.HealthCheckResponse_SERVING })
	metrics := ask(http.DefaultClient, "GET", "http://"+d.admin+"/metrics", "").body
	require.Regexp(t, `(?m)^abacus_decisions_total\{.*limiter="envoy".*\} 1$`, metrics)
	require.Contains(t, metrics, `abacus_rules_last_reload_successful{limiter="envoy"} `)
	require.Zero(t, d.stop())
}

package redis_test

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// The cases take turns with the two protocols, and with functions and scripts.
func TestConformance(t *testing.T) {
	t.Parallel()
	urls := logins(t, servertest.Redis(t))
	var stores atomic.Int64
	backendtest.Run(t, func(t testing.TB) backend.Store {
		turn := stores.Add(1)
		return open(t, fmt.Sprintf("%s/0?protocol=%d", urls[[]string{"functions", "scripts"}[turn/2%2]], 2+turn%2))
	})
}

// The user may run no script, and the server has refused nothing: no script was tried.
// The cases take turns with the two protocols.
func TestPlainConformance(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	url := user(t, addr, "allkeys +@all -@scripting")
	var stores atomic.Int64
	backendtest.Run(t, func(t testing.TB) backend.Store {
		return openPlain(t, fmt.Sprintf("%s/0?protocol=%d", url, 2+stores.Add(1)%2))
	})
	require.Empty(t, try.To(raw(t, addr).ACLLog(ctx, 10).Result())(t))
	requireTimesToLive(t, addr)
}

// requireTimesToLive looks at every key of a server.
func requireTimesToLive(t testing.TB, addr string) (keys []string) {
	client := raw(t, addr)
	keys = try.To(client.Keys(ctx, "*").Result())(t)
	for _, key := range keys {
		require.NotEqual(t, time.Duration(-1), client.PTTL(ctx, key).Val(), "%s has no time to live", key)
	}
	return keys
}

func TestErase(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	client := raw(t, addr)
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			backendtest.Erase(t, func(t testing.TB) (backend.Store, backendtest.Contents) {
				return openAs(t, "redis://"+addr, layout), func() (string, error) {
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

func TestProcesses(t *testing.T)      { processes(t, redis.Sums) }
func TestPlainProcesses(t *testing.T) { processes(t, redis.Plain) }

func processes(t *testing.T, layout redis.Layout) {
	t.Parallel()
	backendtest.Processes(t, func(t testing.TB) string { return servertest.Redis(t) },
		func(addr string) (backend.Store, error) {
			return redis.Open("redis://"+addr+"/0", redis.Config{Layout: layout, IOTimeout: patience})
		})
}

// Calls fail while a server stands still. A script knows the deadline, with a Dialer and
// without; hits that were counted late all the same are taken back by the Dialer, over TCP,
// over TLS and by a unix socket.
func TestPause(t *testing.T) {
	for what, cfg := range map[string]redis.Config{
		"sums": {}, "without a Dialer": {}, "plain": {Layout: redis.Plain},
		"at any time": {AnyTime: true}, "scripts": {AnyTime: true}, "unix": {AnyTime: true}, "tls": {AnyTime: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir, tlsAddr := t.TempDir(), nobody(t)
			roots := certificate(t, dir)
			server := servertest.StartRedis(t, "--tls-port", strings.TrimPrefix(tlsAddr, "127.0.0.1:"), "--tls-auth-clients", "no",
				"--tls-cert-file", dir+"/cert.pem", "--tls-key-file", dir+"/key.pem", "--unixsocket", dir+"/sock")
			urls := map[string]string{"unix": "unix://" + dir + "/sock", "tls": "redis://" + tlsAddr, "scripts": logins(t, server.Addr)["scripts"]}
			var stores []redis.Store
			backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
				cfg := cfg
				if what == "tls" {
					cfg.Dialer = redis.NewDialer((&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext)
				}
				var s redis.Store
				if what == "without a Dialer" {
					s = try.To(redis.New(raw(t, server.Addr), redis.Config{IOTimeout: patience}))(t)
				} else {
					s, _ = onClient(t, cmp.Or(urls[what], "redis://"+server.Addr), cfg)
				}
				stores = append(stores, s)
				return s
			})
			var all redis.Stats
			for _, s := range stores {
				require.Eventually(t, func() bool { return s.Stats().Draining == 0 }, patience, time.Millisecond)
				st := s.Stats()
				require.Zero(t, st.NotTaken+st.Abandoned)
				all.TakenBack, all.LateAnswers = all.TakenBack+st.TakenBack, all.LateAnswers+st.LateAnswers
				all.ByScripts += st.ByScripts
			}
			require.Equal(t, what == "scripts", all.ByScripts > 0)
			require.Equal(t, all.LateAnswers, all.TakenBack)
			if cfg.AnyTime || cfg.Layout == redis.Plain {
				require.Positive(t, all.TakenBack)
			}
			requireTimesToLive(t, server.Addr)
		})
	}
}

// certificate writes a certificate for 127.0.0.1 and its key to dir, and returns roots with
// the certificate.
func certificate(t testing.TB, dir string) *x509.CertPool {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	cert := server.TLS.Certificates[0]
	secret := try.To(x509.MarshalPKCS8PrivateKey(cert.PrivateKey))(t)
	for file, block := range map[string]*pem.Block{
		"/cert.pem": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]},
		"/key.pem":  {Type: "PRIVATE KEY", Bytes: secret},
	} {
		require.NoError(t, os.WriteFile(dir+file, pem.EncodeToMemory(block), 0o600))
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return roots
}

// clusterURL returns the URL of a new Cluster.
func clusterURL(t *testing.T) (string, *servertest.ClusterSetup) {
	cluster := servertest.Cluster(t)
	return "redis://" + cluster.Addrs[0] + "?protocol=2&addr=" + strings.Join(cluster.Addrs[1:], "&addr="), cluster
}

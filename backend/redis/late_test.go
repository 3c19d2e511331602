package redis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/servertest"
)

func TestPause(t *testing.T) {
	server := servertest.StartRedis(t)
	backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
		return open(t, "redis://"+server.Addr)
	})
}

// A store without a Dialer, on a client of its owner's: what the script is told of
// the deadline keeps hits away whose time has passed.
func TestPauseWithoutADialer(t *testing.T) {
	server := servertest.StartRedis(t)
	backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
		s, err := redis.New(raw(t, server.Addr), redis.Config{Timeout: patience})
		require.NoError(t, err)
		return s
	})
}

// A store whose script is told nothing: its Dialer takes back what comes late. Over
// TCP, over TLS and by a unix socket.
func TestPauseAtAnyTime(t *testing.T) {
	dir := t.TempDir()
	pool, cert, key := certificate(t, dir)
	server := servertest.StartRedis(t, "--tls-port", freeTLSPort(t), "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-auth-clients", "no", "--unixsocket", dir+"/sock")
	tlsAddr := net.JoinHostPort("127.0.0.1", fmt.Sprint(configured(t, server.Addr, "tls-port")))
	for what, options := range map[string]goredis.Options{
		"tcp":  {Addr: server.Addr},
		"unix": {Network: "unix", Addr: dir + "/sock"},
		"tls":  {Addr: tlsAddr},
	} {
		t.Run(what, func(t *testing.T) {
			var dial func(context.Context, string, string) (net.Conn, error)
			if what == "tls" {
				dial = (&tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: "localhost"}}).DialContext
			}
			var dialers []*redis.Dialer
			var stores []*redis.Store
			backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
				dialer := redis.NewDialer(dial)
				options.Dialer, options.ContextTimeoutEnabled, options.DialerRetries = dialer.DialContext, true, 1
				o := options
				client := goredis.NewClient(&o)
				t.Cleanup(func() { require.NoError(t, client.Close()) })
				s, err := redis.New(client, redis.Config{Timeout: patience, Dialer: dialer, AnyTime: true})
				require.NoError(t, err)
				dialers, stores = append(dialers, dialer), append(stores, s)
				return s
			})
			var all redis.Stats
			for i, s := range stores {
				st := s.Stats()
				all.TakenBack += st.TakenBack
				all.LateAnswers += st.LateAnswers
				require.Zero(t, st.NotTaken)
				require.NoError(t, dialers[i].Close())
				require.Zero(t, s.Stats().Draining)
			}
			require.Positive(t, all.TakenBack)
			require.Equal(t, all.LateAnswers, all.TakenBack)
		})
	}
}

func configured(t *testing.T, addr, name string) string {
	t.Helper()
	return raw(t, addr).ConfigGet(ctx, name).Val()[name]
}

func freeTLSPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return port
}

// certificate makes one for localhost, and writes it and its key to dir.
func certificate(t *testing.T, dir string) (pool *x509.CertPool, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	cert, key = dir+"/cert.pem", dir+"/key.pem"
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(cert, text, 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(text))
	return pool, cert, key
}

// A subscription, such as that to a sentinel, is written to and read by two
// goroutines at once. The race detector finds what a connection remembers of it.
func TestASubscriptionByADialer(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: servertest.Redis(t), Dialer: redis.NewDialer(nil).DialContext})
	defer client.Close()
	subscription := client.Subscribe(ctx, "news")
	defer subscription.Close()
	const pings = 100
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for range pings {
			if err := subscription.Ping(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	for pongs := 0; pongs < pings; {
		m, err := subscription.ReceiveTimeout(ctx, patience)
		require.NoError(t, err)
		if _, is := m.(*goredis.Pong); is {
			pongs++
		}
	}
}

// The connection is lost in the pause, so no answer will be heard: the script comes
// too late, and counts nothing.
func TestPauseAndCut(t *testing.T) {
	server := servertest.StartRedis(t)
	proxy := servertest.NewProxy(t, server.Addr, 0)
	far := newCounter(t, open(t, "redis://"+proxy.Addr), counter.Config{Patience: 50 * time.Millisecond})
	near := newCounter(t, open(t, "redis://"+server.Addr), counter.Config{})
	require.Eventually(t, func() bool { return far.Add(ctx, name(0), 1) == nil }, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := far.Take(ctx, name(0), 1, counter.MustLimits("1000/d"))
		return err == nil
	}, patience, time.Millisecond)
	server.Pause()
	var calls sync.WaitGroup
	for range 12 {
		calls.Go(func() {
			if _, err := far.Take(ctx, signup, 1, counter.MustLimits("10/h")); err == nil {
				t.Error("no error from a server that is stopped")
			}
		})
	}
	calls.Wait()
	proxy.Cut()
	server.Resume()
	for range 10 {
		require.True(t, take(t, near, signup, 1, "10/h").Allowed)
	}
	require.EqualValues(t, 10, count(t, near, signup))
}

// An idle connection that the server has closed is not used: without syscall.Conn
// the client would notice by an error of a call that counts, which is not repeated.
func TestIdleConnectionsThatDied(t *testing.T) {
	addr := servertest.Redis(t)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{})
	client := raw(t, addr)
	for i := range 20 {
		require.EqualValues(t, 99-i, take(t, c, signup, 1, "100/d").Remaining)
		_, err := client.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Result()
		require.NoError(t, err)
		time.Sleep(2 * time.Millisecond) // until this machine knows
	}
}

// A server that refuses is dialled once in a while, and is found as soon as it is
// back, though the client's pool has seen more failures than it is large.
func TestAServerThatRefuses(t *testing.T) {
	server := servertest.StartRedis(t)
	s := open(t, "redis://"+server.Addr+"/0?pool_size=4")
	c := newCounter(t, s, counter.Config{})
	server.Kill()
	began := time.Now()
	for range 100 {
		_, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
		require.ErrorIs(t, err, backend.ErrStore)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	t.Logf("%v for each of 100 calls of a server that refuses", time.Since(began)/100)
	require.Less(t, time.Since(began), 5*time.Second)
	server.Restart()
	began = time.Now()
	require.Eventually(t, func() bool {
		_, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
		return err == nil
	}, patience, time.Millisecond)
	t.Logf("reachable %v after the restart", time.Since(began))
	require.Less(t, time.Since(began), 500*time.Millisecond)
}

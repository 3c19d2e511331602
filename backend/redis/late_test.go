package redis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
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
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

func TestPause(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
		return open(t, "redis://"+server.Addr)
	})
}

// A store without a Dialer, on the caller's own client: the script knows the
// deadline, and counts no hit whose deadline has passed.
func TestPauseWithoutADialer(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
		s, err := redis.New(raw(t, server.Addr), redis.Config{IOTimeout: patience})
		require.NoError(t, err)
		return s
	})
}

// A store whose script does not know the deadline: the Dialer takes back hits that were
// counted late. Over TCP, over TLS, by a unix socket, and as scripts instead of functions.
func TestPauseAtAnyTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pool, cert, key := certificate(t, dir)
	server := servertest.StartRedis(t, "--tls-port", freeTLSPort(t), "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-auth-clients", "no", "--unixsocket", dir+"/sock")
	tlsAddr := net.JoinHostPort("127.0.0.1", fmt.Sprint(configured(t, server.Addr, "tls-port")))
	user, password, _ := strings.Cut(scriptsUser(t, server.Addr), ":")
	for what, options := range map[string]goredis.Options{
		"tcp":     {Addr: server.Addr},
		"scripts": {Addr: server.Addr, Username: user, Password: password},
		"unix":    {Network: "unix", Addr: dir + "/sock"},
		"tls":     {Addr: tlsAddr},
	} {
		t.Run(what, func(t *testing.T) {
			var dial func(context.Context, string, string) (net.Conn, error)
			if what == "tls" {
				dial = (&tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: "localhost"}}).DialContext
			}
			var dialers []*redis.Dialer
			var stores []redis.Store
			backendtest.Pause(t, server.Pause, server.Resume, func(t testing.TB) backend.Store {
				dialer := redis.NewDialer(dial)
				options.Dialer, options.ContextTimeoutEnabled, options.DialerRetries = dialer.DialContext, true, 1
				o := options
				client := goredis.NewClient(&o)
				t.Cleanup(func() { require.NoError(t, client.Close()) })
				s, err := redis.New(client, redis.Config{IOTimeout: patience, Dialer: dialer, AnyTime: true})
				require.NoError(t, err)
				dialers, stores = append(dialers, dialer), append(stores, s)
				return s
			})
			var all redis.Stats
			for i, s := range stores {
				st := s.Stats()
				all.TakenBack += st.TakenBack
				all.ByScripts += st.ByScripts
				all.LateAnswers += st.LateAnswers
				require.Zero(t, st.NotTaken)
				require.NoError(t, dialers[i].Close())
				require.Zero(t, s.Stats().Draining)
			}
			require.Equal(t, what == "scripts", all.ByScripts > 0)
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

// certificate makes a certificate for localhost, and writes certificate and key to dir.
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

// A subscription, for instance to a sentinel, is written to and read by two
// goroutines at once. The race detector finds fields that a connection writes then.
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
		time.Sleep(2 * time.Millisecond) // until the client's machine knows
	}
}

// A server that refuses is dialled once in a while, and is found as soon as the
// server is back, though the client's pool has seen more failures than the pool is large.
func TestAServerThatRefuses(t *testing.T) {
	server := servertest.StartRedis(t)
	s := open(t, "redis://"+server.Addr+"/0?pool_size=4")
	c := newCounter(t, s, counter.Config{})
	// A busy machine may be late in a round; a client that waits out a time of its own is
	// late in each.
	const rounds = 5
	for round := 1; ; round++ {
		server.Kill()
		began := time.Now()
		for range 100 {
			_, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
			require.ErrorIs(t, err, backend.ErrStore)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
		refused := time.Since(began)
		server.Restart()
		began = time.Now()
		require.Eventually(t, func() bool {
			_, err := c.Take(ctx, signup, 1, counter.MustLimits("10/d"))
			return err == nil
		}, patience, time.Millisecond)
		back := time.Since(began)
		t.Logf("%v for each of 100 calls of a server that refuses, reachable %v after the restart", refused/100, back)
		if long.Asked() && round < rounds && (refused >= 5*time.Second || back >= 500*time.Millisecond) {
			continue
		}
		long.Less(t, refused, 5*time.Second)
		long.Less(t, back, 500*time.Millisecond)
		return
	}
}

// A step whose answer comes after the deadline is taken back. The answer does not
// tell which of the soft keys had no room: if all had, all hits go; otherwise the hits
// of the other keys go, and no soft key loses hits that another caller added.
func TestALateStepWithSoftKeys(t *testing.T) {
	const limit = 10
	server := servertest.StartRedis(t)
	dialer := redis.NewDialer(nil)
	client := goredis.NewClient(&goredis.Options{
		Addr: server.Addr, Dialer: dialer.DialContext, ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	store, err := redis.New(client, redis.Config{IOTimeout: patience, Dialer: dialer, AnyTime: true})
	require.NoError(t, err)
	hasty := store.(sums)
	t.Cleanup(func() { require.NoError(t, errors.Join(client.Close(), dialer.Close())) })
	near := open(t, "redis://"+server.Addr)
	ladder := mustLadder(t, "1s:1m, 1m:1d") // two roots a key
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

	type key struct {
		soft             bool
		before, n, after int64 // hits of another caller, of the step, and of both after the step's answer
	}
	const hard, soft = false, true
	for what, c := range map[string]struct {
		keys []key
		late int64
	}{
		"every key has room":            {[]key{{hard, 3, 2, 3}, {soft, 4, 3, 4}, {hard, 0, 1, 0}, {soft, 0, 1, 0}}, 1},
		"a soft key has none":           {[]key{{hard, 3, 2, 3}, {soft, 10, 3, 10}, {hard, 0, 4, 0}}, 1},
		"the soft keys come first":      {[]key{{soft, 9, 2, 9}, {soft, 10, 1, 10}, {hard, 1, 1, 1}}, 1},
		"one of two soft keys has none": {[]key{{soft, 8, 2, 10}, {hard, 3, 2, 3}, {soft, 9, 2, 9}}, 1},
		"soft keys alone":               {[]key{{soft, 9, 2, 9}, {soft, 5, 1, 6}}, 1},
		"a hard key has none":           {[]key{{hard, 9, 2, 9}, {soft, 5, 1, 5}}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			step := func(n func(key) int64, deadline time.Time, peek bool) *backend.TakeRequest {
				r := &backend.TakeRequest{Now: now, Deadline: deadline, Peek: peek}
				for i, k := range c.keys {
					windows := []backend.Window{
						{Max: limit, Reach: 30 * time.Second},
						{Max: limit, Reach: 12 * time.Hour, Finest: 1},
					}
					if k.soft && !peek { // the full root keeps the other from being added to
						windows = windows[i%2 : i%2+1]
					}
					r.Keys = append(r.Keys, backend.TakeKey{
						Key: fmt.Appendf(nil, "ab:%s:%d", strings.ReplaceAll(what, " ", "_"), i), N: n(k), Soft: k.soft, Windows: windows,
						Ladder: ladder, TTLs: []time.Duration{61 * time.Second, 24*time.Hour + time.Minute},
					})
				}
				return r
			}
			counts := func() (counts []int64) {
				r := step(func(key) int64 { return 0 }, time.Time{}, true)
				require.NoError(t, near.Take(ctx, r))
				for _, k := range r.Keys {
					require.Equal(t, k.Windows[0].Count, k.Windows[1].Count, "the two roots of a key")
					counts = append(counts, k.Windows[0].Count)
				}
				return counts
			}
			before := step(func(k key) int64 { return k.before }, time.Time{}, false)
			require.NoError(t, near.Take(ctx, before))
			require.True(t, before.Allowed)

			late := hasty.Stats()
			// The deadline of a step may pass before a busy machine has sent the step: then
			// no answer is awaited, and the next step has a later deadline.
			for timeout, sent := 50*time.Millisecond, 0; sent == 0; timeout *= 2 {
				require.Less(t, timeout, patience, "the step was not sent")
				require.NoError(t, hasty.Take(ctx, step(func(key) int64 { return 0 }, time.Time{}, true))) // makes the connection
				server.Pause()
				err := hasty.Take(ctx, step(func(k key) int64 { return k.n }, time.Now().Add(timeout), false))
				sent = hasty.Stats().Draining
				server.Resume()
				require.Error(t, err)
				if sent > 0 {
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				}
			}
			require.Eventually(t, func() bool { return hasty.Stats().Draining == 0 }, patience, time.Millisecond)
			require.Equal(t, late.LateAnswers+c.late, hasty.Stats().LateAnswers)
			require.Equal(t, late.TakenBack+c.late, hasty.Stats().TakenBack)
			var want []int64
			for _, k := range c.keys {
				want = append(want, k.after)
			}
			require.Equal(t, want, counts())
		})
	}
}

// A caller that stands still between its label and its step, with all patience, gets
// another label: the hits of the first label's window may have expired meanwhile.
func TestAStandstillBehindALabel(t *testing.T) {
	t.Parallel()
	const stands = 7 * time.Second
	ladder := mustLadder(t, "50ms:1s")
	var standstill time.Duration
	c := newCounter(t, open(t, "redis://"+servertest.Redis(t)), counter.Config{Ladder: ladder, Patience: time.Minute, Now: func() time.Time {
		now := time.Now()
		time.Sleep(standstill)
		standstill = 0
		return now
	}})
	first := take(t, c, signup, 2, "2/s")
	require.True(t, first.Allowed)
	time.Sleep(time.Until(first.At().Add(500 * time.Millisecond)))
	standstill = stands
	second := take(t, c, signup, 2, "2/s")
	require.True(t, second.Allowed)
	require.Greater(t, second.At().Sub(first.At()), stands)
	require.EqualValues(t, 1, c.Stats().StaleLabels)
}

// Between an addition and its undo the programs are flushed, or the memory becomes full,
// or both: the undo is sent as text, on the connection of a lone call and for a call in a
// pipeline.
func TestAFlushBeforeAnUndo(t *testing.T) {
	t.Parallel()
	for _, login := range []string{"functions", "scripts"} {
		for _, change := range []string{"flush", "full", "flush and full"} {
			t.Run(login+", "+change, func(t *testing.T) { changeBeforeAnUndo(t, login, change) })
		}
	}
}

func changeBeforeAnUndo(t *testing.T, login, change string) {
	const callers = 12
	addr := servertest.Redis(t)
	options := goredis.Options{PoolSize: 2 * callers}
	if login == "scripts" {
		options.Username, options.Password, _ = strings.Cut(scriptsUser(t, addr), ":")
	}
	h := new(halves)
	options.Addr = h.between(t, addr)
	near := newCounter(t, open(t, "redis://"+addr), counter.Config{})
	s, client := onClient(t, &options, redis.Config{IOTimeout: patience})
	c := newCounter(t, s, counter.Config{})
	limits := counter.MustLimits("10/d")
	take(t, c, signup, 1, "100/d")
	warm(t, client, callers)
	server := raw(t, addr)
	release := func() {
		t.Helper()
		if change != "full" {
			require.NoError(t, server.FunctionFlush(ctx).Err())
			require.NoError(t, server.ScriptFlush(ctx).Err())
		}
		if change != "flush" {
			require.NoError(t, server.ConfigSet(ctx, "maxmemory", "1").Err())
		}
		h.on.Store(false)
		require.Eventually(t, func() bool {
			st := s.Stats()
			return st.LateAnswers > 0 && st.LateAnswers == st.TakenBack+st.NotTaken && st.Draining == 0
		}, patience, time.Millisecond)
		require.Zero(t, s.Stats().NotTaken)
		require.NoError(t, server.ConfigSet(ctx, "maxmemory", "0").Err())
	}

	h.on.Store(true)
	last := 0
	for ; last == 0 || count(t, near, name(last)) == 0; last++ { // a slow server would not count a late call
		hurried, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := c.Take(hurried, name(last+1), 1, limits)
		cancel()
		require.Error(t, err)
	}
	release()
	require.Zero(t, count(t, near, name(last)))

	h.on.Store(true)
	var patient, all sync.WaitGroup
	for i := range 2 { // as many as round trips under way
		patient.Go(func() { c.Take(ctx, counter.Key{Event: "stuck", Feature: fmt.Sprint(i)}, 1, limits) })
	}
	for i := range 2 {
		require.Eventually(t, func() bool { return count(t, near, counter.Key{Event: "stuck", Feature: fmt.Sprint(i)}) == 1 }, patience, time.Millisecond)
	}
	hurried, cancel := context.WithCancel(ctx)
	for i := range callers {
		all.Go(func() {
			if _, err := c.Take(hurried, name(100+i), 1, limits); err == nil {
				t.Error("an answer")
			}
		})
	}
	for i := range callers {
		require.Eventually(t, func() bool { return count(t, near, name(100+i)) == 1 }, patience, time.Millisecond)
	}
	cancel()
	all.Wait()
	release()
	patient.Wait()
	require.Eventually(t, func() bool { return s.Stats().TakenBack >= callers+1 }, patience, time.Millisecond)
	for i := range callers {
		require.Zero(t, count(t, near, name(100+i)), "caller %d", i)
	}
}

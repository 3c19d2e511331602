package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/abacus-go/abacus/rules"
	"github.com/abacus-go/abacus/service/config"
)

// bubble is a service within the process, whose time is that of a synctest bubble.
type bubble struct {
	t          *testing.T
	service    *service
	http, grpc *bufconn.Listener
	servers    []served
}

// inBubble runs f with a service whose listeners have at most most connections.
func inBubble(t *testing.T, most int, f func(t *testing.T, b *bubble)) {
	dir := files(t, map[string]string{"envoy.yaml": envoyRules})
	cfg, err := config.Parse(filepath.Join(dir, "f"), fmt.Appendf(nil, "rules: r\nenvoy: {rules: envoy.yaml}\ndrain: 3s\nconnections: %d\nlisten: {http: 'localhost:1', grpc: 'localhost:2'}", most), unchanged)
	require.NoError(t, err)
	set, err := rules.Parse("r", []byte(pageRules))
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		s, err := open(cfg, set)
		require.NoError(t, err)
		b := &bubble{t: t, service: s, http: bufconn.Listen(1 << 16), grpc: bufconn.Listen(1 << 16)}
		b.servers = []served{{newServer(s.lived(s.public())), s.bound(b.http, "http")}, {s.newGRPC(), s.bound(b.grpc, "grpc")}}
		for _, server := range b.servers {
			go func() { _ = server.Serve(server.bound) }()
		}
		f(t, b)
		for _, server := range b.servers {
			require.NoError(t, server.Shutdown(t.Context()))
		}
		require.NoError(t, s.close(t.Context()))
	})
}

// begins opens a connection that sends text and then nothing.
func (b *bubble) begins(at *bufconn.Listener, text string) net.Conn {
	b.t.Helper()
	conn, err := at.Dial()
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	_, _ = conn.Write([]byte(text)) // the server may have closed it
	synctest.Wait()
	return conn
}

// conn is a client of gRPC.
func (b *bubble) conn() *grpc.ClientConn {
	b.t.Helper()
	conn, err := grpc.NewClient("passthrough:x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return b.grpc.DialContext(ctx)
	}))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (b *bubble) client() healthpb.HealthClient { return healthpb.NewHealthClient(b.conn()) }

// get sends a request over conn.
func get(conn net.Conn) error {
	if _, err := conn.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && answer.StatusCode != 200 {
		err = fmt.Errorf("%s", answer.Status)
	}
	return err
}

// isOpen reports whether the server has not closed conn. It reads away what has come.
func isOpen(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := io.Copy(io.Discard, conn)
	timeout, is := err.(net.Error)
	return is && timeout.Timeout()
}

func countOpen(conns []net.Conn) (n int) {
	for _, conn := range conns {
		if isOpen(conn) {
			n++
		}
	}
	return n
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" // of HTTP/2

// halves are beginnings of what a listener waits for.
var halves = map[string]string{"no bytes": "", "half a header": "GET /livez HTTP/1.1\r\nHost: ", "half a preface": preface[:12], "no settings": preface}

// However many connections begin and say no more, those of others are served at once, and
// no more are open than may be. A connection with requests stays while there are such.
func TestFlood(t *testing.T) {
	const most = 8
	for name, half := range halves {
		t.Run(name, func(t *testing.T) {
			inBubble(t, most, func(t *testing.T, b *bubble) {
				began := time.Now()
				honest, health := b.begins(b.http, ""), b.client()
				require.NoError(t, get(honest))
				check := func() {
					t.Helper()
					_, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{})
					require.NoError(t, err)
					require.NoError(t, get(honest))
					require.NoError(t, get(b.begins(b.http, "")))
					_, err = b.client().Check(t.Context(), &healthpb.HealthCheckRequest{})
					require.NoError(t, err)
				}
				check()
				var overHTTP, overGRPC []net.Conn
				for range 5 * most {
					overHTTP, overGRPC = append(overHTTP, b.begins(b.http, half)), append(overGRPC, b.begins(b.grpc, half))
				}
				check()
				require.Zero(t, time.Since(began), "nothing waited")
				require.LessOrEqual(t, countOpen(overHTTP), most-3)
				require.LessOrEqual(t, countOpen(overGRPC), most-3)
				time.Sleep(headerTimeout)
				require.Zero(t, countOpen(overHTTP)+countOpen(overGRPC), "after the time for a header")
				check()
			})
		})
	}
}

// A connection above the bound closes an idle one, and itself if all are busy.
func TestBound(t *testing.T) {
	inner := bufconn.Listen(1 << 16)
	closed := 0
	b := &bound{Listener: inner, most: 2, closed: func() { closed++ }}
	accepted := make(chan *conn)
	go func() {
		for {
			c, err := b.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c.(*conn)
		}
	}()
	dial := func() net.Conn {
		c, err := inner.Dial()
		require.NoError(t, err)
		return c
	}
	accept := func() *conn {
		t.Helper()
		dial()
		select {
		case c := <-accepted:
			return c
		case <-time.After(10 * time.Second):
			t.Fatal("a connection is not accepted")
			return nil
		}
	}
	isClosed := func(c *conn) bool { b.mu.Lock(); defer b.mu.Unlock(); return c.state == http.StateClosed }
	first := accept()
	second := accept()
	first.set(http.StateActive)
	noteState(second, http.StateActive)
	out := dial()
	_, err := out.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "all are busy")
	first.set(http.StateIdle)
	second.set(http.StateIdle)
	first.set(http.StateActive)
	first.set(http.StateIdle)
	third := accept()
	require.True(t, isClosed(second), "idle for longer than the first")
	second.set(http.StateActive)
	require.True(t, isClosed(second), "for good")
	fourth := accept()
	require.True(t, isClosed(third), "before its first request")
	require.False(t, isClosed(first))
	require.NoError(t, first.Close())
	_ = first.Close()
	fifth := accept()
	require.False(t, isClosed(fourth), "the first has gone, twice closed")
	b.closeNew()
	require.True(t, isClosed(fourth) && isClosed(fifth))
	require.Equal(t, 3, closed)
	require.NoError(t, b.Close())
	_, more := <-accepted
	require.False(t, more)
}

// Neither a half-open connection nor a watch of the health holds the drain: a watch sees
// NOT_SERVING and ends at once, and no later one begins.
func TestDrainOfHalfConnections(t *testing.T) {
	inBubble(t, 100, func(t *testing.T, b *bubble) {
		b.service.envoy.Serving(true)
		client := b.client()
		watch := func(service string) healthpb.Health_WatchClient {
			stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			require.NoError(t, err)
			return stream
		}
		var serving []healthpb.Health_WatchClient
		for range 20 {
			serving = append(serving, watch(""))
		}
		unknown := watch("unknown")
		sees := func(stream healthpb.Health_WatchClient, want healthpb.HealthCheckResponse_ServingStatus) {
			t.Helper()
			got, err := stream.Recv()
			require.NoError(t, err)
			require.Equal(t, want, got.Status)
		}
		ends := func(stream healthpb.Health_WatchClient) {
			t.Helper()
			_, err := stream.Recv()
			require.Equal(t, codes.Unavailable, status.Code(err), err)
		}
		for _, stream := range serving {
			sees(stream, healthpb.HealthCheckResponse_SERVING)
		}
		sees(unknown, healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
		began, drained := time.Now(), make(chan error)
		go func() { drained <- b.service.drain(b.servers) }()
		for _, stream := range serving {
			sees(stream, healthpb.HealthCheckResponse_NOT_SERVING)
			ends(stream)
		}
		ends(unknown)
		ends(watch(""))
		got, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, got.Status)
		require.Zero(t, time.Since(began))
		time.Sleep(b.service.cfg.Drain - time.Millisecond)
		for _, half := range halves {
			b.begins(b.http, half)
			b.begins(b.grpc, half)
		}
		require.NoError(t, <-drained)
		require.Less(t, time.Since(began), b.service.cfg.Drain+2*time.Second)
	})
}

// A call without a message holds the drain for no longer than it waits for answers.
func TestDrainOfMuteClients(t *testing.T) {
	inBubble(t, 100, func(t *testing.T, b *bubble) {
		_, err := b.conn().NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
		require.NoError(t, err)
		synctest.Wait()
		began := time.Now()
		require.ErrorIs(t, b.service.drain(b.servers), context.DeadlineExceeded)
		require.Equal(t, b.service.cfg.Drain+closing, time.Since(began))
	})
}

// A client has no more than so many calls under way on a connection.
func TestStreams(t *testing.T) {
	inBubble(t, 100, func(t *testing.T, b *bubble) {
		client := b.client()
		for range maxStreams {
			stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
			require.NoError(t, err)
			_, err = stream.Recv()
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		b.service.envoy.Drain()
	})
}

// The program has the bound of its file on each listener, over TLS as well, and its admin
// listener is open while the others are not. All ends in time all the same.
func TestFloodOfTheProgram(t *testing.T) {
	ca := &authority{t: t}
	caPEM, _ := ca.issue("ca.internal", time.Hour)
	cert, key := ca.issue("abacusd.internal", time.Hour)
	dir := files(t, map[string]string{
		"rules.yaml": pageRules, "envoy.yaml": envoyRules, "ca.pem": caPEM, "cert.pem": cert, "key.pem": key,
		"abacusd.yaml": strings.Replace(settings("memory"), "listen: {", "listen: {grpc: '127.0.0.1:0', ", 1) + `envoy: {rules: envoy.yaml}
connections: 8
tls: {cert_file: cert.pem, key_file: key.pem}
callers: [{name: here, from: [127.0.0.1], may: [metrics, rls]}]
`,
	})
	d := serve(t, filepath.Join(dir, "abacusd.yaml"))
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "abacusd.internal"}
	config.RootCAs.AddCert(ca.cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}}
	const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" // of 512 bytes
	for name, address := range map[string]string{"http": d.http, "grpc": d.grpc, "admin": d.admin} {
		var flood []net.Conn
		for i := range 60 {
			conn, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer conn.Close()
			_, _ = conn.Write([]byte(hello[:len(hello)*(i%2)])) // the server may have closed it
			flood = append(flood, conn)
		}
		if name == "grpc" {
			d.eventually("health", func() bool {
				return health(gateway(t, address, credentials.NewTLS(config))) == healthpb.HealthCheckResponse_SERVING
			})
		} else {
			require.Equal(t, 200, ask(client, "GET", "https://"+address+"/livez", "").status, name)
		}
		require.LessOrEqual(t, countOpen(flood), 8, name)
		require.Regexp(t, `abacusd_connections_refused_total\{listener="`+name+`"\} \d\d`, ask(client, "GET", "https://"+d.admin+"/metrics", "").body)
	}
	require.Zero(t, d.stop())
}

// A connection of gRPC without a call ends after a while, and its client opens another; one
// with a call, such as a watch of the health, stays.
func TestIdleConnectionsOfGRPC(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, b *bubble) {
		busy, idle := b.conn(), b.conn()
		ctx, cancel := context.WithCancel(t.Context())
		watch, err := healthpb.NewHealthClient(busy).Watch(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		for range 3 {
			got, code := asks(idle, "ada", 1_000)
			require.Equal(t, codes.OK, code)
			require.Equal(t, ok, got)
			time.Sleep(idleTimeout - time.Second)
			require.Equal(t, connectivity.Ready, idle.GetState())
			time.Sleep(2 * time.Second)
			require.Equal(t, connectivity.Idle, idle.GetState())
		}
		require.Equal(t, connectivity.Ready, busy.GetState())
		b.service.envoy.Serving(true)
		for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_NOT_SERVING, healthpb.HealthCheckResponse_SERVING} {
			state, err := watch.Recv()
			require.NoError(t, err)
			require.Equal(t, want, state.Status)
		}
		cancel()
	})
}

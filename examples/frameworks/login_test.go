package frameworks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// tenFailures limits log-ins by user, at a time that stands still.
func tenFailures(t *testing.T, faults *limitertest.Faults) *limiter.Limiter {
	lim, _ := limitertest.NewOn(t, faults.Wrap(memory.New(memory.Config{})), limiter.Config{Rules: []limiter.Rule{
		{Event: "login", Kind: "user", Limits: counter.MustLimits("10/h")},
		{Event: "login", Kind: "ip", Limits: counter.MustLimits("1000/h")},
	}})
	return lim
}

func middleware(t *testing.T, lim *limiter.Limiter, refundIf func(status int) bool) func(http.Handler) http.Handler {
	limit, err := httplimit.New(httplimit.Config{Limiter: lim, Event: "login", VerdictInContext: true, RefundIf: refundIf, Features: []httplimit.Source{
		httplimit.NewSource("user", httplimit.Form("user")), httplimit.IP(httplimit.ClientIP{}),
	}})
	require.NoError(t, err)
	return limit
}

func right(user, password string) bool { return user == "ada" && password == "lovelace" }

// listen is a free address, on which a server is started and stopped.
func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func serveFiber(t *testing.T, app *fiber.App) string {
	l, ended := listen(t), make(chan error, 1)
	go func() { ended <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return "http://" + l.Addr().String()
}

func serveHTTP(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// post logs in.
func post(t *testing.T, site, user, password string) *http.Response {
	form := url.Values{"password": {password}}
	if user != "" {
		form.Set("user", user)
	}
	answer, err := http.PostForm(site+"/login", form)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer
}

// requireTenFailures tries wrong passwords, of which no more than ten may get through.
func requireTenFailures(t *testing.T, site string) {
	statuses := map[int]int{}
	for range 200 {
		statuses[post(t, site, "ada", "wrong").StatusCode]++
	}
	require.Equal(t, map[int]int{401: 10, 429: 190}, statuses)
}

// Good log-ins are not counted, the eleventh wrong password of a user is denied, and
// so is the right one then; a request without a user and a store that fails have
// answers of their own.
func TestLogins(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for name, start := range map[string]func(t *testing.T, lim *limiter.Limiter) (site string){
		"gin": func(t *testing.T, lim *limiter.Limiter) string {
			router := gin.New()
			GinLogin(router, middleware(t, lim, nil), right)
			return serveHTTP(t, router)
		},
		"echo": func(t *testing.T, lim *limiter.Limiter) string {
			e := echo.New()
			EchoLogin(e, middleware(t, lim, nil), right)
			return serveHTTP(t, e)
		},
		"fiber": func(t *testing.T, lim *limiter.Limiter) string {
			app := fiber.New()
			FiberLogin(app, lim, httplimit.ClientIP{}, right)
			return serveFiber(t, app)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var faults limitertest.Faults
			site := start(t, tenFailures(t, &faults))
			for range 50 {
				require.Equal(t, 200, post(t, site, "ada", "lovelace").StatusCode)
			}
			requireTenFailures(t, site)
			denied := post(t, site, "ada", "lovelace")
			require.Equal(t, 429, denied.StatusCode)
			require.Regexp(t, "^360[12]$", denied.Header.Get("Retry-After"))
			require.Equal(t, 401, post(t, site, "eve", "lovelace").StatusCode)
			require.Equal(t, 400, post(t, site, "", "lovelace").StatusCode)
			faults.Set(limitertest.Fault{Err: errors.New("down")})
			failed := post(t, site, "grace", "hopper")
			require.Equal(t, 503, failed.StatusCode)
			require.Regexp(t, "^[12]$", failed.Header.Get("Retry-After"))
		})
	}
}

// Behind a proxy that appends to X-Forwarded-For, a client is counted by the address that
// the proxy has appended, whatever the client has written before.
func TestFiberBehindAProxy(t *testing.T) {
	var faults limitertest.Faults
	lim := tenFailures(t, &faults)
	app := fiber.New()
	FiberLogin(app, lim, httplimit.ClientIP{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}, right)
	site := serveFiber(t, app)
	for i := range 5 {
		for _, lines := range [][]string{
			{fmt.Sprintf("192.0.2.%d, 203.0.113.9", i)},
			{fmt.Sprintf("192.0.2.%d", i), "203.0.113.9"},
			{"nonsense, 203.0.113.9"},
		} {
			r, err := http.NewRequest("POST", site+"/login", strings.NewReader(fmt.Sprintf("user=u%d&password=wrong", i)))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header["X-Forwarded-For"] = lines
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, 401, answer.StatusCode, lines)
		}
	}
	v, err := lim.Peek(t.Context(), "login", 0, feature.New("user", "u9"), feature.New("ip", "203.0.113.9"))
	require.NoError(t, err)
	ofIP := v.All()[1] // the rules by user and by address
	require.Equal(t, "ip:203.0.113.9", ofIP.Key.Feature)
	require.EqualValues(t, 1000-15, ofIP.Remaining)
}

// The usual adapters hand on another writer than the middleware's, or none:
// whatever RefundIf makes of it, 200 wrong passwords do not get through.
func TestAdaptersRefundNoFailure(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	onGin := func(answer gin.HandlerFunc) func(*testing.T, func(http.Handler) http.Handler) string {
		return func(t *testing.T, limit func(http.Handler) http.Handler) string {
			router := gin.New()
			router.POST("/login", Gin(limit), answer)
			return serveHTTP(t, router)
		}
	}
	onEcho := func(answer echo.HandlerFunc) func(*testing.T, func(http.Handler) http.Handler) string {
		return func(t *testing.T, limit func(http.Handler) http.Handler) string {
			e := echo.New()
			e.POST("/login", answer, echo.WrapMiddleware(limit))
			return serveHTTP(t, e)
		}
	}
	onFiber := func(answer fiber.Handler) func(*testing.T, func(http.Handler) http.Handler) string {
		return func(t *testing.T, limit func(http.Handler) http.Handler) string {
			app := fiber.New()
			app.Post("/login", adaptor.HTTPMiddleware(limit), answer)
			return serveFiber(t, app)
		}
	}
	for name, start := range map[string]func(t *testing.T, limit func(http.Handler) http.Handler) (site string){
		"gin":               onGin(func(c *gin.Context) { c.String(401, "wrong") }),
		"gin, status alone": onGin(func(c *gin.Context) { c.Status(401) }),
		"echo, error":       onEcho(func(echo.Context) error { return echo.ErrUnauthorized }),
		"echo, answer":      onEcho(func(c echo.Context) error { return c.NoContent(401) }),
		"fiber, error":      onFiber(func(fiber.Ctx) error { return fiber.ErrUnauthorized }),
		"fiber, answer":     onFiber(func(c fiber.Ctx) error { return c.SendStatus(401) }),
	} {
		t.Run(name, func(t *testing.T) {
			var faults limitertest.Faults
			requireTenFailures(t, start(t, middleware(t, tenFailures(t, &faults), func(status int) bool { return status < 400 })))
		})
	}
}

// doors is a service whose Check and Watch need the user's name as the service,
// and the password in the metadata.
type doors struct {
	health.UnimplementedHealthServer
}

func (doors) enter(ctx context.Context, user string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if password := md.Get("password"); len(password) != 1 || !right(user, password[0]) {
		return status.Error(codes.Unauthenticated, "wrong user or password")
	}
	return nil
}

func (d doors) Check(ctx context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	return &health.HealthCheckResponse{}, d.enter(ctx, r.Service)
}

func (d doors) Watch(r *health.HealthCheckRequest, stream health.Health_WatchServer) error {
	return d.enter(stream.Context(), r.Service)
}

func TestGRPC(t *testing.T) {
	for _, stream := range []bool{false, true} {
		var faults limitertest.Faults
		g := GRPC{Limiter: tenFailures(t, &faults), Event: "login", Features: func(ctx context.Context, request any) []feature.Feature {
			md, _ := metadata.FromIncomingContext(ctx)
			user := append(md.Get("user"), "")[0] // of a stream
			if r, ok := request.(*health.HealthCheckRequest); ok {
				user = r.Service
			}
			return []feature.Feature{feature.New("user", user), PeerIP(ctx)}
		}}
		l, server := listen(t), grpc.NewServer(grpc.UnaryInterceptor(g.Unary), grpc.StreamInterceptor(g.Stream))
		health.RegisterHealthServer(server, doors{})
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		client := health.NewHealthClient(conn)
		call := func(user, password string) *status.Status {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "password", password)
			request := &health.HealthCheckRequest{Service: user}
			if !stream {
				_, err := client.Check(ctx, request)
				return status.Convert(err)
			}
			if user != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "user", user)
			}
			answers, err := client.Watch(ctx, request)
			require.NoError(t, err)
			if _, err = answers.Recv(); err.Error() == "EOF" {
				return status.New(codes.OK, "")
			}
			return status.Convert(err)
		}
		for range 50 {
			require.Equal(t, codes.OK, call("ada", "lovelace").Code())
		}
		got := map[codes.Code]int{}
		for range 200 {
			got[call("ada", "wrong").Code()]++
		}
		require.Equal(t, map[codes.Code]int{codes.Unauthenticated: 10, codes.ResourceExhausted: 190}, got)
		details := call("ada", "lovelace").Details()
		require.Len(t, details, 2)
		require.Equal(t, "10/h", details[0].(*errdetails.QuotaFailure).Violations[0].Description)
		delay := details[1].(*errdetails.RetryInfo).RetryDelay.AsDuration()
		require.Greater(t, delay, time.Hour)
		require.Less(t, delay, time.Hour+2*time.Second)
		require.Equal(t, codes.InvalidArgument, call("", "lovelace").Code())
		faults.Set(limitertest.Fault{Err: errors.New("down")})
		failed := call("grace", "hopper")
		require.Equal(t, codes.Unavailable, failed.Code())
		require.Len(t, failed.Details(), 1)
	}
}

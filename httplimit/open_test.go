package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
)

// A limit of failed attempts also bounds the attempts under way. Whoever finds all
// places taken by attempts that may be given back is told a second or two, by every
// field; and whoever finds them used up by failures, the window.
func TestOpenHitsAreNoWindow(t *testing.T) {
	const clients, most = 30, 2
	for name, refunds := range map[string]bool{"RefundIf": false, "Refund": true} {
		t.Run(name, func(t *testing.T) {
			gate, arrived := make(chan struct{}), make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			cfg := httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "10/15m")), Features: []httplimit.Source{byIP}, LegacyHeaders: true, VerdictInContext: refunds}
			if !refunds {
				cfg.RefundIf = func(status int) bool { return status < 400 }
			}
			s := newSite(t, newLimit(t, cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Wait") != "" {
					arrived <- struct{}{}
					<-gate
				}
				switch {
				case r.Header.Get("Password") != "right":
					w.WriteHeader(401)
				case refunds && httplimit.Refund(r.Context(), "signup") != nil:
					w.WriteHeader(500)
				default:
					w.WriteHeader(200)
				}
			})))
			t.Cleanup(open) // before the server is closed, which waits for its handlers
			wait := func(a answer) int {
				t.Helper()
				require.Equal(t, 429, a.status)
				seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
				require.NoError(t, err)
				require.Equal(t, []string{"", fmt.Sprint(seconds)}, regexp.MustCompile(`r=0(.*);t=(\d+)$`).FindStringSubmatch(a.header.Get("RateLimit"))[1:])
				return seconds
			}
			require.Equal(t, 200, s.get("Password: right").status) // from now on Refund is known

			// Ten attempts are under way, and others come.
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if got := s.get("Password: right", "Wait: yes"); got.status != 200 {
						t.Error(got)
					}
				})
			}
			for range 10 {
				<-arrived
			}
			for range 3 {
				require.LessOrEqual(t, wait(s.get("Password: right")), most)
			}
			open()
			all.Wait()

			// Everybody knows the password.
			answers := make(chan answer, 10*clients)
			for range clients {
				all.Go(func() {
					for range 10 {
						answers <- s.get("Password: right")
					}
				})
			}
			go func() { all.Wait(); close(answers) }()
			for got := range answers {
				if got.status != 200 {
					require.LessOrEqual(t, wait(got), most)
				}
			}

			// Nobody does.
			for range 10 {
				require.Equal(t, 401, s.get("Password: wrong").status)
			}
			require.Greater(t, wait(s.get("Password: right")), 890)
		})
	}
}

// A connection that the handler takes over without a status is no open hit: nobody is
// asked about it later, however long the handler talks.
func TestHijackedHitsAreNotOpen(t *testing.T) {
	cfg := httplimit.Config{
		Limiter: newLimiter(t, newClock(), by("ip", "1/15m")), Features: []httplimit.Source{byIP},
		RefundIf: func(status int) bool { return status < 400 },
	}
	var h http.Handler
	denied := httptest.NewRecorder()
	h = newLimit(t, cfg)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		h.ServeHTTP(denied, httptest.NewRequest("GET", "/", nil))
	}))
	h.ServeHTTP(hijacking{httptest.NewRecorder(), noHijack{}}, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, 429, denied.Code)
	seconds, err := strconv.Atoi(denied.Header().Get("Retry-After"))
	require.NoError(t, err)
	require.Greater(t, seconds, 890)
}

package httplimit_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// limitByIP is a handler behind ByIP.
func limitByIP(t testing.TB, store backend.Store, event, limits string) http.Handler {
	return try.To(httplimit.ByIP(store, event, limits))(t)(welcome)
}

// from is the answer of h to a request of a peer, with lines of a header.
func from(h http.Handler, peer string, forwardedFor ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/signup", nil)
	r.RemoteAddr = peer
	r.Header["X-Forwarded-For"] = forwardedFor
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestByIP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limitByIP(t, memory.New(memory.Config{}), "signup", "2/h, 20/d")
		for i, left := range []string{`"2/h";r=1;t=3601, "20/d";r=19;t=86401`, `"2/h";r=0;t=3601, "20/d";r=18;t=86401`} {
			w := from(h, "192.0.2.1:1000", "198.51.100.7") // which the client has written
			require.Equal(t, http.StatusOK, w.Code, "request %d", i)
			require.Equal(t, `"2/h";q=2;w=3600, "20/d";q=20;w=86400`, w.Header().Get("RateLimit-Policy"))
			require.Equal(t, left, w.Header().Get("RateLimit"))
		}
		w := from(h, "192.0.2.1:1001", "198.51.100.8")
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Equal(t, "3601", w.Header().Get("Retry-After"))
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.Contains(t, w.Body.String(), `"violated-policies":["2/h"]`)

		require.Equal(t, http.StatusOK, from(h, "192.0.2.2:1000").Code, "another address")
		for _, peer := range []string{"[2001:db8::1]:1000", "[2001:db8::2]:1000"} {
			require.Equal(t, http.StatusOK, from(h, peer).Code)
		}
		require.Equal(t, http.StatusTooManyRequests, from(h, "[2001:db8::3]:1000").Code, "a /64 is one client")
		require.Equal(t, http.StatusOK, from(h, "[2001:db8:0:1::3]:1000").Code, "another /64")

		h = limitByIP(t, memory.New(memory.Config{}), "signup", "5/h, 1 per day in Europe/Berlin")
		require.Equal(t, `"5/h";q=5;w=3600, "1 per day in Europe/Berlin";q=1`, from(h, "192.0.2.1:1000").Header().Get("RateLimit-Policy"))
		w = from(h, "192.0.2.1:1000")
		require.Equal(t, []any{http.StatusTooManyRequests, "82800"}, []any{w.Code, w.Header().Get("Retry-After")}, "midnight in Berlin")
		require.Contains(t, w.Body.String(), `"violated-policies":["1 per day in Europe/Berlin"]`)
	})
}

// A program that writes out what ByIP is short for goes on with its counts, also with
// another Max, more rules and proxies; and so does a program that goes back to ByIP.
func TestByIPGrowsIntoTheFullForm(t *testing.T) {
	const limits = "5/h, 20/d"
	for _, backend := range stores {
		t.Run(backend.name, func(t *testing.T) {
			store := backend.open(t, patience)
			full := func(rules ...limiter.Rule) http.Handler {
				lim := newLimiterOn(t, store, counter.Config{}, limiter.Config{Rules: rules})
				features := []httplimit.Source{byIP, byUser}
				return newLimit(t, httplimit.Config{Limiter: lim, Features: features[:len(rules)]})(welcome)
			}
			for _, step := range []struct {
				name string
				h    http.Handler
				code int
			}{
				{"ByIP", limitByIP(t, store, "signup", limits), http.StatusOK},
				{"ByIP for another event", limitByIP(t, store, "login", "1/h"), http.StatusOK},
				{"ByIP of another process", limitByIP(t, store, "signup", limits), http.StatusOK},
				{"in full", full(by("ip", limits)), http.StatusOK},
				{"with another rule", full(by("ip", limits), skipped(by("user", "9/m"))), http.StatusOK},
				{"back", limitByIP(t, store, "signup", limits), http.StatusOK},
				{"in full, over the limit", full(by("ip", limits)), http.StatusTooManyRequests},
				{"with another Max", full(by("ip", "6/h, 20/d")), http.StatusOK},
				{"with another Max, over the limit", full(by("ip", "6/h, 20/d")), http.StatusTooManyRequests},
				{"back, over the limit", limitByIP(t, store, "signup", limits), http.StatusTooManyRequests},
			} {
				require.Equal(t, step.code, from(step.h, "[2001:db8::1]:1000").Code, step.name)
			}
		})
	}
}

// defaultLog has slog.Default write to a buffer.
func defaultLog(t *testing.T) *bytes.Buffer {
	logged, before := &bytes.Buffer{}, slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(logged, nil)))
	return logged
}

// Clients on a Unix socket have no address. A line a minute says so, and what to use; a
// feature that the client left out is no reason for one.
func TestByIPWithoutAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := defaultLog(t)
		rule := newLimiter(t, newClock(), by("user", "9/h"))
		refused := []http.Handler{newLimit(t, httplimit.Config{Limiter: rule, Features: []httplimit.Source{byUser}})(welcome), limitByIP(t, memory.New(memory.Config{}), "signup", "2/h")}
		for range 61 {
			require.Equal(t, http.StatusBadRequest, from(refused[0], "@").Code)
			require.Equal(t, http.StatusBadRequest, from(refused[1], "@").Code)
			time.Sleep(time.Second)
		}
		require.Equal(t, 2, bytes.Count(logged.Bytes(), []byte(`has no address" event=signup RemoteAddr=@ want="httplimit.New: behind a proxy `)), "%s", logged)
		require.Equal(t, 2, bytes.Count(logged.Bytes(), []byte("\n")), "%s", logged)

		behind := httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", "1/h")), Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{Hops: 1})}}
		require.Equal(t, http.StatusOK, from(newLimit(t, behind)(welcome), "@", "198.51.100.7, 192.0.2.1").Code)
	})
}

func TestByIPWithoutTheStore(t *testing.T) {
	logged := defaultLog(t)
	var faults limitertest.Faults
	h := limitByIP(t, faults.Wrap(memory.New(memory.Config{})), "signup", "2/h")
	faults.Set(limitertest.Fault{Err: errors.New("down")})
	told := map[string]bool{} // clients who are refused together do not come back together
	for range 100 {
		w := from(h, "192.0.2.1:1000")
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		told[w.Header().Get("Retry-After")] = true
	}
	require.Equal(t, map[string]bool{"1": true, "2": true}, told)
	require.Equal(t, 1, bytes.Count(logged.Bytes(), []byte("\n")), "%s", logged)
	require.Contains(t, logged.String(), "level=WARN")
	require.NotContains(t, logged.String(), "192.0.2.1")

	faults.Set(limitertest.Fault{})
	for _, code := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		require.Equal(t, code, from(h, "192.0.2.1:1000").Code, "failed requests do not count")
	}
}

func TestByIPNamesWhatIsWrong(t *testing.T) {
	store := memory.New(memory.Config{})
	for _, c := range []struct {
		store         backend.Store
		event, limits string
		want          string
	}{
		{store, "signup", "", `httplimit: ByIP for event "signup": counter: limit "": want max/window, such as 100/d or 5/90s`},
		{store, "signup", "5", `httplimit: ByIP for event "signup": counter: limit "5": want max/window, such as 100/d or 5/90s`},
		{store, "signup", "5/h 20/d", `httplimit: ByIP for event "signup": counter: limits "5/h 20/d": want a comma between two limits, such as 5/m, 100/d`},
		{store, "5/h", "signup", `httplimit: ByIP for event "5/h": counter: limit "signup": want max/window, such as 100/d or 5/90s`},
		{store, "signup", "5/y", `httplimit: ByIP for event "signup": counter: limit "5/y": window "y", want a unit (ms, s, m, h, d or w, or a word such as day) or a duration such as 90s`},
		{store, "", "5/h", `httplimit: ByIP for event "": limiter: rule "" by "ip": Config.Rules[0].Event is empty, want a name such as "signup"`},
		{(*memory.Store)(nil), "signup", "5/h", `httplimit: ByIP for event "signup": counter: New: store is nil, want a store of buckets`},
		{nil, "signup", "5/h", `httplimit: ByIP for event "signup": counter: New: store is nil, want a store of buckets`},
	} {
		limit, err := httplimit.ByIP(c.store, c.event, c.limits)
		require.EqualError(t, err, c.want)
		require.Nil(t, limit)
	}
}

// A nil handler is found where it is wrapped, and not by the first request.
func TestANilHandler(t *testing.T) {
	limit := try.To(httplimit.ByIP(memory.New(memory.Config{}), "signup", "5/h"))(t)
	for _, none := range []http.Handler{nil, http.HandlerFunc(nil)} {
		require.PanicsWithValue(t, `httplimit: the handler for event "signup" is nil`, func() { limit(none) })
	}
}

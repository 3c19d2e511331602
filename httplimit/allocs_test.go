//go:build !race

package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

// An admitted request allocates the hit, the request with its context, the key
// and the value of RateLimit; a denied request the wait instead of the request.
// With the race detector a sync.Pool forgets at random.
func TestMiddlewareAllocatesLittle(t *testing.T) {
	for limit, want := range map[string]int{"1000000/d": http.StatusOK, "1/d": http.StatusTooManyRequests} {
		c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
		require.NoError(t, err)
		lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{{Event: "visit", Kind: "ip", Limits: counter.MustLimits(limit)}}})
		require.NoError(t, err)
		middleware, err := httplimit.New(httplimit.Config{Limiter: lim, Event: "visit", Features: []httplimit.Source{httplimit.IP(httplimit.ClientIP{})}})
		require.NoError(t, err)
		handler := middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
		w, r := &discard{header: http.Header{}}, &http.Request{Method: "GET", RemoteAddr: "192.0.2.7:567", Body: http.NoBody}
		visit := func() {
			clear(w.header)
			handler.ServeHTTP(w, r)
		}
		visit()
		require.LessOrEqual(t, testing.AllocsPerRun(1000, visit), 4.0, limit)
		require.Equal(t, want, w.status)
	}
}

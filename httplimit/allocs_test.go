//go:build !race

package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
)

// A request by address, admitted or denied: the text of the key, and the text and the
// values of the fields. Denied also: the answer of the counter. With the race detector a sync.Pool forgets at random.
func TestAllocations(t *testing.T) {
	for _, row := range []struct {
		limits string
		status int
		allocs float64
	}{{"900000/d", http.StatusOK, 3}, {"900000/m, 900000/h, 900000/d", http.StatusOK, 3}, {"1/d", http.StatusTooManyRequests, 4}} {
		h := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), by("ip", row.limits)), Features: []httplimit.Source{byIP}})(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
		r := &http.Request{Method: http.MethodGet, RemoteAddr: "192.0.2.7:567"}
		w := &discard{header: http.Header{}}
		h.ServeHTTP(w, r)
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
			clear(w.header)
			h.ServeHTTP(w, r)
			if w.status != row.status {
				t.Error(w.status, w.header)
			}
		}), row.allocs, row.limits)
	}
}

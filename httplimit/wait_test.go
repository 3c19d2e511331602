package httplimit_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/limiter"
)

// Requests over 2/10s wait: for each request there is the second of its answer, and
// the status. Places are free after ten seconds.
func TestMaxWait(t *testing.T) {
	type answer struct{ at, status int }
	const free = 10
	for _, row := range []struct {
		name   string
		cfg    httplimit.Config
		lc     limiter.Config
		lasts  time.Duration // of the handler
		hangUp int           // the request that its client ends after three seconds
		path   string
		email  string // the rule for email addresses; "": 100/h
		away   bool   // the store, for the first second
		late   bool   // the answers of that second come at its end
		ban    limiter.Bans
		want   []answer // of requests that come a millisecond after one another
	}{
		{name: "in order", cfg: httplimit.Config{MaxWait: 15 * time.Second}, want: []answer{{0, 200}, {0, 200}, {free, 200}, {free, 200}, {free, 429}}},
		{name: "at once, since the turn comes too late", cfg: httplimit.Config{MaxWait: 5 * time.Second}, want: []answer{{0, 200}, {0, 200}, {0, 429}, {0, 429}}},
		{name: "one waits", cfg: httplimit.Config{MaxWait: 15 * time.Second, MaxWaiting: 1}, want: []answer{{0, 200}, {0, 200}, {free, 200}, {0, 429}}},
		{name: "one of a client waits", cfg: httplimit.Config{MaxWait: 15 * time.Second}, lc: limiter.Config{MaxWaiting: 1},
			want: []answer{{0, 200}, {0, 200}, {free, 200}, {0, 429}}},
		{name: "a client hangs up", cfg: httplimit.Config{MaxWait: 15 * time.Second}, hangUp: 2, want: []answer{{0, 200}, {0, 200}, {3, 503}, {free, 200}, {free, 200}}},
		{name: "a hit is given back", lasts: 2 * time.Second, path: "/fails",
			cfg:  httplimit.Config{MaxWait: 15 * time.Second, RefundIf: func(status int) bool { return status == 500 }},
			want: []answer{{2, 500}, {2, 500}, {4, 500}, {4, 500}, {6, 500}}},
		{name: "a hit that is open is not waited for in vain", lasts: 2 * time.Second, path: "/fails",
			cfg:  httplimit.Config{MaxWait: 5 * time.Second, RefundIf: func(status int) bool { return status == 500 }},
			want: []answer{{2, 500}, {2, 500}, {4, 500}, {4, 500}}},
		{name: "a body is read after the wait", cfg: httplimit.Config{MaxWait: 15 * time.Second, Features: []httplimit.Source{byIP, byEmail}}, want: []answer{{0, 200}, {0, 200}, {free, 200}, {free, 200}}},
		{name: "a second wait ends with the first", cfg: httplimit.Config{MaxWait: 15 * time.Second, Features: []httplimit.Source{byIP, byEmail}}, email: "2/20s",
			want: []answer{{0, 200}, {0, 200}, {free, 429}, {free, 429}}},
		{name: "a ban is not waited for", cfg: httplimit.Config{MaxWait: 15 * time.Second}, ban: limiter.Bans{12 * time.Second}, want: []answer{{0, 200}, {0, 200}, {0, 429}, {0, 429}}},
		{name: "the store comes back", cfg: httplimit.Config{MaxWait: 15 * time.Second}, away: true, want: []answer{{1, 200}, {1, 200}}},
		{name: "the store is late", cfg: httplimit.Config{MaxWait: 400 * time.Millisecond}, late: true, want: []answer{{1, 200}, {1, 200}}},
		{name: "the store stays away", cfg: httplimit.Config{MaxWait: 400 * time.Millisecond}, away: true, want: []answer{{0, 503}, {0, 503}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				store := backend.Wrap(memory.New(memory.Config{}), func(ctx context.Context, _ *backend.Trip, do func(context.Context) error) error {
					switch left := time.Second - time.Since(began); {
					case row.away && left > 0:
						return errors.New("away")
					case row.late && left > 0:
						select {
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(left):
						}
					}
					return do(ctx)
				})
				rules := []limiter.Rule{by("ip", "2/10s")}
				rules[0].Ban = row.ban
				if row.cfg.Features == nil {
					row.cfg.Features = []httplimit.Source{byIP}
				} else {
					rules = append(rules, by("email", cmp.Or(row.email, "100/h")))
				}
				row.lc.Rules = rules
				row.cfg.Limiter = newLimiterOn(t, store, counter.Config{}, row.lc)
				h := newLimit(t, row.cfg)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(row.lasts)
					if row.path != "" {
						w.WriteHeader(http.StatusInternalServerError)
					}
					_, _ = w.Write([]byte("done"))
				}))
				got := make([]answer, len(row.want))
				ticket.SideBySide(len(got), func(i int) {
					r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("email=ada@example.org"))
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					if i == row.hangUp && i > 0 {
						ctx, cancel := context.WithCancel(r.Context())
						time.AfterFunc(3*time.Second, cancel)
						r = r.WithContext(ctx)
					}
					time.Sleep(time.Duration(i) * time.Millisecond)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					got[i] = answer{int(time.Since(began).Seconds()), w.Code}
					if w.Code == http.StatusTooManyRequests {
						require.NotEmpty(t, w.Header().Get("Retry-After"))
						require.Equal(t, row.email == "", strings.Contains(w.Header().Get("RateLimit"), "r=0"), "only of the address")
					}
				})
				if row.late { // both have counted
					v := try.To(row.cfg.Limiter.Peek(t.Context(), "signup", 1, feature.IP(netip.MustParseAddr("192.0.2.1"))))(t)
					require.False(t, v.Allowed)
				}
				for i, want := range row.want {
					require.Equal(t, want.status, got[i].status, "%v", got)
					require.InDelta(t, want.at, got[i].at, 1, "%v", got) // a queue sleeps a random part longer
				}
			})
		})
	}
}

package httplimit_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

type planKey struct{}

// The fields tell the limits of the request, not those of the rule: of a plan, and
// of who is counted by the address for want of a user.
func TestFieldsOfLimitsByCall(t *testing.T) {
	rule := limiter.Rule{Event: "signup", Kind: "user", Limits: counter.MustLimits("2/h"), Else: "ip", ElseLimits: counter.MustLimits("1/h"),
		LimitsOf: func(ctx context.Context, c limiter.Call) counter.Limits {
			if most, _ := strconv.Atoi(ctx.Value(planKey{}).(string)); most > 0 && c.Feature.Kind() == "user" {
				return counter.Limits{{Max: int64(most), Per: counter.MustLimits("1/h")[0].Per}, counter.MustLimits("900/d")[0]}
			}
			return nil
		}}
	rule.Plans = []counter.Limits{counter.MustLimits("1/d")}
	limit := newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), rule), Features: []httplimit.Source{byUser, byIP}, Show: []string{"user", "ip"}, LegacyHeaders: true})
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit(welcome).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), planKey{}, r.Header.Get("Plan"))))
	}))
	get := func(user, plan string) answer { return s.do("GET", "/", "", "User: "+user, "Plan: "+plan) }
	for range 2 { // made, and remembered
		got := get("ada", "")
		require.Equal(t, `"2/h";q=2;w=3600`, got.header.Get("RateLimit-Policy"))
	}
	denied := get("ada", "")
	require.Equal(t, 429, denied.status)
	require.Contains(t, denied.body, `"violated-policies":["2/h"]`)
	got := get("ada", "3")
	require.Equal(t, 200, got.status)
	require.Equal(t, `"3/h";q=3;w=3600, "900/d";q=900;w=86400`, got.header.Get("RateLimit-Policy"))
	require.Regexp(t, `^"3/h";r=0;t=\d+, "900/d";r=897;t=\d+$`, got.header.Get("RateLimit"))
	require.Equal(t, "3", got.header.Get("X-RateLimit-Limit"))
	denied = get("ada", "3")
	require.Equal(t, 429, denied.status)
	require.Contains(t, denied.body, `"violated-policies":["3/h"]`)
	require.Regexp(t, `^"3/h";r=0;t=\d+, "900/d";r=897;t=\d+$`, denied.header.Get("RateLimit"))
	for i := range 100 { // more than are remembered
		got := get("bob", strconv.Itoa(900-i))
		require.Regexp(t, `^"`+strconv.Itoa(900-i)+`/h";q=\d+;w=3600, "900/d"`, got.header.Get("RateLimit-Policy"))
	}
	got = get("", "")
	require.Equal(t, `"1/h";q=1;w=3600`, got.header.Get("RateLimit-Policy"))
	require.Regexp(t, `^"1/h";r=0;t=\d+$`, got.header.Get("RateLimit"))
	require.Equal(t, 429, get("", "").status)

	// A source for one of the kinds is enough.
	newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), rule), Features: []httplimit.Source{byIP}})
}

// During a ban no limit of the client has room, and Retry-After is what is left
// of the ban.
func TestFieldsOfABan(t *testing.T) {
	rule := limiter.Rule{Event: "signup", Kind: "ip", Limits: counter.MustLimits("1/m"), Ban: counter.MustLimits("1/h")[0].Per}
	s := newSite(t, newLimit(t, httplimit.Config{Limiter: newLimiter(t, newClock(), rule), Features: []httplimit.Source{byIP}})(welcome))
	got := s.get()
	require.Equal(t, 200, got.status)
	require.Regexp(t, `^"1/m";r=0;t=\d\d$`, got.header.Get("RateLimit"))
	for range 2 {
		got = s.get()
		require.Equal(t, 429, got.status)
		require.Regexp(t, `^360[01]$`, got.header.Get("Retry-After"))
		require.Equal(t, `"1/m";r=0;t=`+got.header.Get("Retry-After"), got.header.Get("RateLimit"))
		require.Contains(t, got.body, `"violated-policies":["1/m"]`)
	}
}

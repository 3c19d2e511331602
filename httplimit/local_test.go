package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// localSite limits by address while the store fails, by a share of the limits.
func localSite(t *testing.T, limits string, share float64, cfg httplimit.Config) *site {
	rule := by("ip", limits)
	rule.OnFailure = limiter.FailLocal
	cfg.Limiter, _ = limitertest.NewOn(t, backend.FromDo(brokenStore{}.Do), limiter.Config{Rules: []limiter.Rule{rule}, Share: share})
	cfg.Features = []httplimit.Source{byIP}
	return newSite(t, newLimit(t, cfg)(welcome))
}

// A client whom the local counter denies is answered like any client over the
// limit, with the numbers of the rule.
func TestLocalDecisions(t *testing.T) {
	s := localSite(t, "4/h", 0.5, httplimit.Config{})
	for _, left := range []string{"r=1", "r=0"} {
		got := s.get()
		require.Equal(t, 200, got.status)
		require.Contains(t, got.header.Get("RateLimit"), left)
	}
	got := s.get()
	requireProblem(t, got, 429)
	require.Len(t, got.header.Get("Retry-After"), 4, "an hour in seconds")
	require.Contains(t, got.header.Get("RateLimit-Policy"), "q=4")
}

// A call for more than the share, but not for more than Max, has fields that a
// client can read.
func TestALocalDenialOfMoreThanTheShare(t *testing.T) {
	s := localSite(t, "10/h, 20/d", 0.25, httplimit.Config{LegacyHeaders: true, Cost: func(*http.Request) (int64, error) { return 6, nil }})
	got := s.get()
	requireProblem(t, got, 429)
	require.NotContains(t, got.header.Get("RateLimit"), "t=-")
	require.NotContains(t, got.header.Get("X-RateLimit-Reset"), "-")
}

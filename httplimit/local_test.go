package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

// A client whom the local counter denies is answered like any client over the
// limit, with the numbers of the rule.
func TestLocalDecisions(t *testing.T) {
	here, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: counter.DefaultSkew + limiter.DefaultDecideWithin})
	require.NoError(t, err)
	rule := by("ip", "4/h")
	rule.OnFailure = limiter.FailLocal
	lim := newLimiterOn(t, backend.FromDo(brokenStore{}.Do), counter.Config{}, limiter.Config{Rules: []limiter.Rule{rule}, Local: here, Share: 0.5})
	t.Cleanup(func() { _ = lim.Close(t.Context()) }) // nothing is carried
	s := newSite(t, newLimit(t, httplimit.Config{Limiter: lim, Features: []httplimit.Source{byIP}})(welcome))
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
	here, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: counter.DefaultSkew + limiter.DefaultDecideWithin})
	require.NoError(t, err)
	rule := by("ip", "10/h, 20/d")
	rule.OnFailure = limiter.FailLocal
	lim := newLimiterOn(t, backend.FromDo(brokenStore{}.Do), counter.Config{}, limiter.Config{Rules: []limiter.Rule{rule}, Local: here, Share: 0.25})
	t.Cleanup(func() { _ = lim.Close(t.Context()) }) // nothing is carried
	six := func(*http.Request) (int64, error) { return 6, nil }
	s := newSite(t, newLimit(t, httplimit.Config{Limiter: lim, LegacyHeaders: true, Features: []httplimit.Source{byIP}, Cost: six})(welcome))
	got := s.get()
	requireProblem(t, got, 429)
	require.NotContains(t, got.header.Get("RateLimit"), "t=-")
	require.NotContains(t, got.header.Get("X-RateLimit-Reset"), "-")
}

package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
)

type outerKey struct{}

// An admitted request goes on itself, unless the handler is to have the verdict, or the
// body was read and begins again.
func TestAdmittedRequestGoesOnItself(t *testing.T) {
	for _, row := range []struct {
		name              string
		with              func(*httplimit.Config)
		body              string
		itself, inContext bool
	}{
		{"by default", func(*httplimit.Config) {}, "", true, false},
		{"with a body that no Value reads", func(*httplimit.Config) {}, "email=a%40b.example", true, false},
		{"after Values", func(c *httplimit.Config) { c.Features = append(c.Features, byUser) }, "email=a%40b.example", true, false},
		{"after its body was read", func(c *httplimit.Config) { c.Features = append(c.Features, byEmail) }, "email=a%40b.example", false, false},
		{"with VerdictInContext", func(c *httplimit.Config) { c.VerdictInContext = true }, "", false, true},
		{"with RefundIf", func(c *httplimit.Config) { c.RefundIf = func(int) bool { return false } }, "", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg := httplimit.Config{
				Limiter:  newLimiter(t, newClock(), by("ip", "9/h"), skipped(by("email", "9/h")), skipped(by("user", "9/h"))),
				Features: []httplimit.Source{byIP},
			}
			row.with(&cfg)
			r := httptest.NewRequest("POST", "/", strings.NewReader(row.body)).WithContext(context.WithValue(t.Context(), outerKey{}, "outer"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			ran := false
			newLimit(t, cfg)(http.HandlerFunc(func(_ http.ResponseWriter, inner *http.Request) {
				ran = true
				require.Equal(t, row.itself, inner == r)
				require.Equal(t, "outer", inner.Context().Value(outerKey{}))
				_, ok := httplimit.VerdictOf(inner.Context(), "signup")
				require.Equal(t, row.inContext, ok)
				require.Equal(t, row.inContext, httplimit.Refund(inner.Context(), "signup") == nil)
				require.Equal(t, row.body != "", inner.FormValue("email") == "a@b.example")
			})).ServeHTTP(httptest.NewRecorder(), r)
			require.True(t, ran)
		})
	}
}

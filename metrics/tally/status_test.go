package tally_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/metrics/tally"
	"github.com/abacus-go/abacus/tiers"
)

// ask sends a request for a status page, with fields of Accept.
func ask(lim *limiter.Limiter, numbers *tally.Tally, method string, accept ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/limits", nil)
	r.Header["Accept"] = accept
	w := httptest.NewRecorder()
	tally.Status(lim, numbers).ServeHTTP(w, r)
	return w
}

var statusRules = []limiter.Rule{
	{Event: "signup", Kind: "user", Limits: counter.MustLimits("2/m, 5/h"), Else: "ip", ElseLimits: counter.MustLimits("9 per week in Asia/Tokyo"), OnFailure: limiter.FailOpen},
	{Event: "login", Kind: "user", Limits: counter.MustLimits("1/h"), Ban: limiter.Bans{time.Minute}, IfMissing: limiter.MissingSkip},
}

func TestStatus(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lim, numbers := observed(t, memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }}, statusRules...)
	for range 4 {
		for _, user := range []string{"ada", "\x1b[2J<script>"} {
			try.To(lim.Allow(t.Context(), "signup", feature.New("user", user)))(t)
		}
	}
	try.To(lim.Allow(t.Context(), "signup", feature.New("user", "ada")))(t)

	w := ask(lim, numbers, "GET")
	require.Equal(t, 200, w.Code)
	require.Equal(t, http.Header{
		"Content-Type": {"text/plain; charset=utf-8"}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"}, "Vary": {"Accept"},
	}, w.Header())
	text := w.Body.String()
	for _, line := range []string{
		`Rules, 2026-03-01T12:00:00Z`,
		`"login" by "user"   1/h       fail-closed  if missing: skip  ban: 1m`,
		`"signup" by "user"  2/m, 5/h  fail-open    if missing: deny  else "ip": 9 per week in Asia/Tokyo`,
		`"signup" by "user"  over-limit  5`,
		`"signup" by "user"  admitted    4`,
		`"signup" by "user"  "user:ada"              3`,
		`"signup" by "user"  "user:\x1b[2J<script>"  2`,
		`Shed           0`,
		`Checked           never`,
		`ClockAhead        0s`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, "\x1b")

	w = ask(lim, numbers, "GET", "application/json")
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.NotContains(t, w.Body.String(), "<script>")
	var page struct {
		Rules, Decisions []map[string]any
		MostDenied       []map[string]any `json:"most_denied"`
		Limiter          limiter.Stats
		Counter          counter.Stats
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
	require.Len(t, page.Rules, 2)
	require.Equal(t, "2/m, 5/h", page.Rules[1]["limits"])
	require.Equal(t, "9 per week in Asia/Tokyo", page.Rules[1]["else_limits"])
	require.Equal(t, "fail-open", page.Rules[1]["on_failure"])
	require.Equal(t, map[string]any{"event": "signup", "kind": "user", "outcome": "over-limit", "count": 5.0}, page.Decisions[0])
	require.Equal(t, map[string]any{"event": "signup", "kind": "user", "feature": "user:ada", "at_least": 3.0, "at_most": 3.0}, page.MostDenied[0])
	require.Equal(t, lim.Stats(), page.Limiter)
	require.Equal(t, lim.Counter().Stats(), page.Counter)

	w = ask(lim, numbers, "POST")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Equal(t, "{\"title\":\"Method Not Allowed\",\"status\":405}\n", w.Body.String())
	require.Contains(t, ask(lim, nil, "GET").Body.String(), "\nDecisions are not counted: tally.Status has no Tally\n")
}

// A file of rules that was refused is on the page.
func TestStatusOfRefusedRules(t *testing.T) {
	lim, _ := observed(t, memory.New(memory.Config{}), counter.Config{}, statusRules...)
	lim.RulesRead(nil)
	require.NotContains(t, ask(lim, nil, http.MethodGet, "text/plain").Body.String(), "rules.yaml")
	lim.RulesRead(errors.New("rules.yaml:9: bad"))
	require.Regexp(t, `\nRulesRefused +rules.yaml:9: bad\n`, ask(lim, nil, http.MethodGet, "text/plain").Body.String())
	require.Contains(t, ask(lim, nil, http.MethodGet, "application/json").Body.String(), `"RulesRefused":"rules.yaml:9: bad"`)
}

func TestStatusByAccept(t *testing.T) {
	lim, _ := observed(t, memory.New(memory.Config{}), counter.Config{}, statusRules...)
	for accept, want := range map[string]string{
		"*/*":                                    "text/plain; charset=utf-8",
		"application/json":                       "application/json",
		"Application/JSON; charset=utf-8":        "application/json",
		"text/html, application/*;q=0.9":         "application/json",
		"text/html,*/*;q=0.8":                    "text/plain; charset=utf-8",
		"application/json;q=0.5, text/plain":     "text/plain; charset=utf-8",
		"application/json;q=0.5, text/*;q=0.4":   "application/json",
		"*/*, text/plain;q=0":                    "application/json",
		"application/json;q=x":                   "text/plain; charset=utf-8",
		"application/json;q=0.1, */*;q=0.2, /,,": "text/plain; charset=utf-8",
	} {
		require.Equal(t, want, ask(lim, nil, "GET", accept).Header().Get("Content-Type"), accept)
	}
	require.Equal(t, "application/json", ask(lim, nil, "HEAD", "text/plain;q=0.1", "application/json").Header().Get("Content-Type"), "two fields")
}

// The page never has a Secret, that of the former ladder included, and with a
// Secret no feature. Its length is bounded.
func TestStatusIsDiscreet(t *testing.T) {
	var rules []limiter.Rule
	former := &counter.Config{Ladder: tiers.Default, Secret: []byte("former secret")}
	for i := range 1200 {
		rules = append(rules, limiter.Rule{Event: fmt.Sprintf("event %04d", i), Kind: "user", Limits: counter.MustLimits("0/h")})
	}
	rules[0].Former = former
	lim, numbers := observed(t, memory.New(memory.Config{}), counter.Config{Secret: []byte("a secret")}, rules...)
	for i := range 1203 {
		try.To(lim.Allow(t.Context(), fmt.Sprintf("event %04d", max(0, i-3)), feature.New("user", "ada@example.org")))(t)
	}
	digest := counter.Key{Event: "event 0000", Feature: "user:ada@example.org"}.Redact([]byte("a secret")).Feature
	for _, accept := range []string{"text/plain", "application/json"} {
		text := ask(lim, numbers, "GET", accept).Body.String()
		for _, hidden := range []string{"secret", "YSBzZWNyZXQ", "Zm9ybWVyIHNlY3JldA", "ada"} {
			require.False(t, strings.Contains(text, hidden), hidden)
		}
		require.True(t, strings.Contains(text, digest))
		require.True(t, strings.Count(text, "and 200 more") == 2 || strings.Contains(text, `"more_rules":200`) && strings.Contains(text, `"more_decisions":200`))
		require.Less(t, len(text), 400_000)
	}
}

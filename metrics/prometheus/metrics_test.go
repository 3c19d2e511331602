package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
	abacusmetrics "github.com/abacus-go/abacus/metrics/prometheus"
)

var ctx = context.Background()

// The limiter of a program, with its numbers at /metrics.
func Example() {
	c, _ := counter.New(memory.New(memory.Config{}), counter.Config{})
	decisions := abacusmetrics.NewDecisions()
	lim, _ := limiter.New(c, limiter.Config{
		Rules:   []limiter.Rule{{Event: "signup", Kind: "ip", Limits: counter.MustLimits("2/h")}},
		Observe: decisions.Observe,
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(decisions, abacusmetrics.Conditions(lim))
	for range 3 {
		_, _ = lim.Allow(ctx, "signup", feature.IP(netip.MustParseAddr("192.0.2.1")))
	}
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "abacus_decisions_total") && !strings.HasSuffix(line, " 0\n") {
			fmt.Print(line)
		}
	}
	// Output:
	// abacus_decisions_total{event="signup",kind="ip",outcome="admitted"} 2
	// abacus_decisions_total{event="signup",kind="ip",outcome="over-limit"} 1
}

// pageOf is the page of collectors for Prometheus; a registry is one.
func pageOf(c prometheus.Collector) string {
	registry, page := prometheus.NewRegistry(), httptest.NewRecorder()
	registry.MustRegister(c)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	return page.Body.String()
}

func signups(limits string, onFailure limiter.OnFailure) limiter.Rule {
	return limiter.Rule{Event: "signup", Kind: "user", Limits: counter.MustLimits(limits), OnFailure: onFailure}
}

// gathered has a limiter that has made every sort of decision, its registry, and
// the store's faults.
func gathered(t testing.TB) (*prometheus.Registry, *limiter.Limiter, *limitertest.Faults) {
	var faults limitertest.Faults
	decisions := abacusmetrics.NewDecisions()
	lim, _ := limitertest.NewOn(t, faults.Wrap(memory.New(memory.Config{})), limiter.Config{
		Rules: []limiter.Rule{
			signups("5/h", limiter.FailLocal),
			{Event: "login", Kind: "ip", Limits: counter.MustLimits("5/h"), IfMissing: limiter.MissingSkip},
		},
		Observe: decisions.Observe,
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(decisions, abacusmetrics.Conditions(lim))
	for i := range 7 {
		call(t, lim, "signup", feature.New("user", "ada@example.org"))
		call(t, lim, "signup", feature.New("user", fmt.Sprint("visitor ", i)))
	}
	decisions.Observe(limiter.Decision{Event: "signup", Kind: "user", Outcome: limiter.OutcomeAdmitted, Soft: []limiter.SoftVerdict{{Kind: "user"}, {Kind: "ip", Denied: true}}})
	call(t, lim, "signup")
	call(t, lim, "login")
	faults.Set(limitertest.Fault{Err: errors.New("no route to 192.0.2.9")})
	call(t, lim, "signup", feature.New("user", "grace"))
	call(t, lim, "login", feature.IP(netip.MustParseAddr("192.0.2.1")))
	return registry, lim, &faults
}

func call(t testing.TB, lim *limiter.Limiter, event string, features ...feature.Feature) {
	_, err := lim.Allow(ctx, event, features...)
	require.NoError(t, err)
}

func TestMetrics(t *testing.T) {
	registry, _, _ := gathered(t)
	text := pageOf(registry)
	for _, line := range []string{
		`abacus_decisions_total{event="signup",kind="user",outcome="admitted"} 13`,
		`abacus_soft_decisions_total{event="signup",kind="user",would_deny="false"} 1`,
		`abacus_soft_decisions_total{event="signup",kind="user",would_deny="true"} 0`,
		`abacus_soft_decisions_total{event="signup",kind="ip",would_deny="true"} 1`,
		`abacus_decisions_total{event="signup",kind="user",outcome="over-limit"} 2`,
		`abacus_decisions_total{event="signup",kind="user",outcome="missing"} 1`,
		`abacus_decisions_total{event="signup",kind="user",outcome="local-admitted"} 1`,
		`abacus_decisions_total{event="signup",kind="user",outcome="banned"} 0`,
		`abacus_decisions_total{event="signup",kind="",outcome="failed-closed"} 0`,
		`abacus_decisions_total{event="login",kind="",outcome="failed-closed"} 1`,
		`abacus_decisions_total{event="login",kind="",outcome="skipped"} 1`,
		`abacus_decision_duration_seconds_count{event="signup"} 17`,
		`abacus_decision_duration_seconds_count{event="login"} 2`,
		`abacus_local_admitted_total 1`,
		`abacus_pending_hits 1`,
		`abacus_pending_additions_ratio 1.52587890625e-05`,
		`abacus_local_lacking_ratio 0`,
		`abacus_local_refused_total 0`,
		`abacus_unmirrored_hits_total 0`,
		`abacus_clock_skew_seconds 0.1`,
		`abacus_check_timestamp_seconds 0`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotRegexp(t, `ada|grace|visitor|192\.0\.2|route`, text, "features and errors")

	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Equal(t, []promlint.Problem(nil), problems)
}

// No series is added by other features, other limits, other n or other errors.
func TestSeriesAreBounded(t *testing.T) {
	registry, lim, faults := gathered(t)
	count := func() int {
		n, err := testutil.GatherAndCount(registry)
		require.NoError(t, err)
		return n
	}
	before := count()
	for i := range 1000 {
		f := limiter.Under(feature.New("user", fmt.Sprint(i)), counter.MustLimits(fmt.Sprintf("%d/h", i)))
		faults.Set(limitertest.Fault{})
		if i%2 == 0 {
			faults.Set(limitertest.Fault{Err: fmt.Errorf("error %d", i)})
		}
		_, err := lim.AllowN(ctx, "signup", int64(i%5+1), f)
		require.NoError(t, err)
		_, err = lim.Allow(ctx, fmt.Sprint("event ", i), f)
		require.Error(t, err)
	}
	require.Equal(t, before, count())
}

// A program may have names that are no labels, which are UTF-8.
func TestNamesOfAnyBytes(t *testing.T) {
	d := abacusmetrics.NewDecisions()
	d.Observe(limiter.Decision{Event: "sign\xffup", Kind: "\xfe", Outcome: limiter.OutcomeAdmitted, Soft: []limiter.SoftVerdict{{Kind: "\xfe"}}})
	require.Equal(t, 3, testutil.CollectAndCount(d, "abacus_soft_decisions_total", "abacus_decision_duration_seconds"))
}

func TestObserveByManyAtOnce(t *testing.T) {
	d := abacusmetrics.NewDecisions()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for j := range 500 {
				d.Observe(limiter.Decision{Event: "signup", Kind: fmt.Sprint((i + j) % 10), Outcome: limiter.OutcomeAdmitted})
				if j%100 == 0 {
					testutil.CollectAndCount(d)
				}
			}
		})
	}
	callers.Wait()
	d.Observe(limiter.Decision{Event: "signup", Kind: "1", Outcome: limiter.OutcomeForgotten}) // is no decision
	page, outcomes := pageOf(d), 0
	for o := limiter.OutcomeOverLimit; o < limiter.OutcomeForgotten; o++ {
		outcomes++
		for kind := range 10 {
			n := map[bool]int{o == limiter.OutcomeAdmitted: 400}[true]
			require.Contains(t, page, fmt.Sprintf("abacus_decisions_total{event=\"signup\",kind=\"%d\",outcome=%q} %d\n", kind, o, n))
		}
		require.Contains(t, page, fmt.Sprintf("abacus_decisions_total{event=\"signup\",kind=\"\",outcome=%q} 0\n", o))
	}
	require.Equal(t, 11*outcomes, strings.Count(page, "abacus_decisions_total{"))
}

package envoy_test

import (
	"fmt"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/service/envoy"
)

// numbersOf returns the numbers of a domain, without the beginning that they have in common.
func numbersOf(t *testing.T, registry *prometheus.Registry, domain string) map[string]int {
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]int{}
	for _, family := range families {
		name, ofReference := strings.CutPrefix(family.GetName(), "ratelimit_service_rate_limit_")
		require.True(t, ofReference, family.GetName())
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			require.Len(t, labels, 3)
			if labels["domain"] == domain {
				all[name+" "+labels["key1"]+" "+labels["key2"]] = int(metric.GetCounter().GetValue())
			}
		}
	}
	return all
}

// Hits are counted under the names of the reference, and values are labels where the rules
// say so.
func TestNumbers(t *testing.T) {
	registry := prometheus.NewRegistry()
	d := setup{cfg: envoy.Config{Metrics: registry}, rules: `
domain: d
descriptors:
  - {key: user, rate_limit: &limit {unit: hour, requests_per_unit: 5}}
  - {key: user, value: root, rate_limit: *limit}
  - {key: try, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: path, value: /a/*, rate_limit: *limit}
  - {key: shared, value: /a/*, share_threshold: true, detailed_metric: true, rate_limit: *limit}
  - {key: detailed, detailed_metric: true, rate_limit: *limit}
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value_to_metric: true
        descriptors:
          - {key: subject, rate_limit: *limit}
      - key: deep
        descriptors:
          - {key: subject, detailed_metric: true, rate_limit: *limit}
      - {key: wild, value: x*, value_to_metric: true, rate_limit: *limit}
`}.open(t)
	minute := typev3.RateLimitUnit_MINUTE
	back := with(desc("user", "a"), 1)
	back.IsNegativeHits = true
	for _, row := range []struct {
		hits        uint32
		descriptors []*common.RateLimitDescriptor
	}{
		{3, []*common.RateLimitDescriptor{desc("user", "a"), desc("user", "a"), desc("user", "root")}},
		{2, []*common.RateLimitDescriptor{desc("user", "a")}},                        // the last is near
		{1, []*common.RateLimitDescriptor{desc("user", "a"), desc("path", "/a/b")}},  // is over
		{0, []*common.RateLimitDescriptor{back, with(desc("user", "a"), 0)}},         // no hits
		{2, []*common.RateLimitDescriptor{desc("try", "a"), desc("free", "a")}},      // both over
		{1, []*common.RateLimitDescriptor{desc("shared", "/a/b"), desc("none", "")}}, // no rule
		{1, []*common.RateLimitDescriptor{desc("detailed", "1.2.3.4"), desc("detailed", "")}},
		{1, []*common.RateLimitDescriptor{desc("route", "draw", "method", "GET", "subject", "7"), desc("route", "draw", "deep", "e", "subject", "7"), desc("route", "draw", "wild", "xy")}},
		{1, []*common.RateLimitDescriptor{limited(desc("none", "7"), 9, minute), limited(desc("user", "b"), 9, minute)}},
	} {
		d.ask(&pb.RateLimitRequest{Domain: "d", HitsAddend: row.hits, Descriptors: row.descriptors})
	}
	want := map[string]int{
		"total_hits user ": 7, "within_limit user ": 6, "near_limit user ": 1, "over_limit user ": 1,
		"total_hits user_root ": 3, "within_limit user_root ": 3,
		"total_hits path_/a/* ": 1, "within_limit path_/a/* ": 1,
		"total_hits try ": 2, "over_limit try ": 2, "shadow_mode try ": 2,
		"total_hits * ": 1, "within_limit * ": 1,
	}
	for _, of := range []string{"shared_/a/* ", "detailed_1.2.3.4 ", "detailed ", "route_draw method_GET", "route_draw deep_e", "route_draw wild_xy"} {
		want["total_hits "+of], want["within_limit "+of] = 1, 1
	}
	require.Equal(t, want, numbersOf(t, registry, "d"))

	long := strings.Repeat("l", 201)
	for i := range 2_000 {
		d.ask(of(desc("detailed", fmt.Sprint("flood ", i)), desc("detailed", long)))
	}
	all := numbersOf(t, registry, "d")
	require.Less(t, len(all), 3*1_000, "with near_limit and over_limit of few")
	require.Equal(t, 1, all["total_hits detailed_1.2.3.4 "], "a series that was there goes on")
	sum := 0
	for name, n := range all {
		if strings.HasPrefix(name, "total_hits detailed") {
			sum += n
		}
		require.NotContains(t, name, long)
	}
	require.Equal(t, 2+2*2_000, sum)
	_, err := setup{cfg: envoy.Config{Metrics: registry}, rules: domain(perHour("user", 1))}.new(t)
	require.ErrorContains(t, err, "Config.Metrics: duplicate metrics collector")
}

// The rules for people have a line for each rule.
func TestText(t *testing.T) {
	d := setup{cfg: envoy.Config{Settings: envoy.Settings{Quota: true}}, rules: domain(`
- {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}
- {key: user, value: "a\nb", shadow_mode: true, rate_limit: {limits: "5/s, 100/10m"}}
- key: path
  value: /a/*
  descriptors: [{key: free, rate_limit: {unlimited: true}}]
`)}.open(t)
	require.Equal(t, `"d.user": 5/h, shadow_mode: false, quota_mode: true
"d.path_/a/*.free": unlimited, shadow_mode: false, quota_mode: false
"d.user_a\nb": 5/s, 100/10m, shadow_mode: true, quota_mode: false
`, d.Text())
	d = setup{rules: "bad", cfg: envoy.Config{Settings: envoy.Settings{ForceStart: true}}}.open(t)
	require.Empty(t, d.Text())
	require.False(t, d.HasKey("user"))
	require.ErrorContains(t, d.Erase(t.Context(), "user:a"), "no rules yet")
}

// Erase reaches the counts of a person in all domains, alone and next to values that rules
// name, and no others.
func TestErase(t *testing.T) {
	folder := t.TempDir()
	limit := "rate_limit: {unit: hour, requests_per_unit: 1}"
	write(t, folder, map[string]string{
		"d.yaml": domain(`
- {key: user, ` + limit + `}
- {key: user, value: root, ` + limit + `}
- {key: user, value: g*, shadow_mode: true, ` + limit + `}
- {key: role, value: admin, ` + limit + `}
- key: path
  value: /a/*
  share_threshold: true
  descriptors: [{key: user, ` + limit + `}, {key: role, value: admin, ` + limit + `}]
- key: ip
  descriptors: [{key: user, ` + limit + `}]
- {key: free, rate_limit: {unlimited: true}}
`), "e.yaml": "domain: e\ndescriptors:\n- {key: user, " + limit + "}\n"})
	d := setup{folder: folder}.open(t)
	day := typev3.RateLimitUnit_DAY
	long := strings.Repeat("ada", 100)
	all := []struct {
		domain     string
		descriptor *common.RateLimitDescriptor
		erase      []string // after which it is not over any more
	}{
		{"d", desc("user", "ada"), []string{"user:ada"}},
		{"e", desc("user", "ada"), []string{"user:ada"}},
		{"d", desc("user", long), []string{"user:" + long}},
		{"d", desc("user", "root"), []string{"user:root"}},
		{"d", desc("path", "/a/1", "user", "ada"), []string{"user:ada"}},
		{"d", desc("ip", "1", "user", "ada"), []string{"user:ada", "ip:1"}},
		{"d", desc("ip", "2", "user", "ada"), nil},
		{"d", desc("user", "eve"), nil},
		{"d", desc("role", "admin"), nil},
		{"d", desc("path", "/a/2", "role", "admin"), nil},
		{"d", limited(desc("user", "bob"), 1, day), []string{"user:bob"}},
		{"d", limited(desc("user", "bob", "ip", "1"), 1, day), []string{"user:bob", "ip:1"}},
	}
	over := func(i int) bool {
		row := all[i]
		r := &pb.RateLimitRequest{Domain: row.domain, Descriptors: []*common.RateLimitDescriptor{row.descriptor}}
		return d.ask(r).OverallCode == pb.RateLimitResponse_OVER_LIMIT
	}
	for i := range all {
		require.False(t, over(i), i)
	}
	require.NoError(t, d.Erase(t.Context(), "user:nobody", "path:/a/1"))
	for i := range all {
		require.True(t, over(i), "%d: of others", i)
	}
	for i, row := range all {
		if row.erase == nil {
			continue
		}
		require.NoError(t, d.Erase(t.Context(), row.erase...))
		require.False(t, over(i), i)
		require.True(t, over(i), i)
		for j := range all {
			if all[j].erase == nil {
				require.True(t, over(j), "%v has erased %d", row.erase, j)
			}
		}
		for _, j := range []int{0, 1, 4} { // as row erased them too
			over(j)
		}
	}
	for range 2 {
		require.False(t, d.over(desc("user", "grace")), "a trial")
	}
	require.NoError(t, d.Erase(t.Context(), "user:grace"))
	require.True(t, d.HasKey("user") && d.HasKey("path") && d.HasKey("ip") && !d.HasKey("none"))
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("user:", i), fmt.Sprint("ip:", i))
	}
	require.ErrorContains(t, d.Erase(t.Context(), many...), "more than 10000 keys")
}

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/service/config"
)

// Rules of a gateway that become bad while they are in force change nothing, and are seen.
func TestEnvoyRulesBecomeBad(t *testing.T) {
	dir := files(t, map[string]string{"envoy.yaml": envoyRules, "abacusd.yaml": `listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
envoy: {rules: envoy.yaml}
reload: 20ms
`})
	d := serve(t, filepath.Join(dir, "abacusd.yaml")).ready()
	seen := func() (rules, successful string) {
		admin := func(path string) string { return ask(http.DefaultClient, "GET", "http://"+d.admin+path, "").body }
		_, after, _ := strings.Cut(admin("/metrics"), "\nabacus_rules_last_reload_successful{limiter=\"envoy\"} ")
		return admin("/rlconfig"), after[:min(1, len(after))]
	}
	becomes := func(what, want string) {
		t.Helper()
		d.eventually(what, func() bool {
			rules, successful := seen()
			return rules == "\"shop.user\": 2/h, shadow_mode: false, quota_mode: false\n" && successful == want
		})
	}
	becomes("good rules", "1")
	for what, text := range map[string]string{
		"none":       "",
		"cut off":    envoyRules[:len(envoyRules)-10],
		"an alias":   strings.Replace(envoyRules, "{key: user", "&a {key: user, descriptors: [*a]", 1),
		"twice":      envoyRules + envoyRules,
		"a key less": strings.Replace(envoyRules, "unit: hour, ", "", 1),
		"too long":   envoyRules + strings.Repeat("# \n", 3<<20),
		"binary":     "\x00\xff\xfe",
	} {
		replaceFile(t, filepath.Join(dir, "envoy.yaml"), text)
		becomes(what, "0")
		replaceFile(t, filepath.Join(dir, "envoy.yaml"), envoyRules)
		becomes("good rules after "+what, "1")
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "envoy.yaml")))
	becomes("no file", "0")
	require.Equal(t, 200, d.get("/readyz").status)
}

// A flood of users that were never seen leaves no series behind, and no line of the log.
func TestFloodOfUsers(t *testing.T) {
	dir := files(t, map[string]string{"envoy.yaml": envoyRules, "rules.yaml": pageRules, "abacusd.yaml": `listen: {http: "127.0.0.1:0", grpc: "127.0.0.1:0", admin: "127.0.0.1:0"}
envoy: {rules: envoy.yaml, reference_metrics: true}
rules: rules.yaml
`})
	d := serve(t, filepath.Join(dir, "abacusd.yaml")).ready()
	flood := func(name string) {
		for i := range 300 {
			user := fmt.Sprint(name, " ", i)
			for _, want := range []int{200, 429} {
				got := d.post("/json", fmt.Sprintf(`{"domain": "shop", "hitsAddend": 2, "descriptors": [{"entries": [{"key": "user", "value": %q}]}]}`, user))
				require.Equal(t, want, got.status, got.body)
				got = d.post("/v1/take", fmt.Sprintf(`{"event": "mail", "n": 2, "features": ["user:%s"]}`, user))
				require.Contains(t, got.body, fmt.Sprintf(`"allowed":%t`, want == 200))
			}
		}
	}
	series := func() (names []string) {
		page := ask(http.DefaultClient, "GET", "http://"+d.admin+"/metrics", "").body
		return regexp.MustCompile(`(?m)^\w+(\{[^}]*\})?`).FindAllString(page, -1)
	}
	flood("first")
	before := series()
	require.Contains(t, before, `ratelimit_service_rate_limit_over_limit{domain="shop",key1="user",key2=""}`)
	flood("second")
	require.Equal(t, before, series())
	require.NotContains(t, d.said(), "second")
}

// Files for TLS that change hold for connections that begin a minute later. Bad ones change
// nothing.
func TestCertificatesChange(t *testing.T) {
	ca := &authority{t: t}
	caPEM, _ := ca.issue("ca.internal", time.Hour)
	first, firstKey := ca.issue("first.internal", time.Hour)
	second, secondKey := ca.issue("second.internal", time.Hour)
	dir := files(t, map[string]string{"cert": first, "key": firstKey, "ca": caPEM})
	c, err := newCertificates(&config.Config{TLS: config.TLS{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"), ClientCAFile: filepath.Join(dir, "ca")}})
	require.NoError(t, err)
	now := time.Now()
	name := func() string { return c.current(now).Certificates[0].Leaf.DNSNames[0] }
	for _, row := range []struct {
		what          string
		cert, key, ca string
		want          string
	}{
		{"as they are", first, firstKey, caPEM, "first.internal"},
		{"a key of another", second, firstKey, caPEM, "first.internal"},
		{"cut off", second[:len(second)/2], secondKey, caPEM, "first.internal"},
		{"none", "", "", caPEM, "first.internal"},
		{"no authority", second, secondKey, "none", "first.internal"},
		{"good", second, secondKey, caPEM, "second.internal"},
	} {
		for file, text := range map[string]string{"cert": row.cert, "key": row.key, "ca": row.ca} {
			replaceFile(t, filepath.Join(dir, file), text)
		}
		before := name()
		now = now.Add(rereadCertificates - time.Second)
		require.Equal(t, before, name(), "%s, within the minute", row.what)
		now = now.Add(time.Second)
		require.Equal(t, row.want, name(), row.what)
	}
	replaceFile(t, filepath.Join(dir, "cert"), first)
	replaceFile(t, filepath.Join(dir, "key"), firstKey)
	now = now.Add(-time.Hour) // the clock was set
	require.Equal(t, "first.internal", name())
	require.NoError(t, os.Remove(filepath.Join(dir, "ca")))
	now = now.Add(rereadCertificates)
	require.Equal(t, "first.internal", name())
	require.NotNil(t, c.current(now).ClientCAs)
}

package envoy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/service/envoy"
)

// Each fault of a file is told with its line, and a file with a fault is no rules.
func TestFaultsOfFiles(t *testing.T) {
	const limit = "rate_limit: {unit: hour, requests_per_unit: 1}"
	deep := "- key: k\n"
	for i := range 70 {
		deep += strings.Repeat("  ", i+1) + "descriptors:\n" + strings.Repeat("  ", i+1) + "- key: k\n"
	}
	bomb := "a: &a {k: v}\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9)+"*"+string(c-1))
	}
	for content, want := range map[string]string{
		"":                                "r.yaml:1: the file is empty",
		"# nothing":                       "r.yaml:1: the file is empty",
		"descriptors: []":                 "r.yaml:1: the domain is missing",
		"domain: ''":                      "r.yaml:1: the domain is missing",
		"domain: [d]":                     "r.yaml:1: a mapping or a list, want text",
		"- domain: d":                     "r.yaml:1: cannot unmarshal !!seq",
		"domain: d\ndomain: e":            `r.yaml:2: mapping key "domain" already defined at line 1`,
		"domain: d\n---\ndomain: e":       "r.yaml:2: a second document",
		"domain: d\nlimits: []":           "r.yaml:2: field limits not found",
		"domain: \xff":                    "invalid",
		"domain: d\ndescriptors: {key: k": "r.yaml:1: did not find expected",
		domain("- key: k\n  values: v"):   "r.yaml:4: field values not found",
		domain("- key: k\n  rate_limit: {unit: hour, requests: 5}"):                              "r.yaml:4: field requests not found",
		domain("- key: k\n  rate_limit:\n    unit: fortnight\n    requests_per_unit: 5"):         `r.yaml:5: the unit is "fortnight"`,
		domain("- key: k\n  rate_limit: {unit: unknown}"):                                        `r.yaml:4: the unit is "unknown"`,
		domain("- key: k\n  rate_limit: {requests_per_unit: 5}"):                                 `r.yaml:3: the unit is ""`,
		domain("- key: k\n  rate_limit: {unit: hour, requests_per_unit: -1}"):                    "r.yaml:4: cannot unmarshal",
		domain("- key: k\n  rate_limit: {unit: hour, requests_per_unit: 4294967296}"):            "r.yaml:4: cannot unmarshal",
		domain("- key: k\n  rate_limit: {unit: hour, unlimited: true}"):                          "r.yaml:3: the rule is unlimited, and",
		domain("- key: k\n  rate_limit: {unit: hour, limits: 5/s}"):                              "r.yaml:4: the rule has limits, and",
		domain("- key: k\n  rate_limit: {limits: 5 per day}"):                                    "r.yaml:4:",
		domain("- key: k\n  rate_limit: {limits: '5/h, 6/h'}"):                                   "r.yaml:4: the limits are",
		domain("- key: k\n  rate_limit: {limits: '5 per day in UTC, 6 per day in UTC'}"):         "r.yaml:4: the limits are",
		domain("- key: k\n  shadow_mode: maybe"):                                                 "r.yaml:4: cannot unmarshal",
		domain("- key: k\n  rate_limit: {unit: hour, name: n, replaces: [{name: n}]}"):           `r.yaml:4: replaces has the name "n"`,
		domain("- key: k\n  rate_limit: {unit: hour, replaces: [{}]}"):                           `r.yaml:3: replaces has the name ""`,
		domain("- key: k\n  value: v\n  share_threshold: true\n  " + limit):                      "r.yaml:3: share_threshold",
		domain("- value: v\n  " + limit):                                                         "r.yaml:3: a descriptor has no key",
		domain("- {key: k}\n- {key: j}\n- {key: k}"):                                             `r.yaml:5: the descriptor with key "k" and value "" is in line 3`,
		domain("- {key: k, value: v}\n- {key: k}\n- {key: k, value: v}"):                         `r.yaml:5: the descriptor with key "k" and value "v" is in line 3`,
		domain("- {key: k, metadata: {at: 2020-01-01}, " + limit + "}"):                          "r.yaml:3: metadata",
		domain("- {key: k, metadata: 7}"):                                                        "r.yaml:3: cannot unmarshal",
		domain(deep):                                                                             "more than 64 levels",
		domain(strings.Repeat("[", 100_000)):                                                     "r.yaml:3: ",
		"domain: d\ndescriptors: &a\n- key: k\n  descriptors: *a":                                "contains itself",
		domain("- {key: k, metadata: &a {b: *a}}"):                                               "contains itself",
		domain("- {key: k, metadata: {all: *j}, "+limit+"}") + bomb:                              "yaml:",
		bomb + "domain: d\ndescriptors: [{key: k, metadata: {all: *j}, " + limit + "}]":          "excessive aliasing",
		domain("- {key: k, "+limit+"}\n") + strings.Repeat("# long\n", 2<<20):                    "is more than is read of all",
		domain("- {}\n- key: k\n  rate_limit: {unit: none}\n- key: j\n  rate_limit: {unit: no}"): "no key, want one\n",
	} {
		_, err := setup{rules: content}.newNamed(t, "r.yaml")
		if !assert.ErrorContains(t, err, want, "%.200q", content) {
			continue
		}
		require.Less(t, len(err.Error()), 2000, "%.200q", content)
	}
	_, err := setup{rules: domain("- {key: k}\n- key: j\n  rate_limit: {unit: no}\n- {key: k}")}.newNamed(t, "r.yaml")
	require.ErrorContains(t, err, "r.yaml:5:", "all faults are told")
	require.ErrorContains(t, err, "r.yaml:6:")
}

// newNamed makes a service with rules in a file of this name.
func (s setup) newNamed(t *testing.T, name string) (*envoy.Service, error) {
	s.folder = t.TempDir()
	write(t, s.folder, map[string]string{name: s.rules})
	service, err := s.new(t)
	if err == nil {
		t.Cleanup(func() { _ = service.Close(t.Context()) })
	}
	return service, err
}

// All that the reference reads is read, aliases and merged mappings too.
func TestFilesOfTheReference(t *testing.T) {
	d := setup{rules: `
domain: d
descriptors:
  - key: 7
    value: true
    detailed_metric: true
    value_to_metric: true
    rate_limit: &limit
      unit: HOUR
      requests_per_unit: 1
  - key: again
    rate_limit: *limit
  - key: merged
    rate_limit:
      <<: *limit
      name: mine
  - key: files
    value: files/*
    share_threshold: true
    descriptors:
      - {key: user, rate_limit: *limit}
  - {key: no_share, value: files/*, rate_limit: *limit}
  - {key: path, value: /a/*/c/*.png, rate_limit: *limit}
  - {key: path, value: /a/*, rate_limit: {unlimited: true}}
`}.open(t)
	for _, row := range []struct {
		texts []string
		want  string // of a second call
	}{
		{[]string{"7", "true"}, "OVER: OVER 1/HOUR"},
		{[]string{"7", "false"}, "OK: OK 0 left"},
		{[]string{"again", ""}, "OVER: OVER 1/HOUR"},
		{[]string{"merged", ""}, "OVER: OVER mine1/HOUR"},
		{[]string{"files", "files/a", "user", "7"}, "OVER: OVER 1/HOUR"},
		{[]string{"files", "files/b", "user", "7"}, "OVER: OVER 1/HOUR"},
		{[]string{"files", "files/*", "user", "7"}, "OVER: OVER 1/HOUR"},
		{[]string{"no_share", "files/a"}, "OVER: OVER 1/HOUR"},
		{[]string{"no_share", "files/b"}, "OVER: OVER 1/HOUR"},
		{[]string{"path", "/a/b/c/d.png"}, "OVER: OVER 1/HOUR"},
		{[]string{"path", "/a/b/d.png"}, "OK: OK 4294967295 left"},
	} {
		first := short(d.ask(of(desc(row.texts...))))
		require.Equal(t, row.texts[0] == "files" && row.texts[1] != "files/a", strings.HasPrefix(first, "OVER"), "%q: %s", row.texts, first)
		require.Contains(t, short(d.ask(of(desc(row.texts...)))), row.want, "%q", row.texts)
	}
}

// A change of rules is applied whole, in whatever way the files change. Rules that are bad
// change nothing, are counted, and leave the health as it is.
func TestReload(t *testing.T) {
	folder := t.TempDir()
	version := func(name string, files map[string]string) { // as Kubernetes mounts a config map
		write(t, filepath.Join(folder, name), files)
		require.NoError(t, os.Symlink(name, filepath.Join(folder, "..next")))
		require.NoError(t, os.Rename(filepath.Join(folder, "..next"), filepath.Join(folder, "..data")))
	}
	version("..1", map[string]string{"a.yaml": domain(perHour("user", 1))})
	require.NoError(t, os.Symlink("..data/a.yaml", filepath.Join(folder, "a.yaml")))
	link := filepath.Join(t.TempDir(), "current")
	require.NoError(t, os.Symlink(folder, link))
	d := setup{folder: link, cfg: envoy.Config{Every: 5 * time.Millisecond}}.open(t)
	limitOf := func() uint32 {
		return d.ask(of(with(desc("user", "7"), 0))).Statuses[0].GetCurrentLimit().GetRequestsPerUnit()
	}
	become := func(want uint32) {
		t.Helper()
		require.Eventually(t, func() bool { return limitOf() == want }, time.Minute, time.Millisecond, "want %d", want)
	}
	failing := func() {
		t.Helper()
		_, bad := d.Loads()
		require.Eventually(t, func() bool { _, now := d.Loads(); return now > bad+1 }, time.Minute, time.Millisecond)
	}
	refused := func() {
		t.Helper()
		failing() // by now the load before is counted
		good, _ := d.Loads()
		failing()
		now, _ := d.Loads()
		require.Equal(t, good, now)
		require.NotEmpty(t, d.Limiter().Stats().RulesRefused)
	}
	require.EqualValues(t, 1, limitOf())
	require.False(t, d.over(desc("user", "7")))
	version("..2", map[string]string{"a.yaml": domain(perHour("user", 2))})
	become(2)
	require.False(t, d.over(desc("user", "7")), "hits stay")
	require.True(t, d.over(desc("user", "7")))
	for _, bad := range []string{"", "domain: d\ndescriptors: [{key: user", domain("- {key: user, limit: 7}"), "domain: d\ndescriptors: [{key: a}, {key: a}]"} {
		version("..bad", map[string]string{"a.yaml": bad})
		refused()
		require.EqualValues(t, 2, limitOf(), "%q", bad)
	}
	version("..3", map[string]string{"a.yaml": domain(perHour("user", 3))})
	become(3)
	require.Eventually(t, func() bool { return d.Limiter().Stats().RulesRefused == "" }, time.Minute, time.Millisecond)
	write(t, folder, map[string]string{"more/b.yaml": strings.ReplaceAll(domain(perHour("user", 9)), "domain: d", "domain: e"), ".hidden": "bad"})
	require.Eventually(t, func() bool {
		return d.ask(&pb.RateLimitRequest{Domain: "e", Descriptors: of(desc("user", "7")).Descriptors}).Statuses[0].CurrentLimit != nil
	}, time.Minute, time.Millisecond)
	for i, unit := range []string{"day", "minute", "week", "second", "year"} { // a ladder each
		version(fmt.Sprint("..unit", i), map[string]string{"a.yaml": domain(fmt.Sprintf("- {key: user, rate_limit: {unit: %s, requests_per_unit: %d}}", unit, 10+i))})
		become(uint32(10 + i))
	}
	write(t, folder, map[string]string{"c.yaml": domain(perHour("other", 1))}) // the same domain again
	refused()
	require.NoError(t, os.Remove(filepath.Join(folder, "c.yaml")))
	version("..none", map[string]string{"a.yaml": "domain: d"})
	become(0)
	require.NoError(t, os.RemoveAll(filepath.Join(folder, "more")))
	require.NoError(t, os.Remove(filepath.Join(folder, "a.yaml")))
	refused() // no files are no rules
	require.Contains(t, d.Limiter().Stats().RulesRefused, "has no files")
	require.NoError(t, os.Symlink("/proc/sys/kernel/random/uuid", filepath.Join(folder, "u.yaml"))) // is another at each read
	require.Eventually(t, func() bool {
		_, before := d.Loads()
		time.Sleep(100 * time.Millisecond)
		_, after := d.Loads()
		return before == after
	}, time.Minute, time.Millisecond, "one read is not believed")
	require.NoError(t, os.Remove(filepath.Join(folder, "u.yaml")))
	require.NoError(t, exec.Command("mkfifo", filepath.Join(folder, "pipe")).Run()) // a call that Windows lacks
	refused()
	require.NoError(t, os.RemoveAll(folder))
	refused()
	require.False(t, d.over(desc("user", "7")))
}

// A domain is in several files where that is allowed.
func TestMergedDomains(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"a.yaml": domain(perHour("a", 1)), "b.yaml": domain(perHour("b", 1))})
	_, err := setup{folder: folder}.new(t)
	require.ErrorContains(t, err, `b.yaml:1: the domain "d" is in another file`)
	merge := envoy.Config{Settings: envoy.Settings{MergeDomains: true}}
	d := setup{folder: folder, cfg: merge}.open(t)
	require.False(t, d.over(desc("a", ""), desc("b", "")))
	require.True(t, d.over(desc("a", "")))
	require.True(t, d.over(desc("b", "")))
	write(t, folder, map[string]string{"b.yaml": domain(perHour("b", 1) + perHour("a", 1))})
	_, err = setup{folder: folder, cfg: merge}.new(t)
	require.ErrorContains(t, err, "b.yaml:4: the descriptor with key \"a\" and value \"\" is in line 3 already, or of another file")
}

// What New is given is checked.
func TestNew(t *testing.T) {
	rules := domain(perHour("user", 1))
	for want, cfg := range map[string]envoy.Config{
		"Config.Every is 1ns":            {Every: 1},
		`the names of headers are "a b"`: {Settings: envoy.Settings{LimitHeader: "a b"}},
		"OnFailure is FailLocal":         {OnFailure: 2},
	} {
		_, err := setup{rules: rules, cfg: cfg}.new(t)
		require.ErrorContains(t, err, want)
	}
	folder := t.TempDir()
	write(t, folder, map[string]string{"r.yaml": rules})
	_, err := envoy.New(envoy.Config{Rules: folder})
	require.ErrorContains(t, err, "the counter is nil")
	_, err = setup{folder: t.TempDir()}.new(t)
	require.ErrorContains(t, err, "has no files")
	_, err = setup{folder: "/nowhere"}.new(t)
	require.ErrorIs(t, err, os.ErrNotExist)
}

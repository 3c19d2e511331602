package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/clitest"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/tiers"
)

// On each store a tighter rule is tried on the hits that are there: as many are
// denied as of the log of these hits. Of a looser one nothing is told.
func TestRulesTest(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	old := file("old.yaml", "events: {signup: {ip: {limits: 100/d}, user: {limits: 100/d}}, mail: {user: {limits: 5/m}}}")
	tighter := file("new.yaml", "events: {signup: {ip: {limits: '7/h, 100/d', overrides: [{value: 203.0.113.8, exempt: true}]}}}")
	tight := file("tight.yaml", "events: {signup: {ip: {limits: '7/h, 100/d'}, user: {limits: 9/d}}}")
	looser := file("looser.yaml", "events: {signup: {ip: {limits: 101/d}, new: {limits: 1/d}}}")
	var keys, lines = []string{"ip:203.0.113.8", "ip:203.0.113.9", "ip:2001:db8::/64", "user:a b}:7"}, ""
	for _, key := range keys {
		lines += fmt.Sprintf("signup,%s\n", key)
	}
	listed := file("keys.csv", lines)
	for kind, url := range clitest.Stores(t) {
		t.Run(kind, func(t *testing.T) {
			name := try.To(stores.Parse(url))(t)
			store := try.To(stores.Open(name, 5*time.Second))(t)
			defer store.Close()
			c := try.To(counter.New(store.Store, counter.Config{Patience: 5 * time.Second, Ladder: tiers.For(24 * time.Hour)}))(t)
			logs := map[string][]counter.Point{}
			now := time.Now()
			for i, key := range keys {
				for n := 40; n > 0; n-- {
					at := now.Add(-time.Duration(n) * time.Duration(i+4) * time.Minute)
					require.NoError(t, c.AddAt(t.Context(), counter.Key{Event: "signup", Feature: key}, 1, at))
					logs[key] = append(logs[key], counter.Point{Start: at, Count: 1})
				}
			}
			demo := func(args ...string) (string, string, error) {
				cmd, stderr := clitest.Process(t, "abacus", append([]string{"rules", "test", "--json"}, args...)...)
				cmd.Env = append(cmd.Env, "ABACUS_STORE="+url)
				if kind == "memcached" {
					cmd.Args = append(cmd.Args, "--keys", listed)
				}
				out, err := cmd.Output()
				return string(out), stderr.String(), err
			}
			out, said, err := demo("--rules", tight, "--now", old)
			require.NoError(t, err, said)
			var report struct{ Rules []tried }
			require.NoError(t, json.Unmarshal([]byte(out), &report))
			require.Len(t, report.Rules, 2)
			want := map[string]int64{}
			for key, hits := range logs {
				feature := try.To(text.FeatureOf(counter.Key{Event: "signup", Feature: key}))(t)
				rule := limiter.Rule{Event: "signup", Kind: feature.Kind(), Limits: counter.MustLimits("7/h,100/d")}
				if rule.Kind == "user" {
					rule.Limits = counter.MustLimits("9/d")
				}
				denied := try.To(deniedOf(t.Context(), rule, feature, hits))(t)
				require.Positive(t, denied)
				want[rule.Kind] += denied
			}
			require.EqualValues(t, 120, report.Rules[0].Hits)
			require.EqualValues(t, 40, report.Rules[1].Hits)
			require.Equal(t, want["ip"], report.Rules[0].Denied)
			require.Equal(t, want["user"], report.Rules[1].Denied)

			_, said, err = demo("--rules", tighter, "--now", old)
			require.Equal(t, cli.ExitInput, clitest.ExitCode(t, err))
			require.Contains(t, said, "1 rule of 1 cannot be told from counters")
			out, _, err = demo("--rules", looser, "--now", old)
			require.Equal(t, cli.ExitInput, clitest.ExitCode(t, err))
			require.Contains(t, out, `"refused": "100/d held until now, and 101/d admits more"`)
			require.Contains(t, out, `"refused": "no rule has counted until now"`)
			require.False(t, strings.Contains(out, `"denied": 1`))
		})
	}
}

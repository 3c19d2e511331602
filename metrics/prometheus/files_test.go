package prometheus_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/abacus-go/abacus/limiter"
)

// Each metric, label and outcome in the files exists.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	labels := labelsOf(t)
	places := map[[2]int]bool{}
	for i, p := range dashboard.Panels {
		require.Equal(t, i+1, p.ID)
		require.False(t, places[[2]int{p.GridPos.X, p.GridPos.Y}], "%s covers another panel", p.Title)
		places[[2]int{p.GridPos.X, p.GridPos.Y}] = true
		require.NotEmpty(t, p.Targets)
		for _, target := range p.Targets {
			used := checkExpr(t, labels, target.Expr)
			for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Contains(t, used, l[1], "%s: %s", p.Title, target.LegendFormat)
			}
		}
	}
	checkNames(t, labels, string(text))
}

func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	require.Len(t, file.Groups, 1)
	manual, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	labels, names := labelsOf(t), map[string]bool{}
	for _, rule := range file.Groups[0].Rules {
		require.False(t, names[rule.Alert], "%s twice", rule.Alert)
		names[rule.Alert] = true
		used := checkExpr(t, labels, rule.Expr)
		for _, l := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations["summary"], -1) {
			require.Contains(t, used, l[1], rule.Alert)
		}
		require.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"])
		require.Contains(t, string(manual), "`"+rule.Alert+"`")
	}
	checkNames(t, labels, string(text))
}

// labelsOf are the labels of each metric, with those that Prometheus adds.
func labelsOf(t *testing.T) map[string][]string {
	registry, _, _ := gathered(t)
	families, err := registry.Gather()
	require.NoError(t, err)
	labels := map[string][]string{}
	for _, family := range families {
		of := []string{"job", "instance"}
		for _, l := range family.GetMetric()[0].GetLabel() {
			of = append(of, l.GetName())
		}
		if family.GetMetric()[0].GetHistogram() == nil {
			labels[family.GetName()] = of
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			labels[family.GetName()+suffix] = of
		}
		labels[family.GetName()+"_bucket"] = append(slices.Clone(of), "le")
	}
	require.NotEmpty(t, labels)
	return labels
}

var (
	metric   = regexp.MustCompile(`\babacus_\w+`)
	selector = regexp.MustCompile(`(\w+)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	by       = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// checkNames checks that all metrics in a text exist.
func checkNames(t *testing.T, labels map[string][]string, text string) {
	for _, name := range metric.FindAllString(text, -1) {
		require.Contains(t, slices.Collect(maps.Keys(labels)), name)
	}
}

// checkExpr checks the names in an expression, and returns the labels of its
// result.
func checkExpr(t *testing.T, labels map[string][]string, expr string) []string {
	names := metric.FindAllString(expr, -1)
	require.NotEmpty(t, names, expr)
	checkNames(t, labels, expr)
	require.Equal(t, strings.Count(expr, "("), strings.Count(expr, ")"), expr)
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			require.Contains(t, labels[s[1]], m[1], expr)
			for _, value := range strings.Split(m[2], "|") {
				if m[1] == "outcome" {
					var o limiter.Outcome
					require.NoError(t, o.UnmarshalText([]byte(value)), expr)
				}
			}
		}
	}
	result := labels[names[0]]
	for _, list := range by.FindAllStringSubmatch(expr, -1) {
		result = strings.Split(list[1], ", ")
		require.Subset(t, labels[names[0]], result, expr)
	}
	return result
}

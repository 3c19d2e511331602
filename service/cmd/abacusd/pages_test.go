package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/abacus-go/abacus/rules"
	"github.com/abacus-go/abacus/service/config"
)

// The files of README.md and of deploy are right, and README.md names all verbs and all
// keys of the file.
func TestPages(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	fence := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindSubmatch(readme)
	cfg, err := config.Parse("README.md", fence[1], unchanged)
	require.NoError(t, err)
	require.Len(t, cfg.Callers, 5)
	for _, verb := range config.Verbs {
		require.Regexp(t, `[ ,]`+string(verb)+`[, ]`, strings.ReplaceAll(string(readme), "\n", " "))
	}
	_, err = config.Parse("f", []byte("x: y"), unchanged)
	for _, key := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(err.Error(), -1) {
		require.Contains(t, string(readme), "`"+key[1]+"`")
	}

	kube, err := os.ReadFile("../../deploy/kubernetes.yaml")
	require.NoError(t, err)
	var objects []map[string]any
	for in := yaml.NewDecoder(bytes.NewReader(kube)); ; {
		var object map[string]any
		if in.Decode(&object) != nil {
			break
		}
		objects = append(objects, object)
	}
	require.Len(t, objects, 3)
	data := objects[0]["data"].(map[string]any)
	cfg, err = config.Parse("abacusd.yaml", []byte(data["abacusd.yaml"].(string)), unchanged)
	require.NoError(t, err)
	require.InDelta(t, 1/float64(objects[1]["spec"].(map[string]any)["replicas"].(int)), cfg.Share, 0)
	set, err := rules.Parse("rules.yaml", []byte(data["rules.yaml"].(string)))
	require.NoError(t, err)
	cfg.Callers = nil // their tokens are in no file here
	s, err := open(cfg, set)
	require.NoError(t, err)
	require.True(t, allLocal(s.limiter))
	require.NoError(t, s.close(t.Context()))

	unit, err := os.ReadFile("../../deploy/abacusd.service")
	require.NoError(t, err)
	for _, run := range regexp.MustCompile(`(?m)^ExecStart(?:Pre)?=/usr/local/bin/abacusd (.+)$`).FindAllSubmatch(unit, -1) {
		parser, err := kong.New(&commands{})
		require.NoError(t, err)
		_, err = parser.Parse(strings.Fields(string(run[1])))
		require.NoError(t, err)
	}
}

func unchanged(*config.Config) error { return nil }

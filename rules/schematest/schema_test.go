// Package schematest checks the JSON Schema of package rules on the examples of
// the package.
package schematest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/abacus-go/abacus/rules"
)

// compiled is the schema of package rules, which is a JSON Schema itself.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(rules.Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("rules.json", doc))
	schema, err := c.Compile("rules.json")
	require.NoError(t, err)
	return schema
}

// read returns a file of YAML as a validator sees it.
func read(t *testing.T, file string) any {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var v any
	require.NoError(t, yaml.Unmarshal(data, &v), file)
	text, err := json.Marshal(v)
	require.NoError(t, err, file)
	v, err = jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return v
}

func TestSchemaAgreesWithParse(t *testing.T) {
	schema := compiled(t)
	for dir, least := range map[string]int{"good": 3, "bad": 5} {
		files, err := filepath.Glob(filepath.Join("..", "testdata", dir, "*"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(files), least)
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			if strings.HasPrefix(string(data), "# schema: ") { // only Parse finds the faults
				continue
			}
			err = schema.Validate(read(t, file))
			require.Equal(t, dir == "good", err == nil, "%s: %v", file, err)
		}
	}
}

// Each fault is alone in a file, which is otherwise good.
func TestSchemaRefusesWhatParseRefuses(t *testing.T) {
	schema := compiled(t)
	for rule, good := range map[string]bool{
		"limits: 5/m":                                    true,
		"limits: '5/m,20/h , 1000/7d'":                   true,
		"limits: 5/1m30s":                                true,
		"limits: 5/1.5h":                                 true,
		"limits: 0/2w":                                   true,
		"limits: '5/min, 20/hour, 100/day'":              true,
		"limits: 5/h 20/d":                               false,
		"{limits: 5/m, ban: 2days}":                      true,
		"{limits: 5/m, ban: 1week1day90min}":             true,
		"limits: 5":                                      false,
		"limits: five/m":                                 false,
		"limits: '5/m,'":                                 false,
		"limits: ''":                                     false,
		"limits: [5/m]":                                  false,
		"limits:":                                        false,
		"ban: 1h":                                        false,
		"{limits: 5/m, limit: 5/m}":                      false,
		"{limits: 5/m, ban: 1d12h}":                      true,
		"{limits: 5/m, ban: 12}":                         false,
		"{limits: 5/m, ban: 12x}":                        false,
		"{limits: 5/m, ladder: 1s:1d}":                   true,
		"{limits: 5/m, ladder: 1s}":                      false,
		"{limits: 5/m, soft: true}":                      true,
		"{limits: 5/m, soft: 'true'}":                    false,
		"{limits: 5/m, soft: true, percent: 100}":        true,
		"{limits: 5/m, soft: true, percent: 0}":          false,
		"{limits: 5/m, percent: 10}":                     false,
		"{limits: 5/m, soft: true, percent: 1.5}":        false,
		"{limits: 5/m, on_failure: fail-open}":           true,
		"{limits: 5/m, on_failure: open}":                false,
		"{limits: 5/m, if_missing: share}":               true,
		"{limits: 5/m, if_missing: allow}":               false,
		"{limits: 5/m, plans: {pro: 50/m}}":              true,
		"{limits: 5/m, plans: {}}":                       false,
		"{limits: 5/m, else: {kind: user, limits: 5/m}}": true,
		"{limits: 5/m, else: {kind: user}}":              false,
		"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: true}]}":                                     true,
		"{limits: 5/m, overrides: [{value: 5, exempt: true}]}":                                               false,
		"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: false}]}":                                    false,
		"{limits: 5/m, overrides: [{value: 203.0.113.9}]}":                                                   false,
		"{limits: 5/m, overrides: [{exempt: true}]}":                                                         false,
		"{limits: 5/m, overrides: []}":                                                                       false,
		"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: true, denied: true}]}":                       false,
		"{limits: 5/m, overrides: [{network: 192.0.2.0/24, denied: true}]}":                                  true,
		"{limits: 5/m, overrides: [{network: '2001:DB8::/32', denied: true}]}":                               true,
		"{limits: 5/m, overrides: [{network: example.org, denied: true}]}":                                   false,
		"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: true, until: '2027-01-31T00:00:00+01:00'}]}": true,
		"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: true, until: '2027-01-31'}]}":                false,
		"[{limits: 5/m}, {limits: 9/h}]":                                                                     true,
		"[]":                                                                                                 false,
	} {
		if !strings.HasPrefix(rule, "{") && !strings.HasPrefix(rule, "[") {
			rule = "{" + rule + "}"
		}
		text := "events: {signup: {ip: " + rule + "}}"
		var v any
		require.NoError(t, yaml.Unmarshal([]byte(text), &v), text)
		err := schema.Validate(v)
		require.Equal(t, good, err == nil, "schema: %s: %v", text, err)
		_, err = rules.Parse("rules.yaml", []byte(text))
		require.Equal(t, good, err == nil, "Parse: %s: %v", text, err)
	}
}

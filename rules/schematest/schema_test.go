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
	for good, all := range map[bool][]string{
		true: {
			"limits: 5/m", "limits: '5/m,20/h , 1000/7d'", "limits: 5/1m30s", "limits: 5/1.5h",
			"limits: '5/m,2 per day in UTC , 9  per month from 31 in America/Port-au-Prince'", "limits: 0/2w", "limits: '5/min, 20/hour, 100/day'", "{limits: 5/m, ban: 2days}",
			"{limits: 5/m, ban: 1week1day90min}", "{limits: 5/m, ban: [1m, 10m, 1h]}", "{limits: 5/m, ban: 1d12h}",
			"{limits: 5/m, ladder: 1s:1d}", "{limits: 5/m, soft: true}",
			"{limits: 5/m, soft: true, percent: 100}", "{limits: 5/m, on_failure: fail-open}",
			"{limits: 5/m, if_missing: share}", "{limits: 5/m, plans: {pro: 50/m}}",
			"{limits: 5/m, else: {kind: user, limits: 5/m}}",
			"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: true}]}",
			"{limits: 5/m, overrides: [{network: 192.0.2.0/24, denied: true}]}",
			"{limits: 5/m, overrides: [{network: '2001:DB8::/32', denied: true}]}",
			"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: true, until: '2027-01-31T00:00:00+01:00'}]}",
			"[{limits: 5/m}, {limits: 9/h}]",
		},
		false: {
			"limits: 5 per day", "limits: 5 per hour in UTC", "limits: 5 per week from 2 in UTC",
			"limits: 5 per month from x in UTC", "limits: 5 per day in", "limits: 5/day in UTC",
			"limits: 5 per day in Asia/Tokyo 5/m", "limits: 5per day in UTC", "limits: 5/h 20/d", "limits: 5", "limits: five/m", "limits: '5/m,'", "limits: ''",
			"limits: [5/m]", "limits:", "ban: 1h", "{limits: 5/m, limit: 5/m}",
			"{limits: 5/m, ban: 12}", "{limits: 5/m, ban: 12x}", "{limits: 5/m, ban: []}", "{limits: 5/m, ban: [1m, 2]}", "{limits: 5/m, ladder: 1s}",
			"{limits: 5/m, soft: 'true'}", "{limits: 5/m, soft: true, percent: 0}",
			"{limits: 5/m, percent: 10}", "{limits: 5/m, soft: true, percent: 1.5}",
			"{limits: 5/m, on_failure: open}", "{limits: 5/m, if_missing: allow}",
			"{limits: 5/m, plans: {}}", "{limits: 5/m, else: {kind: user}}",
			"{limits: 5/m, overrides: [{value: 5, exempt: true}]}",
			"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: false}]}",
			"{limits: 5/m, overrides: [{value: 203.0.113.9}]}",
			"{limits: 5/m, overrides: [{exempt: true}]}", "{limits: 5/m, overrides: []}",
			"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: true, denied: true}]}",
			"{limits: 5/m, overrides: [{network: example.org, denied: true}]}",
			"{limits: 5/m, overrides: [{value: 203.0.113.9, exempt: true, until: '2027-01-31'}]}",
			"[]",
		},
	} {
		for _, rule := range all {
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
}

package rules

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the format as a JSON Schema, 2020-12, for editors and for checks of
// files in other languages. Parse finds more: a limit beyond its bounds, for
// example, or rules that contradict each other.
func Schema() []byte { return slices.Clone(schema) }

// The check of the JSON Schema of package rules, in a module of its own: a
// validator is nothing that a user of the library should get.
module github.com/abacus-go/abacus/rules/schematest

go 1.25.0

replace github.com/abacus-go/abacus => ../../

require (
	github.com/abacus-go/abacus v0.0.0-00010101000000-000000000000
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5
)

require (
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

// The web site of the project: its pages as files, and the page of demo serve on
// WebAssembly. A renderer of Markdown is nothing that a user of the library should get.
module github.com/abacus-go/abacus/cmd/demo/site

go 1.25.0

replace github.com/abacus-go/abacus => ../../..

require (
	github.com/abacus-go/abacus v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	github.com/yuin/goldmark v1.8.7
	golang.org/x/net v0.53.0
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.36.0 // indirect
)

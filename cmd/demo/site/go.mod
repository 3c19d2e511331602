// The web site of the project: its pages as files, and the page of demo serve on
// WebAssembly. A renderer of Markdown is nothing that a user of the library should get.
module github.com/abacus-go/abacus/cmd/demo/site

go 1.25.0

replace github.com/abacus-go/abacus => ../../..

require (
	github.com/abacus-go/abacus v0.0.0-00010101000000-000000000000
	github.com/andybalholm/brotli v1.3.0
	github.com/stretchr/testify v1.12.1
	github.com/yuin/goldmark v1.8.7
	golang.org/x/net v0.57.0
)

require (
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/redis/go-redis/v9 v9.22.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

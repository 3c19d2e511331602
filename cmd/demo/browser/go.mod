// The tests of the program's pages in a browser, in a module of its own: a driver
// of browsers is nothing that a user of the library should get.
module github.com/abacus-go/abacus/cmd/demo/browser

go 1.25.0

replace github.com/abacus-go/abacus => ../../..

replace github.com/abacus-go/abacus/cmd/demo/site => ../site

require (
	github.com/abacus-go/abacus v0.0.0-00010101000000-000000000000
	github.com/abacus-go/abacus/cmd/demo/site v0.0.0-00010101000000-000000000000
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/redis/go-redis/v9 v9.22.0 // indirect
	github.com/yuin/goldmark v1.8.7 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

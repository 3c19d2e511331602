// The metrics of a limiter for Prometheus, in a module of its own: users of the
// library without Prometheus get nothing of its client.
module github.com/abacus-go/abacus/metrics/prometheus

go 1.25.0

replace github.com/abacus-go/abacus => ../..

require (
	github.com/abacus-go/abacus v0.0.0-00010101000000-000000000000
	github.com/prometheus/client_golang v1.24.1
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/kylelemons/godebug v1.1.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/common v0.70.1 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

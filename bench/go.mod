// The benchmarks against other limiters, in a module of its own: users of the
// library never get its peers.
module github.com/abacus-go/abacus/bench

go 1.25.0

replace github.com/abacus-go/abacus => ../

require (
	github.com/abacus-go/abacus v0.0.0-00010101000000-000000000000
	github.com/sethvargo/go-limiter v0.7.1
	github.com/ulule/limiter/v3 v3.11.2
	golang.org/x/time v0.11.0
)

require github.com/pkg/errors v0.9.1 // indirect

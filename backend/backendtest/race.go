//go:build race

package backendtest

// thrift divides the rounds of a race under the race detector, which makes each
// round many times as long: races show in the first rounds.
const thrift = 5

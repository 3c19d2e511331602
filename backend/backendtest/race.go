//go:build race

package backendtest

// thrift divides the rounds of a race under the race detector, which makes each
// many times as long: what it looks for shows in the first ones.
const thrift = 5

//go:build race

package race

// On reports whether the race detector is compiled in.
const On = true

// Thrift divides the rounds of a test under the race detector, which makes each
// round about ten times as slow and finds a data race in few rounds. The same
// test runs all rounds without the detector.
const Thrift = 5

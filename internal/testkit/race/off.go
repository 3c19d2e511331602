//go:build !race

// Package race tells tests whether the race detector is compiled in.
package race

// On reports whether the race detector is compiled in.
const On = false

// Thrift divides the rounds of a test: by one without the race detector.
const Thrift = 1

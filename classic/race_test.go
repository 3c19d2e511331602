//go:build race

package classic_test

// thrift divides the rounds under the race detector.
const thrift = 4

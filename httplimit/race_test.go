//go:build race

package httplimit_test

// thrift divides a herd under the race detector, which makes it ten times slower:
// the store's answers would be late, and that is another test.
const thrift = 5

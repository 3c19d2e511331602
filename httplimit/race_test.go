//go:build race

package httplimit_test

// thrift divides a herd under the race detector, which makes a herd ten times
// slower: the store's answers would be late, which another test covers.
const thrift = 5

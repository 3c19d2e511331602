//go:build !race

package httplimit_test

const thrift = 1

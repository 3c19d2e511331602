//go:build !race

package backendtest

const thrift = 1

//go:build !race

package redis_test

import (
	"testing"

	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/counter"
)

// The suite again, on keys that are on all nodes, and by the older protocol. It
// finds no race that the suite on one server does not find.
func TestConformanceOnCluster(t *testing.T) {
	url, _ := clusterURL(t)
	backendtest.Run(t, func(t testing.TB) counter.Store { return open(t, url) })
}

//go:build !race

package memcache_test

import "testing"

// The suite again, with the keys on three servers. It finds no race that it does
// not find on one.
func TestConformanceOnThreeServers(t *testing.T) { conform(t, 3) }

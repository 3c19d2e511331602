//go:build !race

package limiter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/feature"
)

// The keys, in one string, and what a Verdict of several keys holds. With the
// race detector a sync.Pool forgets at random.
func TestAllowAllocatesTwice(t *testing.T) {
	lim := onMemory(t, by("ip", "900000/m, 900000/h, 900000/d"), by("email", "900000/m, 900000/h, 900000/d"))
	addr := ip("2001:db8::1")
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		v, err := lim.Allow(ctx, "signup", addr, feature.Email("Ada.Lovelace@example.org"))
		if err != nil || !v.Allowed {
			t.Error(v, err)
		}
	}), 2.0)
}

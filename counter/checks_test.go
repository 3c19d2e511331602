package counter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
)

// Two Checks at once, of which the one that has asked first is noted last.
func TestChecksOutOfOrder(t *testing.T) {
	var c checks
	at := time.Now()
	old := []backend.Server{{Name: "a", Run: "1", Evicted: 50}}
	fresh := []backend.Server{{Name: "a", Run: "2", Evicted: 0}}
	c.note(at, old)
	c.note(at.Add(2), fresh) // began later, ends first
	c.note(at.Add(1), old)   // began before the restart
	c.note(at.Add(3), fresh)
	require.EqualValues(t, 1, c.seen.Restarts)
	require.EqualValues(t, 0, c.seen.Evictions)
}

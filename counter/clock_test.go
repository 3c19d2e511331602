package counter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
)

// Within the life of an anchor labels follow the monotonic clock, and then the
// wall clock: a step is noticed, forward or back.
func TestLabelsFollowTheAnchorForItsLife(t *testing.T) {
	const elsewhere = int64(1e18)
	var l labels
	for try := 0; ; try++ {
		require.Less(t, try, 1000, "no reading within a millisecond")
		l.anchor.Store(&anchor{time.Now(), elsewhere})
		label := l.read()
		if label >= elsewhere && label < elsewhere+int64(anchorLife) {
			break // else the test stood still
		}
	}
	for _, age := range []time.Duration{anchorLife, time.Hour, -time.Hour} {
		l.anchor.Store(&anchor{time.Now().Add(-age), elsewhere})
		before := time.Now().UnixNano()
		label := l.read()
		require.GreaterOrEqual(t, label, before)
		require.LessOrEqual(t, label, time.Now().UnixNano())
	}
	l = labels{now: func() time.Time { return time.Unix(7, 9) }}
	require.EqualValues(t, 7e9+9, l.read())
	require.Nil(t, l.anchor.Load())
	l.now = func() time.Time { return time.Unix(1<<40, 0) }
	require.Zero(t, l.read())
}

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

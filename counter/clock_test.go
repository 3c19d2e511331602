package counter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

package plain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Only what the store itself writes passes for a bucket.
func TestNamesOfBuckets(t *testing.T) {
	for _, width := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, 1500 * time.Millisecond, 90 * time.Second, 24 * time.Hour, 36 * time.Hour} {
		for _, stored := range appendNames(nil, "ab:1:signup:ip:203.0.113.9", width, -1, 2) {
			require.True(t, isName(stored), stored)
		}
	}
	for _, stored := range []string{"", "{", "{k}", "{k}P", "{k}P:492335.1", "{k}:1", "{k}:1m", "{k}:1m:", "{k}:1m:x", "{k}:m:7", "{k}:0s:7", "{k}:-1m:7", "{k}:1m:7:8", "k}:1m:7"} {
		require.False(t, isName(stored), stored)
	}
}

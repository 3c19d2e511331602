package redisscript

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The example of the Redis Cluster specification, and slots that a server has told.
func TestSlots(t *testing.T) {
	require.Equal(t, 0x31c3, Slot("123456789"))
	for key, slot := range map[string]int{"foo": 12182, "bar": 5061, "hello": 866, "": 0} {
		require.Equal(t, slot, Slot(key), key)
		require.Equal(t, slot, Slot([]byte(key)), key)
	}
}

// A marker has the slot of its key, by the part between its braces.
func TestMarkers(t *testing.T) {
	for _, key := range []string{"ab:16CTp:signup:ip:203.0.113.9", "ab:1:signup:k", "other:13hnD:login:user:7"} {
		marker := Marker(key)
		require.Regexp(t, `^\{(ab|other):![0-9a-z]{4}\}[\w-]{43}$`, marker)
		for i := range marker {
			if marker[i] == '}' {
				require.Equal(t, Slot(key), Slot(marker[1:i]), marker)
			}
		}
	}
}

package memory

import (
	"context"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
)

// TestStoredAsDocumented has the snapshot that docs/storage.md prints.
func TestStoredAsDocumented(t *testing.T) {
	now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	s := New(Config{})
	c, err := counter.New(s, counter.Config{Now: func() time.Time { return now }})
	require.NoError(t, err)
	signup := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	require.NoError(t, c.Add(context.Background(), signup, 1))
	require.NoError(t, c.Add(context.Background(), signup, 2))
	now = now.Add(2 * time.Second)
	require.NoError(t, c.Add(context.Background(), signup, 1))
	require.Equal(t, "6162616375736d"+"03"+
		"0000000000000037"+"68019fd0"+
		"01"+"8094ebdc03"+"8099f8bd8ba415"+
		"1e"+hex.EncodeToString([]byte("ab:16CTp:signup:ip:203.0.113.9"))+
		"00"+"00"+
		"02"+"9d9299fb28"+"03"+"02"+"01"+
		"1b88d2a3"+
		"0000000000000002"+"32aa692e"+
		"00"+"00"+
		"63457c5e", hex.EncodeToString(snapshotOf(t, s)))
}

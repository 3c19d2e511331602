package redis_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// documented makes the calls of docs/storage.md, and two seconds pass.
func documented(t *testing.T, c *counter.Counter, now *time.Time) {
	require.NoError(t, c.Add(ctx, signup, 1))
	require.NoError(t, c.Add(ctx, signup, 2))
	*now = now.Add(2 * time.Second)
	require.NoError(t, c.Add(ctx, signup, 1))
}

// The example of docs/storage.md, byte by byte: other bytes are another format,
// see docs/release.md.
func TestStoredAsDocumented(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	now := time.Date(2026, 3, 1, 23, 30, 33, 0, time.UTC)
	c := newCounter(t, open(t, "redis://"+addr), counter.Config{Now: func() time.Time { return now }})
	documented(t, c, &now)

	client := raw(t, addr)
	names := try.To(client.Keys(ctx, "*").Result())(t)
	require.Equal(t, []string{"{ab:16CTp:signup:ip:203.0.113.9}P"}, names)
	value := try.To(client.Get(ctx, names[0]).Bytes())(t)
	require.Equal(t, "02"+"70827f27c780"+"cdfe9958"+"0004"+"00"+"000001"+"0000"+"0000"+"0000"+"cdfe9948"+"0003", hex.EncodeToString(value))

	require.NoError(t, c.Forget(ctx, signup))
	names = try.To(client.Keys(ctx, "*").Result())(t)
	require.ElementsMatch(t, []string{"{ab:!0d60}rhvEqoT671OS9TaJYfwphxWceqYOn1fiMgvhsWOvS2I", "{ab:!qhq0}sSrpmLCFBH4Hzu_IcAPFT0mKw1Yf8eM-Q54TzzSvOMI"}, names, "of the key and of the soft key")
	require.Equal(t, "9898db890a4b4e00", hex.EncodeToString(try.To(client.Get(ctx, names[0]).Bytes())(t)))
}

// A stretch is the longest of which the tier keeps four.
func TestATierOfFourStretches(t *testing.T) {
	t.Parallel()
	addr := servertest.Redis(t)
	fill(t, open(t, "redis://"+addr), "1s:4h", time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), 1_440, 10*time.Second)
	require.EqualValues(t, 5, raw(t, addr).DBSize(ctx).Val(), "the root, and a leaf for each hour")
}

package counter

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	memstore "github.com/abacus-go/abacus/backend/memory"
)

// farStore is a memory store at the end of a wire, without an atomic step.
type farStore struct{ backend.Store }

// farAtomic is a memory store at the end of a wire.
type farAtomic struct{ backend.Atomic }

// Denials and settled buckets are remembered by key, alone and with other keys;
// after an Erase the process has no memory with the feature, and others keep
// theirs.
func TestEraseClearsTheMemoryOfTheProcess(t *testing.T) {
	here := memstore.New(memstore.Config{})
	for least, store := range map[int]backend.Store{2: farStore{here}, 3: farAtomic{here}} {
		ctx, limits := context.Background(), MustLimits("2/m, 5/d")
		ada, bob := Ask{Key: Key{"login", "email:ada@example.org"}, N: 1, Limits: limits}, Ask{Key: Key{"login", "email:bob@example.org"}, N: 1, Limits: limits}
		c, err := New(store, Config{})
		require.NoError(t, err)
		text := func() string {
			var all strings.Builder
			for name := range c.denied.keys {
				all.WriteString(name + "\n")
			}
			if c.settled != nil {
				for i := range c.settled.slots {
					if e := c.settled.slots[i].entry.Load(); e != nil {
						all.WriteString(e.key + "\n")
					}
				}
			}
			for i := range c.queues.shards {
				for name := range c.queues.shards[i].keys {
					all.WriteString(name + "\n")
				}
			}
			return all.String()
		}
		for range 3 {
			for _, asks := range [][]Ask{{ada}, {bob}, {ada, bob}, {bob, ada}} {
				_, err := c.TakeAll(ctx, asks...)
				require.NoError(t, err)
			}
		}
		lines := 0
		for line := range strings.Lines(text()) {
			if strings.Contains(line, "ada@") {
				lines++
			}
		}
		require.GreaterOrEqual(t, lines, least, "by itself, and settled or with bob")
		require.NoError(t, c.Erase(ctx, ada.Key))
		require.NotContains(t, text(), "ada@")
		require.Contains(t, text(), "bob@")
		v, err := c.Take(ctx, ada.Key, 1, limits)
		require.NoError(t, err)
		require.True(t, v.Allowed)
	}
}

// A store that has nothing but Do cannot delete, and says so.
func TestEraseOfDoAlone(t *testing.T) {
	c, err := New(backend.FromDo(memstore.New(memstore.Config{}).Do), Config{})
	require.NoError(t, err)
	err = c.Erase(context.Background(), Key{"login", "email:ada@example.org"})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NotErrorIs(t, err, ErrStore)
	require.NotContains(t, err.Error(), "ada")
}

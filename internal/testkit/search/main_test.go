package main

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// A script and more on each store, on real servers.
func TestAllStoresAreRight(t *testing.T) {
	var out, log bytes.Buffer
	require.Zero(t, run(trials(), []string{"--for", "1ms"}, &out, &log), &log)
	for _, store := range trials() {
		require.Contains(t, out.String(), store.name)
	}
	require.NotContains(t, log.String(), "again:")
}

// twice is a store that counts a hit twice now and then.
type twice struct{ backend.Store }

func (s twice) Do(ctx context.Context, op *backend.Request) error {
	if op.N == 1 && len(op.Add) > 0 && op.Add[0].Index%50 == 0 {
		again := *op
		again.Add, again.Read = append([]backend.Slot(nil), op.Add...), nil
		if err := s.Store.Do(ctx, &again); err != nil {
			return err
		}
	}
	return s.Store.Do(ctx, op)
}

// A wrong answer ends in 1, with a seed that finds it again and a short script.
func TestAWrongAnswer(t *testing.T) {
	wrong := []*trial{{name: "twice", open: func(*servertest.Stage) (backend.Store, func() error, error) {
		return twice{memory.New(memory.Config{})}, func() error { return nil }, nil
	}}}
	var out, log bytes.Buffer
	require.Equal(t, 1, run(wrong, []string{"--for", "500ms", "--seed", "1"}, &out, &log))
	require.Contains(t, log.String(), "again: go run ./internal/testkit/search --only \"twice\" --seed ")
	require.Contains(t, log.String(), "calls are left")
	require.NotZero(t, wrong[0].wrong.Load())
}

func TestCommandLine(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, run(trials(), []string{"--help"}, &out, io.Discard))
	require.Contains(t, out.String(), "--seed")
	for _, args := range [][]string{{"--for", "0s"}, {"--only", "nothing"}, {"more"}} {
		require.Equal(t, 2, run(trials(), args, io.Discard, io.Discard), args)
	}
}

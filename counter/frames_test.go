package counter_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// framed notes the library's frames on the stack of a call of its store.
type framed struct {
	backend.Store
	frames []string
}

func (s *framed) note() {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for s.frames = nil; ; {
		f, more := frames.Next()
		if strings.Contains(f.Function, "_test.") || !more {
			return
		}
		s.frames = append(s.frames, f.Function)
	}
}

func (s *framed) Do(ctx context.Context, r *backend.Request) error {
	s.note()
	return s.Store.Do(ctx, r)
}

// framedSteps is framed with an atomic step.
type framedSteps struct{ framed }

func (s *framedSteps) Take(ctx context.Context, t *backend.TakeRequest) error {
	s.note()
	store, _ := backend.As[backend.Atomic](s.Store)
	return store.Take(ctx, t)
}

func (s *framedSteps) Together([]backend.TakeKey) bool { return true }

// The way from a Take to the store is short: whoever follows it finds it in take.go
// here and, on a store without an atomic step, in take.go of package ticket.
func TestFramesOfATake(t *testing.T) {
	steps := &framedSteps{framed{Store: memory.New(memory.Config{})}}
	tickets := &framed{Store: memory.New(memory.Config{})}
	for _, c := range []struct {
		store backend.Store
		of    *framed
		most  int
	}{{steps, &steps.framed, 3}, {tickets, tickets, 5}} {
		v, err := newCounter(t, c.store, counter.Config{}).Take(ctx, signup, 1, limits("5/m"))
		require.NoError(t, err)
		require.True(t, v.Allowed)
		require.LessOrEqual(t, len(c.of.frames), c.most, "%q", c.of.frames)
	}
}

package memory_test

import (
	"strings"
	"testing"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memory"
)

// The contents of a store in memory are its snapshot.
func TestErase(t *testing.T) {
	t.Parallel()
	backendtest.Erase(t, func(testing.TB) (backend.Store, backendtest.Contents) {
		s := memory.New(memory.Config{})
		return s, func() (string, error) {
			var b strings.Builder
			err := s.Snapshot(&b)
			return b.String(), err
		}
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(testing.TB) backend.Store { return memory.New(memory.Config{}) })
}

package memory_test

import (
	"testing"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memory"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, func(testing.TB) backend.Store { return memory.New(memory.Config{}) })
}

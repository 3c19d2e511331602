package memory_test

import (
	"testing"

	"github.com/abacus-go/abacus/backend/backendtest"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(testing.TB) counter.Store { return memory.New(memory.Config{}) })
}

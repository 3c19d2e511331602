package measure

import (
	"fmt"
	"sync"

	"github.com/abacus-go/abacus/internal/words"
)

// Mishaps are the failures of a contestant that is not ours. They end no benchmark:
// the row of the contestant has them. The zero Mishaps is empty and ready to use, also
// by several callers at once.
type Mishaps struct {
	mu     sync.Mutex
	failed int64
	first  error
	miss   string
}

// Call notes a call that failed and has counted nothing.
func (m *Mishaps) Call(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed++; m.first == nil {
		m.first = err
	}
}

// Miscount notes the first of the counts that are not as expected.
func (m *Mishaps) Miscount(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.miss == "" {
		m.miss = fmt.Sprintf(format, args...)
	}
}

// Failed is the number of calls that failed.
func (m *Mishaps) Failed() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

// String returns what went wrong, for the row of the contestant: nothing, or all of it.
func (m *Mishaps) String() (s string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed > 0 {
		s = fmt.Sprintf("; %s failed: %v", words.Plural(m.failed, "call"), m.first)
	}
	if m.miss != "" {
		s += "; " + m.miss
	}
	return s
}

package servertest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

// Stage is a testing.TB outside of a test, for programs and examples that start
// servers. A failure ends the goroutine, as in a test, and [Stage.Err] returns it.
// The zero Stage is ready for use, by many goroutines at once.
type Stage struct {
	testing.TB // nil: servertest and package require call none of the other methods

	// OnFailure is called with the first failure, before its goroutine ends.
	OnFailure func(error)

	mu       sync.Mutex
	cleanups []func()
	err      error
}

// Helper does nothing.
func (s *Stage) Helper() {}

// Name returns a name for the messages of package require.
func (s *Stage) Name() string { return "stage" }

// Context returns the context of links: a link lasts as long as the stage.
func (s *Stage) Context() context.Context { return context.Background() }

// TempDir makes a directory that End removes, after the cleanups that were added later.
func (s *Stage) TempDir() string {
	dir := try.To(os.MkdirTemp("", "abacus"))(s)
	s.Cleanup(func() { os.RemoveAll(dir) }) // a rest stays in the system's temporary directory
	return dir
}

// Cleanup adds a function that End calls.
func (s *Stage) Cleanup(cleanup func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, cleanup)
}

// Failed reports whether there was a failure.
func (s *Stage) Failed() bool { return s.Err() != nil }

// Logf writes to the standard error.
func (s *Stage) Logf(format string, args ...any) {
	fmt.Fprintln(os.Stderr, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Errorf reports a failure.
func (s *Stage) Errorf(format string, args ...any) { s.Report(fmt.Errorf(format, args...)) }

// FailNow ends the goroutine.
func (s *Stage) FailNow() { runtime.Goexit() }

// Report notes a failure. Only the first is kept.
func (s *Stage) Report(err error) {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = err
	}
	s.mu.Unlock()
	if first && s.OnFailure != nil {
		s.OnFailure(err)
	}
}

// Err returns the first failure, or nil.
func (s *Stage) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// End runs the cleanups, the latest first.
func (s *Stage) End() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		cleanup := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		cleanup()
	}
}

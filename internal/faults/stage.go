package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// stage is what the servers of internal/servertest want to run in: a test that
// no testing package runs. What fails ends the goroutine and is the error of the
// campaign.
type stage struct {
	testing.TB // for the methods that nobody calls

	mu       sync.Mutex
	dirs     []string
	cleanups []func()
	err      error
	failed   func() // called at the first failure
}

func (s *stage) Helper() {}

// Context is that of links: they last as long as the stage.
func (s *stage) Context() context.Context { return context.Background() }

// TempDir makes a directory that end removes.
func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "abacus-faults")
	if err != nil {
		s.Fatalf("%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs = append(s.dirs, dir)
	return dir
}

func (s *stage) Cleanup(cleanup func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, cleanup)
}

func (s *stage) Failed() bool { return s.error() != nil }

func (s *stage) Logf(format string, args ...any) {
	fmt.Fprintln(os.Stderr, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (s *stage) Fatalf(format string, args ...any) {
	s.fail(fmt.Errorf(format, args...))
	runtime.Goexit()
}

// fail keeps the first error.
func (s *stage) fail(err error) {
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = err
	}
	s.mu.Unlock()
	if first && s.failed != nil {
		s.failed()
	}
}

func (s *stage) error() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// end runs the cleanups, the latest first, and removes the directories.
func (s *stage) end() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			dirs := s.dirs
			s.dirs = nil
			s.mu.Unlock()
			for _, dir := range dirs {
				os.RemoveAll(dir) // what is left is in the system's temporary directory
			}
			return
		}
		cleanup := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		cleanup()
	}
}

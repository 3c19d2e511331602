//go:build unix

package servertest

import (
	"os"
	"syscall"
)

// Suspend stops all threads of p until [Continue].
func Suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Continue ends a [Suspend].
func Continue(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

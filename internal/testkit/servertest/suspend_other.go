//go:build !unix

package servertest

import (
	"errors"
	"os"
)

// Suspend fails on a system without SIGSTOP.
func Suspend(*os.Process) error { return errors.ErrUnsupported }

// Continue fails on a system without SIGCONT.
func Continue(*os.Process) error { return errors.ErrUnsupported }

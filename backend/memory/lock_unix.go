//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package memory

import (
	"os"
	"syscall"
)

// Ways of flock: alone does not wait for other processes; shared waits for those alone.
const (
	alone  = syscall.LOCK_EX | syscall.LOCK_NB
	shared = syscall.LOCK_SH
)

// flock reports whether it got the lock of f, which ends when f is closed. Not all file
// systems have locks.
func flock(f *os.File, how int) bool {
	err := error(syscall.EINTR)
	for err == syscall.EINTR {
		err = syscall.Flock(int(f.Fd()), how)
	}
	return err == nil
}

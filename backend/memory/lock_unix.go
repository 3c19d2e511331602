//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package memory

import (
	"errors"
	"os"
	"syscall"
)

// locks reports whether the system has locks that end with the process.
const locks = true

// lock waits for the lock of f, which ends when f is closed. Without locks on the
// file system no one gets one, and nothing is removed.
func lock(f *os.File) { _ = flock(f, syscall.LOCK_EX) }

// tryLock reports whether f was not locked, and is locked now.
func tryLock(f *os.File) bool { return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil }

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// renameLocked renames f, and then closes it: until f has its new name, no one may
// take it for a file that was left behind.
func renameLocked(f *os.File, name string) error {
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	_ = f.Close() // all is on the disk
	return nil
}

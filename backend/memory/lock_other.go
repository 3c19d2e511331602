//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package memory

import "os"

// locks reports whether the system has locks that end with the process.
const locks = false

func lock(*os.File) {}

func tryLock(*os.File) bool { return false }

// renameLocked closes f, and then renames it: Windows renames no open file.
func renameLocked(f *os.File, name string) error {
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

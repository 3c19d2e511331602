package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// SaveFile writes a [Store.Snapshot] to the named file, which only the owner may
// read: stored keys may have personal data. Until the snapshot is whole and on
// the disk, it has another name in the same directory, NAME.*.tmp with a number:
// after an error, or if the machine dies, the file is as before. What a killed
// process left behind under such a name is removed by the next SaveFile, except on
// systems without flock, such as Windows. A link is followed, as by LoadFile. A
// program calls SaveFile when its last call is over, and from time to time if a
// crash is to cost less.
func (s *Store) SaveFile(name string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("memory: SaveFile: %w", err)
		}
	}()
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	if err := checkRegular(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	removeLeft(name)
	f, err := createTemp(name)
	if err != nil {
		return err
	}
	if err = s.snapshot(f); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = renameLocked(f, name)
	}
	if err != nil {
		_ = f.Close() // closed already, or the error is another
		return errors.Join(err, os.Remove(f.Name()))
	}
	syncDir(filepath.Dir(name))
	return nil
}

// createTemp creates a file of mode 0600 next to the named file, and locks it.
func createTemp(name string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp")
		if err != nil || !locks {
			return f, err
		}
		lock(f)
		// Before the lock, the file looked like one that was left behind.
		created, err := f.Stat()
		if err == nil {
			if there, err := os.Lstat(f.Name()); err == nil && os.SameFile(created, there) {
				return f, nil
			}
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// removeLeft removes the files of createTemp that no one has locked: their
// processes have ended. What cannot be removed stays.
func removeLeft(name string) {
	if !locks {
		return
	}
	dir, prefix := filepath.Dir(name), filepath.Base(name)+"."
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		number, is := strings.CutSuffix(entry.Name(), ".tmp")
		number, begins := strings.CutPrefix(number, prefix)
		if _, err := strconv.ParseUint(number, 10, 64); !is || !begins || err != nil || !entry.Type().IsRegular() {
			continue
		}
		if f, err := os.Open(filepath.Join(dir, entry.Name())); err == nil {
			if tryLock(f) {
				_ = os.Remove(f.Name())
			}
			_ = f.Close()
		}
	}
}

// checkRegular returns an error unless the named file is a regular file: to open a
// named pipe lasts until another process opens it, and a rename replaces a device.
func checkRegular(name string) error {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is of mode %s, want a regular file", name, info.Mode())
	}
	return err
}

// syncDir brings a new name in a directory to the disk, where the system can: the
// name is there for all programs already.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// LoadFile does a [Store.Restore] from the file of a [Store.SaveFile]. A file that
// is not there is no error, and leaves the store empty: so a program begins with
// LoadFile, the first time too. Anything but a regular file is refused. An error
// leaves the choice: to stop, or to move the file away and count from zero.
func (s *Store) LoadFile(name string) error {
	err := checkRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.loadFile(name)
	}
	if err != nil {
		return fmt.Errorf("memory: LoadFile %s: %w", name, err)
	}
	return nil
}

func (s *Store) loadFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // is read only
	return s.restore(f)
}

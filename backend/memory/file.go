package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SaveFile writes a [Store.Snapshot] to the named file, which only the owner may
// read: stored keys may have personal data. Until the snapshot is whole and on
// the disk, it has another name in the same directory: after an error, or if the
// machine dies, the file is as before, and what was written stays as NAME.*.tmp if
// the process was killed. A link is followed, as by LoadFile. A program calls SaveFile when its last
// call is over, and from time to time if a crash is to cost less.
func (s *Store) SaveFile(name string) (err error) {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp") // of mode 0600
	if err != nil {
		return fmt.Errorf("memory: SaveFile: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("memory: SaveFile: %w", errors.Join(err, os.Remove(f.Name())))
		}
	}()
	err = s.snapshot(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return err
	}
	syncDir(filepath.Dir(name))
	return nil
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
// LoadFile, the first time too. An error leaves the choice: to stop, or to move
// the file away and count from zero.
func (s *Store) LoadFile(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.restore(f)
		_ = f.Close() // was read only
	}
	if err != nil {
		return fmt.Errorf("memory: LoadFile %s: %w", name, err)
	}
	return nil
}

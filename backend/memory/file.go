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
// process left behind under such a name is removed by the next SaveFile that is
// alone in the directory, except on systems without flock, such as Windows. A link
// is followed, as by LoadFile. A program calls SaveFile when its last call is over,
// and from time to time if a crash is to cost less.
func (s *Store) SaveFile(name string) error {
	if err := s.saveFile(name); err != nil {
		return fmt.Errorf("memory: SaveFile: %w", err)
	}
	return nil
}

func (s *Store) saveFile(name string) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	if err := checkRegular(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, base := filepath.Dir(name), filepath.Base(name)
	if d, err := os.Open(dir); err == nil {
		// A writer has a share in the lock of the directory until its file has the name.
		if flock(d, alone) {
			removeLeft(d, base+".")
		}
		flock(d, shared)
		defer d.Close()
		defer d.Sync() // the new name too, where the system can
	}
	f, err := os.CreateTemp(dir, base+".*.tmp")
	if err != nil {
		return err
	}
	if err = s.snapshot(f); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// removeLeft removes the files of CreateTemp with a prefix in d. What cannot be
// removed stays.
func removeLeft(d *os.File, prefix string) {
	entries, _ := d.ReadDir(-1)
	for _, entry := range entries {
		number, is := strings.CutSuffix(entry.Name(), ".tmp")
		number, begins := strings.CutPrefix(number, prefix)
		if _, err := strconv.ParseUint(number, 10, 64); is && begins && err == nil && entry.Type().IsRegular() {
			_ = os.Remove(filepath.Join(d.Name(), entry.Name()))
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

package memory

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	s := New(Config{})
	require.NoError(t, s.LoadFile(name), "the first start")
	requireUntouched(t, s)
	require.NoError(t, s.Take(context.Background(), taking(t, dayLadder, "key", noon, counter.Limit{Max: 9, Per: time.Minute})))
	for range 2 { // the second replaces the first
		require.NoError(t, s.SaveFile(name))
	}
	if runtime.GOOS != "windows" {
		info := try.To(os.Stat(name))(t)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	next := New(Config{})
	require.NoError(t, next.LoadFile(name))
	require.Equal(t, contents(s), contents(next))
	files := try.To(os.ReadDir(dir))(t)
	require.Len(t, files, 1, "no other file is left")

	require.NoError(t, os.Truncate(name, 0))
	err := New(Config{}).LoadFile(name)
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorContains(t, err, name)

	// A directory in the place of the file stays, and no new file does.
	require.NoError(t, os.Remove(name))
	require.NoError(t, os.MkdirAll(filepath.Join(name, "in the way"), 0o700))
	require.Error(t, s.SaveFile(name))
	files = try.To(os.ReadDir(dir))(t)
	require.Len(t, files, 1)
	require.Error(t, New(Config{}).LoadFile(name), "a directory is no snapshot")
	require.Error(t, s.SaveFile(filepath.Join(dir, "missing", "counts")))
}

// A link is followed, as by LoadFile.
func TestSaveFileFollowsALink(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "disk"), 0o700))
	target, link := filepath.Join(dir, "disk", "counts"), filepath.Join(dir, "counts")
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	require.NoError(t, os.Symlink(target, link))
	require.NoError(t, New(Config{}).SaveFile(link))
	info := try.To(os.Lstat(link))(t)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	info = try.To(os.Stat(target))(t)
	require.NotZero(t, info.Size())
}

// A file that a killed process left behind goes with the next SaveFile that is alone in
// the directory, and no file of another name.
func TestFilesOfEndedProcessesAreRemoved(t *testing.T) {
	if alone == shared {
		t.Log("this system has no lock that ends with a process: nothing is removed")
		return
	}
	dir := t.TempDir()
	for _, file := range []string{"counts.1.tmp", "counts.173.tmp", "counts.mine.tmp", "counts.2.bak", "others.3.tmp"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "counts.5.tmp"), 0o700))
	save := func() (names []string) {
		require.NoError(t, New(Config{}).SaveFile(filepath.Join(dir, "counts")))
		files := try.To(os.ReadDir(dir))(t)
		for _, f := range files {
			names = append(names, f.Name())
		}
		return names
	}
	other, err := os.Open(dir) // as a process that writes
	require.NoError(t, err)
	require.True(t, flock(other, shared))
	require.Equal(t, []string{"counts", "counts.1.tmp", "counts.173.tmp", "counts.2.bak", "counts.5.tmp", "counts.mine.tmp", "others.3.tmp"}, save())
	require.NoError(t, other.Close())
	require.Equal(t, []string{"counts", "counts.2.bak", "counts.5.tmp", "counts.mine.tmp", "others.3.tmp"}, save())
}

// Savers of one file, at once, neither fail nor remove each other's files.
func TestSaversAtOnce(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	s := New(Config{})
	require.NoError(t, s.Take(context.Background(), taking(t, dayLadder, "key", noon, counter.Limit{Max: 9, Per: time.Minute})))
	const savers = 8
	done := make(chan error)
	for range savers {
		go func() {
			var err error
			for i := 0; i < 20 && err == nil; i++ {
				err = s.SaveFile(name)
			}
			done <- err
		}()
	}
	for range savers {
		assert.NoError(t, <-done)
	}
	next := New(Config{})
	require.NoError(t, next.LoadFile(name))
	require.Equal(t, contents(s), contents(next))
	require.Len(t, try.To(os.ReadDir(dir))(t), 1)
}

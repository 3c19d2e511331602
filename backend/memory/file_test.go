package memory

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
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
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	next := New(Config{})
	require.NoError(t, next.LoadFile(name))
	require.Equal(t, contents(s), contents(next))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "no other file is left")

	require.NoError(t, os.Truncate(name, 0))
	err = New(Config{}).LoadFile(name)
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorContains(t, err, name)

	// A directory in the place of the file stays, and no new file does.
	require.NoError(t, os.Remove(name))
	require.NoError(t, os.MkdirAll(filepath.Join(name, "in the way"), 0o700))
	require.Error(t, s.SaveFile(name))
	files, err = os.ReadDir(dir)
	require.NoError(t, err)
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
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	info, err = os.Stat(target)
	require.NoError(t, err)
	require.NotZero(t, info.Size())
}

//go:build unix

package memory

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A named pipe is refused at once: to open it would last until a writer comes. Nor
// is it replaced.
func TestAPipeIsNoFileOfCounts(t *testing.T) {
	name := filepath.Join(t.TempDir(), "counts")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	require.ErrorContains(t, New(Config{}).LoadFile(name), name+" is of mode prw-------, want a regular file")
	require.ErrorContains(t, New(Config{}).SaveFile(name), "want a regular file")
}

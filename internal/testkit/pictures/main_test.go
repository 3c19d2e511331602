package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The documentation has the pictures of this program. Each counter of the cover is a
// coloured bucket.
func TestPicturesAreDrawnByTheProgram(t *testing.T) {
	for _, s := range schemes {
		rods, err := drawRods(s)
		require.NoError(t, err)
		stored, err := os.ReadFile(filepath.Join("../../../docs/pictures", "rods-"+s.name+".svg"))
		require.NoError(t, err)
		require.Equal(t, string(stored), string(rods), `run "make pictures"`)
		require.Contains(t, string(rods), ": 80 counters are read")
		require.Equal(t, 80, strings.Count(string(rods), `fill="`+s.read+`"`))
	}
}

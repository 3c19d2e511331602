package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The documentation has the pictures of this program.
func TestPicturesAreDrawnByTheProgram(t *testing.T) {
	for _, s := range schemes {
		for _, p := range pictures {
			drawn, err := p.draw(s)
			require.NoError(t, err)
			stored, err := os.ReadFile(filepath.Join("../../../docs/pictures", p.file(s)))
			require.NoError(t, err)
			require.Equal(t, string(stored), string(drawn), `run "make pictures"`)
		}
	}
}

// Each counter of the cover is a coloured bucket.
func TestRodsHaveTheWholeCover(t *testing.T) {
	rods, err := drawRods(schemes[0])
	require.NoError(t, err)
	require.Contains(t, string(rods), ": 80 counters are read")
	require.Equal(t, 80, strings.Count(string(rods), `fill="`+schemes[0].ours+`"`))
}

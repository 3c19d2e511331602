package tiers_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// The picture of the rods shows a cover: each bucket that is read has the colour of
// abacus.
func TestRodsHaveTheWholeCover(t *testing.T) {
	cover := try.To(tiers.Default.Cover(time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC), 24*time.Hour, 0))(t)
	for file, colour := range map[string]string{"rods-light.svg": "#8a2a8c", "rods-dark.svg": "#e08fe0"} {
		rods := try.To(os.ReadFile("../docs/pictures/" + file))(t)
		require.Contains(t, string(rods), fmt.Sprintf("sum of %d buckets", cover.Reads()))
		require.Contains(t, string(rods), fmt.Sprintf(": %d buckets at most say it all", cover.Reads()))
		require.EqualValues(t, cover.Reads(), strings.Count(string(rods), `fill="`+colour+`"`), file)
	}
}

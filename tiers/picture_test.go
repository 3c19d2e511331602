package tiers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// ours is the colour of abacus on all pages: on a light ground, and on a dark one.
func ours(t *testing.T) (colours []string) {
	css := try.To(os.ReadFile("../cmd/internal/web/base.css"))(t)
	for _, found := range regexp.MustCompile(`--ours:(#[0-9a-f]{6})`).FindAllStringSubmatch(string(css), -1) {
		colours = append(colours, found[1])
	}
	require.Len(t, colours, 2)
	return colours
}

// All pictures have the colour of abacus that the pages have for their ground, and not the
// other one.
func TestPicturesHaveTheColour(t *testing.T) {
	pictures := try.To(filepath.Glob("../docs/pictures/*.svg"))(t)
	require.Len(t, pictures, 6)
	for _, name := range append(pictures, "../cmd/internal/web/pages/icon.svg") {
		picture := try.To(os.ReadFile(name))(t)
		right, wrong := ours(t)[0], ours(t)[1]
		if strings.HasSuffix(name, "-dark.svg") {
			right, wrong = wrong, right
		}
		require.Contains(t, string(picture), `fill="`+right+`"`, name)
		require.NotContains(t, string(picture), wrong, name)
		if strings.Contains(string(picture), ">abacus<") {
			require.Contains(t, string(picture), `fill="`+right+`">abacus<`, name)
		}
	}
}

// The picture of the rods shows a cover: each bucket that is read has the colour of
// abacus.
func TestRodsHaveTheWholeCover(t *testing.T) {
	cover := try.To(tiers.Default.Cover(time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC), 24*time.Hour, 0))(t)
	for file, colour := range map[string]string{"rods-light.svg": ours(t)[0], "rods-dark.svg": ours(t)[1]} {
		rods := try.To(os.ReadFile("../docs/pictures/" + file))(t)
		require.Contains(t, string(rods), fmt.Sprintf("sum of %d buckets", cover.Reads()))
		require.Contains(t, string(rods), fmt.Sprintf(": %d buckets at most say it all", cover.Reads()))
		require.EqualValues(t, cover.Reads(), strings.Count(string(rods), `fill="`+colour+`"`), file)
	}
}

// The numbers of README and docs/design.md.
func TestReadsOverADay(t *testing.T) {
	var least, most, sum int64 = 1000, 0, 0
	for second := range int64(86_400) {
		n := try.To(tiers.Default.Cover(time.Unix(second, 0), 24*time.Hour, 0))(t).Reads()
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	require.EqualValues(t, []int64{25, 142, 83}, []int64{least, most, sum / 86_400})
	require.InDelta(t, 83.0, float64(sum)/86_400, 0.05)
}

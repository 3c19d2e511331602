package page

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShades(t *testing.T) {
	require.Equal(t, []int64{1}, shades(1))
	require.Equal(t, []int64{1, 2, 3, 4}, shades(4))
	require.Equal(t, []int64{1, 3, 5, 11, 25, 54}, shades(118))
	require.Len(t, shades(math.MaxInt64), heatSteps)
	from := shades(118)
	for count, step := range map[int64]int{1: 0, 2: 0, 3: 1, 10: 2, 11: 3, 118: 5, 1e9: 5} {
		require.Equal(t, step, shadeOf(count, from), count)
	}
	require.Equal(t, "h4", shadeClass(0, 1), "a lone shade is of medium strength")
	for n := 2; n <= heatSteps; n++ {
		require.Equal(t, "h1", shadeClass(0, n))
		require.Equal(t, fmt.Sprintf("h%d", heatSteps), shadeClass(n-1, n))
		for s := 1; s < n; s++ {
			require.Less(t, shadeClass(s-1, n), shadeClass(s, n))
		}
	}
}

func TestUnbeaten(t *testing.T) {
	dots := []dot{
		{Name: "small", Bytes: 1, Wrong: 9}, {Name: "exact", Bytes: 9, Wrong: 0}, {Name: "between", Bytes: 4, Wrong: 4}, {Name: "twin", Bytes: 4, Wrong: 4},
		{Name: "beaten", Bytes: 5, Wrong: 5}, {Name: "as small", Bytes: 1, Wrong: 10}, {Name: "as exact", Bytes: 10, Wrong: 0},
	}
	require.Equal(t, []string{"small", "exact", "between", "twin"}, unbeaten(dots, 0))
	require.Equal(t, []string{"small", "between", "twin"}, unbeaten(dots, 4), "an error below least is no better than least")
}

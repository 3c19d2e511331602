package long

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/race"
)

func TestForms(t *testing.T) {
	for form, long := range map[string]bool{"": false, "short": false, "long": true} {
		t.Setenv(variable, form)
		require.Equal(t, long, Asked(), form)
		want := 3
		if long && !race.On {
			want = 7
		}
		require.Equal(t, want, Rounds(3, 7), form)
		ran := false
		t.Run(form, func(t *testing.T) {
			Only(t, "a test of the long form")
			ran = true
		})
		require.Equal(t, long, ran, form)
	}
	t.Setenv(variable, "lnog")
	require.PanicsWithValue(t, `ABACUS_TESTS is "lnog", want short, long or nothing`, func() { Asked() })
}

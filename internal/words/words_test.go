package words

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommas(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1_000: "1,000", 86_400: "86,400", 1_000_000: "1,000,000", -1: "-1", -999: "-999", -1_000: "-1,000", -123_456: "-123,456",
		math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		require.Equal(t, want, Commas(n))
	}
}

func TestPlural(t *testing.T) {
	require.Equal(t, "1 key", Plural(1, "key"))
	require.Equal(t, "0 keys", Plural(0, "key"))
	require.Equal(t, "2,000 keys", Plural(2000, "key"))
}

func TestQuoted(t *testing.T) {
	for want, names := range map[string][]string{
		`nothing`:           nil,
		`"a"`:               {"a"},
		`"a" and "b"`:       {"a", "b"},
		`"a", "b\"" and ""`: {"a", `b"`, ""},
	} {
		require.Equal(t, want, Quoted(names))
	}
}

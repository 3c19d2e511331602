package keytext

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"":                      "",
		"ab":                    "",
		"!~":                    "",
		strings.Repeat("a", 32): "",
		strings.Repeat("a", 33): "33 bytes, want at most 32",
		"a:b":                   "want printable ASCII",
		"a b":                   "want printable ASCII",
		"a%b":                   "want printable ASCII",
		"{":                     "want printable ASCII",
		"ä":                     "want printable ASCII",
		"\x7f":                  "want printable ASCII",
	} {
		err := CheckPrefix(prefix)
		if want == "" {
			require.NoError(t, err, prefix)
		} else {
			require.ErrorContains(t, err, want, prefix)
		}
	}
}

func TestEscapes(t *testing.T) {
	require.Equal(t, "x a%20b%3Ac%25", string(Event.AppendEscaped([]byte("x "), "a b:c%")))
	require.Equal(t, "a%20b:c%00%FF", string(Feature.AppendEscaped(nil, "a b:c\x00\xff")))
	long := strings.Repeat("a", 10_000)
	require.LessOrEqual(t, len(Feature.AppendEscaped(nil, long)), maxEscaped+3)
	require.True(t, Feature.Has("a:b"))
	require.False(t, Event.Has("a:b"))
}

func TestDigests(t *testing.T) {
	seen := map[string]bool{}
	for _, parts := range [][3]string{{"a", "bc", ""}, {"ab", "c", ""}, {"a", "bc", "secret"}, {"a", "bc", "secrets"}} {
		d := string(AppendDigest(nil, parts[0], parts[1], []byte(parts[2])))
		require.Len(t, d, DigestLen)
		require.False(t, seen[d])
		seen[d] = true
	}
}

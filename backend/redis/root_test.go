package redis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// An answer that no script of the store gives is an error, not a panic and not
// a zero.
func TestRootsThatAreNone(t *testing.T) {
	g := groupsOf(nil, tiers.Default)[0]
	head := "\x02\x00\x00\x00\x00\x00\x00\x00\x00"
	for _, value := range []string{"7", head, head + "1234", "\x03" + head[1:] + "12345678", head + "1234567"} {
		_, err := parseRoot(g, value)
		require.ErrorIs(t, err, errDamaged, "%q", value)
	}
	try.To(parseRoot(g, head+"123456"))(t)
	for kind, leaf := range map[int]string{1: "123", 2: "1", 3: "123", 4: "123456", 5: "", 7: "1234567"} {
		_, err := under(leaf, kind, 1, 1<<52)
		require.ErrorIs(t, err, errDamaged, "%d %q", kind, leaf)
	}
	_, err := under("\x00\x00\x00\x09", sparseKind, 1, 8)
	require.ErrorIs(t, err, errDamaged, "a leaf has more than its share")
	require.EqualValues(t, 9, try.To(under("\x00\x00\x00\x09", sparseKind, 1, 9))(t))
}

package classic

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
)

// Redis 7.2 names the key that a user has no right to; the server of these tests
// does not.
func TestAnErrorThatNamesTheKey(t *testing.T) {
	key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	err := &storeError{"gcra", key, errors.New("NOPERM User x has no permissions to access the 'cl:gcra:1m" + tag(key) + "' key")}
	require.EqualError(t, err, `classic: gcra: event "signup": NOPERM User x has no permissions to access the 'cl:gcra:1m{...}' key`)
}

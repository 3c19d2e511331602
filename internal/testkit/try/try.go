// Package try makes checks of a call that returns a value and an error short.
package try

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// To returns a function that returns v, or ends the test if err is not nil:
//
//	store := try.To(redis.Open(url))(t)
func To[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T { t.Helper(); require.NoError(t, err); return v }
}

// Err returns err alone, for a check of the error:
//
//	require.ErrorIs(t, try.Err(redis.Open(url)), io.EOF)
func Err[T any](_ T, err error) error { return err }

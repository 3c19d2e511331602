package redisscript

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Errors in the words of Redis 7, Valkey and Redis 6 say what failed, and not in which line of
// which script.
func TestErrorsWithoutThePlace(t *testing.T) {
	const full, foreign = "OOM command not allowed when used memory > 'maxmemory'.", "what is stored for this key was not written by this store: "
	for text, want := range map[string]string{
		full: full,
		full + " script: 2d4f1ac0e9, on @user_script:478.":                                                       full,
		"ERR Error running script (call to f_2d4f1ac0e9): @user_script:478: @user_script: 478: -" + full + "   ": full,
		"WRONGTYPE not a string script: abacus_27ad_take, on @user_function:4.":                                  foreign + "WRONGTYPE not a string",
		"ERR user_script:4: no number script: 2d4f1ac0e9, on @user_script:4.":                                    foreign + "ERR user_script:4: no number",
		"NOSCRIPT No matching script. Please use EVAL.":                                                          "NOSCRIPT No matching script. Please use EVAL.",
	} {
		answer := errors.New(text)
		err := (&Server{name: "a:1"}).Failed(t.Context(), answer)
		require.EqualError(t, err, "redis: a:1: "+want)
		require.ErrorIs(t, err, answer)
	}
}

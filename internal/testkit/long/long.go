// Package long has the two forms of the tests of this repository.
//
// The short form is the default of go test and of make test: each promise has a test,
// with few worlds and rounds, and no test of the short form waits long or depends on
// the speed of the machine. The long form has all rounds, planted faults, and tests
// in real time. ABACUS_TESTS=long asks for the long form, and make check does.
package long

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/race"
)

// variable is the environment variable that names the form.
const variable = "ABACUS_TESTS"

// Asked reports whether the long form is asked for, and panics for an unknown form.
// Only a running test may call Asked: go test does not see what a package reads
// before its tests begin, and would answer from the cache for the other form.
func Asked() bool {
	switch form := os.Getenv(variable); form {
	case "", "short":
		return false
	case "long":
		return true
	default:
		panic(fmt.Sprintf("%s is %q, want short, long or nothing", variable, form))
	}
}

// Only skips a test that is part of the long form alone. why says what the test
// costs, and what the short form has in its place.
func Only(t testing.TB, why string) {
	t.Helper()
	if !Asked() {
		t.Skipf("%s=long runs this test: %s", variable, why)
	}
}

// Rounds returns the number of rounds of a test: many in the long form, and few in
// the short form and under the race detector. The race detector makes a round some
// ten times as slow, and finds a data race in few rounds.
func Rounds(few, many int) int {
	if Asked() && !race.On {
		return many
	}
	return few
}

// Less fails a test of the long form that took as long as limit by the clock of the
// wall. The short form judges no time: a machine with other work to do is slow.
func Less(t testing.TB, took, limit time.Duration, about ...any) {
	t.Helper()
	if Asked() {
		require.Less(t, took, limit, about...)
	}
}

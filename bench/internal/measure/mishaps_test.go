package measure

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMishaps(t *testing.T) {
	var m Mishaps
	require.Empty(t, m.String())
	m.Call(errors.New("busy"))
	require.Equal(t, "; 1 call failed: busy", m.String())
	m.Call(errors.New("gone"))
	m.Miscount("counted %d hits of %d", 3, 4)
	m.Miscount("counted %d hits of %d", 5, 6)
	require.EqualValues(t, 2, m.Failed())
	require.Equal(t, "; 2 calls failed: busy; counted 3 hits of 4", m.String())
}

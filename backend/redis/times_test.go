package redis

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/stretchr/testify/require"
)

// What undoes a late step that was made several times undoes as much as the answer says.
func TestTakeBackOfSeveralTimes(t *testing.T) {
	ask := request{}
	ask.begin(modeCount, false, true)
	ask[optionsAt] |= timesOption
	ask.uint(9, timesBytes)
	answer := append([]byte{timesByte}, 0, 0, 0, 0, 0, 1, 2, 'x', 'y')
	of := try.To(readReply(bufio.NewReader(strings.NewReader(fmt.Sprintf("$%d\r\n%s\r\n", len(answer), answer)))))(t)
	require.Equal(t, countedTimes+258, of)
	require.Equal(t, of, outcomeOf(string(answer)))
	require.True(t, ask.takeBack(of))
	require.EqualValues(t, modeBack, ask[modeAt])
	require.EqualValues(t, 258, number(string(ask[len(ask)-timesBytes:])))

	for short, want := range map[string]outcome{"": notCounted, "\x04": notCounted, "\x01": counted, "\x03\x00": countedPart} {
		of := try.To(readReply(bufio.NewReader(strings.NewReader(fmt.Sprintf("$%d\r\n%s\r\n", len(short), short)))))(t)
		require.Equal(t, want, of)
		require.Equal(t, want, outcomeOf(short))
	}
}

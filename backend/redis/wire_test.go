package redis

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// command returns the bytes of a call of a function.
func command(function string, r request) []byte {
	return append([]byte("*5\r\n"), bulk("fcall", function, "1", "key", string(r))...)
}

// requestOf returns a request that counts, and can be told from others by its last byte.
func requestOf(number byte) (r request) {
	r.begin(modeCount, false, false)
	return append(r, number)
}

// The answers to a pipeline stop in the middle, and the rest comes when the client has
// given up: the hits of the rest are taken back, and no hit whose answer the client has.
func TestTheRestOfAPipelineIsTakenBack(t *testing.T) {
	pipeline := [][]byte{
		command(scripts().peek.function, requestOf(0)),
		command(scripts().take.function, requestOf(1)),
		command(scripts().do.function, requestOf(2)),
		command(scripts().take.function, requestOf(3)),
		command(scripts().take.function, requestOf(4)),
		command(scripts().read.function, requestOf(5)),
		command(scripts().do.function, requestOf(6)),
		command(scripts().take.function, requestOf(7)),
	}
	added, late, pair := "$1\r\n\x01\r\n", "$1\r\n\x02\r\n", "*2\r\n:1\r\n:2\r\n"
	gaveUp, taken := make(chan struct{}), make(chan request, 10)
	addr := servertest.Serve(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		line := func() (n int) {
			text, _ := in.ReadString('\n')
			if len(text) > 3 {
				n, _ = strconv.Atoi(text[1 : len(text)-2])
			}
			return n
		}
		next := func() (last request) {
			for n := line(); n > 0; n-- {
				last = make(request, line()+2)
				if _, err := io.ReadFull(in, last); err != nil {
					return nil
				}
				last = last[:len(last)-2]
			}
			return last
		}
		for range pipeline {
			next()
		}
		fmt.Fprint(conn, added, ":0\r\n", pair, "$1\r\n") // the fourth answer has begun
		<-gaveUp
		fmt.Fprint(conn, "\x01\r\n", late, pair, pair, ":7\r\n")
		for r := next(); r != nil; r = next() {
			taken <- r
			fmt.Fprint(conn, added)
		}
		close(taken)
	})
	dialer := NewDialer(nil)
	c, err := dialer.DialContext(context.Background(), "tcp", addr)
	require.NoError(t, err)
	_, err = c.Write(bytes.Join(pipeline, nil))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	for err == nil {
		_, err = c.Read(make([]byte, 7))
	}
	require.True(t, errors.Is(err, os.ErrDeadlineExceeded))
	require.NoError(t, c.Close())
	close(gaveUp)
	for _, number := range []byte{3, 6, 7} {
		r := <-taken
		require.EqualValues(t, modeBack, r[modeAt])
		require.Equal(t, number, r[len(r)-1])
	}
	_, more := <-taken
	require.False(t, more)
	require.NoError(t, dialer.Close())
	require.EqualValues(t, 3, dialer.answered.Load())
	require.EqualValues(t, 3, dialer.takenBack.Load())
	require.EqualValues(t, 1, dialer.tooLate.Load())
	require.Zero(t, dialer.notTaken.Load()+dialer.abandoned.Load())
}

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

// An answer that no script of the store gives is an error, not a panic and not
// a zero.
func TestRootsThatAreNone(t *testing.T) {
	g := groupsOf(nil, tiers.Default)[0]
	head := "\x02\x00\x00\x00\x00\x00\x00\x00\x00"
	for _, value := range []string{"7", head, head + "1234", "\x03" + head[1:] + "12345678", head + "1234567"} {
		require.ErrorIs(t, try.Err(parseRoot(g, value)), errDamaged, "%q", value)
	}
	try.To(parseRoot(g, head+"123456"))(t)
	for kind, leaf := range map[int]string{1: "123", 2: "1", 3: "123", 4: "123456", 5: "", 7: "1234567"} {
		require.ErrorIs(t, try.Err(under(leaf, kind, 1, 1<<52)), errDamaged, "%d %q", kind, leaf)
	}
	require.ErrorIs(t, try.Err(under("\x00\x00\x00\x09", sparseKind, 1, 8)), errDamaged, "a leaf has more than its share")
	require.EqualValues(t, 9, try.To(under("\x00\x00\x00\x09", sparseKind, 1, 9))(t))
}

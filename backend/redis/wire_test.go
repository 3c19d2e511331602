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
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/servertest"
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
		command(peekScript.function, requestOf(0)),
		command(takeScript.function, requestOf(1)),
		command(doScript.function, requestOf(2)),
		command(takeScript.function, requestOf(3)),
		command(takeScript.function, requestOf(4)),
		command(readScript.function, requestOf(5)),
		command(doScript.function, requestOf(6)),
		command(takeScript.function, requestOf(7)),
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

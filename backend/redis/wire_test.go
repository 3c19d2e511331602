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

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/redisscript"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

// command returns the bytes of a call of a function.
func command(function string, r request) []byte {
	return append([]byte("*5\r\n"), bulk("fcall", function, "1", "key", string(r))...)
}

// takeOf and doOf return requests that count: of a root with a window, and of a bucket whose
// count is returned. The last byte distinguishes them.
func takeOf(number byte) (r request) {
	r.begin(modeCount, false, false)
	r = append(append(r, make([]byte, 29)...), 1) // the windows
	return append(append(r, make([]byte, 13)...), number)
}

func doOf(number byte) (r request) {
	r.begin(modeCount, false, false)
	r.uint(1, 7)                                  // the hits
	r = append(append(r, make([]byte, 23)...), 1) // the buckets to be told
	return append(append(r, make([]byte, 3+12)...), number)
}

// The answers to a pipeline stop in the middle, and the rest comes when the client has
// given up: the hits of the rest are taken back, and no hit whose answer the client has.
func TestTheRestOfAPipelineIsTakenBack(t *testing.T) {
	pipeline := [][]byte{
		command(scripts().peek.function, takeOf(0)),
		command(scripts().take.function, takeOf(1)),
		command(scripts().do.function, doOf(2)),
		command(scripts().take.function, takeOf(3)),
		command(scripts().take.function, takeOf(4)),
		command(scripts().read.function, doOf(5)),
		command(scripts().do.function, doOf(6)),
		command(scripts().take.function, takeOf(7)),
	}
	added, late, pair := "$21\r\n\x01"+strings.Repeat("x", 20)+"\r\n", "$8\r\n\x02at noon\r\n", "*2\r\n:1\r\n:2\r\n"
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
		fmt.Fprint(conn, added, ":0\r\n", pair, added[:5]) // the fourth answer has begun
		<-gaveUp
		fmt.Fprint(conn, added[5:], late, pair, pair, ":7\r\n")
		for r := next(); r != nil; r = next() {
			taken <- r
			if r[len(r)-1] == 6 {
				fmt.Fprint(conn, "*1\r\n:0\r\n")
			} else {
				fmt.Fprint(conn, "$1\r\n\x01\r\n")
			}
		}
		close(taken)
	})
	dialer := NewDialer(nil)
	c := try.To(dialer.DialContext(context.Background(), "tcp", addr))(t)
	_, err := c.Write(bytes.Join(pipeline, nil))
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

// A list with a wrong length has swallowed the next answer, or has left a number for it.
// No call after it is answered by what follows, and no hit is undone for it.
func TestAnswersAfterAWrongOne(t *testing.T) {
	two := append(takeOf(0)[:requestHead+30+13], takeOf(1)[requestHead:]...)
	denied := "$20\r\n\x00" + strings.Repeat("x", 19) + "\r\n"
	for answers, last := range map[string]string{
		"*4\r\n:0\r\n:0\r\n:9\r\n" + denied: ":0\r\n",
		"*2\r\n:0\r\n:0\r\n:9\r\n" + denied: denied,
		"$-1\r\n:9\r\n" + denied:            denied,
	} {
		addr := servertest.Serve(t, func(conn net.Conn) {
			in := bufio.NewReader(conn)
			for asked := 0; asked < 3; {
				text, err := in.ReadString('\n')
				switch strings.ToLower(strings.TrimSpace(text)) {
				case "hello", "client":
					fmt.Fprint(conn, "-ERR unknown command\r\n")
				case "fcall":
					asked++
				}
				if err != nil {
					return
				}
			}
			fmt.Fprint(conn, answers, last)
		})
		client := goredis.NewClient(&goredis.Options{Addr: addr, DisableIdentity: true, MaxRetries: -1})
		q := newQueue(client, func(context.Context, *call) { t.Error("undone") })
		batch := make([]*call, 3)
		for i := range batch {
			keys, r := []string{"k"}, takeOf(0)
			if i == 0 {
				keys, r = []string{"a", "b"}, two
			}
			cmd := redisscript.Command(t.Context(), "fcall", scripts().take.function, keys, []byte(r))
			batch[i] = &call{Cmd: cmd.Cmd, program: scripts().take, keys: keys, argument: r, deadline: time.Now().Add(time.Second), done: make(chan struct{})}
		}
		q.sendAll(batch)
		for i, c := range batch {
			require.ErrorIs(t, c.Err(), errShape, "call %d of %q: %v", i, answers, c.Val())
		}
		q.close()
		require.NoError(t, client.Close())
	}

	// The same to a Dialer that waits for answers after the client has gone.
	sent := exchangesOf(bytes.Join([][]byte{
		append([]byte("*6\r\n"), bulk("fcall", scripts().take.function, "2", "a", "b", string(two))...), command(scripts().take.function, takeOf(1)),
	}, nil))
	near, far := net.Pipe()
	defer far.Close()
	dialer := NewDialer(nil)
	dialer.await(&conn{Conn: near, dialer: dialer, answers: []byte("*2\r\n:0\r\n:0\r\n:9\r\n" + denied)}, sent)
	require.EqualValues(t, 2, dialer.abandoned.Load())
	require.Zero(t, dialer.answered.Load())
}

// What undoes a late step that was made several times undoes as much as the answer says.
func TestTakeBackOfSeveralTimes(t *testing.T) {
	ask := request{}
	ask.begin(modeCount, false, true)
	ask[optionsAt] |= timesOption
	ask.uint(9, timesBytes)
	answer := append([]byte{timesByte}, 0, 0, 0, 0, 0, 1, 2, 'x', 'y')
	outcomeIn := func(answer string) outcome {
		of, _, err := readReply(bufio.NewReader(strings.NewReader(fmt.Sprintf("$%d\r\n%s\r\n", len(answer), answer))))
		require.NoError(t, err)
		return of
	}
	of := outcomeIn(string(answer))
	require.Equal(t, countedTimes+258, of)
	require.Equal(t, of, outcomeOf(string(answer)))
	require.True(t, ask.takeBack(of))
	require.EqualValues(t, modeBack, ask[modeAt])
	require.EqualValues(t, 258, number(string(ask[len(ask)-timesBytes:])))

	for short, want := range map[string]outcome{"": notCounted, "\x04": notCounted, "\x01": counted, "\x03\x00": countedPart} {
		require.Equal(t, want, outcomeIn(short))
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

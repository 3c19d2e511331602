package memcache_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

func times(n int, lines ...string) (all []string) {
	for range n {
		all = append(all, lines...)
	}
	return all
}

// script answers requests in turn, whatever the requests.
func script(answers ...string) func(string) string {
	var next atomic.Int64
	return func(string) string {
		if i := int(next.Add(1)) - 1; i < len(answers) {
			return answers[i] + "\r\n"
		}
		return "SERVER_ERROR the script is over\r\n"
	}
}

// The commands of an addition without meta commands, for each sequence of answers.
func TestStepsOfAnAddition(t *testing.T) {
	const add, incr = "add k|1m1 0 3662 1 0", "incr k|1m1 5"
	for name, row := range map[string]struct {
		answers []string
		asked   []string // nil: the connection ends in the middle
		count   int64
		err     string
	}{
		"there":                {[]string{"NOT_STORED", "12"}, []string{add, incr}, 12, ""},
		"new":                  {[]string{"STORED", "5"}, []string{add, incr}, 5, ""},
		"and lost the race":    {[]string{"NOT_STORED", "6"}, []string{add, incr}, 6, ""},
		"expired meanwhile":    {[]string{"NOT_STORED", "NOT_FOUND", "STORED", "5"}, []string{add, incr, add, incr}, 5, ""},
		"without end":          {times(12, "STORED", "NOT_FOUND"), times(12, add, incr), 0, "incr bucket 1m1: the item came and went 12 times"},
		"no room":              {[]string{"SERVER_ERROR out of memory storing object", "NOT_FOUND"}, []string{add, incr}, 0, "incr bucket 1m1: SERVER_ERROR out of memory storing object"},
		"no room, but there":   {[]string{"SERVER_ERROR out of memory storing object", "12"}, []string{add, incr}, 12, ""},
		"no room to count":     {[]string{"NOT_STORED", "SERVER_ERROR out of memory in incr"}, []string{add, incr}, 0, "incr bucket 1m1: SERVER_ERROR out of memory in incr"},
		"no number":            {[]string{"NOT_STORED", "CLIENT_ERROR cannot increment or decrement non-numeric value"}, []string{add, incr}, 0, "incr bucket 1m1: CLIENT_ERROR cannot increment"},
		"an answer like Redis": {[]string{"-ERR unknown command"}, nil, 0, `incr: unexpected answer "-ERR unknown command"`},
		"out of step":          {[]string{"5", "STORED"}, nil, 0, `incr: unexpected answer "5"`},
		"nonsense":             {[]string{"STORED", "5 apples"}, []string{add, incr}, 0, `incr bucket 1m1: answered "5 apples", want a number`},
		"an empty answer":      {[]string{"STORED", ""}, []string{add, incr}, 0, `incr: answered "", want a number`},
		"wrapped":              {[]string{"NOT_STORED", "4"}, []string{add, incr}, 0, "incr bucket 1m1: held a number of 2^63 or more, want a count of at most 9007199254740991"},
		"beyond MaxCount":      {[]string{"NOT_STORED", "9007199254740992", "9007199254740987"}, []string{add, incr, "decr k|1m1 5"}, 0, "incr bucket 1m1: would hold 9007199254740992: the count would exceed 2^53-1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFake(t, script(row.answers...))
			s := newStore(t, memcache.Config{}, server.addr)
			op := addFive(t, s, server.addr, row.err)
			require.Equal(t, row.count, op.Add[0].Count)
			if row.asked != nil {
				require.Equal(t, row.asked, server.asked())
			}
		})
	}
}

// addFive adds 5 to a bucket, and wants the error of the server at addr, if any.
func addFive(t *testing.T, s *memcache.Store, addr, want string) *backend.Request {
	t.Helper()
	op := adding("k", 5, slot(1))
	err := s.Do(context.Background(), op)
	if want == "" {
		require.NoError(t, err)
	} else {
		require.ErrorContains(t, err, "memcache: "+addr+": ")
		require.ErrorContains(t, err, want)
	}
	return op
}

// Racing additions to a missing bucket get different counts.
func TestRacersCreateABucketOnce(t *testing.T) {
	addr := servertest.Memcached(t)
	stores := []*memcache.Store{newStore(t, memcache.Config{}, addr), newStore(t, memcache.Config{}, addr)}
	const racers = 30
	for round := range int64(50) {
		var places [racers + 1]atomic.Int64
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				op := adding("k", 1, slot(round))
				if err := stores[i%2].Do(context.Background(), op); err != nil {
					t.Error(err)
					return
				}
				places[op.Add[0].Count].Add(1)
			})
		}
		wg.Wait()
		for place := range racers {
			require.EqualValues(t, 1, places[place+1].Load(), "place %d of round %d", place+1, round)
		}
	}
}

// Without meta commands too a request is a single write: additions, then a multi-get.
func TestAClassicRequestOnTheWire(t *testing.T) {
	request := make(chan string, 1)
	addr := servertest.Serve(t, func(conn net.Conn) {
		in := make([]byte, 4096)
		for {
			n, err := conn.Read(in)
			if err != nil {
				return
			}
			switch asked := string(in[:n]); asked {
			case "ma |abacus D0\r\n":
				fmt.Fprint(conn, "ERROR\r\n")
			case "get |abacus\r\n":
				fmt.Fprint(conn, "END\r\n")
			default:
				request <- asked
				fmt.Fprint(conn, "STORED\r\n1\r\nNOT_STORED\r\n7\r\nVALUE k|1h1 0 1\r\n4\r\nVALUE k|1h-1 0 1\r\n3\r\nEND\r\n")
			}
		}
	})
	s := newStore(t, memcache.Config{}, addr)
	op := adding("k", 1, slot(1), slot(-2))
	op.Read = []backend.Span{{Width: time.Hour, First: -1, Counts: make([]int64, 3)}}
	require.NoError(t, s.Do(context.Background(), op))
	require.Equal(t, "add k|1m1 0 3662 1\r\n0\r\nincr k|1m1 1\r\nadd k|1m-2 0 3662 1\r\n0\r\nincr k|1m-2 1\r\nget k|1h-1 k|1h0 k|1h1\r\n", <-request)
	require.Equal(t, []int64{1, 7}, []int64{op.Add[0].Count, op.Add[1].Count})
	require.Equal(t, []int64{3, 0, 4}, op.Read[0].Counts, "a proxy may put the items in another order")
	require.False(t, op.Ordered)
}

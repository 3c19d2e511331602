package memcache_test

import (
	"context"
	"strings"
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

// The requests of an addition for each sequence of answers.
func TestStepsOfAnAddition(t *testing.T) {
	const add, incr = "add k|1m1 0 3662 1 5", "incr k|1m1 5"
	for name, row := range map[string]struct {
		answers []string
		asked   []string
		count   int64
		err     string
	}{
		"there":                {[]string{"12"}, []string{incr}, 12, ""},
		"new":                  {[]string{"NOT_FOUND", "STORED"}, []string{incr, add}, 5, ""},
		"and lost the race":    {[]string{"NOT_FOUND", "NOT_STORED", "6"}, []string{incr, add, incr}, 6, ""},
		"expired meanwhile":    {[]string{"NOT_FOUND", "NOT_STORED", "NOT_FOUND", "STORED"}, []string{incr, add, incr, add}, 5, ""},
		"without end":          {times(6, "NOT_FOUND", "NOT_STORED"), times(6, incr, add), 0, "add bucket 1m1: the item came and went 12 times"},
		"no room":              {[]string{"NOT_FOUND", "SERVER_ERROR out of memory storing object"}, []string{incr, add}, 0, "out of memory storing object"},
		"no room to count":     {[]string{"SERVER_ERROR out of memory in incr"}, []string{incr}, 0, `incr: answered "SERVER_ERROR out of memory in incr", want a number`},
		"an answer like Redis": {[]string{"-ERR unknown command"}, []string{incr}, 0, "-ERR unknown command"},
		"nonsense":             {[]string{"5 apples"}, []string{incr}, 0, `incr: answered "5 apples", want a number`},
		"an empty answer":      {[]string{""}, []string{incr}, 0, `incr: answered "", want a number`},
		"wrapped":              {[]string{"4"}, []string{incr}, 0, "incr bucket 1m1: held a number of 2^63 or more, want a count of at most 9007199254740991"},
		"beyond MaxCount":      {[]string{"9007199254740992", "9007199254740987"}, []string{incr, "decr k|1m1 5"}, 0, "incr bucket 1m1: would hold 9007199254740992: the count would exceed 2^53-1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFake(t, script(row.answers...))
			s := newStore(t, memcache.Config{}, server.addr)
			op := addFive(t, s, server.addr, row.err)
			require.Equal(t, row.count, op.Add[0].Count)
			require.Equal(t, row.asked, server.asked())
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

// gomemcache panics on an unexpected line.
func TestAnAnswerThatGomemcachePanicsOn(t *testing.T) {
	server := newFake(t, func(string) string {
		return "\n"
	})
	s := newStore(t, memcache.Config{}, server.addr)
	require.ErrorContains(t, s.Do(context.Background(), adding("k", 5, slot(1))), "memcache: "+server.addr+": answer: not understood")
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

// All additions and the read of a call are in flight at the same time.
func TestSideBySide(t *testing.T) {
	var once sync.Once
	var together sync.WaitGroup
	together.Add(4)
	all := make(chan struct{})
	server := newFake(t, func(line string) string {
		together.Done()
		once.Do(func() { go func() { together.Wait(); close(all) }() })
		<-all
		if strings.HasPrefix(line, "gets") {
			return "END\r\n"
		}
		return "1\r\n"
	})
	s := newStore(t, memcache.Config{}, server.addr)
	op := readingToo(adding("k", 1, slot(1), slot(2), slot(3)))
	op.Deadline = time.Now().Add(patience)
	require.NoError(t, s.Do(context.Background(), op))
}

package memcache_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/stretchr/testify/require"

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
		"new":                  {[]string{"STORED"}, []string{add}, 5, ""},
		"there":                {[]string{"NOT_STORED", "12"}, []string{add, incr}, 12, ""},
		"expired meanwhile":    {[]string{"NOT_STORED", "NOT_FOUND", "STORED"}, []string{add, incr, add}, 5, ""},
		"and lost the race":    {[]string{"NOT_STORED", "NOT_FOUND", "NOT_STORED", "6"}, []string{add, incr, add, incr}, 6, ""},
		"without end":          {times(6, "NOT_STORED", "NOT_FOUND"), times(6, add, incr), 0, "add bucket 1m1: the item came and went 12 times"},
		"no room":              {[]string{"SERVER_ERROR out of memory storing object"}, []string{add}, 0, "out of memory storing object"},
		"no room to count":     {[]string{"NOT_STORED", "SERVER_ERROR out of memory in incr"}, []string{add, incr}, 0, `incr: answered "SERVER_ERROR out of memory in incr", want a number`},
		"an answer like Redis": {[]string{"-ERR unknown command"}, []string{add}, 0, "-ERR unknown command"},
		"nonsense":             {[]string{"NOT_STORED", "5 apples"}, []string{add, incr}, 0, `incr: answered "5 apples", want a number`},
		"an empty answer":      {[]string{"NOT_STORED", ""}, []string{add, incr}, 0, `incr: answered "", want a number`},
		"wrapped":              {[]string{"NOT_STORED", "4"}, []string{add, incr}, 0, "incr bucket 1m1: held a number of 2^63 or more, want a count of at most 9007199254740991"},
		"beyond MaxCount":      {[]string{"NOT_STORED", "9007199254740992", "9007199254740987"}, []string{add, incr, "decr k|1m1 5"}, 0, "incr bucket 1m1: would hold 9007199254740992: the count would exceed 2^53-1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFake(t, script(row.answers...))
			s := newStore(t, memcache.Config{}, server.addr)
			op := adding("k", 5, slot(1))
			err := s.Do(context.Background(), op)
			if row.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "memcache: "+server.addr+": ")
				require.ErrorContains(t, err, row.err)
			}
			require.Equal(t, row.count, op.Add[0].Count)
			require.Equal(t, row.asked, server.asked())
		})
	}
}

// gomemcache panics on an unexpected line.
func TestAnAnswerThatGomemcachePanicsOn(t *testing.T) {
	server := newFake(t, func(line string) string {
		if strings.HasPrefix(line, "add") {
			return "NOT_STORED\r\n"
		}
		return "\n"
	})
	s := newStore(t, memcache.Config{}, server.addr)
	require.ErrorContains(t, s.Do(context.Background(), adding("k", 5, slot(1))), "memcache: "+server.addr+": answer: not understood")
}

// Another process changes a bucket that this process has met.
func TestGuesses(t *testing.T) {
	addr := servertest.Memcached(t)
	s, other := newStore(t, memcache.Config{}, addr), newStore(t, memcache.Config{}, addr)
	guessed := func(all, right int64) {
		t.Helper()
		require.Equal(t, []int64{all, right}, []int64{s.Stats().Guesses, s.Stats().RightGuesses})
	}
	require.EqualValues(t, 1, add(t, s, "k", 1, 1))
	guessed(1, 1)
	require.EqualValues(t, 2, add(t, s, "k", 1, 1))
	require.EqualValues(t, 1, add(t, s, "k", 1, 2))
	require.EqualValues(t, 3, add(t, s, "k", 1, 1))
	guessed(4, 4)
	add(t, other, "k", 1, 3)
	require.EqualValues(t, 2, add(t, s, "k", 1, 3))
	guessed(5, 4)
	require.EqualValues(t, 3, add(t, s, "k", 1, 3))
	guessed(6, 5)
	require.NoError(t, gomemcache.New(addr).Delete("k|1m3"))
	require.EqualValues(t, 1, add(t, s, "k", 1, 3))
	guessed(7, 5)
	add(t, s, "k", -1, 3)
	guessed(7, 5)
}

// Any number of keys takes the same memory, and no hit is miscounted.
func TestAFloodOfKeysIsGuessedToo(t *testing.T) {
	addr := servertest.Memcached(t, "-m", "64")
	s := newStore(t, memcache.Config{}, addr)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				key := strings.Repeat("k", 1+i%7) + string(rune('a'+w)) + strings.Repeat("i", i/7)
				for want := range int64(2) {
					op := adding(key, 1, slot(1))
					if err := s.Do(context.Background(), op); err != nil || op.Add[0].Count != want+1 {
						t.Errorf("%s: %d, want %d: %v", key, op.Add[0].Count, want+1, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	st := s.Stats()
	idle(t, s)
	require.EqualValues(t, 16_000, st.Guesses)
	require.Greater(t, st.RightGuesses, int64(14_000))
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
		return "STORED\r\n"
	})
	s := newStore(t, memcache.Config{}, server.addr)
	op := readingToo(adding("k", 1, slot(1), slot(2), slot(3)))
	op.Deadline = time.Now().Add(patience)
	require.NoError(t, s.Do(context.Background(), op))
}

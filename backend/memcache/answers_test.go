package memcache_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
)

func times(n int, lines ...string) (all []string) {
	for range n {
		all = append(all, lines...)
	}
	return all
}

// The answers to an addition, with meta commands and without: what is asked, and the count
// or the error.
func TestAnswersToAnAddition(t *testing.T) {
	const ma, maBack = "ma k|1m1 v N3662 J5 D5", "ma k|1m1 v MD D5"
	const put, incr, decr = "add k|1m1 0 3662 1 0", "incr k|1m1 5", "decr k|1m1 5"
	const huge = "held a number of 2^63 or more, want a count of at most 9007199254740991"
	va := func(count uint64) string { return fmt.Sprintf("VA %d TAG\r\n%d", len(fmt.Sprint(count)), count) }
	const meta, classic, open, closed = true, false, true, false
	for name, row := range map[string]struct {
		meta    bool
		answers []string // a line end follows, but for those that begin with RAW
		asked   []string // nil: the connection ends in the middle
		count   int64
		err     string
		open    bool // the connection is used again
	}{
		"new":                  {meta, []string{va(5)}, []string{ma}, 5, "", open},
		"there":                {meta, []string{va(12)}, []string{ma}, 12, "", open},
		"with a space":         {meta, []string{"VA 3 TAG\r\n12 "}, []string{ma}, 12, "", open},
		"wrapped":              {meta, []string{va(4)}, []string{ma}, 0, "ma bucket 1m1: " + huge, open},
		"huge":                 {meta, []string{va(1 << 63)}, []string{ma}, 0, "ma bucket 1m1: " + huge, open},
		"beyond MaxCount":      {meta, []string{va(9007199254740992), va(9007199254740987)}, []string{ma, maBack}, 0, "ma bucket 1m1: would hold 9007199254740992: the count would exceed 2^53-1", open},
		"no number":            {meta, []string{"CLIENT_ERROR cannot increment or decrement non-numeric value"}, []string{ma}, 0, "ma bucket 1m1: CLIENT_ERROR cannot increment", open},
		"no room":              {meta, []string{"SERVER_ERROR out of memory"}, []string{ma}, 0, "ma bucket 1m1: SERVER_ERROR out of memory", open},
		"not there":            {meta, []string{"NF TAG"}, []string{ma}, 0, "ma: unexpected answer", closed},
		"no tag":               {meta, []string{"VA 2\r\n12"}, []string{ma}, 0, "ma: unexpected answer \"VA 2\"", closed},
		"another's tag":        {meta, []string{"VA 2 TAG0\r\n12"}, []string{ma}, 0, "ma: unexpected answer \"VA 2 O", closed},
		"more than the tag":    {meta, []string{"VA 2 TAG t5\r\n12"}, []string{ma}, 0, "ma: unexpected answer", closed},
		"nonsense":             {meta, []string{"VA 8 TAG\r\n5 apples"}, []string{ma}, 0, `ma bucket 1m1: answered "5 apples", want a number`, open},
		"longer than it says":  {meta, []string{"VA 1 TAG\r\n12"}, []string{ma}, 0, "ma: unexpected answer", closed},
		"less than nothing":    {meta, []string{"VA -1 TAG\r\n12"}, []string{ma}, 0, "ma: unexpected answer", closed},
		"a megabyte":           {meta, []string{"VA 1048576 TAG\r\n12"}, []string{ma}, 0, "ma: unexpected answer", closed},
		"a line without end":   {meta, []string{"RAWVA 1 " + strings.Repeat("O", 1000)}, []string{ma}, 0, "ma: a line of more than 512 bytes", closed},
		"a line of a newline":  {meta, []string{"RAW\n"}, []string{ma}, 0, `ma: unexpected answer ""`, closed},
		"an answer like Redis": {meta, []string{"-ERR unknown command"}, []string{ma}, 0, "-ERR unknown command", closed},
		"not known any more":   {meta, []string{"ERROR"}, []string{ma}, 0, "ma: the server has no meta commands", closed},
		"two answers":          {meta, []string{va(5) + "\r\n" + va(5)}, []string{ma}, 5, "", closed},
		"the end":              {meta, []string{"RAW"}, []string{ma}, 0, "ma: the server closed the connection", closed},

		"classic, there":                {classic, []string{"NOT_STORED", "12"}, []string{put, incr}, 12, "", open},
		"classic, new":                  {classic, []string{"STORED", "5"}, []string{put, incr}, 5, "", open},
		"classic, and lost the race":    {classic, []string{"NOT_STORED", "6"}, []string{put, incr}, 6, "", open},
		"classic, expired meanwhile":    {classic, []string{"NOT_STORED", "NOT_FOUND", "STORED", "5"}, []string{put, incr, put, incr}, 5, "", open},
		"classic, without end":          {classic, times(12, "STORED", "NOT_FOUND"), times(12, put, incr), 0, "incr bucket 1m1: the item came and went 12 times", open},
		"classic, no room":              {classic, []string{"SERVER_ERROR out of memory storing object", "NOT_FOUND"}, []string{put, incr}, 0, "incr bucket 1m1: SERVER_ERROR out of memory storing object", open},
		"classic, no room, but there":   {classic, []string{"SERVER_ERROR out of memory storing object", "12"}, []string{put, incr}, 12, "", open},
		"classic, no room to count":     {classic, []string{"NOT_STORED", "SERVER_ERROR out of memory in incr"}, []string{put, incr}, 0, "incr bucket 1m1: SERVER_ERROR out of memory in incr", open},
		"classic, no number":            {classic, []string{"NOT_STORED", "CLIENT_ERROR cannot increment or decrement non-numeric value"}, []string{put, incr}, 0, "incr bucket 1m1: CLIENT_ERROR cannot increment", open},
		"classic, an answer like Redis": {classic, []string{"-ERR unknown command"}, nil, 0, `incr: unexpected answer "-ERR unknown command"`, closed},
		"classic, out of step":          {classic, []string{"5", "STORED"}, nil, 0, `incr: unexpected answer "5"`, closed},
		"classic, nonsense":             {classic, []string{"STORED", "5 apples"}, []string{put, incr}, 0, `incr bucket 1m1: answered "5 apples", want a number`, open},
		"classic, an empty answer":      {classic, []string{"STORED", ""}, []string{put, incr}, 0, `incr: answered "", want a number`, closed},
		"classic, wrapped":              {classic, []string{"NOT_STORED", "4"}, []string{put, incr}, 0, "incr bucket 1m1: " + huge, open},
		"classic, beyond MaxCount":      {classic, []string{"NOT_STORED", "9007199254740992", "9007199254740987"}, []string{put, incr, decr}, 0, "incr bucket 1m1: would hold 9007199254740992: the count would exceed 2^53-1", open},
	} {
		t.Run(name, func(t *testing.T) {
			var next, conns atomic.Int64
			server := newFake(t, row.meta, func(line string) string {
				i := int(next.Add(1)) - 1
				switch {
				case i >= len(row.answers) && row.meta:
					return metaAnswer(line, 1)
				case i >= len(row.answers) && strings.HasPrefix(line, "add "):
					return "STORED\r\n"
				case i >= len(row.answers):
					return "1\r\n"
				}
				if raw, is := strings.CutPrefix(row.answers[i], "RAW"); is {
					return raw
				}
				return strings.ReplaceAll(row.answers[i], "TAG", strings.TrimSpace(tag.FindString(line))) + "\r\n"
			})
			s := newStore(t, memcache.Config{DialContext: counting(&conns)}, server.addr)
			op := adding("k", 5, slot(1))
			if err := s.Do(context.Background(), op); row.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "memcache: "+server.addr+": ")
				require.ErrorContains(t, err, row.err)
			}
			require.Equal(t, row.err == "" && row.meta, op.Ordered)
			require.Equal(t, row.count, op.Add[0].Count)
			if row.asked != nil {
				require.Equal(t, row.asked, server.untagged())
			}
			idle(t, s)
			if name == "not known any more" || row.asked == nil {
				return
			}
			first := conns.Load()
			require.EqualValues(t, 1, add(t, s, "k", 1, 2))
			require.Equal(t, row.open, conns.Load() == first)
		})
	}
}

// The answers to a multi-get of the minutes from 10 to 59 and of two seconds. Without meta
// commands a proxy may put items in another order.
func TestAnswersToAMultiGet(t *testing.T) {
	const seven, end, notAsked = "VALUE k|1m17 0 1\r\n7\r\n", "END\r\n", "get: answered with an item that was not asked for"
	for name, row := range map[string]struct {
		answer, err string
		meta        bool // with meta commands alone
	}{
		"nothing":                {end, "", false},
		"items":                  {seven + "VALUE k|1m59 4 2\r\n10\r\nVALUE k|1s5 0 2\r\n2 \r\n" + end, "", false},
		"then an error":          {seven + "SERVER_ERROR out of memory writing get response\r\n", "get: SERVER_ERROR out of memory writing get response", false},
		"then a wrong value":     {seven + "VALUE k|1m18 0 1\r\nx\r\n" + end, `get bucket 1m18: holds "x", want a count`, false},
		"another key's":          {"VALUE j|1m11 0 1\r\n1\r\n" + end, notAsked, false},
		"with a cas":             {seven + "VALUE k|1m18 0 1 1\r\n1\r\n" + end, "get: unexpected answer", false},
		"another tier's":         {"VALUE k|1h11 0 1\r\n1\r\n" + end, notAsked, false},
		"another bucket":         {"VALUE k|1m60 0 1\r\n1\r\n" + end, notAsked, false},
		"a bucket before":        {"VALUE k|1m9 0 1\r\n1\r\n" + end, notAsked, false},
		"written in another way": {"VALUE k|1m011 0 1\r\n1\r\n" + end, notAsked, false},
		"twice":                  {seven + seven + end, notAsked, true},
		"in another order":       {"VALUE k|1m18 0 1\r\n7\r\n" + seven + end, notAsked, true},
		"too long":               {"VALUE k|1m17 0 1\r\n77\r\n" + end, "get: unexpected answer", false},
		"too short":              {"VALUE k|1m17 0 2\r\n7\r\n" + end, "get: unexpected answer", false},
		"huge":                   {"VALUE k|1m17 0 2000000\r\n", `get: unexpected answer "VALUE ...|1m17 0 2000000"`, false},
		"longer than it says":    {"VALUE k|1m17 0 1025\r\n" + strings.Repeat("x", 1026) + "\n" + end, "get: unexpected answer \"a value that is longer than it says\"", false},
		"no size":                {"VALUE k|1m17\r\n", "get: unexpected answer", false},
		"no get":                 {"VA 1 O1\r\n1\r\n", "get: unexpected answer", false},
		"unknown":                {"ERROR\r\n", "get: unexpected answer", false},
		"cut":                    {"VALUE k|1m17 0 1\r\n", `get: unexpected answer "VALUE ...|1m17 0 1"`, true},
	} {
		for _, meta := range []bool{true, false} {
			if name == "in another order" && !meta {
				row.answer, row.err, row.meta = "VALUE k|1s5 0 2\r\n2 \r\nVALUE k|1m59 4 2\r\n10\r\n"+seven+end, "", false
			}
			if row.meta && !meta {
				continue
			}
			t.Run(fmt.Sprint(name, ", meta ", meta), func(t *testing.T) {
				server := newFake(t, meta, func(string) string { return row.answer })
				s := newStore(t, memcache.Config{}, server.addr)
				op := readingToo(adding("k", 1))
				op.Read = append(op.Read, backend.Span{Width: time.Second, First: 5, Counts: []int64{7, 7}})
				err := s.Do(context.Background(), op)
				if row.err != "" {
					require.ErrorContains(t, err, "memcache: "+server.addr+": ")
					require.ErrorContains(t, err, row.err)
					return
				}
				require.NoError(t, err)
				want := make([]int64, 50)
				seconds := []int64{0, 0}
				if name != "nothing" {
					want[7], want[49], seconds[0] = 7, 10, 2
				}
				require.Equal(t, [][]int64{want, seconds}, [][]int64{op.Read[0].Counts, op.Read[1].Counts})
			})
		}
	}
}

// A request is additions, then a multi-get, and a tagged command that ends the read.
func TestRequestsOnTheWire(t *testing.T) {
	for meta, want := range map[bool][]string{
		true:  {"ma k|1m1 v N3662 J1 D1", "ma k|1m-2 v N3662 J1 D1", "get k|1h-1 k|1h0 k|1h1", "ma k|1m1 v MD D3"},
		false: {"add k|1m1 0 3662 1 0", "incr k|1m1 1", "add k|1m-2 0 3662 1 0", "incr k|1m-2 1", "get k|1h-1 k|1h0 k|1h1", "decr k|1m1 3"},
	} {
		server := newFake(t, meta, func(line string) string { return anyAnswer(meta, line, 1) })
		s := newStore(t, memcache.Config{}, server.addr)
		op := adding("k", 1, slot(1), slot(-2))
		op.Read = []backend.Span{{Width: time.Hour, First: -1, Counts: make([]int64, 3)}}
		require.NoError(t, s.Do(context.Background(), op))
		require.Equal(t, meta, op.Ordered)
		require.NoError(t, s.Do(context.Background(), adding("k", -3, slot(1))))
		require.Equal(t, want, server.untagged())
	}
}

// anyAnswer is the answer of a server to a line: the count, and no item to a multi-get.
func anyAnswer(meta bool, line string, count uint64) string {
	switch {
	case meta:
		return metaAnswer(line, count)
	case strings.HasPrefix(line, "add "):
		return "NOT_STORED\r\n"
	case strings.HasPrefix(line, "get "):
		return "END\r\n"
	}
	return fmt.Sprintf("%d\r\n", count)
}

// An addition that is answered after its call has returned is undone on the same
// connection, once, while other callers get their answers there. Nothing more is undone
// for what was not added, and no other connection is used: another server may have a hit
// of another caller there. An addition whose answer never comes is unknown, and Close
// waits for none.
func TestLateAnswers(t *testing.T) {
	const refused = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
	for name, row := range map[string]struct {
		meta    bool
		held    string            // the line whose answer is late
		answers map[string]string // by the beginnings of lines; "": the connection ends
		undos   []string
		stats   memcache.Stats
		others  bool // call meanwhile
	}{
		"by meta commands": {true, "ma late|1m1 v N", map[string]string{"ma late|1m2 v N": refused}, []string{"ma late|1m1 v MD D3"},
			memcache.Stats{LateAdditions: 1, TakenBack: 1}, true},
		"without": {false, "incr late|1m1 ", map[string]string{"incr late|1m2 ": "NOT_FOUND\r\n"}, []string{"decr late|1m1 3"},
			memcache.Stats{LateAdditions: 1, TakenBack: 1}, true},
		"two": {false, "incr late|1m1 ", nil, []string{"decr late|1m1 3", "decr late|1m2 3"}, memcache.Stats{LateAdditions: 2, TakenBack: 2}, false},
		"the undo is lost": {false, "incr late|1m1 ", map[string]string{"incr late|1m2 ": "NOT_FOUND\r\n", "decr ": ""}, []string{"decr late|1m1 3"},
			memcache.Stats{LateAdditions: 1, TakingBackFailed: 1}, false},
		"the undo is refused": {true, "ma late|1m1 v N", map[string]string{"ma late|1m2 v N": refused, "ma late|1m1 v MD": refused}, []string{"ma late|1m1 v MD D3"},
			memcache.Stats{LateAdditions: 1, TakingBackFailed: 1}, false},
		"never":  {true, "ma late|1m1 v N", map[string]string{"ma late|1m1 v N": ""}, nil, memcache.Stats{Unanswered: 2}, false},
		"closed": {true, "ma late|1m1 v N", nil, nil, memcache.Stats{Unanswered: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			server := newFake(t, row.meta, func(line string) string {
				if strings.HasPrefix(line, row.held) {
					<-release
				}
				for begin, answer := range row.answers {
					if strings.HasPrefix(line, begin) {
						return answer
					}
				}
				return anyAnswer(row.meta, line, 3)
			})
			s := newStore(t, memcache.Config{Conns: 1}, server.addr)
			ctx, cancel := context.WithCancel(context.Background())
			late := make(chan error)
			op := adding("late", 3, slot(1), slot(2))
			go func() { late <- s.Do(ctx, op) }()
			for !strings.HasPrefix(server.next(t), row.held) {
			}
			var others sync.WaitGroup
			for i := 0; i < 10 && row.others; i++ {
				others.Go(func() {
					op := adding("k", 1, slot(int64(i)))
					if err := s.Do(context.Background(), op); err != nil || op.Add[0].Count != 3 {
						t.Error(op.Add[0].Count, err)
					}
				})
			}
			require.Eventually(t, func() bool { return !row.others || s.Stats().InFlight == 11 }, patience, time.Millisecond)
			cancel()
			require.ErrorIs(t, <-late, context.Canceled)
			require.Equal(t, !row.others, s.Stats().Listening == 1)
			require.Zero(t, op.Add[0].Count+op.Add[1].Count)
			if name == "closed" {
				require.NoError(t, s.Close())
				idle(t, s)
			}
			close(release)
			others.Wait()
			idle(t, s)
			var undos []string
			for _, line := range server.untagged() {
				if strings.Contains(line, " MD ") || strings.HasPrefix(line, "decr") {
					undos = append(undos, line)
				}
			}
			require.Equal(t, row.undos, undos)
			require.Equal(t, row.stats, s.Stats())
			require.Equal(t, row.stats.Unanswered+row.stats.TakingBackFailed, s.Report().HitsLeft)
			require.Zero(t, op.Add[0].Count+op.Add[1].Count, "the op is the caller's")
		})
	}
}

// memcached -M without room refuses an undo while another client reads the item. The answer
// says that nothing has changed, so the store asks again, and has the count of the last
// answer.
func TestUndosWithoutRoom(t *testing.T) {
	for _, meta := range []bool{true, false} {
		for name, row := range map[string]struct {
			full, asked int
			failed      int64
		}{"for a moment": {3, 5, 0}, "for good": {100, 8, 1}, "lost": {-1, 3, 1}} {
			t.Run(fmt.Sprint(name, ", meta ", meta), func(t *testing.T) {
				var refused atomic.Int64
				server := newFake(t, meta, func(line string) string {
					n := int(refused.Load())
					switch {
					case !strings.Contains(line, " k|1m1 "):
					case row.full < 0 && n == 1:
						return ""
					case row.full < 0 || n < row.full:
						refused.Add(1)
						return "SERVER_ERROR out of memory in decr\r\n"
					}
					return anyAnswer(meta, line, 4)
				})
				s := newStore(t, memcache.Config{}, server.addr)
				add(t, s, "connected", 1, 1)
				server.asked()
				op := adding("k", -1, slot(1), slot(2))
				err := s.Do(context.Background(), op)
				require.Equal(t, row.failed > 0, err != nil)
				require.EqualValues(t, 4, op.Add[1].Count)
				require.Equal(t, row.failed == 0, op.Add[0].Count == 4)
				require.False(t, op.Ordered)
				require.Len(t, server.asked(), row.asked)
				require.Equal(t, row.failed, s.Stats().TakingBackFailed)
			})
		}
	}
}

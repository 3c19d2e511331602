package backendtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/internal/testkit/parse"
	"github.com/abacus-go/abacus/tiers"
)

func everyWidth(s *subject) {
	amounts := []int64{1, 9, 10, 126, 127, 128, 254, 255, 256, 999, 1000, 32767, 32768, 65534, 65535, 65536, 1 << 24,
		1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1e10, 1 << 40, 1e14, 1<<51 - 1}
	// Side by side in a minute, in any order; and a single bucket that grows.
	for round := range 3 {
		key, first := fmt.Sprint("side", round), noon.Truncate(time.Minute)
		for _, i := range s.rand.Perm(len(amounts)) {
			s.add(dayLadder, key, first.Add(time.Duration(2*i)*time.Second), amounts[i])
			s.read(dayLadder, key, noon, span(time.Second, first.Unix(), 60))
		}
	}
	for _, n := range amounts {
		for _, n := range []int64{n, -n, n} {
			s.add(dayLadder, "grows", noon, n)
			s.get(dayLadder, "grows", noon, noon)
		}
	}
}

func maxCount(s *subject) {
	const most = backend.MaxCount
	for name, parts := range map[string][]int64{"whole": {most}, "parts": {most - 1, 1}, "halves": {most / 2, most/2 + 1}} {
		for _, n := range parts {
			s.add(dayLadder, name, noon, n)
			s.get(dayLadder, name, noon, noon)
		}
		for _, n := range []int64{1, 2, most / 2, most} {
			s.refuses(name, noon, n)
		}
		s.get(dayLadder, name, noon, noon)
		// One second later there is room in the second, and none in the hour.
		later := noon.Add(time.Second)
		told := s.refuses(name, later, 3)
		alone := s.with(nil) // the hits may be in the buckets that had room
		got := alone.get(dayLadder, name, later, later)
		if got[0] != 0 && got[0] != 3 || got[0] < told || got[1] != most || got[2] != most {
			failf("after 3 more than MaxCount in an hour: read %v, answered %d", got, told)
		}
		if got[0] == 3 {
			back := s.request(dayLadder, name, later, -3)
			back.Add = back.Add[:1]
			must(alone.do(back))
		}
		// Hits taken back make room again, to the last place.
		for _, n := range []int64{-1, 1, -most, most} {
			s.add(dayLadder, name, noon, n)
		}
		s.get(dayLadder, name, noon, noon)
	}
	if s.taker == nil {
		return
	}
	s.add(dayLadder, "times", noon, 1)
	step := s.taking(dayLadder, noon, 1, 0, demand{key: "times", limits: counter.Limits{{Max: most, Per: time.Hour}}})
	step.Times = most
	must(s.take(step))
	// A window may have room where the hour has none.
	for i, n := range []int64{1, most/2 + 2} {
		key, later := fmt.Sprint("step", i), noon.Add(10*time.Second)
		s.add(dayLadder, key, noon, most-n+1)
		take := s.taking(dayLadder, later, n, 0, demand{key: key, limits: counter.Limits{{Max: most, Per: time.Second}}})
		if err := s.take(take); !errors.Is(err, backend.ErrMaxCount) {
			failf("a step beyond MaxCount in an hour: the error is %v, want counter.ErrMaxCount", err)
		}
		same("after a step that went too far", s.with(nil).get(dayLadder, key, later, later)[1:], []int64{most - n + 1})
	}
}

// refuses wants the error of an addition beyond MaxCount, and returns the count of the
// finest slot: that bucket may have room, unless it was filled at noon.
func (s *subject) refuses(key string, at time.Time, n int64) int64 {
	op := s.request(dayLadder, key, at, n)
	if err := s.do(op); !errors.Is(err, backend.ErrMaxCount) {
		failf("%d more than MaxCount: the error is %v, want counter.ErrMaxCount; counts %v", n, err, countsOf(op.Add))
	}
	told := countsOf(op.Add)
	if told[0] == n && at != noon {
		told[0] = 0
	}
	same("slots of an addition that was refused", told, []int64{0})
	return op.Add[0].Count
}

// emptiedByTime fills a key to MaxCount again and again, each time when all
// hits of the time before have left every window.
func emptiedByTime(s *subject) {
	for i, l := range []tiers.Ladder{parse.Ladder("1s:1m"), dayLadder, fineLadder, parse.Ladder("1s:1m, 1h:7d"), manyKeeps} {
		s, at, top := s.with(oracle.NewStore()), noon, coarsest(l)
		for round := range 6 {
			during(func() {
				for _, n := range []int64{backend.MaxCount - 1, 1} {
					s.add(l, fmt.Sprint("do", i), at, n)
				}
				s.get(l, fmt.Sprint("do", i), at, at)
				if s.taker == nil {
					return
				}
				take := s.taking(l, at, backend.MaxCount, 0, demand{key: fmt.Sprint("take", i), limits: counter.Limits{{Max: backend.MaxCount, Per: top.Keep}}})
				if must(s.take(take)); !take.Allowed {
					failf("a step is denied, want an empty window")
				}
			}, "ladder %s, round %d", l, round)
			at = at.Add(2 * (top.Width + top.Keep))
		}
	}
}

// coarsest is the last tier of l.
func coarsest(l tiers.Ladder) tiers.Tier { return l.At(l.Len() - 1) }

// storedKeys are as like as keys can be, and like the names that a store may
// make of a key and the number of a bucket.
func storedKeys(s *subject) {
	var printable strings.Builder
	for b := byte('!'); b <= '~'; b++ {
		if b != '{' && b != '}' {
			printable.WriteByte(b)
		}
	}
	long := strings.Repeat("x", 200-len(s.key("k")))
	keys := []string{"", "1", "11", "111", ":", ":1", ":11", ":1:1", ":1:11", "1:", "1:1", "1:11", "11:1", ":s:1", ":1s:1", ":1s", ":m", ":1m:1",
		"-1", ":-1", ".1", "/1", "#1", "#", "!", "!1", "@1", "_1", "|1", ",1", ";1", "0", "00", "01", "*", "?", "[a]", "a", "A", `\`, `\\`, "'", `"`, "`", "$1", "%", "%20", "%00", "&", "=", "~", "^",
		printable.String(), long, long[1:], long[:len(long)-1] + "y", "y" + long[1:]}
	l := parse.Ladder("1s:1h, 10s:1h")
	// Small numbers of buckets: 0, 1, 2, 11, 12, ...: 1 second and 10, or 11 and 0?
	instants := []time.Time{time.Unix(0, 0), time.Unix(1, 0), time.Unix(11, 0), time.Unix(21, 0), time.Unix(111, 0), time.Unix(1111, 0)}
	for i, key := range keys {
		for j, at := range instants {
			s.add(l, "k"+key, at, int64(1+i+100*j))
		}
	}
	for _, key := range keys {
		for _, at := range instants {
			s.get(l, "k"+key, at, at)
		}
	}
}

func anyDate(s *subject) {
	for _, year := range []int{1701, 1901, 1938, 1965, 1969, 1970, 1971, 2001, 2036, 2038, 2040, 2106, 2200, 2249} {
		// Around New Year in Greenwich, where 1970 begins with bucket 0.
		base := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		key, first := fmt.Sprint("y", year), tiers.Index(base.UnixNano(), time.Second)-150
		for i := int64(0); i < 300; i += 7 {
			s.add(dayLadder, key, time.Unix(first+i, i), 1+i)
		}
		s.read(dayLadder, key, base.Add(2*time.Minute), span(time.Second, first, 300), span(time.Hour, tiers.Index(base.UnixNano(), time.Hour)-1, 2))
	}
	// Numbers that are the same in 31 and in 32 bits.
	s = s.with(oracle.NewStore())
	for i, after := range []time.Duration{0, 1 << 31, 1 << 32} {
		s.add(parse.Ladder("1s:1m, 1m:1h"), "bits", time.Date(1975, 1, 1, 0, 0, 0, 0, time.UTC).Add(after*time.Second), int64(1+i))
	}
}

func manyBuckets(s *subject) {
	for i := range 200 {
		s.add(dayLadder, "k", noon.Add(-time.Duration(i*431)*time.Second), int64(1+i))
	}
	for _, n := range []int{5_000, 86_400} {
		s.read(dayLadder, "k", noon, span(time.Second, noon.Unix()-int64(n)+1, n))
	}
	// The same in many spans, of all tiers.
	var spans []backend.Span
	for i := range int64(1000) {
		spans = append(spans, span(time.Second, noon.Unix()-86_399+86*i, 5))
		if i%10 == 0 {
			spans = append(spans, span(time.Minute, noon.Unix()/60-i, 1))
		}
	}
	s.read(dayLadder, "k", noon, spans...)
}

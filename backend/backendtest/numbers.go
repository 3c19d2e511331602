package backendtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

var numbers = []check{
	{
		name: "numbers of every width",
		rule: "a bucket counts exactly, whatever it and its neighbours hold",
		run:  everyWidth,
	},
	{
		name: "MaxCount and one more",
		rule: "a bucket counts to MaxCount: an addition beyond is an error, never a smaller number",
		run:  maxCount,
	},
	{
		name: "MaxCount has a name",
		rule: "the error of an addition beyond MaxCount is counter.ErrMaxCount",
		run:  maxCountByName,
	},
	{
		name: "a key whose hits have left is not full",
		rule: "what no window reaches any more does not count against MaxCount",
		run:  emptiedByTime,
	},
	{
		name: "keys do not meet",
		rule: "Op.Key: printable ASCII without spaces and braces, 1 to 200 bytes; a key counts by itself",
		run:  storedKeys,
	},
	{
		name: "before 1970 and after 2038",
		rule: "bucket numbers are any, below zero too, and a TTL is a duration, not a date",
		run:  anyDate,
	},
	{
		name: "many buckets at once",
		rule: "Do reads all runs of Op.Read, however long, or returns an error",
		run:  manyBuckets,
	},
	{
		name: "a key that grows",
		rule: "additions, reads and steps count exactly, however many buckets a key has",
		run:  grow,
	},
}

func everyWidth(s *subject) {
	amounts := []int64{1, 9, 10, 126, 127, 128, 254, 255, 256, 999, 1000, 32767, 32768, 65534, 65535, 65536, 1 << 24,
		1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1e10, 1 << 40, 1e14, 1<<51 - 1}
	// Side by side in a minute, in any order; and a single bucket that grows.
	for round := range 3 {
		key, counts := fmt.Sprint("side", round), tally{}
		first := noon.Truncate(time.Minute)
		for _, i := range s.rand.Perm(len(amounts)) {
			s.addTo(counts, dayLadder, key, first.Add(time.Duration(2*i)*time.Second), amounts[i])
			s.readsAs(counts, dayLadder, key, noon, span(time.Second, first.Unix(), 60))
		}
	}
	counts := tally{}
	for _, n := range amounts {
		for _, n := range []int64{n, -n, n} {
			s.addTo(counts, dayLadder, "grows", noon, n)
			s.readsAs(counts, dayLadder, "grows", noon, holding(dayLadder, noon)...)
		}
	}
}

func maxCount(s *subject) {
	const most = backend.MaxCount
	for name, parts := range map[string][]int64{"whole": {most}, "parts": {most - 1, 1}, "halves": {most / 2, most/2 + 1}} {
		counts := tally{}
		for _, n := range parts {
			s.addTo(counts, dayLadder, name, noon, n)
			s.expect(dayLadder, name, noon, noon, counts[dayLadder.Buckets(noon)[0]])
		}
		s.refusesMore(name)
		// Hits taken back make room again, to the last place.
		for _, n := range []int64{-1, 1, -most, most} {
			s.add(dayLadder, name, noon, n)
		}
		s.expect(dayLadder, name, noon, noon, most)
	}
	if s.taker == nil {
		return
	}
	// A window may have room where the hour has none.
	s.add(dayLadder, "step", noon, most)
	later := noon.Add(10 * time.Second)
	take := s.taking(dayLadder, later, 1, 0, demand{key: "step", limits: counter.Limits{{Max: 5, Per: time.Second}}})
	if err := s.take(take); err == nil {
		failf("a step beyond MaxCount in an hour, and no error")
	}
	got := s.get(dayLadder, "step", later, later)
	same("after a step that went too far", got[1:], []int64{most})
}

// refusesMore adds to a key with MaxCount at noon.
func (s *subject) refusesMore(name string) {
	const most = backend.MaxCount
	for _, n := range []int64{1, 2, most / 2, most} {
		op := &backend.Request{Key: s.key(name), Ladder: dayLadder, Now: noon, N: n, Add: chain(dayLadder, noon, 0)}
		if err := s.do(op); err == nil {
			failf("%d more than MaxCount, and no error; counts %v", n, countsOf(op.Add))
		}
		same("slots of an addition that was refused", countsOf(op.Add), []int64{0})
		during(func() { s.expect(dayLadder, name, noon, noon, most) }, "after %d more than MaxCount", n)
	}
	// One second later there is room in the second, and none in the hour.
	later := noon.Add(time.Second)
	op := &backend.Request{Key: s.key(name), Ladder: dayLadder, Now: later, N: 3, Add: chain(dayLadder, later, 0)}
	if err := s.do(op); err == nil {
		failf("more than MaxCount in an hour, and no error; counts %v", countsOf(op.Add))
	}
	got := s.get(dayLadder, name, later, later)
	if got[0] != 0 && got[0] != 3 || got[0] < op.Add[0].Count || got[1] != most || got[2] != most {
		failf("after 3 more than MaxCount in an hour: read %v, answered %v", got, countsOf(op.Add))
	}
	if got[0] == 0 {
		return
	}
	must(s.do(&backend.Request{Key: s.key(name), Ladder: dayLadder, Now: later, N: -3, Add: chain(dayLadder, later, 0)[:1]}))
}

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
	l := mustLadder("1s:1h, 10s:1h")
	// Small numbers of buckets: 0, 1, 2, 11, 12, ...: 1 second and 10, or 11 and 0?
	instants := []time.Time{time.Unix(0, 0), time.Unix(1, 0), time.Unix(11, 0), time.Unix(21, 0), time.Unix(111, 0), time.Unix(1111, 0)}
	for i, key := range keys {
		for j, at := range instants {
			s.add(l, "k"+key, at, int64(1+i+100*j))
		}
	}
	for i, key := range keys {
		for j, at := range instants {
			want := []int64{int64(1 + i + 100*j), int64(1 + i + 100*j)}
			if j < 2 {
				want[1] = 2*int64(1+i) + 100 // 0 and 1 are in one bucket of ten
			}
			s.expect(l, "k"+key, at, at, want...)
		}
	}
}

func anyDate(s *subject) {
	for _, year := range []int{1701, 1901, 1938, 1965, 1969, 1970, 1971, 2001, 2036, 2038, 2040, 2106, 2200, 2249} {
		// Around New Year in Greenwich, where 1970 begins with bucket 0.
		base := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		key, counts := fmt.Sprint("y", year), tally{}
		first := tiers.Index(base.UnixNano(), time.Second) - 150
		for i := int64(0); i < 300; i += 7 {
			s.addTo(counts, dayLadder, key, time.Unix(first+i, i), 1+i)
		}
		s.readsAs(counts, dayLadder, key, base.Add(2*time.Minute), span(time.Second, first, 300))
		s.readsAs(counts, dayLadder, key, base.Add(2*time.Minute), span(time.Hour, tiers.Index(base.UnixNano(), time.Hour)-1, 2))
	}
	// Numbers that are the same in 31 and in 32 bits.
	l := mustLadder("1s:1m, 1m:1h")
	counts := tally{}
	for i, after := range []time.Duration{0, 1 << 31, 1 << 32} {
		s.addTo(counts, l, "bits", time.Date(1975, 1, 1, 0, 0, 0, 0, time.UTC).Add(after*time.Second), int64(1+i))
	}
}

func manyBuckets(s *subject) {
	counts := tally{}
	for i := range 200 {
		s.addTo(counts, dayLadder, "k", noon.Add(-time.Duration(i*431)*time.Second), int64(1+i))
	}
	for _, n := range []int{5_000, 86_400} {
		s.readsAs(counts, dayLadder, "k", noon, span(time.Second, noon.Unix()-int64(n)+1, n))
	}
	// The same in many spans, of all tiers.
	var spans []backend.Span
	for i := range int64(1000) {
		spans = append(spans, span(time.Second, noon.Unix()-86_399+86*i, 5))
		if i%10 == 0 {
			spans = append(spans, span(time.Minute, noon.Unix()/60-i, 1))
		}
	}
	s.readsAs(counts, dayLadder, "k", noon, spans...)
}

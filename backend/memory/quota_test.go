package memory

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
)

// A Quota is made for up to three windows of any tier, whether stored or a sum.
func TestBind(t *testing.T) {
	s := New(Config{})
	bound := func(ladder string, change func(d *backend.TakeKey)) bool {
		d := taking(t, ladder, "k", noon, per(9, time.Minute)).Keys[0]
		change(&d)
		return s.Bind(s, &d) != nil
	}
	window := func(finest int, reach time.Duration) func(d *backend.TakeKey) {
		return func(d *backend.TakeKey) { d.Windows[0].Finest, d.Windows[0].Reach = finest, reach }
	}
	require.True(t, bound(dayLadder, func(*backend.TakeKey) {}))
	require.True(t, bound(dayLadder, window(0, day)))
	require.True(t, bound(dayLadder, window(1, time.Hour)))
	require.True(t, bound("1s:1m, 1m:1h, 1h:1d, 1d:30d, 7d:365d", func(*backend.TakeKey) {}))
	require.False(t, bound(dayLadder, window(3, time.Hour)), "no such tier")
	require.False(t, bound(dayLadder, func(d *backend.TakeKey) { d.TTLs = d.TTLs[1:] }))
	require.False(t, bound(dayLadder, func(d *backend.TakeKey) {
		d.Windows = append(d.Windows, d.Windows[0], d.Windows[0], d.Windows[0])
	}))
	require.False(t, bound(dayLadder, func(d *backend.TakeKey) { d.Key = []byte(strings.Repeat("k", maxQuotaKey+1)) }))
	d := taking(t, dayLadder, "k", noon, per(9, time.Minute)).Keys[0]
	require.Nil(t, New(Config{}).Bind(s, &d), "another store is asked")
}

// Admit does nothing, and leaves the answer to Take, for an unknown key, a key
// on another ladder, a label before the newest bucket, hits of an odd number and a key
// that is too long. A full window denies.
func TestAdmitOrNothing(t *testing.T) {
	s := New(Config{})
	d := taking(t, dayLadder, "key", noon, per(5, time.Minute)).Keys[0]
	q := s.Bind(s, &d)
	now := noon.UnixNano()
	admit := func(rest string, n, label int64) (admitted bool) { return q.Admit(rest, n, label).Number != 0 }
	require.False(t, admit("a", 1, now))
	require.Zero(t, s.Stats().Keys)
	mustTake(t, s, taking(t, dayLadder, "keya", noon, per(5, time.Minute)))
	require.Equal(t, [backend.MaxAdmission]int64{1}, q.Admit("a", 1, now+1).Counts)
	require.True(t, admit("a", 2, now+2))
	full := backend.Admission{Counts: [backend.MaxAdmission]int64{4}, Denied: true, Newest: [backend.MaxAdmission]int64{now}, FreedBy: [backend.MaxAdmission]int64{now}}
	require.Equal(t, full, q.Admit("a", 2, now+3))
	require.False(t, admit("a", 1, now-int64(time.Second)))
	require.True(t, q.Admit("a", backend.MaxCount, now+4).Denied)
	for _, n := range []int64{0, -1, backend.MaxCount + 1} {
		require.Zero(t, q.Admit("a", n, now+4), n)
	}
	require.Zero(t, q.Admit(strings.Repeat("a", maxQuotaKey), 1, now+4))
	require.True(t, admit("a", 1, now+4))
	mustTake(t, s, taking(t, "1s:2d, 1m:2d", "keyb", noon, per(5, time.Minute)))
	require.False(t, admit("b", 1, now))
	take := taking(t, dayLadder, "keya", noon, per(5, time.Minute))
	take.Peek = true
	require.EqualValues(t, 5, mustTake(t, s, take).Keys[0].Windows[0].Count)
}

// Further buckets of a key take memory as they do by Take, and in a full store
// Take decides whose.
func TestAdmitTakesMemory(t *testing.T) {
	for full := range 2 {
		max := 1 << 20
		if full == 1 {
			max = 60
		}
		one, other := New(Config{MaxBuckets: max}), New(Config{MaxBuckets: max})
		d := taking(t, dayLadder, "key", noon, per(1e6, time.Minute)).Keys[0]
		q := one.Bind(one, &d)
		mustTake(t, one, taking(t, dayLadder, "keya", noon, per(1e6, time.Minute)))
		mustTake(t, other, taking(t, dayLadder, "keya", noon, per(1e6, time.Minute)))
		refused := 0
		for i := range 300 {
			at := noon.Add(time.Duration(i) * time.Second)
			admitted := q.Admit("a", 1, at.UnixNano()).Number != 0
			err := other.Take(t.Context(), taking(t, dayLadder, "keya", at, per(1e6, time.Minute)))
			require.Equal(t, err == nil, admitted)
			require.Equal(t, other.Stats().Buckets, one.Stats().Buckets)
			requireSound(t, one)
			if err != nil {
				require.ErrorIs(t, err, ErrFull)
				refused++
			}
		}
		require.Equal(t, full == 1, refused > 0)
	}
}

// Numbers of admissions differ, of one Quota and of several, over all shards.
func TestNumbersOfAdmissionsDiffer(t *testing.T) {
	s := New(Config{})
	d := taking(t, dayLadder, "key", noon, per(50, time.Minute)).Keys[0]
	one, two := s.Bind(s, &d), s.Bind(s, &d)
	seen := map[uint64]bool{}
	for i := range 200 {
		rest := string(rune('a' + i%20))
		if i < 20 {
			mustTake(t, s, taking(t, dayLadder, "key"+rest, noon, per(50, time.Minute)))
		}
		for _, q := range []backend.Quota{one, two} {
			number := q.Admit(rest, 1, noon.UnixNano()).Number
			require.NotZero(t, number)
			require.False(t, seen[number])
			seen[number] = true
		}
	}
}

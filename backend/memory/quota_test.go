package memory

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
)

// A Quota is made for up to three windows of any tier, whether stored or a sum.
func TestBind(t *testing.T) {
	s := New(Config{})
	for i, row := range []struct {
		ladder string
		finest int
		reach  time.Duration
		change func(d *backend.TakeKey)
		bound  bool
	}{
		{dayLadder, 0, day, nil, true},
		{dayLadder, 1, time.Hour, nil, true},
		{"1s:1m, 1m:1h, 1h:1d, 1d:30d, 7d:365d", 0, time.Minute, nil, true},
		{dayLadder, 3, time.Hour, nil, false}, // no such tier
		{dayLadder, 0, day, func(d *backend.TakeKey) { d.TTLs = d.TTLs[1:] }, false},
		{dayLadder, 0, day, func(d *backend.TakeKey) { d.Windows = slices.Repeat(d.Windows, 4) }, false},
		{dayLadder, 0, day, func(d *backend.TakeKey) { d.Key = []byte(strings.Repeat("k", maxQuotaKey+1)) }, false},
	} {
		d := taking(t, row.ladder, "k", noon, per(9, time.Minute)).Keys[0]
		d.Windows[0].Finest, d.Windows[0].Reach = row.finest, row.reach
		if row.change != nil {
			row.change(&d)
		}
		require.Equal(t, row.bound, s.Bind(s, &d) != nil, "row %d", i)
		require.Nil(t, New(Config{}).Bind(s, &d), "another store is asked")
	}
	require.True(t, s.Together(make([]backend.TakeKey, 100)))
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

package memory

import (
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/tiers"
)

// FreedBy on a dense day is the bucket that adding up second after second
// finds, however many hits must leave.
func TestFreedByOnADenseDay(t *testing.T) {
	for _, ladder := range []string{dayLadder, "1s:1d, 1h:1d", "1s:1d", "1s:1d, 10s:1d, 1m:1d, 10m:1d, 1h:1d, 6h:1d"} {
		t.Run(ladder, func(t *testing.T) {
			t.Parallel()
			s := New(Config{})
			rnd := rand.New(rand.NewPCG(1, 2))
			type second struct{ index, before int64 } // hits before that second
			var dense []second
			all, now := int64(0), noon
			take := taking(t, ladder, "k", now)
			for ; now.Before(noon.Add(30 * time.Hour)); now = now.Add(time.Duration(1+rnd.IntN(4)) * time.Second) {
				take.Now, take.Keys[0].N = now, 1+rnd.Int64N(5)
				mustTake(t, s, take)
				dense = append(dense, second{now.Unix(), all})
				all += take.Keys[0].N
			}
			for range 300 {
				at := now.Add(-time.Duration(rnd.Int64N(int64(3 * time.Hour))))
				// At most 20 hours: from three hours ago it reaches no further back
				// than what the latest hit has let expire.
				window := time.Second + time.Duration(rnd.Int64N(int64(20*time.Hour)))
				if rnd.IntN(3) == 0 {
					window = window.Truncate(time.Hour) + time.Hour
				}
				peek := taking(t, ladder, "k", at, per(1+rnd.Int64N(40000), window))
				w := &peek.Keys[0].Windows[0]
				peek.Peek, peek.Keys[0].N = true, 1+rnd.Int64N(w.Max)
				mustTake(t, s, peek)

				from := tiers.Index(at.UnixNano()-int64(w.Reach), time.Second)
				first := sort.Search(len(dense), func(i int) bool { return dense[i].index >= from })
				require.Equal(t, all-dense[first].before, w.Count)
				need, want := w.Count-(w.Max-peek.Keys[0].N), tiers.Bucket{}
				if need > 0 {
					gone := dense[first].before + need
					last := sort.Search(len(dense), func(i int) bool { return dense[i].before >= gone })
					if last < len(dense) || all >= gone {
						want = tiers.Bucket{Width: time.Second, Index: dense[last-1].index}
					}
				}
				require.Equal(t, want, w.FreedBy, "%v %v", at, w.Reach)
				require.Equal(t, need <= 0, peek.Allowed)
			}
		})
	}
}

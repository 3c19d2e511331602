package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/bench/internal/measure"
)

func TestMemoryOnRedis(t *testing.T) {
	b := newBench(t)
	s := measure.Open(t, "On Redis: memory")
	s.Say("Bytes of one key with three limits, 10/m, 50/h, 100/d in shape: `MEMORY USAGE` of all that is stored for it, after a day and a half of hits at random instants. Of the abacus the " +
		"median over some instants of the next day, and the spread: a value that is appended to has room to spare, until it is written anew. What outlives its time to live by the hits' clock is gone. The others store the same for one limit as for each of three, but for the " +
		"log, which is one for all. \"Of the log\" is the ratio of abacus to the log.")
	table := measure.Table{Head: []string{"hits a day", "abacus", "log", "of the log", "redis_rate", "ulule/limiter", "throttled", "INCR, EXPIRE"}}
	for _, row := range []struct {
		day, keys, instants int
	}{
		{100, measure.Pick(3, 20, 20), measure.Pick(2, 8, 24)},
		{measure.Pick(300, 2_000, 2_000), measure.Pick(2, 5, 5), measure.Pick(2, 8, 12)},
		{measure.Pick(1_000, 200_000, 200_000), 1, measure.Pick(2, 4, 8)},
	} {
		require.NoError(t, b.client.FlushDB(ctx).Err())
		mean := day / time.Duration(row.day)
		past := row.day * 3 / 2
		keys := measure.Names(t, row.keys)
		bytes := map[string]measure.Series{}
		var rs []*runner
		for _, r := range b.runners(kinds, past+row.day+row.instants, 3) {
			r.live(keys, past, mean)
			rs = append(rs, r)
		}
		ours := of(rs, "abacus", 3)
		sample := func(r *runner) {
			n, stored := b.memory(r.stored)
			if stored < row.keys {
				r.miscount("has stored %d keys of %d", stored, row.keys)
			}
			bytes[r.name] = append(bytes[r.name], float64(n)/float64(row.keys))
		}
		for _, r := range rs {
			if r.fill == nil { // a few more hits, so that every key is there
				for _, key := range keys {
					r.take(key)
				}
			}
			sample(r)
		}
		for range row.instants - 1 {
			ours.be(keys, row.day/row.instants, mean)
			sample(ours)
		}
		wrong := map[string]string{}
		for _, r := range rs {
			r.check(keys)
			wrong[r.name] = r.mishaps.String()
		}
		log := bytes["sorted set"].Median()
		spread := fmt.Sprintf("%s (%s-%s)", measure.Bytes(bytes["abacus"].Median()), measure.Bytes(bytes["abacus"].Least()), measure.Bytes(bytes["abacus"].Greatest()))
		cells := []string{measure.Count(int64(row.day)), spread, measure.Bytes(log) + wrong["sorted set"], fmt.Sprintf("1/%s", measure.Num(log/bytes["abacus"].Median()))}
		for _, name := range []string{"redis_rate", "ulule/limiter", "throttled", "INCR, EXPIRE"} {
			cells = append(cells, measure.Bytes(bytes[name].Median())+wrong[name])
		}
		table.Row(cells...)
	}
	s.Table("", table)
}

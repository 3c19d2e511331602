package backendtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/parse"
)

// differ has callers with different limits and a different patience race for the
// only place of a limit that all share. Around the end of a period, where the callers'
// clocks are apart by the skew, each of the two periods has a place.
func differ(s *subject) {
	for i, row := range []struct {
		limit, ladder string
		at            time.Time
		apart         time.Duration // the clocks of the first and the last caller
		rounds        int
	}{
		{"1/d", "1s:1d, 1m:1d, 1h:1d", noon, 0, 500},
		{"1 per day in UTC", "1s:1d, 1m:1d, 1h:1d", noon, differSkew, 100},
		{"1 per month in Asia/Kolkata", "1s:5h, 15m:32d, 1h:32d, 1d:32d", time.Date(2026, 3, 31, 18, 30, 0, 0, time.UTC), differSkew, 200},
		{"1 per day in UTC", "1m:1d, 1d:1d", noon.Truncate(24 * time.Hour), differSkew, 200},
	} {
		limit := counter.MustLimits(row.limit)[0]
		others := counter.MustLimits("10/m, 5/h")
		limits := []counter.Limits{{limit}, {others[0], limit}, {others[1], limit}}
		counters := make([]*counter.Counter, len(limits))
		for j := range counters {
			now := row.at.Add(row.apart * time.Duration(j-1) / 2)
			counters[j] = s.counter(fmt.Sprint("d", i), counter.Config{Ladder: parse.Ladder(row.ladder), Skew: differSkew, Patience: time.Duration(5+5*j) * time.Second, Now: func() time.Time { return now }})
		}
		during(func() { raceForOne(counters, limits, limit, max(1, row.rounds/s.thrift)) }, "%s at %v by clocks %v apart", limit, row.at, row.apart)
	}
}

const differSkew = 100 * time.Millisecond

// raceForOne has two or three callers, each with a Counter and limits, race for a place of
// limit in rounds.
func raceForOne(counters []*counter.Counter, limits []counter.Limits, limit counter.Limit, rounds int) {
	for round := range rounds {
		key := counter.Key{Event: "differ", Feature: fmt.Sprint(round)}
		var mu sync.Mutex
		var admitted []time.Time
		together(2+round%2, func(i int) {
			i = (i + round) % len(counters)
			v := value(counters[i].Take(context.Background(), key, 1, limits[i]))
			mu.Lock()
			defer mu.Unlock()
			if v.Allowed {
				admitted = append(admitted, v.At())
			}
		})
		if most := fullestPeriod(limit, admitted); len(admitted) < 1 || most > 1 {
			failf("round %d of %d: labels %v admitted by callers with different limits, want one", round, rounds, admitted)
		}
	}
}

// fullestPeriod returns the most labels in a period of a limit; of a window that slides,
// all of them.
func fullestPeriod(limit counter.Limit, labels []time.Time) (most int) {
	if limit.Period.IsZero() {
		return len(labels)
	}
	periods := map[int64]int{}
	for _, at := range labels {
		start, _ := limit.Period.Span(at.UnixNano())
		periods[start]++
		most = max(most, periods[start])
	}
	return most
}

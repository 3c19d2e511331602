package compare

import (
	"slices"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/oracle"
)

// points is the number of evenly spaced instants of a Curve. The instants of the
// fullest windows come on top.
const points = 480

// curve is the series of true windows of a key, from two windows before the
// fullest window to two windows after.
func (t *trial) curve(key, algorithms int) Curve {
	c := Curve{Key: t.log.name(key), Max: t.limit.Max, Counts: make([][]int64, algorithms)}
	per := t.limit.Per
	logs, peaks := make([]oracle.Log, algorithms), make([]time.Time, algorithms)
	var fullest time.Time
	var most int64
	for i := range algorithms {
		var n int64
		if peaks[i], n = t.peak(&logs[i], key, i); n > most {
			most, fullest = n, peaks[i]
		}
	}
	from := slices.MaxFunc([]time.Time{fullest.Add(-2 * per), t.log.First}, time.Time.Compare)
	to := slices.MinFunc([]time.Time{fullest.Add(2 * per), t.log.Last.Add(per)}, time.Time.Compare)
	for i := range points {
		c.Times = append(c.Times, from.Add(to.Sub(from)/(points-1)*time.Duration(i)))
	}
	for _, peak := range peaks {
		if peak.After(from) && !peak.After(to) {
			c.Times = append(c.Times, peak)
		}
	}
	slices.SortFunc(c.Times, time.Time.Compare)
	c.Times = slices.CompactFunc(c.Times, time.Time.Equal)
	for i := range c.Counts {
		c.Counts[i] = make([]int64, len(c.Times))
		for j, at := range c.Times {
			c.Counts[i][j] = logs[i].Count(at.Add(-per), at)
		}
	}
	return c
}

// peak fills log with the hits of a key that an algorithm has admitted, and
// returns the end of the fullest window and the count in the window.
func (t *trial) peak(log *oracle.Log, key, algorithm int) (at time.Time, most int64) {
	var admitted []time.Time
	for _, hit := range t.hits(nil, key, algorithm) {
		if hit.Admitted {
			log.Add(hit.At, 1)
			admitted = append(admitted, hit.At)
		}
	}
	for _, end := range admitted {
		if n := log.Count(end.Add(-t.limit.Per), end); n > most {
			at, most = end, n
		}
	}
	return at, most
}

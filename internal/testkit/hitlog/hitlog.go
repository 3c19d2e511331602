// Package hitlog keeps every hit of a key: the truth that windows are counted in.
// The code is plain and exact; a [Log] panics on misuse, and is not safe for concurrent
// use. The model check of the protocol, which a counter is built on, uses it too.
package hitlog

import (
	"fmt"
	"slices"
	"time"
)

// Log is every hit of a key. The zero Log is empty and ready.
//
// Hits may be added in any order. A hit that is late by k hits moves k entries;
// nearly sorted input, such as a log of several clocks, costs next to nothing.
// Counting is a binary search over the instants of the hits.
type Log struct {
	at  []int64 // the instants that were hit, nanoseconds since the Unix epoch, ascending, each once
	sum []int64 // sum[i] is the weight of all hits up to and including at[i]
}

// Add records a hit of weight n, one or more, at an instant between the years
// 1700 and 2250.
func (l *Log) Add(at time.Time, n int64) {
	if n < 1 {
		panic(fmt.Sprintf("hitlog: a hit of weight %d", n))
	}
	ns := at.UnixNano()
	i, found := l.search(ns)
	if !found {
		l.at = slices.Insert(l.at, i, ns)
		l.sum = slices.Insert(l.sum, i, l.before(i))
	}
	l.shift(i, n)
}

// Remove takes back a hit of weight n, one or more, that was added at the same
// instant: a refund. It panics if less than n was hit then.
func (l *Log) Remove(at time.Time, n int64) {
	if n < 1 {
		panic(fmt.Sprintf("hitlog: a refund of weight %d", n))
	}
	i, found := l.search(at.UnixNano())
	var held int64
	if found {
		held = l.sum[i] - l.before(i)
	}
	if held < n {
		panic(fmt.Sprintf("hitlog: a refund of %d at %s, where %d were hit", n, at.UTC().Format(time.RFC3339Nano), held))
	}
	l.shift(i, -n)
	if held == n {
		l.at = slices.Delete(l.at, i, i+1)
		l.sum = slices.Delete(l.sum, i, i+1)
	}
}

// Reset forgets all hits.
func (l *Log) Reset() { l.at, l.sum = l.at[:0], l.sum[:0] }

// Count is the weight of the hits from from to to, both included.
func (l *Log) Count(from, to time.Time) int64 {
	if to.Before(from) {
		return 0
	}
	first, _ := l.search(from.UnixNano())
	end, found := l.search(to.UnixNano())
	if found {
		end++
	}
	return l.before(end) - l.before(first)
}

// Since is the weight of the hits at from or later.
func (l *Log) Since(from time.Time) int64 {
	i, _ := l.search(from.UnixNano())
	return l.Total() - l.before(i)
}

// Newest returns the instant of the latest hit at from or later, and reports
// whether there is one.
func (l *Log) Newest(from time.Time) (time.Time, bool) {
	if l.Since(from) == 0 {
		return time.Time{}, false
	}
	return time.Unix(0, l.at[len(l.at)-1]), true
}

// Total is the weight of all hits.
func (l *Log) Total() int64 { return l.before(len(l.sum)) }

// Worst is the largest weight in any window of length per, zero or more, both
// of its ends included: two hits exactly per apart are in one window.
func (l *Log) Worst(per time.Duration) int64 {
	if per < 0 {
		panic(fmt.Sprintf("hitlog: a window of %s", per))
	}
	var worst int64
	first := 0
	for last, at := range l.at {
		for at-l.at[first] > int64(per) {
			first++
		}
		worst = max(worst, l.sum[last]-l.before(first))
	}
	return worst
}

// search finds the first entry at ns or later.
func (l *Log) search(ns int64) (int, bool) { return slices.BinarySearch(l.at, ns) }

// before is the weight of all hits before entry i.
func (l *Log) before(i int) int64 {
	if i == 0 {
		return 0
	}
	return l.sum[i-1]
}

// shift adds n to the sums from entry i on.
func (l *Log) shift(i int, n int64) {
	for ; i < len(l.sum); i++ {
		l.sum[i] += n
	}
}

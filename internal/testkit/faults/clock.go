package main

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// clock is a caller's own clock, counter.Config.Now. The distance to the clock of
// the machine, the true time of the campaign, is an offset that can step and drift.
// A clock keeps the time of each of its readings.
type clock struct {
	pause func(*rand.Rand) time.Duration // how long the reader stands still after a reading

	mu       sync.Mutex
	rng      *rand.Rand
	segments []segment // the latest is the last
	readings [1024]reading
	made     int // readings

	paused atomic.Int64 // how often the reader stood still
}

// segment is a stretch of time in which the offset changes at a constant rate, up
// to an end.
type segment struct {
	from        int64 // true time
	offset, end int64 // nanoseconds
	perSecond   int64 // by which the offset moves towards end
}

type reading struct{ label, at int64 }

// at is the offset at an instant in true time.
func (s *segment) at(now int64) int64 {
	moved := int64(float64(s.perSecond) * float64(now-s.from) / 1e9)
	if s.end >= s.offset {
		return min(s.end, s.offset+moved)
	}
	return max(s.end, s.offset-moved)
}

// set changes the offset: at once if perSecond is zero, otherwise it drifts.
func (c *clock) set(offset, perSecond time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().UnixNano()
	s := segment{from: now, offset: int64(offset), end: int64(offset)}
	if n := len(c.segments); n > 0 && perSecond > 0 {
		s.offset, s.perSecond = c.segments[n-1].at(now), int64(perSecond)
	}
	c.segments = append(c.segments, s)
	if len(c.segments) > 64 {
		c.segments = append(c.segments[:0], c.segments[32:]...)
	}
}

// Now reads the clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	at := time.Now().UnixNano()
	label := at + c.segments[len(c.segments)-1].at(at)
	c.readings[c.made%len(c.readings)] = reading{label, at}
	c.made++
	wait := c.pause(c.rng)
	if wait > 0 {
		c.paused.Add(1)
	}
	c.mu.Unlock()
	if wait > 0 {
		// The process loses its processor between reading the clock and using the
		// reading: nothing prevents such a pause.
		time.Sleep(wait)
	}
	return time.Unix(0, label)
}

// read returns the instant in true time, not before from, at which the clock read
// label; 0 without such a reading.
func (c *clock) read(label, from int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := c.made - 1; i >= max(0, c.made-len(c.readings)); i-- {
		if r := c.readings[i%len(c.readings)]; r.label == label && r.at >= from {
			return r.at
		}
	}
	return 0
}

// span returns the least and the greatest possible reading of the clock between two
// instants in true time, and the largest offset meanwhile, either way.
func (c *clock) span(from, to int64) (lo, hi, off int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := true
	for i := range c.segments {
		s := &c.segments[i]
		begin, end := max(from, s.from), to
		if i == 0 {
			begin = from
		}
		if i+1 < len(c.segments) {
			end = min(end, c.segments[i+1].from)
		}
		if begin > end {
			continue
		}
		a, b := s.at(begin), s.at(end)
		if first {
			lo, hi = begin+a, end+b
		}
		lo, hi, first = min(lo, begin+a), max(hi, end+b), false
		off = max(off, a, -a, b, -b)
	}
	return lo, hi, off
}

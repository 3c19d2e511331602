package counter

import (
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/internal/cover"
)

// labels reads the clock for the labels of the short way, see quotas.
//
// time.Now reads two clocks, the wall clock and the monotonic clock, and takes a
// third of a Take in memory. For anchorLife after a reading of both, labels
// reads the monotonic clock alone, and adds the time since to that reading.
//
// A suspended machine stops the monotonic clock. With a life of a second, hits
// of the first second after the machine wakes would be labelled as if there had
// been no pause, and leave their windows early by as much. But programs are
// stopped before the monotonic clock and started after it, by many
// milliseconds: no anchor outlives a pause. A step of the wall clock is noticed
// later by up to anchorLife.
type labels struct {
	now    func() time.Time // Config.Now; nil: time.Now
	anchor atomic.Pointer[anchor]
}

// anchor is a reading of both clocks, and its Unix time in nanoseconds.
type anchor struct {
	read time.Time
	unix int64
}

const anchorLife = time.Millisecond

// anchorError bounds the time between the two readings of an anchor: the thread may
// have stood still after the first.
const anchorError = 20 * time.Microsecond

// read returns a label; 0 if the clock is out of the range of labels.
func (l *labels) read() int64 {
	if a := l.anchor.Load(); a != nil {
		if d := time.Since(a.read); uint64(d) < uint64(anchorLife) {
			return a.unix + int64(d)
		}
	}
	if l.now != nil {
		if now := l.now(); cover.InRange(now) {
			return now.UnixNano()
		}
		return 0
	}
	before, now := time.Now(), time.Now()
	switch {
	case !cover.InRange(now):
		return 0
	case now.Sub(before) > anchorError:
		return now.UnixNano()
	}
	a := &anchor{now, now.UnixNano()}
	l.anchor.Store(a)
	return a.unix
}

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

// read returns a label, and whether it is in the range of labels.
func (l *labels) read() (label int64, ok bool) {
	if a := l.anchor.Load(); a != nil {
		if d := time.Since(a.read); uint64(d) < uint64(anchorLife) {
			return a.unix + int64(d), true
		}
	}
	if l.now != nil {
		now := l.now()
		return now.UnixNano(), cover.CheckTime(now) == nil
	}
	before, now := time.Now(), time.Now()
	if cover.CheckTime(now) != nil {
		return 0, false
	}
	if now.Sub(before) > anchorError {
		return now.UnixNano(), true
	}
	a := &anchor{now, now.UnixNano()}
	l.anchor.Store(a)
	return a.unix, true
}

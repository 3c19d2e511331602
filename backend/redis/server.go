package redis

import (
	"sync"
	"time"
)

// epoch is where this process's monotonic clock begins.
var epoch = time.Now()

// monotonic is microseconds since epoch, whatever becomes of the wall clock.
func monotonic(t time.Time) int64 { return t.Sub(epoch).Microseconds() }

// timeKept is how long a bound on a server's clock is kept: a bad quartz drifts by
// a millisecond in that time.
const timeKept = 10 * time.Second

// serverTime says by which time of a server's own clock a call must have been
// executed. It bounds from above how far that clock is ahead of this process's
// monotonic one, so that no call is too late for the server that is not too late
// here: the server had its time after the call was sent, so the time in an answer,
// less that of the sending, is such a bound. The least of those of the last ten to
// twenty seconds counts. It is used by many goroutines at once.
type serverTime struct {
	mu         sync.Mutex
	least, old int64 // bounds, of this period and the one before, in microseconds
	until      int64 // of this period
}

// begin supposes that the server's wall clock is right, and this process's.
func (s *serverTime) begin() {
	s.least = epoch.UnixMicro()
	s.old = s.least
	s.until = monotonic(time.Now()) + timeKept.Microseconds()
}

// due is the server's time at a deadline.
func (s *serverTime) due(deadline time.Time) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(max(1, monotonic(deadline)+min(s.least, s.old)))
}

// heard takes note of the server's time in an answer to what was sent at sent.
func (s *serverTime) heard(sent time.Time, micro int64) {
	at := monotonic(sent)
	bound := micro - at
	s.mu.Lock()
	defer s.mu.Unlock()
	if at > s.until {
		s.old, s.least = s.least, bound
		s.until = at + timeKept.Microseconds()
	}
	s.least = min(s.least, bound)
}

// behind takes note of a server's time that was past the deadline while the
// deadline had not passed here: what was thought of its clock was wrong.
func (s *serverTime) behind(sent time.Time, micro int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.least = micro - monotonic(sent)
	s.old = s.least
}

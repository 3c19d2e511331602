package redis

import (
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/internal/redisscript"
)

// epoch is the zero of this process's monotonic clock.
var epoch = time.Now()

// monotonic returns microseconds since epoch, independent of steps of the wall clock.
func monotonic(t time.Time) int64 { return t.Sub(epoch).Microseconds() }

// boundKept is the time for which a bound on a server's clock is kept: a bad quartz
// drifts by a millisecond meanwhile.
const boundKept = 10 * time.Second

// learnEvery is the least time between two answers with the server's time: to read the
// time costs the server more than to compare its seconds with a deadline.
const learnEvery = time.Millisecond

const clusterClocks = 256 // kept for all slots of a Cluster

// clock returns the clock of the server that holds a key. Adjacent slots of a Cluster
// are mostly on the same server: if not, a bound that was learnt from the
// clock of the first server is corrected by the next answer of the second.
func (s *sums) clock(key string) *serverTime {
	if len(s.clocks) == 1 {
		return &s.clocks[0]
	}
	return &s.clocks[redisscript.Slot(key[1:strings.IndexByte(key, '}')])*len(s.clocks)/redisscript.Slots]
}

// serverTime translates deadlines into the time of a server's own clock. A serverTime
// bounds from above how far the server's clock is ahead of this process's monotonic
// clock, so that a call in time here is in time there: the server reads the time in an
// answer after the call was sent, so the difference of the two times is such a bound.
// The least of the bounds of the last ten to twenty seconds counts. A serverTime is
// used by many goroutines at once.
type serverTime struct {
	mu         sync.Mutex
	least, old int64 // bounds of the present period and of the last, in microseconds
	ends       int64 // of the present period, by monotonic
	next       int64 // when another answer shall have the server's time, by monotonic
}

// begin supposes that the wall clocks of the server and of this process agree.
func (s *serverTime) begin() {
	s.least = epoch.UnixMicro()
	s.old = s.least
	s.ends = monotonic(time.Now()) + boundKept.Microseconds()
}

// at returns the server's time at a deadline, in microseconds.
func (s *serverTime) at(deadline time.Time) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(max(1, monotonic(deadline)+min(s.least, s.old)))
}

// wants reports whether the answer to a call that is sent now shall have the server's time.
func (s *serverTime) wants(sent time.Time) bool {
	at := monotonic(sent)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at < s.next {
		return false
	}
	s.next = at + learnEvery.Microseconds()
	return true
}

// learn takes a bound from the server's time in the answer to a call.
func (s *serverTime) learn(sent time.Time, micro int64) {
	at := monotonic(sent)
	bound := micro - at
	s.mu.Lock()
	defer s.mu.Unlock()
	if at > s.ends {
		s.old, s.least = s.least, bound
		s.ends = at + boundKept.Microseconds()
	}
	s.least = min(s.least, bound)
}

// correct replaces all bounds by the bound of a single answer: the answer says that a
// deadline had passed for the server, and here the deadline had not.
func (s *serverTime) correct(sent time.Time, micro int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.least = micro - monotonic(sent)
	s.old = s.least
}

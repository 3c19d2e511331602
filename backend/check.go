package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// ErrCondition is the error of CheckServers for a server that answers and counts,
// while a condition of the promises of a Counter does not hold, or cannot be
// seen: the server's clock is apart from the caller's, or the server may evict
// counts. An error that is no ErrCondition says that hits cannot be counted.
var ErrCondition = errors.New("a condition of the promises does not hold")

// DefaultSkew is the default of counter.Config.Skew for a store on another
// machine.
const DefaultSkew = 100 * time.Millisecond

// CheckRequest is a call of CheckServers of a [Store].
type CheckRequest struct {
	Key      string           // as Request.Key, of at most 180 bytes: a store may append to it
	Now      func() time.Time // the clock of the caller; nil: time.Now
	Skew     time.Duration    // how far the clock of a server may be apart from Now
	Deadline time.Time        // as in Request

	Servers []Server // filled in
}

func (r *CheckRequest) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// Server is the state of a server as CheckServers found it.
type Server struct {
	Name string // as in errors: host:port

	// Run names the life of the server's memory: another Run says that the
	// server was restarted. Empty if not known; then Evicted is 0.
	Run     string
	Evicted int64 // keys or items that the server has evicted in this Run

	// Ahead is the lead of the server's clock over the caller's, below zero if
	// the server is behind; give or take Within: half a round trip, and the
	// resolution of the answer.
	Ahead, Within time.Duration

	// Facts has the server's own words, by the names of INFO (Redis) or of the
	// stats (memcached), and behind "config.", "settings.", "items." and
	// "slabs.".
	Facts map[string]string
}

// Report has the numbers of a [Store] since its creation.
type Report struct {
	LateAnswers int64 // answers after the end of their calls, that hits were counted; the hits were taken back, but for those in HitsLeft
	HitsLeft    int64 // additions that failed for their callers and may stay until they age out: the connection was lost, or a taking back was not confirmed

	Guesses      int64 // Takes that were sent as if their key were denied, as its last Take was
	WrongGuesses int64 // of these, admitted
}

// CheckStore checks a store without a Counter: by the clock of the machine,
// within DefaultSkew, and with the Prefix that a Counter has by default.
func CheckStore(ctx context.Context, store Store) error {
	return store.CheckServers(ctx, &CheckRequest{Key: "ab:?check", Skew: DefaultSkew})
}

// clockSamples bounds the questions of a measurement of a clock, and
// clockSampling the time after which no further question is asked.
const (
	clockSamples  = 7
	clockSampling = 50 * time.Millisecond
)

// Clock measures the clock of a server. ask asks the server for its time, once,
// and returns the resolution of the answer. The answer of the shortest round
// trip counts: the server has read its clock half a trip ago, give or take half
// a trip.
func (r *CheckRequest) Clock(ask func() (t time.Time, resolution time.Duration, err error)) (ahead, within time.Duration, err error) {
	start := time.Now()
	for i := 0; i == 0 || i < clockSamples && time.Since(start) < clockSampling; i++ {
		began := r.now()
		t, resolution, err := ask()
		if err != nil {
			return 0, 0, err
		}
		half := r.now().Sub(began) / 2
		if i == 0 || half+resolution < within {
			ahead, within = t.Sub(began.Add(half)), half+resolution
		}
		if resolution >= half {
			break // a shorter trip would tell no more
		}
	}
	return ahead, within, nil
}

// Found adds a server to r.Servers. Found returns an [ErrCondition] if the
// clock of the server is for certain further apart than r.Skew.
func (r *CheckRequest) Found(s Server) error {
	r.Servers = append(r.Servers, s)
	if !s.Apart(r.Skew) {
		return nil
	}
	return Unmet("clock is %s; Config.Skew is %s", s.clock("ahead of this process's", "behind this process's"), dur.Format(r.Skew))
}

// Apart reports whether the clock of the server is for certain further apart from
// the caller's than skew.
func (s Server) Apart(skew time.Duration) bool { return s.Ahead.Abs() > skew+s.Within }

// Clock describes the clock of the server: "3ms ahead, give or take 1ms".
func (s Server) Clock() string { return s.clock("ahead", "behind") }

func (s Server) clock(ahead, behind string) string {
	word := ahead
	if s.Ahead < 0 {
		word = behind
	}
	return fmt.Sprintf("%s %s, give or take %s", rounded(s.Ahead.Abs()), word, rounded(s.Within))
}

// rounded is d with three digits or so.
func rounded(d time.Duration) time.Duration {
	switch {
	case d > 100*time.Millisecond:
		return d.Round(time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// Unmet returns an error with the text of fmt.Errorf that is an [ErrCondition].
func Unmet(format string, args ...any) error { return &unmet{fmt.Errorf(format, args...)} }

type unmet struct{ error }

func (e *unmet) Unwrap() error        { return e.error }
func (e *unmet) Is(target error) bool { return target == ErrCondition }

// probeLadder has the shortest lives: an addition of a check that could not be
// removed is gone after some seconds.
var probeLadder = tiers.For(tiers.MinWindow)

// Probe returns a request that adds a hit to a key and lives for a moment.
// CheckServers sends the request to each server, and removes the hit.
func (r *CheckRequest) Probe(key string) *Request {
	now := r.now()
	op := &Request{Key: key, Ladder: probeLadder, Now: now, Deadline: r.Deadline, AnyLabel: true, N: 1}
	for _, b := range probeLadder.Buckets(now) {
		op.Add = append(op.Add, Slot{Bucket: b, TTL: time.Second})
	}
	return op
}

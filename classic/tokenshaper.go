package classic

import (
	"github.com/abacus-go/abacus/counter"
)

// TokenShaper is a token bucket that waits when it is empty: it shapes traffic,
// where a [TokenBucket] polices it. The bucket holds up to burst tokens, and gains
// Max tokens in each Per. [TokenShaper.Wait] takes tokens, if need be tokens to
// come, and returns when they have come; a request that would wait for longer than
// length hits take is denied. [TokenShaper.Take] never waits, and decides as a
// [GCRA] on the same history.
//
// The state is a schedule, as of a [LeakyQueue], and a caller waits by a timer of
// his own call: a LeakyQueue without spacing for the first burst.
//
// Guarantee: at most burst + Max leave in a true window of length Per, 2*Max if
// burst is Max; the bound is reached. No admitted request waits for longer than
// length*Per/Max. Instants are instants of the schedule; a process that is late
// leaves late.
//
// Who waits first: requests leave in the order in which the store hears of them,
// on Redis the requests of all processes. A small request does not overtake a large
// one that waits. A caller with [TokenShaper.Take] gets no token while others wait.
//
// Cost: 1 read, and with tokens 1 write; 1 round trip, 1 script, and as much again
// to give tokens back. A state of some 120 bytes a key.
//
// A caller whose context ends during the wait gives back the tokens, if no one
// has come since. Otherwise they are lost: the callers behind know their times, and
// no one moves up. A caller whose clock is behind waits for longer.
//
// In the Verdict of Wait, Remaining is the number of further single hits that may
// wait or leave, in the Verdict of Take the number of tokens; ResetAfter is the time
// until the bucket is full; both as of the moment of the decision.
//
// Source: the token bucket filter of Linux, tc-tbf(8), with its latency as the
// bound of the wait. For requests: Wait of golang.org/x/time/rate, where the
// caller's context is the only bound.
//
// Prefer TokenShaper to a LeakyQueue where the service behind bears a burst: who
// comes after a pause does not wait.
type TokenShaper struct{ scheduler }

// NewTokenShaper makes a TokenShaper that gains limit.Max tokens in limit.Per, with
// room for burst tokens, and in which length hits may wait. A burst of 0 is
// limit.Max; with a length of 0 no one waits. Errors are the errors of
// [NewTokenBucket], also for length.
func NewTokenShaper(limit counter.Limit, burst, length int64, store *Store) (*TokenShaper, error) {
	if burst == 0 {
		burst = limit.Max
	}
	if err := checkRate(limit, "burst", burst, store); err != nil {
		return nil, err
	}
	if err := checkRate(limit, "length", length, store); err != nil {
		return nil, err
	}
	l := &TokenShaper{}
	l.open("token-shaper", limit, store, burst, length, burst)
	return l, nil
}

var _ Measured = (*TokenShaper)(nil)

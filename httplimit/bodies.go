package httplimit

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// Defaults of a Config for bodies.
const (
	DefaultMaxBody      = 1 << 20  // of Config.MaxBody, in bytes: 1 MiB
	DefaultMaxBodyTotal = 64 << 20 // of Config.MaxBodyTotal, in bytes: 64 MiB
	DefaultBodyTimeout  = 30 * time.Second
)

// freeBody is the number of bytes of each body that Config.MaxBodyTotal does not
// bound. A bound for all bytes, or for the number of bodies, would be used up by as
// many slow clients, and then refuse every form.
const freeBody = 16 << 10

// errBodies is the reason why a body is not read to its end: too many bytes are held.
var errBodies = errors.New("httplimit: the bodies of other requests hold Config.MaxBodyTotal bytes")

// errSealed is the error of reading a body that is not to be read yet.
var errSealed = errors.New("httplimit: the body is read when the rules that need no body would admit the request")

// bodies bounds the bodies that are read for the Values of a middleware.
type bodies struct {
	total   int64         // bytes beyond the free ones, of all bodies together
	timeout time.Duration // of each body; zero or less: unbounded
	held    atomic.Int64  // at most total
}

// hold makes q hold a buffer of size bytes. ok is false beyond the bound.
func (q *request) hold(size int64) (ok bool) {
	if q.all == nil {
		return true
	}
	more, total := max(0, size-freeBody-q.held.Load()), q.all.total
	if q.refused {
		total /= 2 // else clients over their limits would leave no room to others
	}
	if more > 0 && q.all.held.Add(more) > total {
		q.all.held.Add(-more)
		return false
	}
	q.held.Add(more)
	return true
}

// release gives back what q holds. Many goroutines may call release at once.
func (q *request) release() {
	if held := q.held.Swap(0); held > 0 {
		q.all.held.Add(-held)
	}
}

// deadline bounds the time of reading the body until done is called, which reports
// whether the time was over and a deadline was set. Deadlines of the server and of outer
// handlers stand: only when the time is over, a deadline ends the reading, and stays,
// since the server must not wait for the rest of the body either.
func (q *request) deadline() (done func() (late bool)) {
	if q.all == nil || q.all.timeout <= 0 {
		return func() bool { return false }
	}
	var err error
	over := make(chan struct{})
	timer := time.AfterFunc(q.all.timeout, func() {
		defer close(over)
		err = http.NewResponseController(q.w).SetReadDeadline(time.Now()) // else nothing bounds the time here
	})
	return func() bool {
		if timer.Stop() {
			return false
		}
		<-over // the connection is the next request's soon
		return err == nil
	}
}

package memcache

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/abacus-go/abacus/internal/loan"
)

// pipeline is a connection with the exchanges of many callers: requests are
// written one after the other, and answers come in the same order.
//
// A pipeline has no goroutine of its own. A caller writes its request together
// with requests that came while another was being written. A waiting caller, the
// leader, reads the answers for all callers until its own has come, and makes
// the next the leader. So a lone caller writes and reads without a change of
// goroutine. When all callers have returned and answers are due, a goroutine
// reads on: an addition that was made for a caller that has returned is taken
// back on the same connection. A server that has restarted since never gets the
// taking back.
type pipeline struct {
	conn  net.Conn
	whole bool // a write that is cut ends the connection, as over TLS
	check *liveness
	t     *transport
	meta  bool // the server has meta commands

	load  atomic.Int32 // exchanges in the queue
	quiet atomic.Int64 // since when, in ns since 1970, nothing was answered though a caller has given up; 0: otherwise

	mu      sync.Mutex
	queue   []*exchange // without an answer, oldest first
	leader  *exchange   // reads the answers; nil if nobody does
	out     []byte      // requests to be written
	spare   []byte      // the buffer for the next requests
	writing bool
	answers uint64 // reads that returned bytes
	retired bool   // no new exchanges; closed after the last answer
	err     error  // the pipeline is closed

	in       []byte // in[from:to] was received and not yet read; of the leader
	from, to int
}

const (
	readSize  = 32 << 10  // bytes of a pipeline's receive buffer
	largeSize = 64 << 10  // bytes of a request that a lone caller does not write by itself
	keptSize  = 256 << 10 // bytes of a send buffer that is kept

	// maxWrites and maxWriting bound the writes that a caller makes, for others
	// too, and their time: a caller that writes sees neither the end of its context
	// nor the answers of others.
	maxWrites  = 4
	maxWriting = 10 * time.Millisecond

	// silent is the time without an answer after which a server is taken for one
	// that has stood still.
	silent = 50 * time.Millisecond
)

// reader takes the place of the leader when no caller waits.
var reader = new(exchange)

func (t *transport) newPipeline(conn net.Conn, meta bool) *pipeline {
	_, raw := conn.(syscall.Conn)
	return &pipeline{conn: conn, whole: !raw, check: newLiveness(conn), t: t, meta: meta, in: make([]byte, readSize)}
}

// over reports whether meta commands are to be asked for again, on a new connection.
func (p *pipeline) over() bool {
	return !p.meta && time.Now().UnixNano() >= p.t.classicUntil.Load()
}

var (
	// errUnused is the error of an exchange that was not sent.
	errUnused = errors.New("the connection is closed")

	// errLost is the error of an idle connection that the server has closed.
	errLost = errors.New("the connection was lost")
)

// do sends x and waits for the answers. After errUnused nothing was sent; after
// any other error x is the pipeline's. Without an error the answers are in x, or
// x.err says that the connection has failed.
func (p *pipeline) do(ctx context.Context, x *exchange, deadline time.Time) error {
	p.mu.Lock()
	alone := len(p.queue) == 0
	if p.err == nil && alone && !p.check.alive() {
		p.mu.Unlock()
		p.fail(errLost)
		return errUnused
	}
	if p.err != nil || p.retired {
		p.mu.Unlock()
		return errUnused
	}
	lead := p.leader == nil
	if lead {
		p.leader = x
	}
	write := p.push(x)
	p.mu.Unlock()
	if write {
		if !alone {
			runtime.Gosched() // for the requests of callers that are about to send
		}
		until := time.Now().Add(maxWriting)
		if deadline.Before(until) {
			until = deadline
		}
		p.write(until, maxWrites)
	}
	if !lead {
		x.timer.Reset(time.Until(deadline))
		select {
		case <-x.wake:
			x.timer.Stop()
		case <-x.timer.C:
			return p.giveUp(ctx, x)
		case <-ctx.Done():
			x.timer.Stop()
			return p.giveUp(ctx, x)
		}
	}
	return p.lead(ctx, x, deadline)
}

// lead reads answers until x is finished.
func (p *pipeline) lead(ctx context.Context, x *exchange, deadline time.Time) error {
	if x.state.Load() == finished {
		return nil
	}
	p.conn.SetReadDeadline(deadline)
	if ctx.Done() != nil {
		lent := loan.Of(ctx)
		defer lent.End()
		ctx = lent
		stop := context.AfterFunc(ctx, func() { p.conn.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
	}
	for x.state.Load() == waiting {
		n, err := p.conn.Read(p.room())
		if n > 0 {
			err = p.handOut(n, x)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			p.end(err)
			return nil
		} else if ctx.Err() != nil || !time.Now().Before(deadline) {
			if err := p.giveUp(ctx, x); err != nil {
				return err
			}
		} else if err != nil {
			p.conn.SetReadDeadline(deadline) // the context of a former leader was done
			if ctx.Err() != nil {
				p.conn.SetReadDeadline(time.Unix(1, 0))
			}
		}
	}
	p.mu.Lock()
	p.passOn()
	p.mu.Unlock()
	return nil
}

// giveUp ends the waiting of a caller, unless x is finished.
func (p *pipeline) giveUp(ctx context.Context, x *exchange) error {
	x.spoiled = true
	if !x.state.CompareAndSwap(waiting, abandoned) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers == x.sentAt && p.quiet.Load() == 0 {
		p.quiet.Store(time.Now().UnixNano())
	}
	if p.retired {
		x.release()
	}
	if p.leader == x {
		p.passOn()
	}
	return ended(ctx)
}

// ended is the error of a caller that waits no longer.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return os.ErrDeadlineExceeded
}

// push queues x, under the lock, and reports whether the caller must write.
func (p *pipeline) push(x *exchange) (write bool) {
	x.sentAt = p.answers
	p.queue = append(p.queue, x)
	p.load.Add(1)
	p.out = append(p.out, x.request...)
	write, p.writing = !p.writing, true
	return write
}

// write writes requests, at most the given number of times.
func (p *pipeline) write(deadline time.Time, times int) {
	p.conn.SetWriteDeadline(deadline)
	for range times {
		p.mu.Lock()
		out := p.out
		if len(out) == 0 || p.err != nil {
			p.writing = false
			p.mu.Unlock()
			return
		}
		if times <= maxWrites && (p.whole || len(out) > largeSize) {
			p.mu.Unlock()
			break // the server may want its answers to be read first
		}
		p.out, p.spare = p.spare[:0], nil
		p.mu.Unlock()
		if times > maxWrites {
			deadline = time.Now().Add(p.t.timeout)
			p.conn.SetWriteDeadline(deadline)
		}
		n, err := p.conn.Write(out)
		p.mu.Lock()
		if n < len(out) {
			p.out = append(slices.Clone(out[n:]), p.out...)
		}
		if cap(out) <= keptSize {
			p.spare = out
		}
		p.mu.Unlock()
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || time.Now().Before(deadline)) {
			p.fail(err)
			return
		} else if err != nil {
			break
		}
	}
	go p.writeOn()
}

// writeOn writes requests whose callers could not wait.
func (p *pipeline) writeOn() { p.write(time.Now().Add(p.t.timeout), 1000) }

// room returns the room for what is received next.
func (p *pipeline) room() []byte {
	p.from, p.to = 0, copy(p.in, p.in[p.from:p.to])
	return p.in[p.to:]
}

// handOut hands out the answers after n more bytes were received. own is the exchange
// of the caller.
func (p *pipeline) handOut(n int, own *exchange) error {
	p.to += n
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers++
	for p.from < p.to {
		if len(p.queue) == 0 {
			return errors.New("answered without a request")
		}
		x := p.queue[0]
		p.mu.Unlock()
		n, complete, err := x.parse(p.in[p.from:p.to])
		p.mu.Lock()
		p.from += n
		if err != nil {
			return err
		}
		if !complete {
			break
		}
		p.queue = slices.Delete(p.queue, 0, 1)
		p.load.Add(-1)
		if !x.state.CompareAndSwap(waiting, finished) {
			p.takeLate(x)
		} else if x != own {
			x.signal()
		}
	}
	// A server that goes on after a silence has to take back late additions first:
	// callers would be denied by these, and a denial is remembered for a while.
	if since := p.quiet.Load(); since != 0 && (time.Since(time.Unix(0, since)) < silent || !slices.ContainsFunc(p.queue, isAbandoned)) {
		p.quiet.Store(0)
		go p.t.wake()
	}
	return nil
}

// passOn makes the next caller the leader, under the lock.
func (p *pipeline) passOn() {
	p.noLeader()
	if i := slices.IndexFunc(p.queue, isWaiting); i >= 0 {
		p.leader = p.queue[i]
		p.leader.signal()
	} else if len(p.queue) > 0 {
		p.leader = reader
		p.t.listening.Add(1)
		go p.readOn()
	} else if p.retired {
		go p.fail(errUnused)
	}
}

// noLeader ends the reading of the leader, under the lock.
func (p *pipeline) noLeader() {
	if p.leader == reader {
		p.t.listening.Add(-1)
	}
	p.leader = nil
}

package memcache

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// The end of an exchange whose caller has returned, and of a pipeline. What is
// answered late is read on, and additions among it are undone.

// listenFor is the time for which the answer to an addition is awaited after its
// call has returned.
const listenFor = time.Minute

// readOn reads answers while no caller waits.
func (p *pipeline) readOn() {
	var oldest *exchange
	var since time.Time
	for {
		p.mu.Lock()
		if len(p.queue) == 0 || slices.ContainsFunc(p.queue, isWaiting) {
			p.passOn()
			p.mu.Unlock()
			return
		}
		if x := p.queue[0]; x != oldest {
			oldest, since = x, time.Now()
		}
		until := since.Add(p.t.timeout)
		if slices.ContainsFunc(p.queue, func(x *exchange) bool { return len(x.adds) > 0 }) {
			until = since.Add(listenFor)
		}
		closed := p.t.store.closed.Load()
		p.conn.SetReadDeadline(until)
		p.mu.Unlock()
		err, over := os.ErrDeadlineExceeded, closed || !time.Now().Before(until)
		if !over {
			var n int
			if n, err = p.conn.Read(p.room()); n > 0 {
				err = p.handOut(n, nil)
			}
		}
		if err != nil && (over || !errors.Is(err, os.ErrDeadlineExceeded)) {
			p.end(err)
			return
		}
	}
}

// takeLate deals with an exchange that was answered after its caller had
// returned, under the lock. The taking back is queued at once, before requests
// of callers that have waited for the server.
func (p *pipeline) takeLate(x *exchange) {
	s := p.t.store
	var made []tiers.Bucket
	for i := range x.adds[:x.answered] {
		switch a := &x.adds[i]; {
		case a.made:
			made = append(made, a.bucket)
		case a.noRoom && x.n < 0:
			again, late := undoOf(x.key, -x.n, a.bucket), x.late
			go func() {
				if p.t.undo(context.Background(), again, time.Now().Add(listenFor), 2) == nil && late {
					s.takenBack.Add(1)
				}
			}()
		case a.err != nil && x.n < 0:
			s.undoFailed.Add(1)
		case x.late:
			s.takenBack.Add(1)
		}
	}
	s.lateAdditions.Add(int64(len(made)))
	if p.err != nil {
		s.undoFailed.Add(int64(len(made)))
	} else if len(made) > 0 {
		back := x.pool.Get().(*exchange)
		back.encode(p.meta, undoOf(x.key, x.n, made...), false)
		back.late = true
		back.state.Store(abandoned)
		back.gate, x.gate = x.gate, nil
		if p.push(back) {
			go p.writeOn()
		}
	}
	x.release()
}

// retire takes p out of use. p is closed after its last answer, and after the
// last caller's answer if the store is closed.
func (p *pipeline) retire() {
	p.mu.Lock()
	p.retired = true
	for _, x := range p.queue {
		if isAbandoned(x) {
			x.release()
		}
	}
	if p.leader == reader && p.t.store.closed.Load() {
		p.conn.SetReadDeadline(time.Unix(1, 0))
	}
	idle := p.leader == nil
	p.mu.Unlock()
	if idle {
		p.fail(errUnused)
	}
}

// fail closes the pipeline. The leader finds the connection closed.
func (p *pipeline) fail(err error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = err
	}
	p.mu.Unlock()
	if first {
		p.t.remove(p, err)
		p.conn.Close()
	}
}

// end is the end of the last leader: exchanges without an answer fail.
func (p *pipeline) end(err error) {
	p.fail(err)
	s := p.t.store
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.queue {
		lost := int64(len(x.adds) - x.answered)
		verb := x.verb
		if x.plain == 0 && lost == 0 {
			verb = "get"
		}
		x.err = p.t.failed(verb, p.err)
		if x.n < 0 {
			s.undoFailed.Add(lost)
		} else {
			s.unanswered.Add(lost)
		}
		if x.state.CompareAndSwap(waiting, finished) {
			x.signal()
		} else {
			p.takeLate(x)
		}
	}
	p.queue = nil
	p.noLeader()
}

package memcache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// transport is the shared connections to a server with meta commands.
type transport struct {
	store   *Store
	peer    *peer
	proxied bool // Config.Proxied

	listening    atomic.Int64 // pipelines that read answers for which no caller waits
	classicUntil atomic.Int64 // time, in ns since 1970, until which the server is served without meta commands

	mu      sync.Mutex
	slots   []*pipeline            // nil where there is no connection
	retired map[*pipeline]struct{} // replaced, and listening for late answers
	dialing bool
	dialEnd time.Time // when the last dial has failed
	changed *change   // the next
}

// change is an event that callers wait for: a dial has ended, or a quiet pipeline
// has answered.
type change struct {
	done chan struct{} // closed at the event
	err  error         // of the dial, once done is closed
}

func newChange() *change { return &change{done: make(chan struct{})} }

const (
	// maxShared bounds the items that a Do reads on a shared connection. Larger
	// reads have connections of their own, since other calls would have to wait.
	maxShared = 4 * chunkSize

	// maxRetired bounds the replaced connections that listen.
	maxRetired = 8

	// classicFor is the time for which a server that does not know ma is served
	// without, and closedFor the same for a server that hangs up when asked: a
	// proxy may do so, and a server that is about to end.
	classicFor = time.Minute
	closedFor  = time.Second

	// redialAfter is the time from a failed dial of a further connection to the
	// next.
	redialAfter = time.Second

	// probeCommand asks whether the server knows ma, and changes nothing. With a tag
	// it ends the reads of an exchange.
	probeCommand = "ma |abacus D0"
)

var (
	// errClosed is the error of a call after Close.
	errClosed = errors.New("memcache: the store is closed")

	// errClassic is the error of a request that was not sent, and is to be sent
	// without the transport.
	errClassic = errors.New("without the transport")
)

func newTransport(s *Store, p *peer, cfg Config) *transport {
	return &transport{store: s, peer: p, proxied: cfg.Proxied, slots: make([]*pipeline, cfg.Conns),
		retired: map[*pipeline]struct{}{}, changed: newChange()}
}

// fits tells whether op goes over the shared connections.
func (t *transport) fits(op *backend.Request) bool {
	total := 0
	for i := range op.Read {
		total += len(op.Read[i].Counts)
	}
	until := t.classicUntil.Load()
	return total <= maxShared && len(op.Add) <= chunkSize && (until == 0 || time.Now().UnixNano() >= until)
}

// do is a Do on a shared connection.
func (t *transport) do(ctx context.Context, op *backend.Request, deadline time.Time) error {
	x := newExchange(op.N, len(op.Add))
	if err := x.encode(op, time.Now(), !t.proxied); err != nil || len(x.request) == 0 {
		x.recycle()
		return err
	}
	x.gate = t.peer.gate
	takesBack := op.N < 0 && len(op.Add) > 0
	if takesBack {
		x.gate = t.peer.undos
	}
	if err := t.enter(ctx, x.gate, deadline); err != nil {
		return t.store.notSent(op, err)
	}
	for {
		p, err := t.acquire(ctx, deadline, takesBack)
		if err != nil {
			x.gate.leave()
			if err != errClassic {
				err = t.store.notSent(op, err)
			}
			return err
		}
		answerBy := time.Now().Add(t.peer.timeout)
		if deadline.Before(answerBy) {
			answerBy = deadline
		}
		if err = p.do(ctx, x, answerBy); err == nil {
			return t.finish(ctx, x, op, deadline)
		} else if err != errUnused {
			return fmt.Errorf("memcache: %s%w, without an answer", t.peer.where, err)
		}
	}
}

// finish ends an exchange that is the caller's again: additions beyond MaxCount
// are taken back, and a taking back for which the server had no room is asked
// for again.
func (t *transport) finish(ctx context.Context, x *exchange, op *backend.Request, deadline time.Time) error {
	x.gate.leave() // what is asked again has tokens of its own
	var again []int
	for i := range x.adds {
		switch a := &x.adds[i]; {
		case a.made && a.err != nil, a.noRoom && x.n < 0:
			again = append(again, i)
		case a.err != nil && x.n < 0:
			t.store.takingBackFailed.Add(1)
		}
	}
	if len(again) > 0 {
		names := make([]string, len(again))
		for j, i := range again {
			names[j] = x.name(i)
		}
		counts, err := t.store.takeFrom(ctx, t.peer, names, -max(x.n, -x.n), time.After(time.Until(deadline)))
		for j, i := range again {
			if a := &x.adds[i]; x.n < 0 {
				a.count, a.err = counts[j], err
			}
		}
	}
	err := x.result(t.peer, op)
	op.Ordered = err == nil && !t.proxied && (len(op.Add) == 0 || op.N > 0)
	x.recycle()
	return err
}

// enter takes a token of the gate g.
func (t *transport) enter(ctx context.Context, g gate, deadline time.Time) error {
	if g.enter() {
		return nil
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-time.After(time.Until(deadline)):
		t.store.refused.Add(1)
		return t.peer.crowded(g)
	case <-ctx.Done():
		return fmt.Errorf("memcache: %s%w", t.peer.where, ended(ctx))
	}
}

// acquire returns a pipeline for a request, or waits for one. A request that
// takes back hits goes to a silent server as well, and does not wait.
func (t *transport) acquire(ctx context.Context, deadline time.Time, takesBack bool) (*pipeline, error) {
	var expired <-chan time.Time
	var former *change
	for {
		p, changed, err := t.pick(takesBack, former)
		switch {
		case p != nil || err != nil:
			return p, err
		case takesBack:
			return nil, errClassic
		case expired == nil:
			expired = time.After(time.Until(deadline))
		}
		select {
		case <-changed.done:
			former = changed
			continue
		case <-expired:
		case <-ctx.Done():
		}
		t.store.withheld.Add(1)
		return nil, fmt.Errorf("memcache: %s%w: the server is silent, nothing was sent", t.peer.where, ended(ctx))
	}
}

// pick returns the pipeline with the fewest exchanges, and dials if there could be
// another and all are in use. While maxRetired connections listen, no other is
// replaced: its additions would be lost, so callers wait for an answer. A caller
// that has waited for the former change gets the error of its dial.
func (t *transport) pick(takesBack bool, former *change) (p *pipeline, changed *change, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.store.closed.Load() {
		return nil, nil, errClosed
	}
	least, free := int32(0), false
	for _, q := range t.slots {
		switch {
		case q == nil:
			free = true
		case !takesBack && q.quiet.Load() != 0:
			free = free || len(t.retired) < maxRetired
		default:
			if load := q.load.Load(); p == nil || load < least {
				p, least = q, load
			}
		}
	}
	switch {
	case p != nil && (least == 0 || !free || time.Since(t.dialEnd) < redialAfter):
	case p == nil && former != nil && former.err != nil && !errors.Is(former.err, os.ErrDeadlineExceeded):
		return nil, nil, former.err
	case free && !t.dialing:
		t.dialing = true
		go t.dial()
	}
	return p, t.changed, nil
}

// dial connects, and wakes the callers that wait.
func (t *transport) dial() {
	began := time.Now().UnixNano()
	conn, err := t.connect()
	t.mu.Lock()
	changed := t.changed
	silence := conn != nil && t.quietBefore(began-int64(silent)) != nil
	t.mu.Unlock()
	if silence {
		// A server that goes on answers the former connections first.
		select {
		case <-changed.done:
		case <-time.After(silent):
		}
	}
	t.mu.Lock()
	if conn != nil && !t.place(conn, began) {
		conn.Close()
	}
	t.dialing = false
	t.mu.Unlock()
	t.wake(err)
}

// quietBefore returns a slot whose pipeline is quiet since before began, under
// the lock.
func (t *transport) quietBefore(began int64) **pipeline {
	for i, p := range t.slots {
		if p != nil {
			if since := p.quiet.Load(); since != 0 && since <= began {
				return &t.slots[i]
			}
		}
	}
	return nil
}

// place puts a connection into an empty slot, or in the place of a pipeline that
// was quiet all the time since began if that one may go on listening, under the
// lock.
func (t *transport) place(conn net.Conn, began int64) bool {
	slot := t.quietBefore(began)
	if i := slices.Index(t.slots, nil); i >= 0 {
		slot = &t.slots[i]
	}
	if slot == nil || t.store.closed.Load() {
		return false
	}
	if old := *slot; old != nil {
		if len(t.retired) >= maxRetired {
			return false
		}
		t.retired[old] = struct{}{}
		go old.retire()
	}
	_, raw := conn.(syscall.Conn)
	*slot = &pipeline{conn: conn, whole: !raw, check: newLiveness(conn), t: t, in: make([]byte, readSize)}
	return true
}

// wake wakes the callers that wait, after a dial with its error.
func (t *transport) wake(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.dialEnd = time.Now()
	}
	t.signal(err)
}

// signal wakes the callers that wait, under the lock.
func (t *transport) signal(err error) {
	t.changed.err = err
	close(t.changed.done)
	t.changed = newChange()
}

// connect makes a connection, and asks on it whether the server knows ma.
func (t *transport) connect() (net.Conn, error) {
	conn, err := t.peer.dial()
	if err != nil {
		return nil, t.peer.failed("dial", err)
	}
	conn.SetDeadline(time.Now().Add(t.peer.timeout))
	answer := ""
	if _, err = io.WriteString(conn, probeCommand+"\r\n"); err == nil {
		answer, err = bufio.NewReader(io.LimitReader(conn, maxLine)).ReadString('\n')
	}
	answer = strings.TrimSpace(answer)
	switch {
	case err == nil && (answer == "NF" || answer == "HD"):
		t.peer.answered()
		return conn, conn.SetDeadline(time.Time{})
	case err == nil && (answer == "ERROR" || serverError([]byte(answer)) != nil):
		t.classic(classicFor)
		err = errClassic
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		t.classic(closedFor)
		err = errClassic
	case err == nil:
		err = t.peer.failed("ma", unexpected([]byte(answer)))
	default:
		err = t.peer.failed("ma", err)
	}
	conn.Close()
	return nil, err
}

// classic has the server served without meta commands for a time.
func (t *transport) classic(d time.Duration) { t.classicUntil.Store(time.Now().Add(d).UnixNano()) }

// remove takes a failed pipeline out of use.
func (t *transport) remove(p *pipeline, err error) {
	if errors.Is(err, errNoMeta) {
		t.classic(classicFor)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.retired, p)
	if i := slices.Index(t.slots, p); i >= 0 {
		t.slots[i] = nil
	}
	if !t.dialing { // there is room for another
		t.signal(nil)
	}
}

// all returns all pipelines.
func (t *transport) all() []*pipeline {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(t.slots), func(p *pipeline) bool { return p == nil })
	return slices.AppendSeq(all, maps.Keys(t.retired))
}

// close closes the pipelines of a closed store.
func (t *transport) close() {
	for _, p := range t.all() {
		p.retire()
	}
	t.wake(nil)
}

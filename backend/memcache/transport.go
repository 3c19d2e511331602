package memcache

import (
	"bufio"
	"context"
	"errors"
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

	"github.com/abacus-go/abacus/internal/redial"
)

// transport is a server with the shared connections to it.
type transport struct {
	store   *Store
	address *server
	where   string // prefix of errors: the server
	gate    gate   // for requests
	undos   gate   // for undos
	timeout time.Duration
	proxied bool // Config.Proxied
	dialer  *redial.Dialer

	listening    atomic.Int64 // pipelines that read answers for which no caller waits
	classicUntil atomic.Int64 // time, in ns since 1970, until which new connections speak classic without being asked

	mu      sync.Mutex
	conns   int                    // Config.Conns
	used    []*pipeline            // at most conns
	retired map[*pipeline]struct{} // replaced, and listening for late answers
	dialing bool
	dialEnd time.Time // when the last dial has failed
	changed *change   // the next
}

// gate bounds the requests in flight: a token for each.
type gate chan struct{}

func (g gate) leave() {
	if g != nil {
		<-g
	}
}

// change is an event that callers wait for: a dial has ended, or a quiet pipeline
// has answered.
type change struct {
	done chan struct{} // closed at the event
	err  error         // of the dial, once done is closed
}

func newChange() *change { return &change{done: make(chan struct{})} }

const (
	// maxUndos bounds the undos that are under way to a server, besides the requests
	// in the gate. An undo is never held up by requests that came after its addition.
	maxUndos = 1 << 14

	// maxRetired bounds the replaced connections that listen.
	maxRetired = 8

	// classicFor is the time for which a server that does not know ma is spoken to
	// in the classic dialect, and closedFor the same for a server that hangs up when
	// asked: a proxy may do so, and a server that is about to end.
	classicFor = time.Minute
	closedFor  = time.Second

	// redialAfter is the time from a failed dial of a further connection to the
	// next.
	redialAfter = time.Second
)

// errClosed is the error of a call after Close.
var errClosed = errors.New("memcache: the store is closed")

func newTransport(s *Store, address *server, cfg Config, dialer *redial.Dialer) *transport {
	return &transport{store: s, address: address, where: address.name + ": ", gate: make(gate, cfg.MaxInFlight), undos: make(gate, maxUndos),
		timeout: cfg.IOTimeout, proxied: cfg.Proxied, dialer: dialer,
		conns: cfg.Conns, retired: map[*pipeline]struct{}{}, changed: newChange()}
}

// pick returns the pipeline with the fewest exchanges, and dials if there could be
// another and all are in use. While maxRetired connections listen, no other is
// replaced: its additions would be lost, so callers wait for an answer. A caller
// that has waited for the former change gets the error of its dial.
func (t *transport) pick(undoes bool, former *change) (p *pipeline, changed *change, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.store.closed.Load() {
		return nil, nil, errClosed
	}
	if i := slices.IndexFunc(t.used, (*pipeline).over); i >= 0 && len(t.retired) < maxRetired {
		t.retire(i)
	}
	least, free := int32(0), len(t.used) < t.conns
	for _, q := range t.used {
		if !undoes && q.quiet.Load() != 0 {
			free = free || len(t.retired) < maxRetired
		} else if load := q.load.Load(); p == nil || load < least {
			p, least = q, load
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

// retire takes pipeline i out of use, under the lock.
func (t *transport) retire(i int) {
	old := t.used[i]
	t.used = slices.Delete(t.used, i, i+1)
	t.retired[old] = struct{}{}
	go old.retire()
}

// dial connects, and wakes the callers that wait.
func (t *transport) dial() {
	began := time.Now().UnixNano()
	p, err := t.connect()
	t.mu.Lock()
	changed := t.changed
	silence := p != nil && t.quietBefore(began-int64(silent)) >= 0
	t.mu.Unlock()
	if silence {
		// A server that goes on answers the former connections first.
		select {
		case <-changed.done:
		case <-time.After(silent):
		}
	}
	t.mu.Lock()
	if p != nil && !t.place(p, began) {
		p.conn.Close()
	}
	t.dialing = false
	t.mu.Unlock()
	t.wake(err)
}

// quietBefore returns a pipeline that is quiet since before began, under the lock;
// below zero: none.
func (t *transport) quietBefore(began int64) int {
	return slices.IndexFunc(t.used, func(p *pipeline) bool {
		since := p.quiet.Load()
		return since != 0 && since <= began
	})
}

// place takes a pipeline into use, if need be instead of one that was quiet all the
// time since began and may go on listening, under the lock.
func (t *transport) place(p *pipeline, began int64) bool {
	if quiet := t.quietBefore(began); len(t.used) == t.conns && quiet >= 0 && len(t.retired) < maxRetired {
		t.retire(quiet)
	}
	if len(t.used) == t.conns || t.store.closed.Load() {
		return false
	}
	t.used = append(t.used, p)
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

// connect makes a connection, and finds out which dialect the server understands.
func (t *transport) connect() (*pipeline, error) {
	if time.Now().UnixNano() >= t.classicUntil.Load() {
		conn, answer, err := t.dialAndAsk(meta)
		switch {
		case conn != nil:
			t.classicUntil.Store(0)
			return t.newPipeline(conn, meta), nil
		case errors.Is(err, io.EOF) && t.classicUntil.Load() == 0: // the first time
			t.classic(closedFor)
		case errors.Is(err, io.EOF), answer == "ERROR", serverError([]byte(answer)) != nil:
			t.classic(classicFor)
		case err == nil:
			return nil, t.failed("ma", unexpected(answer))
		default:
			return nil, err
		}
	}
	conn, answer, err := t.dialAndAsk(classic)
	if err == nil && conn == nil {
		err = t.failed("get", unexpected(answer))
	}
	if err != nil {
		return nil, err
	}
	p := t.newPipeline(conn, classic)
	p.until = t.classicUntil.Load()
	return p, nil
}

// classic has new connections speak classic for a time.
func (t *transport) classic(d time.Duration) { t.classicUntil.Store(time.Now().Add(d).UnixNano()) }

// dialAndAsk makes a connection, and asks the question of a dialect. Without a
// connection the answer is another one than the dialect's. An error is io.EOF if
// the server hangs up.
func (t *transport) dialAndAsk(d *dialect) (net.Conn, string, error) {
	conn, err := t.dialer.DialContext(context.Background(), t.address.network, t.address.name)
	if err != nil {
		return nil, "", t.failed("dial", err)
	}
	conn.SetDeadline(time.Now().Add(t.timeout))
	answer := ""
	if _, err = io.WriteString(conn, d.question+"\r\n"); err == nil {
		answer, err = bufio.NewReader(io.LimitReader(conn, maxLine)).ReadString('\n')
	}
	answer = strings.TrimSpace(answer)
	if err == nil && (slices.Contains(d.answers, answer) || !d.tagged && serverError([]byte(answer)) != nil) {
		return conn, answer, conn.SetDeadline(time.Time{})
	}
	conn.Close()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		err = io.EOF
	}
	if err != nil {
		verb, _, _ := strings.Cut(d.question, " ")
		err = t.failed(verb, err)
	}
	return nil, answer, err
}

// remove takes a failed pipeline out of use.
func (t *transport) remove(p *pipeline, err error) {
	if errors.Is(err, errNoMeta) {
		t.classic(classicFor)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.retired, p)
	t.used = slices.DeleteFunc(t.used, func(q *pipeline) bool { return p == q })
	if !t.dialing { // there is room for another
		t.signal(nil)
	}
}

// close closes the pipelines of a closed store.
func (t *transport) close() {
	t.mu.Lock()
	all := slices.AppendSeq(slices.Clone(t.used), maps.Keys(t.retired))
	t.mu.Unlock()
	for _, p := range all {
		p.retire()
	}
	t.wake(nil)
}

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
	classicUntil atomic.Int64 // time, in ns since 1970, until which new connections are not asked for meta commands

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

	// classicFor is the time for which a server that does not know ma is not asked
	// again, and closedFor the same for a server that hangs up when asked: a proxy
	// may do so, and a server that is about to end.
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

// enter takes a token of the gate g.
func (t *transport) enter(ctx context.Context, g gate, deadline time.Time) error {
	select {
	case g <- struct{}{}:
		return nil
	default:
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-time.After(time.Until(deadline)):
		t.store.refused.Add(1)
		return t.crowded(g)
	case <-ctx.Done():
		return fmt.Errorf("memcache: %s%w", t.where, ended(ctx))
	}
}

// crowded is the error of a request that found no place in the gate g.
func (t *transport) crowded(g gate) error {
	return fmt.Errorf("memcache: %s%w: %d requests were in flight, as many as Config.MaxInFlight allows", t.where, os.ErrDeadlineExceeded, cap(g))
}

// acquire returns a pipeline for a request. An undo goes to a silent server as well,
// and is errAway without a connection unless it may wait.
func (t *transport) acquire(ctx context.Context, deadline time.Time, undoes, mayWait bool) (*pipeline, error) {
	var expired <-chan time.Time
	var former *change
	for {
		p, changed, err := t.pick(undoes, former)
		switch {
		case p != nil || err != nil:
			return p, err
		case undoes && !mayWait:
			return nil, errAway
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
		return nil, fmt.Errorf("memcache: %s%w: the server is silent, nothing was sent", t.where, ended(ctx))
	}
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
	defer t.mu.Unlock()
	if p != nil && !t.place(p, began) {
		p.conn.Close()
	}
	t.dialing = false
	if err != nil {
		t.dialEnd = time.Now()
	}
	t.signal(err)
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

// wake wakes the callers that wait.
func (t *transport) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.signal(nil)
}

// signal wakes the callers that wait, with the error of a dial, under the lock.
func (t *transport) signal(err error) {
	t.changed.err = err
	close(t.changed.done)
	t.changed = newChange()
}

// The questions that a connection begins with. They change nothing.
const (
	metaQuestion    = "ma |abacus D0"
	classicQuestion = "get |abacus"
)

// connect makes a connection, and finds out whether the server has meta commands.
func (t *transport) connect() (*pipeline, error) {
	if time.Now().UnixNano() >= t.classicUntil.Load() {
		conn, answer, err := t.dialAndAsk(metaQuestion)
		switch {
		case conn != nil:
			t.classicUntil.Store(0)
			return t.newPipeline(conn, true), nil
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
	conn, answer, err := t.dialAndAsk(classicQuestion)
	if err == nil && conn == nil {
		err = t.failed("get", unexpected(answer))
	}
	if err != nil {
		return nil, err
	}
	return t.newPipeline(conn, false), nil
}

// classic has new connections do without meta commands for a time.
func (t *transport) classic(d time.Duration) { t.classicUntil.Store(time.Now().Add(d).UnixNano()) }

// dialAndAsk makes a connection, and asks a question. Without a connection the
// answer is not one of those hoped for. An error is io.EOF if the server hangs up.
func (t *transport) dialAndAsk(question string) (net.Conn, string, error) {
	conn, err := t.dialer.DialContext(context.Background(), t.address.network, t.address.name)
	if err != nil {
		return nil, "", t.failed("dial", err)
	}
	conn.SetDeadline(time.Now().Add(t.timeout))
	answer := ""
	if _, err = io.WriteString(conn, question+"\r\n"); err == nil {
		answer, err = bufio.NewReader(io.LimitReader(conn, maxLine)).ReadString('\n')
	}
	answer = strings.TrimSpace(answer)
	fits := answer == "NF" || answer == "HD"
	if question == classicQuestion {
		fits = answer == "END" || serverError([]byte(answer)) != nil
	}
	if err == nil && fits {
		return conn, answer, conn.SetDeadline(time.Time{})
	}
	conn.Close()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		err = io.EOF
	}
	if err != nil {
		verb, _, _ := strings.Cut(question, " ")
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
	t.wake()
}

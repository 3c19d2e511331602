package memcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
)

// errAway is the error of an undo that would have to wait for a connection.
var errAway = errors.New("no connection")

// maxShared bounds the items that a request reads. Larger reads are several
// requests, one after the other: other calls on the connection have to wait.
const maxShared = 4 * chunkSize

// Do is described in [backend.Store]. The additions are made one after the other:
// after an error a part of the additions may have been made, and the slots show
// the confirmed additions.
func (s *Store) Do(ctx context.Context, op *backend.Request) error {
	if err := item.Begin(op); err != nil {
		return err
	}
	t := s.transportOf(op.Key)
	deadline, err := s.begin(ctx, op.Deadline)
	if err != nil {
		return s.notSent(undone(op), err)
	}
	total := 0
	for i := range op.Read {
		total += len(op.Read[i].Counts)
	}
	switch {
	case total == 0 && len(op.Add) == 0:
		return nil
	case total <= maxShared:
		return t.do(ctx, op, deadline, 1)
	}
	part := *op
	for _, span := range op.Read {
		for n := 0; len(span.Counts) > 0; span.First, span.Counts = span.First+int64(n), span.Counts[n:] {
			n = min(len(span.Counts), maxShared)
			part.Read = []backend.Span{{Width: span.Width, First: span.First, Counts: span.Counts[:n]}}
			if err := t.do(ctx, &part, deadline, 1); err != nil {
				return err
			}
			part.Add = nil
		}
	}
	op.Ordered = part.Ordered
	return nil
}

// begin returns the deadline of a call, or the error of a call that must not begin.
func (s *Store) begin(ctx context.Context, deadline time.Time) (time.Time, error) {
	now := time.Now()
	if err := ctx.Err(); err != nil {
		return deadline, fmt.Errorf("memcache: %w", err)
	}
	if deadline.IsZero() {
		deadline = now.Add(s.timeout)
	}
	if !now.Before(deadline) {
		return deadline, fmt.Errorf("memcache: %w before the call", os.ErrDeadlineExceeded)
	}
	if s.closed.Load() {
		return deadline, errClosed
	}
	return deadline, nil
}

// undone returns the number of additions that op undoes.
func undone(op *backend.Request) int {
	if op.N < 0 {
		return len(op.Add)
	}
	return 0
}

// notSent counts undos that were never begun.
func (s *Store) notSent(undoes int, err error) error {
	s.undoFailed.Add(int64(undoes))
	return err
}

// do is a Do in one request, of which it is the given try.
func (t *transport) do(ctx context.Context, op *backend.Request, deadline time.Time, try int) error {
	g, undoes := t.gate, undone(op)
	if undoes > 0 {
		g = t.undos
	}
	x, err := t.exchange(ctx, deadline, g, undoes, func(x *exchange, d *dialect) error { return x.encode(d, op, !t.proxied) })
	if err == errAway {
		return t.undoAll(ctx, op, deadline)
	}
	if err != nil {
		return err
	}
	for i := range x.adds {
		switch a := &x.adds[i]; {
		case a.made && a.err != nil: // beyond MaxCount
			t.undo(ctx, deadline, x.name(i), x.n)
		case a.noRoom && x.n < 0:
			a.count, a.err = t.undo(ctx, deadline, x.name(i), -x.n)
		case a.gone && try < maxTries:
			again := *op
			again.Add, again.Read = op.Add[i:i+1], nil
			a.err = t.do(ctx, &again, deadline, try+1)
			a.count = again.Add[0].Count
		case a.err != nil && x.n < 0:
			t.store.undoFailed.Add(1)
		}
	}
	err = x.result(t, op)
	op.Ordered = err == nil && !t.proxied && x.dialect.tagged && undoes == 0
	x.recycle()
	return err
}

// exchange makes a request, written by encode, and returns it with the answers, or
// with the failure of the connection. undoes is the number of additions that the
// request undoes: it goes to a silent server as well, and is errAway where it would
// wait for a connection. Without a gate it waits, for long.
func (t *transport) exchange(ctx context.Context, deadline time.Time, g gate, undoes int, encode func(x *exchange, d *dialect) error) (*exchange, error) {
	if err := t.enter(ctx, g, deadline); err != nil {
		return nil, t.store.notSent(undoes, err)
	}
	x := t.store.exchanges.Get().(*exchange)
	x.gate = g
	for {
		p, err := t.acquire(ctx, deadline, undoes > 0, g == nil)
		if err == nil && p.dialect != x.dialect {
			if err = encode(x, p.dialect); err != nil {
				undoes = 0 // the request is wrong
			}
		}
		if err != nil {
			g.leave()
			x.recycle()
			if err == errAway {
				return nil, err
			}
			return nil, t.store.notSent(undoes, err)
		}
		answerBy := time.Now().Add(t.timeout)
		if deadline.Before(answerBy) || g == nil {
			answerBy = deadline
		}
		if err = p.do(ctx, x, answerBy); err == nil {
			g.leave() // what is asked again has tokens of its own
			return x, nil
		} else if err != errUnused {
			return nil, fmt.Errorf("memcache: %s%w, without an answer", t.where, err)
		}
	}
}

// enter takes a token of the gate g.
func (t *transport) enter(ctx context.Context, g gate, deadline time.Time) error {
	if g == nil {
		return nil
	}
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

// acquire returns a pipeline for a request. An undo goes to a silent server as
// well, and is errAway without a connection unless it may wait.
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

// maxUndoing bounds the requests of an undo on a server without room. A full server
// that must not evict refuses while another client reads the item, since memcached
// then needs a new item. The refusal says that nothing has changed.
const maxUndoing = 6

// undo takes n from an item, if there is one, and returns the count after it. The
// hits are taken whether or not the caller waits until the end.
func (t *transport) undo(ctx context.Context, deadline time.Time, name string, n int64) (count int64, err error) {
	select {
	case t.undos <- struct{}{}:
	default:
		return 0, t.store.notSent(1, t.crowded(t.undos))
	}
	done := make(chan addition, 1)
	go func() {
		done <- t.undoToTheEnd(name, n)
		t.undos.leave()
	}()
	select {
	case a := <-done:
		return a.count, a.err
	case <-time.After(time.Until(deadline)):
	case <-ctx.Done():
	}
	return 0, fmt.Errorf("memcache: %s%w, without an answer", t.where, ended(ctx))
}

// undoToTheEnd is undo for a caller that has returned, with its token.
func (t *transport) undoToTheEnd(name string, n int64) (a addition) {
	for try := range maxUndoing {
		time.Sleep((1<<try - 1) * time.Millisecond)
		x, err := t.exchange(context.Background(), time.Now().Add(listenFor), nil, 1, func(x *exchange, d *dialect) error {
			x.takingBack(d, []string{name}, n)
			return nil
		})
		if err == nil {
			err = x.err
		}
		if err != nil {
			return addition{err: err}
		}
		if a = x.adds[0]; a.err != nil {
			a.err = t.failedItem(x.verb, name, a.err)
		}
		if x.recycle(); !a.noRoom {
			break
		}
	}
	if a.err != nil {
		t.store.undoFailed.Add(1)
	}
	return a
}

// undoAll is do for an undo that has to wait for a connection.
func (t *transport) undoAll(ctx context.Context, op *backend.Request, deadline time.Time) (err error) {
	for i := range op.Add {
		count, failed := t.undo(ctx, deadline, item.Name(op.Key, op.Add[i].Bucket), -op.N)
		op.Add[i].Count, err = count, cmp.Or(err, failed)
	}
	if err != nil || len(op.Read) == 0 {
		return err
	}
	rest := *op
	rest.Add = nil
	return t.do(ctx, &rest, deadline, 1)
}

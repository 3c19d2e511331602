package memcache

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
	"github.com/abacus-go/abacus/tiers"
)

const (
	// chunkSize is the number of items in a multi-get. memcached needs about a
	// millisecond for a thousand items, and its thread answers no other client
	// meanwhile.
	chunkSize = 1000

	// maxShared bounds the items that a request reads. Larger reads are several
	// requests, one after the other: other calls on the connection have to wait.
	maxShared = 4 * chunkSize

	// maxTries bounds how often an addition without meta commands is sent. Each time
	// more means that the item was gone between the two commands: a crowd may hit a
	// key while several callers forget the key.
	maxTries = 12
)

// Do is described in [backend.Store]. The additions are made one after the other:
// after an error a part of the additions may have been made, and the slots show
// the confirmed additions.
func (s *Store) Do(ctx context.Context, op *backend.Request) error {
	if err := item.Begin(op); err != nil {
		return err
	}
	deadline, err := s.begin(ctx, op.Deadline)
	if err != nil {
		s.undoFailed.Add(undone(op))
		return err
	}
	t, total := s.transportOf(op.Key), 0
	for i := range op.Read {
		total += len(op.Read[i].Counts)
	}
	switch {
	case total == 0 && len(op.Add) == 0:
		return nil
	case total > maxShared:
		return t.doInParts(ctx, op, deadline)
	}
	x, err := t.exchange(ctx, deadline, undone(op), 1, t.encoding(op))
	return t.finish(ctx, op, deadline, 1, x, err)
}

// doInParts is a Do in several requests.
func (t *transport) doInParts(ctx context.Context, op *backend.Request, deadline time.Time) error {
	part := *op
	for _, span := range op.Read {
		for n := 0; len(span.Counts) > 0; span.First, span.Counts = span.First+int64(n), span.Counts[n:] {
			n = min(len(span.Counts), maxShared)
			part.Read = []backend.Span{{Width: span.Width, First: span.First, Counts: span.Counts[:n]}}
			part.Deadline = deadline
			if err := t.store.Do(ctx, &part); err != nil {
				return err
			}
			part.Add = nil
		}
	}
	op.Ordered = part.Ordered
	return nil
}

// undone returns the number of additions that op undoes.
func undone(op *backend.Request) int64 {
	if op.N < 0 {
		return int64(len(op.Add))
	}
	return 0
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

// do is a Do in one request, of which it is the given try. An undo goes to a silent
// server as well. Where it would wait, and from the second try on, it goes on to the
// end, whether or not the caller waits.
func (t *transport) do(ctx context.Context, op *backend.Request, deadline time.Time, try int) error {
	x, err := t.exchange(ctx, deadline, undone(op), try, t.encoding(op))
	return t.finish(ctx, op, deadline, try, x, err)
}

func (t *transport) encoding(op *backend.Request) func(*exchange, bool) error {
	return func(x *exchange, meta bool) error { return x.encode(meta, op, !t.proxied) }
}

// finish ends a do after its exchange, which has ended with err: what the server has
// refused for the moment is asked again.
func (t *transport) finish(ctx context.Context, op *backend.Request, deadline time.Time, try int, x *exchange, err error) error {
	if err == errAway {
		return t.undo(ctx, op, deadline, try+1)
	}
	if err != nil {
		return err
	}
	undoes := undone(op)
	for i := range x.adds {
		switch a := &x.adds[i]; {
		case a.made && a.err != nil: // beyond MaxCount
			t.do(ctx, undoOf(op.Key, op.N, a.bucket), deadline, 1)
		case a.gone && try < maxTries:
			a.err = t.do(ctx, only(op, i), deadline, try+1)
			a.count = op.Add[i].Count
		case a.noRoom && undoes > 0 && try < maxUndoing:
			a.err = t.undo(ctx, only(op, i), deadline, try+1)
			a.count = op.Add[i].Count
		case a.err != nil && undoes > 0:
			t.store.undoFailed.Add(1)
		}
	}
	err = x.result(t, op)
	op.Ordered = err == nil && !t.proxied && x.meta && undoes == 0
	x.recycle()
	return err
}

// only returns a request for addition i of op, with the same Slot.
func only(op *backend.Request, i int) *backend.Request {
	one := *op
	one.Add, one.Read = op.Add[i:i+1], nil
	return &one
}

// exchange makes a request, written by encode, and returns it with the answers, or
// with the failure of the connection. undoes is the number of additions that the
// request undoes: the first try is errAway where it would wait for a connection.
func (t *transport) exchange(ctx context.Context, deadline time.Time, undoes int64, try int, encode func(x *exchange, meta bool) error) (*exchange, error) {
	g := t.gate
	if undoes > 0 {
		g = t.undos
	}
	if undoes > 0 && try > 1 {
		g = nil // the undo has a token
	} else if err := t.enter(ctx, g, deadline); err != nil {
		t.store.undoFailed.Add(undoes)
		return nil, err
	}
	x := t.store.exchanges.Get().(*exchange)
	x.gate = g
	for {
		p, err := t.acquire(ctx, deadline, undoes > 0, g == nil)
		if err == nil {
			err = encode(x, p.meta)
		}
		if err != nil {
			x.release()
			x.recycle()
			if err != errAway {
				t.store.undoFailed.Add(undoes)
			}
			return nil, err
		}
		answerBy := time.Now().Add(t.timeout)
		if deadline.Before(answerBy) || g == nil {
			answerBy = deadline
		}
		if err = p.do(ctx, x, answerBy); err == nil {
			x.release() // what is asked again has tokens of its own
			return x, nil
		} else if err != errUnused {
			return nil, fmt.Errorf("memcache: %s%w, without an answer", t.where, err)
		}
	}
}

// The commands of an exchange, all in one write, with meta commands and without:
//
//	ma NAME v N<ttl> J<n> D<n> O<tag>   adds n, or creates the item with n
//	ma NAME v MD D<n> O<tag>            takes n from the item, if there is one
//	get NAME NAME ...                   reads, up to chunkSize items
//	ma |abacus D0 O<tag>                ends reads that have no other proof, and changes nothing
//
//	add NAME 0 <ttl> 1, 0, incr NAME n  adds n, after creating the item if there is none
//	decr NAME n                         takes n from the item, if there is one
//	get NAME NAME ...
//
// A tag is used once in a process, so the answer to another command is noticed. An
// END has no tag, and would mean zero for all items. So reads must have an item that
// was added to just before, or a command with a tag behind them, which costs the
// server a system call: memcached writes after each multi-get. The classic multi-get
// costs the server half of the meta command mg.

// encode writes the commands of op. ordered says that reads are executed after
// additions.
func (x *exchange) encode(meta bool, op *backend.Request, ordered bool) error {
	x.begin(meta, op.N, len(op.Add))
	x.key = op.Key
	now := time.Now()
	for i := range op.Add {
		slot, ttl := &op.Add[i], int32(0)
		if op.N > 0 {
			var err error
			if ttl, err = item.Expiry(op.Life(slot), now); err != nil {
				return err
			}
		}
		x.add(slot.Bucket, ttl)
	}
	x.get(op.Read)
	x.must = -1
	for i := 0; i < len(op.Add) && op.N > 0 && ordered && meta; i++ {
		x.must = max(x.must, x.find(op.Add[i].Bucket, 0))
	}
	if x.must < chunkSize*(x.chunks-1) { // also if the last multi-get has no such item
		x.end()
	}
	return nil
}

// add writes the addition of x.n to a bucket, or the undo of one.
func (x *exchange) add(bucket tiers.Bucket, ttl int32) {
	word := "ma "
	switch {
	case x.meta:
	case x.n > 0:
		word = "add "
	default:
		word = "decr "
	}
	b := append(x.request, word...)
	from := len(b)
	b = item.AppendName(b, x.key, bucket)
	name := b[from:]
	switch {
	case x.meta && x.n > 0:
		b = strconv.AppendInt(append(b, " v N"...), int64(ttl), 10)
		b = strconv.AppendInt(append(b, " J"...), x.n, 10)
		b = strconv.AppendInt(append(b, " D"...), x.n, 10)
	case x.meta:
		b = strconv.AppendInt(append(b, " v MD D"...), -x.n, 10)
	case x.n > 0:
		b = strconv.AppendInt(append(b, " 0 "...), int64(ttl), 10)
		b = append(append(b, " 1\r\n0\r\nincr "...), name...)
		b = strconv.AppendInt(append(b, ' '), x.n, 10)
	default:
		b = strconv.AppendInt(append(b, ' '), -x.n, 10)
	}
	if x.meta {
		b = appendTag(append(b, ' '), x.tag+uint64(len(x.adds)))
	}
	x.request = append(b, "\r\n"...)
	x.adds = append(x.adds, addition{bucket: bucket})
}

func appendTag(b []byte, tag uint64) []byte { return strconv.AppendUint(append(b, 'O'), tag, 10) }

// get writes the multi-gets of spans, and makes room for their counts.
func (x *exchange) get(spans []backend.Span) {
	var buf [item.MaxName]byte
	total := 0
	for i := range spans {
		span := &spans[i]
		x.runs = append(x.runs, tiers.Run{Width: span.Width, First: span.First, N: int64(len(span.Counts))})
		stem := item.AppendStem(append(buf[:0], ' '), x.key, span.Width)
		for j := range span.Counts {
			if total%chunkSize == 0 {
				if total > 0 {
					x.request = append(x.request, "\r\n"...)
				}
				x.request = append(x.request, "get"...)
				x.chunks++
			}
			x.request = strconv.AppendInt(append(x.request, stem...), span.First+int64(j), 10)
			total++
		}
	}
	if total > 0 {
		x.request = append(x.request, "\r\n"...)
	}
	x.counts = slices.Grow(x.counts, total)[:total]
	clear(x.counts)
}

// end writes the command that proves where the answers end, if there is one.
func (x *exchange) end() {
	if x.open = x.meta; x.open {
		x.request = append(appendTag(append(x.request, metaQuestion+" "...), x.tag+uint64(len(x.adds))), "\r\n"...)
	}
}

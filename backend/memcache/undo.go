package memcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// maxUndoing bounds the tries of an undo on a server without room. A full server
// that must not evict refuses while another client reads the item, since memcached
// then needs a new item. The refusal says that nothing has changed.
const maxUndoing = 7

// undoOf returns a request that takes n from buckets of key.
func undoOf(key string, n int64, buckets ...tiers.Bucket) *backend.Request {
	op := &backend.Request{Key: key, N: -n, Add: make([]backend.Slot, len(buckets))}
	for i, b := range buckets {
		op.Add[i].Bucket = b
	}
	return op
}

// errAway is the error of an undo that would have to wait for a connection.
var errAway = errors.New("no connection")

// undo is do for an undo that goes on, with a copy of the request, after a caller that
// does not wait until the end. From the third try on it goes on already: one token is for
// all tries.
func (t *transport) undo(ctx context.Context, op *backend.Request, deadline time.Time, try int) error {
	if try > 2 {
		time.Sleep((1<<(try-2) - 1) * time.Millisecond)
		return t.do(ctx, op, time.Now().Add(listenFor), try)
	}
	select {
	case t.undos <- struct{}{}:
	default:
		t.store.undoFailed.Add(int64(len(op.Add)))
		return t.crowded(t.undos)
	}
	own := *op
	own.Add, own.Read = slices.Clone(op.Add), slices.Clone(op.Read)
	for i := range own.Read {
		own.Read[i].Counts = make([]int64, len(op.Read[i].Counts))
	}
	done := make(chan error, 1)
	go func() {
		done <- t.do(t.store.life, &own, time.Now().Add(listenFor), try)
		t.undos.leave()
	}()
	select {
	case err := <-done:
		copy(op.Add, own.Add)
		for i := range op.Read {
			copy(op.Read[i].Counts, own.Read[i].Counts)
		}
		return err
	case <-time.After(time.Until(deadline)):
	case <-ctx.Done():
	}
	return fmt.Errorf("memcache: %s%w, without an answer", t.where, ended(ctx))
}

// Package loan has contexts for work that may outlast the call it is done for.
package loan

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// ErrTooLate is the error of work that could begin only after the deadline of its
// context. limiter.ErrWaitTooLong is ErrTooLate; here, package httpclient finds it
// without a limiter.
var ErrTooLate = fmt.Errorf("the turn would come too late: %w", context.DeadlineExceeded)

// Context is the context of a caller until End, and an empty context with the same
// Done afterwards: a server such as fasthttp has the next request in the same
// context by then. Once Done is closed, Err is not nil, whatever the caller's Err
// returns: otherwise a child of the Context would panic in a goroutine of package
// context. A Context is safe for concurrent use.
type Context struct {
	done <-chan struct{}
	mu   sync.RWMutex
	ctx  context.Context
}

// Of borrows ctx until End.
func Of(ctx context.Context) *Context { return &Context{done: ctx.Done(), ctx: ctx} }

// WithDeadline is [context.WithDeadline] of a borrowed ctx, which is given back by
// the CancelFunc.
func WithDeadline(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	lent := Of(ctx)
	child, cancel := context.WithDeadline(lent, deadline)
	return child, func() {
		cancel()
		lent.End()
	}
}

// WithTimeout is WithDeadline at a time from now.
func WithTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return WithDeadline(ctx, time.Now().Add(timeout))
}

// End gives the caller's context back. When End has returned, nothing reads it.
func (c *Context) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx = context.Background()
}

func (c *Context) Done() <-chan struct{} { return c.done }

func (c *Context) Err() error {
	select {
	case <-c.done:
	default:
		return nil // also if the caller's Done is about to be closed
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return cmp.Or(c.ctx.Err(), context.Canceled)
}

func (c *Context) Deadline() (time.Time, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ctx.Deadline()
}

func (c *Context) Value(key any) any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ctx.Value(key)
}

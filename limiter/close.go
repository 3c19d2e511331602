package limiter

import (
	"context"

	"github.com/abacus-go/abacus/limiter/turns"
)

// ErrClosed is the error of a call of a [Limiter] after Close.
var ErrClosed = turns.ErrClosed

// Close ends the calls of Wait, which then return [ErrClosed], and carries the hits
// that were admitted locally to the store, as fast as the store answers, until none
// is left or ctx ends. Close returns when no goroutine of l is left: when all calls
// to the store under way have ended, at the latest by their Patience. While the
// store fails only the end of ctx ends a Close with such hits, so give ctx a
// deadline; with a ctx that has ended, nothing more is carried. The error tells the
// number of hits that are not known to be in the store, and wraps the error of ctx.
//
// Only a Limiter with Config.Local needs a Close; all of its calls return
// [ErrClosed] afterwards, and without Config.Local only the calls of Wait. Further
// calls of Close do nothing.
func (l *Limiter) Close(ctx context.Context) error {
	l.turns.Close()
	return l.taker.Close(ctx)
}

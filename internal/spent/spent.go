// Package spent tells package limiter of the time for which a request has waited for
// the store in a decision before, and of a request that waits for its turn.
package spent

import (
	"context"
	"time"
)

// Context is the context of a further decision on a request.
type Context struct {
	context.Context
	Time time.Duration // which the further decision has less
}

// Turn is the context of a wait that ends with ErrNever if a feature is banned.
type Turn struct{ context.Context }

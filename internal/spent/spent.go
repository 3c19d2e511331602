// Package spent tells package limiter of the time for which a request has waited for
// the store in a decision before.
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

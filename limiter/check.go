package limiter

import (
	"context"
	"errors"
	"fmt"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/loan"
)

// Check returns nil if the store of the Counter is ready, by
// [counter.Counter.Check], within DecideWithin, and Config.Local lacks no hits. The
// error joins all findings: [errors.Is] finds counter.ErrStore if decisions would
// be left to the rules' OnFailure, and counter.ErrCondition if hits are counted
// while a promise may break.
func (l *Limiter) Check(ctx context.Context) error {
	if l.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = loan.WithTimeout(ctx, l.within)
		defer cancel()
	}
	err := l.counter.Check(ctx)
	l.log.checked(l.counter)
	if l.taker.Lacking() {
		err = errors.Join(err, fmt.Errorf("limiter: Config.Local was full and lacks hits of %.1f%% of the keys that it does not know, want none: a larger store: %w", 100*l.taker.Stats().Lacking, counter.ErrCondition))
	}
	return err
}

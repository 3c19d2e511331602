package limiter

import "context"

// Check returns nil if the store of the Counter is ready, by
// [counter.Counter.Check], within DecideWithin. The error joins all findings:
// [errors.Is] finds counter.ErrStore if decisions would be left to the rules'
// OnFailure, and counter.ErrCondition if hits are counted while a promise may
// break.
func (l *Limiter) Check(ctx context.Context) error {
	if l.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.within)
		defer cancel()
	}
	err := l.counter.Check(ctx)
	l.log.checked(l.counter)
	return err
}

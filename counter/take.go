package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// Ask is one key of a [Counter.TakeAll] and its limits.
type Ask struct {
	Key    Key
	Limits Limits
}

// Take counts n hits of key, if every limit has room for them, and otherwise
// counts nothing: all limits or none. n is one or more.
//
// Never are more than Max of a limit admitted within any window of its length,
// however many callers there are, while their clocks agree within Config.Skew
// and the store keeps its buckets. See docs/guarantees.md.
//
// A denial is not an error. An error is an [ErrStore], the error of ctx, or the
// caller's mistake; the Verdict is then the zero one, which denies, and the hits may stay counted
// until they age out if the store did not say whether it had added them.
func (c *Counter) Take(ctx context.Context, key Key, n int64, limits Limits) (Verdict, error) {
	return c.one(ctx, key, n, limits, false)
}

// Peek is what Take would answer now. It counts nothing. Its Verdict cannot be
// refunded.
func (c *Counter) Peek(ctx context.Context, key Key, n int64, limits Limits) (Verdict, error) {
	return c.one(ctx, key, n, limits, true)
}

// TakeAll is Take for several keys: n hits of each of them if all limits of all
// of them have room, otherwise none. A key that is given twice is taken once,
// under the limits of both.
//
// Where the store cannot check all keys in one atomic step, they are taken one
// after the other, in an order that is the same for all callers, and given
// back if a later one is denied. Until then they can make others be denied. A
// process that dies in between leaves n hits in the keys already taken.
func (c *Counter) TakeAll(ctx context.Context, n int64, asks ...Ask) (Verdict, error) {
	return c.all(ctx, n, asks, false)
}

// PeekAll is what TakeAll would answer now. It counts nothing. Its Verdict
// cannot be refunded.
func (c *Counter) PeekAll(ctx context.Context, n int64, asks ...Ask) (Verdict, error) {
	return c.all(ctx, n, asks, true)
}

func (c *Counter) all(ctx context.Context, n int64, asks []Ask, peek bool) (v Verdict, err error) {
	if len(asks) == 0 {
		return Verdict{}, errors.New("counter: no keys, want at least one")
	}
	if len(asks) == 1 {
		return c.one(ctx, asks[0].Key, n, asks[0].Limits, peek)
	}
	v.rest = &rest{}
	v.rest.asks = merge(v.rest.askRoom[:0], asks)
	s := c.pool.Get().(*scratch)
	err = c.answer(ctx, s, &v, v.rest.asks, n, peek)
	c.pool.Put(s)
	if err != nil {
		return Verdict{}, err
	}
	return v, nil
}

// merge appends asks to merged, which is empty: each key once, with the limits
// of all its mentions.
func merge(merged, asks []Ask) []Ask {
next:
	for _, ask := range asks {
		for i := range merged {
			if merged[i].Key == ask.Key {
				limits := merged[i].Limits
				merged[i].Limits = append(limits[:len(limits):len(limits)], ask.Limits...)
				continue next
			}
		}
		merged = append(merged, ask)
	}
	return merged
}

// scratch is what a call needs to have at hand, kept for the next one.
type scratch struct {
	asks    [1]Ask
	taking  Taking
	demands []Demand // demands[i] belongs to asks[i]
	tokens  *tokens
	handed  int // tokens handed out of the block
}

// token hands out a mark for an admitted Verdict.
func (s *scratch) token() token {
	if s.handed == tokensPerBlock {
		s.tokens, s.handed = &tokens{owner: s.tokens.owner}, 0
	}
	s.handed++
	return token{s.tokens, s.handed - 1}
}

func (c *Counter) one(ctx context.Context, key Key, n int64, limits Limits, peek bool) (v Verdict, err error) {
	v.limits = limits
	s := c.pool.Get().(*scratch)
	s.asks[0].Key, s.asks[0].Limits = key, limits
	err = c.answer(ctx, s, &v, s.asks[:], n, peek)
	c.pool.Put(s)
	if err != nil {
		return Verdict{}, err
	}
	return v, nil
}

// answer answers a call for asks, which hold each key once. It writes to v,
// which it is handed for speed: a Verdict is large.
func (c *Counter) answer(ctx context.Context, s *scratch, v *Verdict, asks []Ask, n int64, peek bool) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("counter: event %q: %w", asks[0].Key.Event, err)
	}
	if n < 1 || n > MaxCount {
		return fmt.Errorf("counter: n is %d, want 1 to %d", n, int64(MaxCount))
	}
	never := false
	s.room(len(asks))
	for i := range asks {
		d := &s.demands[i]
		if err := c.demand(d, &asks[i]); err != nil {
			return err
		}
		for _, limit := range asks[i].Limits {
			never = never || n > limit.Max
		}
	}
	stamp := c.now()
	if err := tiers.CheckTime(stamp); err != nil {
		return fmt.Errorf("counter: the clock: %w", err)
	}
	allowed := false
	switch {
	case never:
	case c.taker != nil && (len(asks) == 1 || c.taker.Together(s.demands)):
		allowed, err = c.atOnce(ctx, s, asks[0].Key.Event, stamp, n, peek)
	default:
		allowed, stamp, err = c.inTurn(ctx, s.demands, asks, stamp, n, peek)
	}
	if err != nil {
		return err
	}
	v.Allowed = allowed
	now := stamp.UnixNano()
	c.fill(v, asks, s.demands, now, n)
	if allowed && !peek {
		v.n, v.at, v.token = n, now, s.token()
	}
	return nil
}

// room makes place for the demands of n keys, keeping the buffers of earlier calls.
func (s *scratch) room(n int) {
	if n > cap(s.demands) {
		s.demands = append(s.demands[:cap(s.demands)], make([]Demand, n-cap(s.demands))...)
	}
	s.demands = s.demands[:n]
}

// demand writes what ask wants into d.
func (c *Counter) demand(d *Demand, ask *Ask) error {
	if err := ask.Key.check(); err != nil {
		return err
	}
	if err := ask.Limits.check(); err != nil {
		return fmt.Errorf("%w, event %q", err, ask.Key.Event)
	}
	d.Key = c.keys.append(d.Key[:0], ask.Key)
	d.Windows = slices.Grow(d.Windows[:0], len(ask.Limits))[:len(ask.Limits)]
	for i, limit := range ask.Limits {
		finest, err := c.plan.ladder.Finest(limit.Per)
		if err != nil {
			return fmt.Errorf("counter: event %q, limit %s: %w", ask.Key.Event, limit, err)
		}
		d.Windows[i] = Window{Limit: limit, Finest: finest, Decision: c.plan.ladder.Decision(limit.Per)}
	}
	return nil
}

// atOnce answers by one atomic step of the store.
func (c *Counter) atOnce(ctx context.Context, s *scratch, event string, stamp time.Time, n int64, peek bool) (bool, error) {
	if c.denied != nil && !peek {
		if c.denied.recall(s.demands, stamp.UnixNano(), n) {
			return false, nil
		}
	}
	t := &s.taking // what is the same for all calls stands in it already
	t.Now, t.N, t.Peek, t.Allowed = stamp, n, peek, false
	t.Demands = s.demands
	if c.budget > 0 {
		t.Deadline = c.deadline()
	}
	if err := c.taker.Take(ctx, t); err != nil {
		return false, c.failed(ctx, event, err)
	}
	late := c.late(stamp)
	if late != nil && t.Allowed && !peek {
		for i := range s.demands {
			c.takeBack(ctx, string(s.demands[i].Key), stamp, n, c.answered(stamp.UnixNano()), nil)
		}
		return false, &storeError{event, late}
	}
	if c.denied != nil && !peek {
		c.denied.learn(c, s.demands, stamp.UnixNano(), n, t.Allowed)
	}
	return t.Allowed, nil
}

// late is an error if the budget of a call that was stamped at stamp is spent.
// The wall clock counts as well as the monotonic one: the one stands still
// while a machine sleeps, the other may have been stepped.
func (c *Counter) late(stamp time.Time) error {
	if c.budget == 0 {
		return nil
	}
	if spent := c.elapsed(stamp); spent > c.budget {
		return fmt.Errorf("answered after %s, the budget is %s", spent, c.budget)
	}
	return nil
}

func (c *Counter) elapsed(stamp time.Time) time.Duration {
	now := c.now()
	return max(now.Sub(stamp), now.Round(0).Sub(stamp.Round(0)))
}

// failed says whose fault err is, which the store returned: the caller's
// context or the store itself.
func (c *Counter) failed(ctx context.Context, event string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("counter: event %q: %w", event, ctx.Err())
	}
	return &storeError{event, err}
}

// slots are the buckets that hold the label.
func (c *Counter) slots(label int64) []Slot {
	slots := make([]Slot, c.plan.ladder.Len())
	for i := range slots {
		width := c.plan.ladder.At(i).Width
		slots[i] = Slot{Bucket: tiers.Bucket{Width: width, Index: tiers.Index(label, width)}, TTL: c.ttls[i]}
	}
	return slots
}

// answered are the slots of an addition at the label that is known to have been
// made.
func (c *Counter) answered(label int64) []Slot {
	slots := c.slots(label)
	for i := range slots {
		slots[i].Count = 1
	}
	return slots
}

// takeBack takes n back from the slots whose addition was answered, and reads
// what is in read by the way. The caller's context does not stop it: a visitor
// who hangs up would leave his hit behind. It is not tried again.
func (c *Counter) takeBack(ctx context.Context, key string, stamp time.Time, n int64, slots []Slot, read []Span) (*Op, error) {
	op := &Op{Key: key, Ladder: c.plan.ladder, Now: stamp, Deadline: c.deadline(), N: -n, Read: read}
	for _, slot := range slots {
		if slot.Count > 0 {
			slot.Count = 0
			op.Add = append(op.Add, slot)
		}
	}
	if len(op.Add) == 0 && len(read) == 0 {
		return op, nil
	}
	return op, c.store.Do(context.WithoutCancel(ctx), op)
}

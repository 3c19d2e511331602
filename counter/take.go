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
// caller's mistake; the Verdict is then the zero one, which denies. Hits of a
// call that failed are taken back, also if the store answers late; those of
// which the store never said whether it added them stay until they age out.
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
// process that dies in between leaves n hits in the keys already taken. A call
// has at most [MaxKeys] keys.
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
	if len(asks) > MaxKeys {
		return Verdict{}, fmt.Errorf("counter: %d keys, want at most %d", len(asks), MaxKeys)
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

// MaxKeys is the most keys that a [Counter.TakeAll] or [Counter.PeekAll] may have.
const MaxKeys = 100

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
	call    call
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
	k := &s.call
	*k = call{c: c, asks: asks, demands: s.demands, n: n, peek: peek, until: c.deadline()}
	if err := k.read(); err != nil {
		return err
	}
	allowed := false
	if !never {
		if c.lines == nil {
			allowed, err = k.decide(ctx, s)
		} else {
			allowed, err = k.queue(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	v.Allowed = allowed
	now := k.stamp.UnixNano()
	c.fill(v, asks, s.demands, now, n)
	if allowed && !peek {
		v.n, v.at, v.token = n, now, s.token()
	}
	if k.soon > 0 {
		v.comeBackWithin(k.soon)
	}
	return nil
}

// call is a Take or a Peek on its way.
type call struct {
	c        *Counter
	asks     []Ask
	demands  []Demand // demands[i] belongs to asks[i]
	n        int64
	peek     bool
	until    time.Time     // the end of its patience; zero: none
	stamp    time.Time     // the label of the try that decides
	anyLabel bool          // as in Op
	soon     time.Duration // of a denial by hits that may be gone in a moment: come back after so long at most
}

// read labels the call anew.
func (k *call) read() error {
	k.stamp = k.c.now()
	if err := tiers.CheckTime(k.stamp); err != nil {
		return fmt.Errorf("counter: the clock: %w", err)
	}
	return nil
}

// queue is decide behind the calls of the same keys that came before it, with a
// label that was read after the waiting.
func (k *call) queue(ctx context.Context, s *scratch) (bool, error) {
	c := k.c
	if deadline, ok := ctx.Deadline(); ok && !k.until.IsZero() && deadline.Before(k.until) {
		k.until = deadline
	}
	if k.peek {
		return k.decide(ctx, s)
	}
	if k.recalled() {
		return false, nil
	}
	order := k.order()
	queued := false
	for i, d := range order {
		waited, err := c.lines.enter(ctx, k.demands[d].Key, k.until)
		if err != nil {
			k.leave(order[:i])
			return false, c.failed(ctx, k.asks[d].Key.Event, err)
		}
		queued = queued || waited
	}
	defer k.leave(order)
	if queued {
		c.stats.waited.Add(1)
		if err := k.read(); err != nil {
			return false, err
		}
		if k.recalled() {
			return false, nil
		}
	}
	return k.decide(ctx, s)
}

func (k *call) leave(entered []int) {
	for _, d := range entered {
		k.c.lines.leave(k.demands[d].Key)
	}
}

// errQueue is the error of a call whose patience ended before it was its turn.
var errQueue = errors.New("too many calls of this key were under way, and none of them was answered in time")

// order are the demands in the order of their keys, the same for all callers: in
// chance order racers shoot each other down, or wait for each other for ever.
func (k *call) order() []int {
	order := make([]int, len(k.demands))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return slices.Compare(k.demands[a].Key, k.demands[b].Key) })
	return order
}

// recalled tells whether this very call is remembered as denied.
func (k *call) recalled() bool {
	return k.c.denied.recall(k.demands, k.stamp.UnixNano(), k.n)
}

// decide asks the store.
func (k *call) decide(ctx context.Context, s *scratch) (bool, error) {
	c := k.c
	if c.taker != nil && (len(k.demands) == 1 || c.taker.Together(k.demands)) {
		return k.atOnce(ctx, s)
	}
	return k.inTurn(ctx)
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
func (k *call) atOnce(ctx context.Context, s *scratch) (bool, error) {
	c := k.c
	t := &s.taking // what is the same for all calls stands in it already
	t.N, t.Peek, t.Deadline, t.Demands = k.n, k.peek, k.until, k.demands
	if err := k.step(ctx, t); err != nil {
		return false, c.failed(ctx, k.asks[0].Key.Event, err)
	}
	if c.denied != nil && !k.peek {
		c.denied.learn(c, k.demands, k.stamp.UnixNano(), k.n, t.Allowed)
	}
	return t.Allowed, nil
}

// maxLabels is how often a call is labelled, at most, before it is judged by
// what the store still has: a clock that was set back never becomes new enough.
const maxLabels = 4

// step makes one atomic step, with a new label as often as the store has
// dropped what the label's window holds, and makes a denial of a count that
// would grow too large.
func (k *call) step(ctx context.Context, t *Taking) error {
	c := k.c
	t.Now, t.AnyLabel, t.Allowed = k.stamp, false, false
	err := c.taker.Take(ctx, t)
	for labels := 1; err != nil && errors.Is(err, ErrStaleLabel) && !t.AnyLabel; labels++ {
		c.stats.staleLabels.Add(1)
		if err := k.read(); err != nil {
			return err
		}
		t.AnyLabel = labels == maxLabels || !k.stamp.After(t.Now)
		t.Now = k.stamp
		err = c.taker.Take(ctx, t)
	}
	if err == nil || !errors.Is(err, ErrMaxCount) {
		return err
	}
	peek := *t
	peek.Peek = true
	if err := c.taker.Take(ctx, &peek); err != nil {
		return err
	}
	if peek.Allowed {
		// Its windows have room, and what the store keeps beyond them has not.
		for i := range t.Demands {
			for j := range t.Demands[i].Windows {
				w := &t.Demands[i].Windows[j]
				w.Count = w.Max
				w.Leaves = c.bucketAt(w.Finest, k.stamp)
			}
		}
	}
	t.Allowed = false
	return nil
}

// bucketAt is the bucket of that tier that holds t.
func (c *Counter) bucketAt(tier int, t time.Time) tiers.Bucket {
	width := c.plan.ladder.At(tier).Width
	return tiers.Bucket{Width: width, Index: tiers.Index(t.UnixNano(), width)}
}

// late is an error if a try that was stamped at stamp has lasted longer than
// Settle. The wall clock counts as well as the monotonic one: the one stands
// still while a machine sleeps, the other may have been stepped.
func (c *Counter) late(stamp time.Time) error {
	if c.settle == 0 {
		return nil
	}
	if spent := c.elapsed(stamp); spent > c.settle {
		return &lateError{spent, c.settle}
	}
	return nil
}

// lateError is the error of a try that was confirmed too late to count.
type lateError struct{ spent, settle time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("confirmed after %s, a try may last %s", e.spent, e.settle)
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
	// A store may keep the deadline of ctx before the timer of ctx has rung.
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return fmt.Errorf("counter: event %q: %w", event, context.DeadlineExceeded)
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
func (c *Counter) takeBack(ctx context.Context, key string, stamp, deadline time.Time, n int64, slots []Slot, read []Span) (*Op, error) {
	op := &Op{Key: key, Ladder: c.plan.ladder, Now: stamp, Deadline: deadline, N: -n, Read: read, AnyLabel: true}
	for _, slot := range slots {
		if slot.Count > 0 {
			slot.Count = 0
			op.Add = append(op.Add, slot)
		}
	}
	if len(op.Add) == 0 && len(read) == 0 {
		return op, nil
	}
	err := c.store.Do(context.WithoutCancel(ctx), op)
	if err != nil && len(op.Add) > 0 {
		c.stats.takingBackFailed.Add(1)
	}
	return op, err
}

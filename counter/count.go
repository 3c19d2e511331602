package counter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

// ErrTooOld is the error of [Counter.AddAt] for hits that no bucket is kept for
// any more. Nothing was added, and a later call adds nothing either.
var ErrTooOld = errors.New("the hits are older than the buckets that are kept")

// Add counts n hits of key, whatever the limits of key. n is 1 or more. If Add
// fails, the hits are undone, even if the store answers late. Hits without
// any answer of the store may stay until they age out. On a store without an atomic
// step, a Take in another process may miss hits confirmed later than Config.Settle
// for up to a minute, as the hits of an AddAt.
func (c *Counter) Add(ctx context.Context, key Key, n int64) error {
	r, err := c.begin(ctx, key)
	if err != nil {
		return err
	}
	if r.N = n; n < 1 || n > MaxCount {
		return fmt.Errorf("counter: n is %d, want 1 to %d", n, int64(MaxCount))
	}
	return c.addAll(ctx, key, r, (*Counter).addTo)
}

// AddAt counts n hits of key in the buckets that hold at, whatever the limits of
// key. n is 1 or more. at is a reading of the clock, such as [Verdict.At], and
// may lie in the past for as long as the ladder keeps buckets: the hits are added
// to each tier whose bucket a window can still read, except a bucket that the
// store has dropped after the tier's Keep. If there is no such tier, or if a
// bucket was dropped before, the error is [ErrTooOld]. An at later than
// Config.Now by more than Config.Skew is an error of the caller. Patience begins
// with the call. Hits with a label before a Forget count as well, and a RefundAt
// does not give them back: the store remembers the Forget.
//
// If AddAt fails, its hits are undone as by a failed Add: only where the
// addition of the same call was confirmed. So a caller may repeat a failed AddAt
// until a call returns nil. At least n hits are counted then, and more only if an
// addition had no answer. Exceptions are a key that was forgotten, and a store
// that was emptied, between the calls.
//
// In the process of the AddAt, each Take that begins after the return counts the
// hits. On a store without an atomic step (memcached) a Take in another process
// may miss the hits for up to a minute, in buckets that the other process has
// read before; see Config.Exact.
func (c *Counter) AddAt(ctx context.Context, key Key, n int64, at time.Time) error {
	r, age, err := c.beginAt(ctx, key, n, at)
	if err != nil {
		return err
	}
	r.N, r.Now, r.Age = n, at, max(0, age)
	return c.addAll(ctx, key, r, (*Counter).addToAt)
}

// addToAt is AddAt by the ladder of c alone.
func (c *Counter) addToAt(ctx context.Context, key Key, r backend.Request) (added backend.Request, err error) {
	defer c.denied.raised(r.Key, c.denied.mark())
	defer ticket.Raise(r.Key)
	age := r.Age
	// Of tiers that are kept equally long all are added to, or none: a store may
	// compute the coarser buckets from the finer.
	for first, next := 0, 0; first < len(c.plan.TTLs); first = next {
		if next = c.plan.NextKeep(first); age > c.plan.TTLs[next-1] {
			continue // no window reads these buckets any more
		}
		err := c.put(ctx, &r, first)
		if !errors.Is(err, backend.ErrStaleLabel) {
			return r, callError(ctx, key.Event, err)
		}
		c.protocol.StaleLabels.Add(1)
		// The store has dropped the bucket: time has passed, or clocks disagree.
		// To count in the coarser tiers alone is enough only after the Keep.
		if age = sinceLabel(c.now(), r.Now); age <= c.plan.Ladder.At(first).Keep+c.cfg.Skew+c.cfg.Settle {
			break
		}
	}
	return r, fmt.Errorf("counter: event %q: AddAt: at is %s ago, ladder %q: %w", key.Event, dur.Format(age), c.plan.Ladder, ErrTooOld)
}

// RefundAt gives back n hits that an AddAt of key has counted at the same at,
// unless the key was forgotten since, or a Forget came at a later label than at. After a failed AddAt there is nothing to
// give back. No receipt protects from a second RefundAt for the same hits: a
// second RefundAt would give back hits of another call. So call RefundAt at most
// once for an AddAt, even if the RefundAt fails.
func (c *Counter) RefundAt(ctx context.Context, key Key, n int64, at time.Time) error {
	r, _, err := c.beginAt(ctx, key, n, at)
	for on := c; err == nil && on != nil; on = on.former {
		err = on.giveBack(ctx, &Ask{Key: key, N: n}, r, at.UnixNano())
	}
	return err
}

// beginAt is begin for n hits at an instant of another time, and returns the
// time from then till now.
func (c *Counter) beginAt(ctx context.Context, key Key, n int64, at time.Time) (r backend.Request, age time.Duration, err error) {
	r, err = c.begin(ctx, key)
	if err != nil {
		return r, 0, err
	}
	if n < 1 || n > MaxCount {
		return r, 0, fmt.Errorf("counter: n is %d, want 1 to %d", n, int64(MaxCount))
	}
	if err := cover.CheckTime(at); err != nil {
		return r, 0, fmt.Errorf("counter: at: %w", err)
	}
	age = sinceLabel(r.Now, at)
	if age < -c.cfg.Skew {
		return r, 0, fmt.Errorf("counter: at is %v, %s after Config.Now, want at most Config.Skew later, which is %s",
			at.UTC().Format(time.RFC3339Nano), dur.Format(-age), dur.Format(c.cfg.Skew))
	}
	return r, age, nil
}

// sinceLabel returns the time from at to now as labels tell it, by the wall
// clock.
func sinceLabel(now, at time.Time) time.Duration { return now.Round(0).Sub(at.Round(0)) }

// adder is the addition of the hits of a request for a key by the ladder of one Counter.
type adder func(c *Counter, ctx context.Context, key Key, r backend.Request) (added backend.Request, err error)

// addAll adds the hits of r by the ladder of c and by a former ladder, or by none. add
// adds them by one ladder, and returns the request that was confirmed.
func (c *Counter) addAll(ctx context.Context, key Key, r backend.Request, add adder) error {
	added, err := add(c, ctx, key, r)
	if c.former == nil || err != nil && !errors.Is(err, ErrTooOld) {
		return err
	}
	_, failed := add(c.former, ctx, key, c.former.like(&Ask{Key: key}, r))
	switch {
	case failed == nil, err == nil && errors.Is(failed, ErrTooOld):
		return nil // by one of the ladders no bucket may be kept any more
	case err == nil:
		c.protocol.Confirmed(added.Key, &c.plan, added.Now, -r.N)
		_, _ = c.protocol.TakeBack(ctx, added, c.grace(r.Deadline), r.N, added.Add, nil)
	}
	return failed
}

// addTo is Add by the ladder of c alone.
func (c *Counter) addTo(ctx context.Context, key Key, r backend.Request) (added backend.Request, err error) {
	defer c.denied.raised(r.Key, c.denied.mark())
	err = c.withLabels(ctx, key, r, func(r backend.Request) error {
		added = r
		return c.put(ctx, &added, 0)
	})
	return added, err
}

// put adds the hits of r to the buckets of its label, from tier first on. After an error
// the additions that were confirmed are undone: some tiers may have been added to
// before others failed.
func (c *Counter) put(ctx context.Context, r *backend.Request, first int) error {
	r.Add = c.plan.Slots(r.Now.UnixNano(), 0)[first:]
	err := c.store.Do(ctx, r)
	if err != nil {
		_, _ = c.protocol.TakeBack(ctx, *r, c.grace(r.Deadline), r.N, r.Add, nil)
		return err
	}
	c.protocol.Confirmed(r.Key, &c.plan, r.Now, r.N)
	return nil
}

// like returns r, a request for another key or ladder, for the key of an ask by the ladder
// of c.
func (c *Counter) like(ask *Ask, r backend.Request) backend.Request {
	r.Key, r.Ladder = string(c.makerOf(ask).append(nil, ask.Key)), c.plan.Ladder
	return r
}

// begin returns a request for key, labelled now, for calls other than Take.
func (c *Counter) begin(ctx context.Context, key Key) (backend.Request, error) {
	if err := key.check(); err != nil {
		return backend.Request{}, err
	}
	if err := ctx.Err(); err != nil {
		return backend.Request{}, fmt.Errorf("counter: event %q: %w", key.Event, err)
	}
	now, err := c.protocol.Now()
	return backend.Request{Key: string(c.keys.append(nil, key)), Ladder: c.plan.Ladder, Now: now, Deadline: c.deadline()}, callError(ctx, key.Event, err)
}

// withLabels calls f with r, and again with a new label each time that the
// store has dropped buckets that the label needs. The last label goes by the
// buckets that the store still has. Errors of f are errors of the store.
func (c *Counter) withLabels(ctx context.Context, key Key, r backend.Request, f func(r backend.Request) error) error {
	for labels := 1; ; labels++ {
		err := f(r)
		switch {
		case err == nil:
			return nil
		case r.AnyLabel || !errors.Is(err, backend.ErrStaleLabel):
			return callError(ctx, key.Event, err)
		}
		c.protocol.StaleLabels.Add(1)
		again, err := c.begin(ctx, key)
		if err != nil {
			return err
		}
		r.Now, r.AnyLabel = again.Now, labels == ticket.MaxLabels || !again.Now.After(r.Now)
	}
}

// Count is the number of hits in a window: at least Low, at most High. The
// bounds differ by the oldest bucket, of which the window covers only a part,
// and by the hits that the skew of the clocks makes uncertain. Decisions use
// High.
type Count struct{ Low, High int64 }

// Count counts the hits of key in the window of the given length that ends now.
// Hits of calls that are about to be denied may be included. The hits of a calendar
// period so far are exactly those of a Peek, as in the example. Of a window that the
// ladder of Config.Former cannot hold, that ladder counts all hits that it still keeps.
func (c *Counter) Count(ctx context.Context, key Key, window time.Duration) (Count, error) {
	r, err := c.begin(ctx, key)
	if err != nil {
		return Count{}, err
	}
	if _, err := c.plan.Ladder.Finest(window); err != nil {
		return Count{}, fmt.Errorf("counter: event %q: %w", key.Event, err)
	}
	var most Count
	for on := c; on != nil; on = on.former {
		ladder := on.plan.Ladder
		window := min(window, ladder.At(ladder.Len()-1).Keep) // all that a shorter former ladder has
		fine, err := ladder.Finest(window)
		if err != nil {
			break
		}
		err = on.withLabels(ctx, key, on.like(&Ask{Key: key}, r), func(r backend.Request) error {
			n, err := on.high(ctx, r, window, fine)
			most = Count{max(most.Low, n.Low), max(most.High, n.High)}
			return err
		})
		if err != nil {
			return Count{}, err
		}
	}
	return most, nil
}

// high counts the window of the given length, whose edge is read from tier fine, by
// requests like r.
func (c *Counter) high(ctx context.Context, r backend.Request, window time.Duration, fine int) (Count, error) {
	ladder := c.plan.Ladder
	now, width, top := r.Now.UnixNano(), ladder.At(fine).Width, ladder.Decision(window)
	// The edge: fine buckets that may hold hits from before the window, by the
	// clock of any caller. Only High counts the edge.
	from, sure := now-int64(window)-int64(c.cfg.Skew), now-int64(window)+int64(c.cfg.Skew)
	inside := -tiers.Index(-sure, width) // the first bucket surely inside the window
	edge := tiers.Run{Width: width, First: tiers.Index(from, width)}
	edge.N = inside - edge.First
	start := inside * int64(width)
	runs := c.plan.Cover(tiers.Cover{edge}, start, max(start, now+int64(c.cfg.Skew)), fine, top)
	counts, err := ticket.Read(ctx, c.store, r, runs)
	low := counts.Sum(runs[1:])
	return Count{Low: low, High: ticket.Plus(low, counts.Sum(runs[:1]))}, err
}

// Point is a value of a [Counter.Series]: the hits from Start on, for the width
// of the series.
type Point struct {
	Start time.Time
	Count int64
}

// MaxPoints is the largest number of buckets that a [Counter.Series] may read.
const MaxPoints = 100_000

// Series returns the hits of key over time: a Point for each span of the given
// width, aligned to the epoch, oldest first. The first span holds from, the
// last begins before to. The width must be the width of a tier, or a multiple
// of one. Buckets that no such tier keeps any more would read as zero, so
// Series returns an error instead. Hits that were counted by a former ladder
// alone are not in the series.
func (c *Counter) Series(ctx context.Context, key Key, from, to time.Time, width time.Duration) ([]Point, error) {
	r, err := c.begin(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, t := range []time.Time{from, to} {
		if err := cover.CheckTime(t); err != nil {
			return nil, fmt.Errorf("counter: Series: %w", err)
		}
	}
	if !from.Before(to) {
		return nil, fmt.Errorf("counter: Series: from is %v, want before to, which is %v", from, to)
	}
	tier := c.plan.Ladder.Len() - 1
	for tier >= 0 && (width <= 0 || width%c.plan.Ladder.At(tier).Width != 0) {
		tier--
	}
	if tier < 0 {
		return nil, fmt.Errorf("counter: Series: width is %s, want a multiple of the width of a tier, the ladder is %q", dur.Format(width), c.plan.Ladder)
	}
	t := c.plan.Ladder.At(tier)
	// The loop has chosen the coarsest tier whose width divides the width of
	// the series. Coarser tiers are kept longer.
	start := tiers.Bucket{Width: width, Index: tiers.Index(from.UnixNano(), width)}
	if age := r.Now.Sub(start.Start()); age > t.Keep+t.Width {
		return nil, fmt.Errorf("counter: Series: the point at %v is %s old, and tier %s is kept for %s", start.Start().UTC(), dur.Format(age), dur.Format(t.Width), dur.Format(t.Keep))
	}
	points := tiers.Index(to.UnixNano()-1, width) - start.Index + 1
	each := int64(width / t.Width)
	if points > MaxPoints/each {
		return nil, fmt.Errorf("counter: Series: %d points of %d bucket(s) each, want at most %d buckets", points, each, MaxPoints)
	}
	r.AnyLabel = true
	run := tiers.Run{Width: t.Width, First: start.Index * each, N: points * each}
	counts, err := ticket.Read(ctx, c.store, r, tiers.Cover{run})
	if err != nil {
		return nil, callError(ctx, key.Event, err)
	}
	series := make([]Point, points)
	for i := range series {
		series[i].Start = tiers.Bucket{Width: width, Index: start.Index + int64(i)}.Start()
		for j := range each {
			series[i].Count = ticket.Plus(series[i].Count, counts.At(t.Width, run.First+int64(i)*each+j))
		}
	}
	return series, nil
}

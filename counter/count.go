package counter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// Add counts n hits of key, whatever its limits. n is one or more. Hits of an Add
// that failed are taken back, also if the store answers late; those of which the
// store never said whether it added them stay until they age out.
func (c *Counter) Add(ctx context.Context, key Key, n int64) error {
	if err := key.check(); err != nil {
		return err
	}
	if n < 1 || n > MaxCount {
		return fmt.Errorf("counter: n is %d, want 1 to %d", n, int64(MaxCount))
	}
	r, err := c.begin(ctx, key)
	if err != nil {
		return err
	}
	if c.denied != nil {
		defer c.denied.clear([]byte(r.Key))
	}
	return c.withLabels(ctx, key, r, func(r backend.Request) error {
		r.N, r.Add = n, c.slots(r.Now.UnixNano())
		err := c.store.Do(ctx, &r)
		if err != nil {
			// Of tiers that were added to before others failed, nothing must stay.
			_, _ = c.takeBack(ctx, r, c.grace(r.Deadline), n, r.Add, nil)
		}
		return err
	})
}

// begin is a request for key that begins now, for a call that is no Take.
func (c *Counter) begin(ctx context.Context, key Key) (backend.Request, error) {
	if err := ctx.Err(); err != nil {
		return backend.Request{}, fmt.Errorf("counter: event %q: %w", key.Event, err)
	}
	r := backend.Request{Key: string(c.keys.append(nil, key)), Ladder: c.plan.ladder, Now: c.now(), Deadline: c.deadline()}
	if err := cover.CheckTime(r.Now); err != nil {
		return r, fmt.Errorf("counter: the clock: %w", err)
	}
	return r, nil
}

// labelled calls f with r, and with a new label as often as the store has
// dropped what the label needs; in the end it goes by what the store still has.
// Errors of f are the store's.
func (c *Counter) withLabels(ctx context.Context, key Key, r backend.Request, f func(r backend.Request) error) error {
	for labels := 1; ; labels++ {
		err := f(r)
		switch {
		case err == nil:
			return nil
		case r.AnyLabel || !errors.Is(err, backend.ErrStaleLabel):
			return callError(ctx, key.Event, err)
		}
		c.stats.staleLabels.Add(1)
		again, err := c.begin(ctx, key)
		if err != nil {
			return err
		}
		r.Now, r.AnyLabel = again.Now, labels == maxLabels || !again.Now.After(r.Now)
	}
}

// Count is how many hits a window holds: at least Low, at most High. They
// differ by the oldest bucket, which the window covers only in part, and where
// clocks may be apart by what that makes uncertain. Decisions use High.
type Count struct{ Low, High int64 }

// Count counts the hits of key in the window of the given length that ends now.
// Hits that are being refused at this moment may be among them.
func (c *Counter) Count(ctx context.Context, key Key, window time.Duration) (Count, error) {
	if err := key.check(); err != nil {
		return Count{}, err
	}
	ladder := c.plan.ladder
	fine, err := ladder.Finest(window)
	if err != nil {
		return Count{}, fmt.Errorf("counter: event %q: %w", key.Event, err)
	}
	r, err := c.begin(ctx, key)
	if err != nil {
		return Count{}, err
	}
	var count Count
	err = c.withLabels(ctx, key, r, func(r backend.Request) error {
		s := survey{c: c, base: r}
		count, err = s.high(ctx, window, fine)
		return err
	})
	return count, err
}

// high counts the window of the given length, whose edge is read from tier fine.
func (s *survey) high(ctx context.Context, window time.Duration, fine int) (Count, error) {
	c, ladder := s.c, s.c.plan.ladder
	now, width, top := s.label(), int64(ladder.At(fine).Width), ladder.Decision(window)
	// The edge: fine buckets that hold anything from before the window, by
	// whoever's clock. They count in High alone.
	from, sure := now-int64(window)-c.plan.skew, now-int64(window)+c.plan.skew
	inside := -tiers.Index(-sure, ladder.At(fine).Width) * width // sure, rounded up
	edge := tiers.Run{Width: ladder.At(fine).Width, First: tiers.Index(from, ladder.At(fine).Width)}
	edge.N = inside/width - edge.First
	s.covers = make([]tiers.Cover, 2)
	if edge.N > 0 {
		s.covers[0] = tiers.Cover{edge}
	}
	s.covers[1] = cover.Append(tiers.Cover(nil), c.plan.tiers, inside, max(inside, now+c.plan.skew), fine, top, top)
	if err := s.fetch(ctx, append(s.covers[0][:len(s.covers[0]):len(s.covers[0])], s.covers[1]...)); err != nil {
		return Count{}, err
	}
	low := s.count(1)
	return Count{Low: low, High: plus(low, s.count(0))}, nil
}

// Point is one value of a [Counter.Series]: the hits from Start on, for the
// width of the series.
type Point struct {
	Start time.Time
	Count int64
}

// MaxPoints is how many buckets a [Counter.Series] may read.
const MaxPoints = 100_000

// Series is how many hits key had over time: a Point for each span of the given
// width, aligned to the epoch, oldest first, from the one that holds from to
// the last that begins before to. width is that of a tier or a multiple. It is
// an error to ask for what no such tier keeps any more: such buckets would read
// as zero.
func (c *Counter) Series(ctx context.Context, key Key, from, to time.Time, width time.Duration) ([]Point, error) {
	if err := key.check(); err != nil {
		return nil, err
	}
	for _, t := range []time.Time{from, to} {
		if err := cover.CheckTime(t); err != nil {
			return nil, fmt.Errorf("counter: series: %w", err)
		}
	}
	if !from.Before(to) {
		return nil, fmt.Errorf("counter: series: from %v is not before to %v", from, to)
	}
	r, err := c.begin(ctx, key)
	if err != nil {
		return nil, err
	}
	tier := c.plan.ladder.Len() - 1
	for ; tier >= 0; tier-- {
		if t := c.plan.ladder.At(tier); width > 0 && width%t.Width == 0 {
			break
		}
	}
	if tier < 0 {
		return nil, fmt.Errorf("counter: series: width %s is no multiple of a tier's, the ladder is %q", dur.Format(width), c.plan.ladder)
	}
	t := c.plan.ladder.At(tier)
	// Coarser tiers are kept longer, and do for widths that they divide; none
	// that does is coarser than this one.
	start := tiers.Bucket{Width: width, Index: tiers.Index(from.UnixNano(), width)}
	if age := r.Now.Sub(start.Start()); age > t.Keep+t.Width {
		return nil, fmt.Errorf("counter: series: %v is %s ago, and tier %s is kept for %s", start.Start().UTC(), dur.Format(age), dur.Format(t.Width), dur.Format(t.Keep))
	}
	points := tiers.Index(to.UnixNano()-1, width) - start.Index + 1
	each := int64(width / t.Width)
	if points > MaxPoints/each {
		return nil, fmt.Errorf("counter: series: %d points of %d buckets each, want at most %d buckets", points, each, MaxPoints)
	}
	r.AnyLabel = true
	s := survey{c: c, base: r}
	run := tiers.Run{Width: t.Width, First: start.Index * each, N: points * each}
	if err := s.fetch(ctx, tiers.Cover{run}); err != nil {
		return nil, callError(ctx, key.Event, err)
	}
	series := make([]Point, points)
	for i := range series {
		series[i].Start = tiers.Bucket{Width: width, Index: start.Index + int64(i)}.Start()
		for j := range each {
			n, _ := s.at(t.Width, run.First+int64(i)*each+j)
			series[i].Count = plus(series[i].Count, n)
		}
	}
	return series, nil
}

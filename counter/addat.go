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
)

// ErrTooOld is the error of [Counter.AddAt] for hits that no bucket is kept for
// any more. Nothing was added, and a later call adds nothing either.
var ErrTooOld = errors.New("the hits are older than the buckets that are kept")

// AddAt counts n hits of key in the buckets that hold at, whatever the limits of
// key. n is 1 or more. at is a reading of the clock, such as [Verdict.At], and
// may lie in the past for as long as the ladder keeps buckets: the hits are added
// to each tier whose bucket a window can still read. If there is no such tier, or
// if the store has dropped the buckets, the error is [ErrTooOld]. An at later
// than Config.Now by more than Config.Skew is an error of the caller. Patience
// begins with the call. Hits with a label before a Forget count as well, and a
// RefundAt does not give them back: the store remembers the Forget.
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

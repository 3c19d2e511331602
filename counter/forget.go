package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// Forget sets all counts of key to zero, by all ladders and of the soft key too,
// in steps that do not hold up other calls. Forget may last until ctx is done,
// and for [ForgetPatience] at most. After an error hits may be left; a second
// Forget removes the rest. On a store without an atomic step, a call of the key
// in flight at the same moment can be half forgotten, and for each such call a
// hit too many can be admitted. Earlier Verdicts can no longer be refunded.
func (c *Counter) Forget(ctx context.Context, key Key) error {
	r, err := c.begin(ctx, key)
	if err != nil {
		return err
	}
	if c.patience > 0 {
		r.Deadline = time.Now().Add(max(ForgetPatience, c.patience))
	}
	for on := c; err == nil && on != nil; on = on.former {
		if err = on.forget(ctx, key, &on.keys, r); err == nil {
			err = on.forget(ctx, key, &on.softKeys, r)
		}
	}
	return callError(ctx, key.Event, err)
}

// forget forgets the stored key that maker makes of key. r is a request, with the
// label of the Forget.
func (c *Counter) forget(ctx context.Context, key Key, maker *keyMaker, r backend.Request) error {
	r.Key, r.Ladder = string(maker.append(nil, key)), c.plan.ladder
	defer c.denied.lowered(r.Key)
	defer c.own.forget(r.Key, &c.plan, r.Now.UnixNano())
	defer c.settled.drop(r.Key)
	if f, ok := c.store.(backend.Forgetter); ok {
		return f.Forget(ctx, c.forgetting(r))
	}
	r.AnyLabel = true
	return c.empty(ctx, string(maker.appendForgotten(nil, key)), r)
}

// forgetting returns the request that forgets the key of r.
func (c *Counter) forgetting(r backend.Request) *backend.ForgetRequest {
	return &backend.ForgetRequest{Key: r.Key, Ladder: r.Ladder, TTLs: c.ttls, Now: r.Now, Deadline: r.Deadline,
		Label: r.Now.UnixNano(), Remember: c.longest() + c.skew, Clock: c.now}
}

// Erase is a Forget that removes the text of key from the store, and from the
// memory of this process: all buckets are deleted, even buckets that count 0. The
// store keeps a digest of the key, and remembers the Forget under the digest until
// the last hit of the past has left its window. The same key under another Prefix,
// Secret or Ladder is another key.
//
// Erase may last until ctx is done, and has no other bound; each step may last for
// the timeout of the store. On memcached there is a step for each 4,000 possible
// buckets of the ladder: 24 on the default ladder. Calls of the key under way may
// leave the text behind, and on a store without an atomic step each may admit a hit
// too many. After an error, and after calls under way, a second Erase removes the
// rest.
//
// A store that cannot forget a key in one call (see [backend.Forgetter]) cannot
// erase a key either: the error is then errors.ErrUnsupported.
func (c *Counter) Erase(ctx context.Context, key Key) error {
	r, err := c.begin(ctx, key)
	if err != nil {
		return err
	}
	f, ok := c.store.(backend.Forgetter)
	if !ok {
		return fmt.Errorf("counter: event %q: Erase: the store has no Forget, so nothing can be deleted: %w", key.Event, errors.ErrUnsupported)
	}
	r.Deadline = time.Time{}
	for on := c; err == nil && on != nil; on = on.former {
		for _, maker := range []*keyMaker{&on.keys, &on.softKeys} {
			r.Key, r.Ladder = string(maker.append(nil, key)), on.plan.ladder
			request := on.forgetting(r)
			request.Erase = true
			if err = f.Forget(ctx, request); err != nil {
				break
			}
			c.denied.erase(r.Key)
			c.own.forget(r.Key, &on.plan, r.Now.UnixNano())
			c.settled.drop(r.Key)
		}
	}
	return callError(ctx, key.Event, err)
}

// erase removes the key from the memory, also from calls of several keys; d may
// be nil.
func (d *denials) erase(key string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.keys {
		if strings.Contains(" "+name+" ", " "+key+" ") {
			delete(d.keys, name)
		}
	}
}

// ForgetPatience is the patience of a [Counter.Forget], unless Config.Patience is
// more: a key with a hit in each second of a day has 90,000 buckets.
const ForgetPatience = 10 * time.Second

// empty forgets a key on a store that is no [backend.Forgetter]. First the
// label of the Forget is remembered, in buckets of the key forgotten. Then tiers are
// read, coarsest first, and finer tiers only where a coarser bucket holds hits.
// Buckets are taken back finest first, so that a second Forget finds the rest
// after an error. Tiers with the same Keep are read equally far back: a store
// may compute the coarser buckets from the finer.
func (c *Counter) empty(ctx context.Context, forgotten string, r backend.Request) error {
	const chunk = 250 // buckets per trip
	now := r.Now.UnixNano()
	marker := r
	marker.Key, marker.N, marker.Add = forgotten, 1, c.slots(now)
	if err := c.store.Do(ctx, &marker); err != nil {
		return err
	}
	ladder := c.plan.ladder
	var held tiers.Cover
	var back, keep time.Duration
	found := make([][]backend.Slot, ladder.Len())
	for i, ttl := range slices.Backward(c.ttls) {
		t := ladder.At(i)
		if t.Keep != keep {
			back, keep = ttl, t.Keep
		}
		oldest, end := tiers.Index(now-int64(back), t.Width), tiers.Index(now+c.plan.ending, t.Width)+1
		around := held
		held = nil
		if i == len(c.ttls)-1 {
			around = tiers.Cover{{Width: t.Width, First: oldest, N: end - oldest}}
		}
		for _, run := range around {
			ratio := int64(run.Width / t.Width)
			first, end := max(oldest, run.First*ratio), min(end, (run.First+run.N)*ratio)
			for ; first < end; first += chunk {
				s := survey{c: c, base: r}
				if err := s.fetch(ctx, tiers.Cover{{Width: t.Width, First: first, N: min(chunk, end-first)}}); err != nil {
					return err
				}
				for j, n := range s.known[0].Counts {
					if n > 0 {
						b := tiers.Bucket{Width: t.Width, Index: first + int64(j)}
						held = append(held, tiers.Run{Width: t.Width, First: b.Index, N: 1})
						found[i] = append(found[i], backend.Slot{Bucket: b, TTL: ttl, Count: 1})
					}
				}
			}
		}
	}
	for _, slots := range found {
		for part := range slices.Chunk(slots, chunk) {
			if _, err := c.takeBack(ctx, r, r.Deadline, MaxCount, part, nil); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

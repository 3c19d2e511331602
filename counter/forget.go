package counter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend"
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
	if c.cfg.Patience > 0 {
		r.Deadline = time.Now().Add(max(ForgetPatience, c.cfg.Patience))
	}
	return c.forget(ctx, key, r, false)
}

// forget forgets key by the ladder of c and by a former ladder, and the soft key too.
// r is a request with the label and the deadline of the Forget.
func (c *Counter) forget(ctx context.Context, key Key, r backend.Request, erase bool) error {
	for on := c; on != nil; on = on.former {
		for _, maker := range []*keyMaker{&on.keys, &on.softKeys} {
			r.Key, r.Ladder = string(maker.append(nil, key)), on.plan.Ladder
			request := on.forgetting(r)
			request.Erase = erase
			err := c.store.Forget(ctx, request)
			c.protocol.Forgotten(r.Key, &on.plan, r.Now.UnixNano())
			if c.denied.lowered(r.Key); err == nil && erase {
				c.denied.erase(r.Key)
			}
			if errors.Is(err, errors.ErrUnsupported) {
				return fmt.Errorf("counter: event %q: %w", key.Event, err)
			}
			if err != nil {
				return callError(ctx, key.Event, err)
			}
		}
	}
	return nil
}

// forgetting returns the request that forgets the key of r.
func (c *Counter) forgetting(r backend.Request) *backend.ForgetRequest {
	return &backend.ForgetRequest{Key: r.Key, Ladder: r.Ladder, TTLs: c.plan.TTLs, Now: r.Now, Deadline: r.Deadline,
		Label: r.Now.UnixNano(), Remember: c.longest() + c.cfg.Skew, Clock: c.now}
}

// Erase is a Forget that removes the text of key from the store, and from the
// memory of this process: all buckets are deleted, even buckets that count 0. The
// store keeps a digest of the key, and remembers the Forget under the digest until
// the last hit of the past has left its window. The same key under another Prefix,
// Secret or Ladder is another key.
//
// Erase may last until ctx is done, and has no other bound; each step may last for
// the timeout of the store. On memcached there is a step for each 1,000 possible
// buckets of the ladder: some 90 on the default ladder. Calls of the key under way may
// leave the text behind, and on a store without an atomic step each may admit a hit
// too many. After an error, and after calls under way, a second Erase removes the
// rest.
//
// A store that can only add and read, made by [backend.FromDo], cannot delete: the
// error is then errors.ErrUnsupported.
func (c *Counter) Erase(ctx context.Context, key Key) error {
	r, err := c.begin(ctx, key)
	if err != nil {
		return err
	}
	r.Deadline = time.Time{}
	return c.forget(ctx, key, r, true)
}

// ForgetPatience is the patience of a [Counter.Forget], unless Config.Patience is
// more: a key with a hit in each second of a day has 90,000 buckets.
const ForgetPatience = 10 * time.Second
